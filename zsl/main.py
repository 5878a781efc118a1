"""The command ``zsl run`` (also ``python -m zsl.main``): runs and sweeps. Nothing heavy is imported here."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from zsl.config import check_flags, conf_dir, explain, normalise_argv
from zsl.errors import UserError, interruptible, interruption, too_large, unforeseen

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

    from zsl.experiment.sweep import limit_threads

    hydra = HydraConfig.get()
    alone = hydra.mode is RunMode.RUN
    threads = cfg.get("threads")
    # The limit comes before anything is imported that starts threads.
    limit_threads(threads if isinstance(threads, int) and threads > 0 else None, hydra.launcher)
    with interruptible() as handled:
        try:
            from zsl.experiment.run import run

            run(cfg, Path(hydra.runtime.output_dir))
        except BaseException as raised:
            error = interruption() or raised
            if isinstance(error, SystemExit) and handled:
                # SIGTERM to one worker of a parallel sweep ends its job, which is KILLED now; the others go on.
                log.error("the run was terminated")
            elif _TRACEBACK or not isinstance(error, Exception):
                raise error from None
            elif isinstance(error, UserError) or too_large(error):
                sentence = error if isinstance(error, UserError) else _memory(error)
                if alone:
                    # SystemExit passes through Hydra, which would print more than the sentence.
                    _fail(sentence)
                # The sweep goes on with its other jobs, and status.json tells main() how this job ended.
                log.error("%s", sentence)
            else:
                log.exception("the run failed")  # Hydra keeps tracebacks out of the job's own log
                if alone:
                    raise


def main() -> None:
    """Run the command line. Exit status 0, or 1 after one line on what the user can put right."""
    import hydra

    try:
        check_flags(sys.argv[1:])
        arguments = normalise_argv(sys.argv[1:])
    except UserError as refused:
        _fail(refused)
    sys.argv[1:] = arguments
    # Hydra then raises what it would have printed over several lines; main() says it in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    error: BaseException | None = None
    with interruptible():
        try:
            hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(job)()
        except BaseException as raised:
            # An exception after a signal is due to the signal, whatever compiled code made of it.
            error = interruption() or raised
    summary = None
    if "zsl.experiment.sweep" in sys.modules:
        from zsl.experiment.sweep import finish

        summary = finish(error)
    if summary is not None:
        print(summary[1], file=sys.stdout if summary[0] == "FINISHED" else sys.stderr)
    if error is not None:
        _end(error, arguments, in_sweep=summary is not None)
    elif summary is not None and summary[0] != "FINISHED":
        sys.exit(1)


def _end(error: BaseException, arguments: list[str], *, in_sweep: bool) -> NoReturn:
    """End in one sentence where there is one, else in the exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if _TRACEBACK or isinstance(error, SystemExit):
        raise error
    if isinstance(error, UserError):
        _fail(error)
    if isinstance(error, Exception) and too_large(error):
        _fail(_memory(error))
    if isinstance(error, HydraException | OmegaConfBaseException):
        _fail(UserError(explain(error, arguments)))
    if isinstance(error, KeyboardInterrupt):
        print("zsl: interrupted; finished runs are complete in their folders.", file=sys.stderr)
        sys.exit(130)
    if in_sweep and type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "UncompletedJobError"):
        # joblib and submitit: a worker was killed, from outside or for its memory, and the launcher gives up.
        _fail(UserError("a job's process was killed, which ends its launcher; skip_existing=true goes on from here."))
    if isinstance(error, OSError) and error.filename is not None:
        # The output folder: every file that is read has a sentence of its own.
        _fail(UserError(f"{error.filename} cannot be written ({error.strerror}); set output_dir=FOLDER to another."))
    raise error


def _memory(error: Exception) -> UserError:
    """What did not fit into memory, and which settings its size depends on."""
    return UserError(
        unforeseen(error, "make model.n_atoms or model.batch_size smaller, or store the features as float32")
    )


def _fail(error: UserError) -> NoReturn:
    print(f"zsl: {error}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
