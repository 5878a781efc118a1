"""The command: ``python -m zsl.main [GROUP=OPTION] [KEY=VALUE] [-m]``. Nothing heavy is imported here."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from zsl.config import conf_dir, explain, normalise_argv
from zsl.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# Read before main() sets it: whether the user wants to see tracebacks.
_TRACEBACK = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"


def job(cfg: DictConfig) -> None:
    """One run, in the folder that Hydra made for it."""
    from pathlib import Path

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    try:
        from zsl.experiment import run

        run(cfg, Path(hydra.runtime.output_dir))
    except UserError as error:
        if _TRACEBACK:
            raise
        if hydra.mode is RunMode.RUN:
            # SystemExit passes through Hydra, which would print more than the sentence.
            _fail(error)
        log.error("%s", error)  # a sweep goes on with its other jobs
        raise
    except Exception:
        log.exception("the run failed")  # Hydra keeps tracebacks out of the job's own log
        raise


def main() -> None:
    """Run the command line. Exit status 0, or 1 after one line on what the user can put right."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        arguments = normalise_argv(sys.argv[1:])
    except UserError as error:
        _fail(error)
    sys.argv[1:] = arguments
    # Hydra then raises what it would have printed over several lines; it is told in one below.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException, UserError) as error:
        if _TRACEBACK:
            raise
        _fail(error if isinstance(error, UserError) else UserError(explain(error, arguments)))
    except OSError as error:
        # The output folder: every file that is read has a sentence of its own.
        if _TRACEBACK:
            raise
        _fail(UserError(f"{error.filename} cannot be written ({error.strerror}); set output_dir=FOLDER to another."))
    except KeyboardInterrupt:
        if _TRACEBACK:
            raise
        print("zsl: interrupted; finished runs are complete in their folders.", file=sys.stderr)
        sys.exit(130)


def _fail(error: UserError) -> None:
    print(f"zsl: {error}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
