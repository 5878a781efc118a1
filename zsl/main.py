"""The command ``zsl run`` (also ``python -m zsl.main``): runs and sweeps. It starts without heavy imports."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from zsl.config import (
    ESTIMATE,
    asked_for,
    check_allowed,
    check_flags,
    check_own_files,
    conf_dir,
    credentials,
    explain,
    manual,
    normalise_argv,
)
from zsl.errors import (
    UserError,
    address_space_left,
    interruptible,
    interruption,
    print_any_letter,
    stop_writing,
    too_large,
    unforeseen,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# Whether the user wants to see tracebacks; main() sets the variable later.
_TRACEBACK = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"


def job(cfg: DictConfig) -> None:
    """One run, in the folder that Hydra made for it."""
    from pathlib import Path

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from zsl.experiment.sweep import limit_threads

    print_any_letter()  # a worker of a parallel sweep has an output of its own
    hydra = HydraConfig.get()
    alone = hydra.mode is RunMode.RUN
    threads = cfg.get("threads")
    # Libraries that start threads read the limit when they are imported.
    limit_threads(threads if isinstance(threads, int) and threads > 0 else None, hydra.launcher)
    with interruptible() as handled:
        try:
            from zsl.experiment.run import run

            check_allowed(cfg, hydra.overrides.task)
            credentials.mask_files(Path(hydra.runtime.output_dir))
            run(cfg, Path(hydra.runtime.output_dir))
        except BaseException as raised:
            error = interruption() or raised
            on_slurm = str(hydra.launcher.get("_target_")).endswith("SlurmLauncher")
            if isinstance(error, SystemExit) and handled and not on_slurm:
                # SIGTERM to one worker of a parallel sweep ends its job, and the other jobs go on. On Slurm the
                # exception passes, because submitit must see no result of a job that Slurm may start again.
                log.error("the run was terminated")
            elif _TRACEBACK or not isinstance(error, Exception):
                raise error from None
            elif isinstance(error, (UserError, OSError)) or too_large(error):
                if alone:
                    # Hydra prints more than the sentence for any exception but SystemExit.
                    _fail(error)
                # The sweep goes on with its other jobs, and status.json holds how this job ended.
                log.error("%s", _sentence(error))
            else:
                log.exception("the run failed")  # Hydra does not write tracebacks to the job's own log
                if alone:
                    raise


# Address space that numerical libraries and their threads take before any data, measured on two cores.
_NEEDED = 1.25e9


def _check_memory() -> None:
    """Refuse a memory limit under which native libraries end or block the process without a word."""
    left = address_space_left()
    if left < _NEEDED:
        raise UserError(
            f"the limit on memory (ulimit -v) leaves {left / 1e9:.2f} GB, and a run needs {_NEEDED / 1e9} GB besides "
            "its data; raise it."
        )


def main() -> None:
    """Run the command line. Exit status 0, or 1 after one line on what the user can put right."""
    print_any_letter()
    try:
        if {"--help", "-h"} & set(sys.argv[1:]):
            print(manual(asked_for(sys.argv[1:])), flush=True)
            return
        _check_memory()
        check_flags(sys.argv[1:])
        if ESTIMATE in sys.argv[1:]:
            _estimate([word for word in sys.argv[1:] if word != ESTIMATE])
            return
        arguments = normalise_argv(credentials.taken_from(sys.argv[1:]))
        check_own_files(arguments)
    except (UserError, MemoryError) as refused:
        _fail(refused)
    except (Exception, KeyboardInterrupt) as refused:
        _end(refused, sys.argv[1:], in_sweep=False)
    sys.argv[1:] = arguments
    if any(word.startswith("allow_targets=") for word in arguments) and not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())  # where `python -m` looks too, for modules that the command allows
    # A log file on a full disk is no reason for a traceback for each line.
    logging.raiseExceptions = False
    import hydra

    # Hydra then raises what it would have printed over several lines, and main() prints one sentence.
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


def _estimate(arguments: list[str]) -> None:
    """Print what a run would take; Hydra composes the configuration and starts nothing."""
    flags = [word for word in arguments if word.startswith("-") and word != "--"]
    if flags:
        raise UserError(
            f"{ESTIMATE} is for one run from zsl's own files, so {flags[0]} does not go with it; leave it out."
        )
    from zsl.experiment.estimate import estimate_run

    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    print(estimate_run([word for word in arguments if word != "--"]))


def _end(error: BaseException, arguments: list[str], *, in_sweep: bool) -> NoReturn:
    """End in one sentence where there is one, else in the exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    if BrokenPipeError in (type(error), type(error.__context__)):  # rich ends the process where a pipe's reader ended
        stop_writing()
        sys.exit(0)
    if _TRACEBACK or isinstance(error, SystemExit):
        raise error
    # Hydra's exception for an option that does not exist is an OSError as well.
    if (isinstance(error, (UserError, OSError)) and not isinstance(error, HydraException)) or too_large(error):
        _fail(error)
    kinds: tuple[type[Exception], ...] = (HydraException, OmegaConfBaseException, YAMLError)
    if "zsl.experiment.run" not in sys.modules:
        kinds = (*kinds, RecursionError, ValueError)  # from Hydra, which composes
    if isinstance(error, kinds):
        _fail(UserError(explain(error, arguments)))
    if isinstance(error, KeyboardInterrupt):
        print("zsl: interrupted; finished runs are complete in their folders.", file=sys.stderr)
        sys.exit(130)
    if in_sweep and type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "UncompletedJobError"):
        # A worker of joblib or submitit was killed, from outside or for its memory, and the launcher gives up.
        _fail(UserError("a job was killed; the same command with skip_existing=true goes on from here."))
    raise error


def _sentence(error: BaseException) -> str:
    """The sentence of a mistake, or which settings make smaller what did not fit into memory."""
    if isinstance(error, UserError) or not isinstance(error, Exception):
        return str(error)
    # A file belongs to the output folder, because readers turn errors of what they read into UserErrors.
    smaller = "make model.n_atoms or model.batch_size smaller, or store the features as float32"
    return unforeseen(error, smaller, otherwise="set output_dir=FOLDER to another")


def _fail(error: BaseException) -> NoReturn:
    print(f"zsl: {_sentence(error)}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
