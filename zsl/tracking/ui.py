"""``zsl ui [FOLDER]``: MLflow's page on the tracking store of an output folder, until Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zsl.errors import Parser, UserError, exit_status, interruptible
from zsl.runs import status as records
from zsl.system import listen
from zsl.tracking import opening, view

# Sweeps that are unfolded on the page.
_SWEEPS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 1 after a sentence on what is wrong."""
    parser = Parser("zsl ui", description="Show the runs of an output folder in the browser, on MLflow's page.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("multirun"), metavar="FOLDER",
                        help="an output folder, a folder in it, or a database file (default: multirun)")  # fmt: skip
    parser.add_argument(
        "--port", type=int, default=5000, help="the next free one is used if it is taken (default 5000)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    return exit_status("zsl ui", lambda: _work(parser.parse_args(argv)))


def _work(arguments: argparse.Namespace) -> None:
    database = store_of(arguments.folder)
    if not opening.sound(database):
        raise UserError(f"{database} is damaged; `zsl tracking upload {database.parent}` makes it again from the runs.")
    folder = database.parent
    shown = records.page_of(folder) if database.name == opening.DATABASE else ""
    if shown:
        print(f"{shown} shows {folder} already.")
        return
    listening = listen(arguments.host, arguments.port)
    host = "127.0.0.1" if arguments.host == "0.0.0.0" else arguments.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    app, page = application(database)
    import uvicorn

    note = folder / records.PAGE if database.name == opening.DATABASE else None
    with interruptible():
        try:
            if note is not None:
                records.write(note, {"address": address, "folder": str(folder), "process": records.this_process()})
            print(f"{address}{page} shows the runs of {folder}; Ctrl-C ends it.", flush=True)
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # the way to end it
        finally:
            if note is not None:
                note.unlink(missing_ok=True)


def store_of(folder: Path) -> Path:
    """The database file of an output folder, or of the one that a run's folder lies in.

    Raises
    ------
    UserError
        If there is none.
    """
    place = folder.expanduser().resolve()
    if place.is_file():
        return place
    found = next((p / opening.DATABASE for p in (place, *place.parents) if (p / opening.DATABASE).is_file()), None)
    if found is None:
        raise UserError(
            f"{folder} holds no {opening.DATABASE}, where runs are recorded; name an output folder, or make a run "
            "first (zsl run)."
        )
    return found


def application(database: Path) -> tuple[Any, str]:
    """MLflow's server for a database file, whose page opens with columns for what the runs in it vary.

    Returns
    -------
    (ASGI application, str)
        ``str`` is the path of the page of runs of the experiment that was used last.
    """
    # MLflow's server reads these when it is imported; `mlflow server` sets them for its worker processes, too.
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    opening.environment()
    from mlflow.server import constants

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = opening.address(database)
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = (database.parent / "mlartifacts").as_uri()
    from mlflow.server import app as pages

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own use of what Starlette will drop
        from mlflow.server.fastapi_app import app

    client = opening.client_of(database)

    @pages.after_request
    def with_columns(response: Any) -> Any:
        """Add the script to MLflow's one page of HTML, anew whenever it is loaded."""
        if response.mimetype == "text/html" and response.status_code == 200:
            response.direct_passthrough = False
            text = response.get_data(as_text=True)
            if "<head>" in text:
                response.set_data(text.replace("<head>", "<head>" + view.script(states(client)), 1))
                response.headers["Cache-Control"] = "no-store"
        return response

    numbers = [experiment.experiment_id for experiment in client.search_experiments()]
    last = client.search_runs(numbers, max_results=1)
    return app, f"/#/experiments/{last[0].info.experiment_id if last else numbers[0]}/runs"


def states(client: Any) -> dict[str, dict[str, Any]]:
    """The state of the page of each experiment in which zsl has recorded runs."""
    out = {}
    for experiment in client.search_experiments():
        number = experiment.experiment_id
        finished = "tags.`zsl.kind` = 'run' and attributes.status = 'FINISHED'"
        runs = client.search_runs([number], finished, max_results=_SWEEPS)
        if not runs:
            continue
        sweeps = client.search_runs([number], "tags.`zsl.kind` = 'sweep'", max_results=_SWEEPS)
        swept = [key for sweep in sweeps for key in sweep.data.tags.get("zsl.swept", "").split(", ") if key]
        params, metrics = ({name for run in runs for name in getattr(run.data, kind)} for kind in ("params", "metrics"))
        out[number] = view.state(swept, params, metrics, [sweep.info.run_id for sweep in sweeps])
    return out


if __name__ == "__main__":
    sys.exit(main())
