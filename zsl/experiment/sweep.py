"""Sweeps: the parent run of the jobs of a multirun, their number, the end of the sweep, and the cores of each job.

Hydra calls :class:`Sweep` (``hydra.callbacks`` in ``conf/config.yaml``) when a multirun and each of its jobs start. It
calls nothing when a job has failed, so the command itself ends the sweep with :func:`finish`.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.experimental.callback import Callback

from zsl.experiment import cluster
from zsl.progress import time_left
from zsl.runs import slurm
from zsl.runs import status as records
from zsl.runs.jobs import short_keys
from zsl.system import thread_limits, usable_cores

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from zsl.runs.folder import Tracker

log = logging.getLogger(__name__)

# The sweep that this process started, while it runs.
_started: list[tuple[dict[str, Any], Tracker]] = []


class Sweep(Callback):
    """Write ``sweep.json`` in a multirun's folder, open its parent run, and tell each job which sweep it belongs to.

    Hydra hands the instance on to the jobs, also in other processes, with the attributes that it has by then.
    """

    def __init__(self) -> None:
        self.sweep: dict[str, Any] = {}

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before Hydra writes into the folder of a single run."""
        from zsl.runs.lock import check_free

        _refuse(check_free, Path(str(config.hydra.run.dir)))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before the first job. Nothing that goes wrong here stops the sweep."""
        if not _composes(config):
            return  # Hydra says why in a moment, before any job
        of, swept = tracker(config), _swept(config)
        _refuse(_check_data, config, swept or {})
        folder = Path(str(config.hydra.sweep.dir)).resolve()
        _refuse(_check_no_sweep, folder)
        on_cluster = str(config.hydra.launcher._target_).endswith("SlurmLauncher")
        if on_cluster:
            _refuse(cluster.check, config)
        self.sweep = {
            "id": uuid.uuid4().hex,
            "status": records.RUNNING,
            "name": _name(config, swept),
            "folder": str(folder),
            "jobs": None if swept is None else math.prod(swept.values()),
            "swept": list(swept or ()),
            "launcher": _launcher(config),
            "started": records.now_ms(),
            "ended": None,
            "process": records.this_process(),
            "output_dir": str(Path(of.output_dir).resolve()),
            "best": of.best,
            "tracking": of.destination(),
        }
        try:
            records.write(folder / records.SWEEP, self.sweep)
        except OSError:
            self.sweep = {}
            return  # Hydra fails at the same folder in a moment, and main() says so
        if not config.save_model and not any(str(o).startswith("save_model=") for o in config.hydra.overrides.task):
            log.info("the models of these runs are not kept; save_model=true keeps them")
        _started[:] = [(self.sweep, of)]
        of.begin_sweep(self.sweep)
        records.write(folder / records.SWEEP, self.sweep)
        if on_cluster:
            cluster.report(self.sweep)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """In the process of the job."""
        from zsl.runs.folder import belongs_to

        if not self.sweep:
            belongs_to({})
            return
        overrides = [str(o) for o in config.hydra.overrides.task]
        mine = [o for o in overrides if o.lstrip("+").partition("=")[0] in self.sweep["swept"]]
        self._say(config.hydra.job.get("num"), mine)
        belongs_to({**self.sweep, "overrides": mine}, tracker(config))

    def _say(self, number: int | None, overrides: list[str]) -> None:
        """Which job of how many starts, and how long the rest will take at the pace of those before."""
        total = self.sweep["jobs"]
        if number is None or not total or total == 1:
            return
        seconds = (records.now_ms() - self.sweep["started"]) / 1000
        # Other launchers start many jobs at once, so their number does not tell how many are over.
        paced = number and str(self.sweep["launcher"].get("_target_")).endswith(".BasicLauncher")
        left = f", {time_left(seconds, number, total - number)}" if paced else ""
        log.info("job %d of %d%s: %s", number + 1, total, left, " ".join(overrides))

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        """Drop the job's configurations, which Hydra would keep until the last job of a sweep has ended."""
        job_return.cfg = job_return.hydra_cfg = None


def _check_data(config: DictConfig, swept: Mapping[str, int]) -> None:
    """Refuse a sweep whose every job would miss the folder of its dataset."""
    from omegaconf import OmegaConf

    if any(key.partition(".")[0] in ("dataset", "feature", "data_dir") for key in swept):
        return
    root = OmegaConf.select(config, "dataset.root")  # None where it has no value yet
    if not isinstance(root, str) or Path(root).expanduser().is_dir():
        return
    from zsl.data.load import load_table

    # The reader knows the other places of a dataset, and says how it is fetched.
    dataset: Any = OmegaConf.to_container(config.dataset, resolve=True)
    load_table(dataset, config.feature.name, dataset["semantics"].get("source"), list(config.allow_targets or ()))


def _refuse(check: Callable[..., None], *given: Any) -> None:
    """End the command if a check refuses; Hydra would only warn of any exception but SystemExit."""
    from zsl.errors import UserError

    try:
        check(*given)
    except UserError as refused:
        raise SystemExit(f"zsl: {refused}") from None


def _check_no_sweep(folder: Path) -> None:
    from zsl.errors import UserError

    before = records.read(folder / records.SWEEP)
    if before.get("status") == records.RUNNING and records.alive(before["process"]):
        raise UserError(f"another sweep runs in {folder}; wait for it, or give this one another hydra.sweep.dir.")


def tracker(config: DictConfig) -> Tracker:
    """The tracker that the configuration describes; none if its settings are wrong, since each job says so itself."""
    # These import NumPy, and Hydra loads this module before a job limits its threads.
    from omegaconf import OmegaConf

    from zsl.config import check_allowed
    from zsl.config.objects import build
    from zsl.errors import UserError
    from zsl.runs.folder import Tracker

    node: Any = OmegaConf.to_container(config.tracking, resolve=True)
    allow, output_dir = list(config.allow_targets or ()), str(config.output_dir)
    try:
        check_allowed(config, config.hydra.overrides.task)
        return cast(Tracker, build(node, "tracking", allow_targets=allow, output_dir=output_dir))
    except UserError:
        return Tracker(output_dir)


def finish(error: BaseException | None) -> tuple[str, str] | None:
    """End the multirun that this process started, in ``sweep.json`` and in the tracking store.

    Parameters
    ----------
    error : exception or None
        The exception that ended the multirun, unless that of a job.

    Returns
    -------
    (str, str) or None
        Its status and a summary for the terminal; None if there was no multirun.
    """
    if not _started:
        return None
    from zsl.config.credentials import mask_files
    from zsl.runs.folder import belongs_to
    from zsl.runs.jobs import end_sweep

    sweep, of = _started.pop()
    belongs_to({})
    mask_files(Path(sweep["folder"]))
    killed, ended = error is not None and not isinstance(error, Exception), ""
    if error is not None and sweep["launcher"].get("submitit_folder"):
        ended, cancelled, left = cluster.wait(sweep, killed)
        if left:
            return records.RUNNING, left
        killed = killed or cancelled
    try:
        text = end_sweep(sweep, of, killed=killed, error=error)
    except OSError as problem:
        text = f"the end of the sweep could not be written to {problem.filename} ({problem.strerror})"
    return sweep["status"], "\n".join(filter(None, (text, ended)))


def _composes(config: DictConfig) -> bool:
    """Whether the first job's configuration can be composed: no parent run for a command that is mistyped."""
    from zsl.config import compose, swept_values
    from zsl.errors import UserError

    try:
        first = [
            f"{o.get_key_element()}={next(iter(swept_values(o)), 'null')}" if o.is_sweep_override() else o.input_line
            for o in _overrides(config) or ()
        ]
        compose([o for o in first if not o.lstrip("+").startswith(("hydra.", "hydra/"))])
    except UserError:
        return False
    return True


# --- how many jobs there are ----------------------------------------------------------------------------------


def _swept(config: DictConfig) -> dict[str, int] | None:
    """Key -> number of values of what is swept over; None where another sweeper than Hydra's own decides."""
    from zsl.config import swept_values

    overrides = _overrides(config)
    if overrides is None:
        return None
    return {o.get_key_element().lstrip("+"): len(swept_values(o)) for o in overrides if o.is_sweep_override()}


def _overrides(config: DictConfig) -> list[Any] | None:
    """Parse the overrides of a multirun and those of its YAML file; None with another sweeper than Hydra's."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    if not str(config.hydra.sweeper._target_).endswith("basic_sweeper.BasicSweeper"):
        return None
    given = list(OmegaConf.to_container(config.hydra.overrides.task, resolve=False))  # type: ignore[arg-type]
    named = {str(o).lstrip("+").partition("=")[0] for o in given}
    params = config.hydra.sweeper.params
    given += [f"{k}={v}" for k, v in (params or {}).items() if k.lstrip("+") not in named]
    try:
        return OverridesParser.create().parse_overrides([str(o) for o in given])
    except HydraException as error:
        # Hydra reads the same overrides in a moment, and says what is wrong with them.
        log.debug("the sweep's overrides cannot be read: %s", error)
        return None


def _name(config: DictConfig, swept: Mapping[str, int] | None) -> str:
    experiment = config.hydra.runtime.choices.get("experiment")
    short = short_keys(swept or ())
    over = ", ".join(f"{short[k]} ({n})" for k, n in (swept or {}).items() if n > 1)
    chosen = "" if experiment in (None, "null") else f" {experiment}"
    # What the jobs have in common tells sweeps over the same settings apart.
    same = [str(config[group].get("name")) for group in ("model", "dataset") if group not in (swept or {})]
    return f"sweep{chosen}" + (f" over {over}" if over else "") + (f": {' on '.join(same)}" if same else "")


# --- threads --------------------------------------------------------------------------------------------------


def _launcher(config: DictConfig) -> dict[str, Any]:
    """The settings of the launcher that say how many jobs run at once on one machine."""
    node = config.hydra.launcher
    keys = ("_target_", "n_jobs", "cpus_per_task", "tasks_per_node")
    found = {k: node.get(k) for k in keys if node.get(k) is not None}
    if str(node._target_).endswith("SlurmLauncher"):
        # submitit gives each job a folder of its number there, by which the jobs of a sweep are known again.
        found["submitit_folder"] = str(Path(str(node.submitit_folder).partition("%j")[0]).resolve())
    return found


def threads_for(launcher: Mapping[str, Any], cores: int) -> int:
    """Threads for one job so that all jobs that run at once on a machine with ``cores`` use no more than those.

    joblib runs ``n_jobs`` at once (-1: as many as there are cores). submitit grants each job ``cpus_per_task``, one by
    default; its local form starts all jobs at once. Hydra's own launcher runs one job after another.
    """
    target = str(launcher.get("_target_", ""))
    if "joblib" in target:
        n = int(launcher.get("n_jobs") or 1)
        at_once = n if n > 0 else max(cores + 1 + n, 1)
        return max(cores // at_once, 1)
    if "submitit" in target:
        # Slurm may have granted more (hydra.launcher.additional_parameters) than the key says.
        return max(slurm.cores() or int(launcher.get("cpus_per_task") or 1), 1)
    return cores


def limit_threads(n: int | None, launcher: Mapping[str, Any]) -> int:
    """Let BLAS, OpenMP and numba use ``n`` threads in this process (None: :func:`threads_for`); returns how many.

    Environment variables that the user set stay where they allow fewer. Libraries that are loaded already are set
    directly; the others will read the environment.
    """
    here = usable_cores()
    granted = slurm.cores() or here
    cores = min(here, granted)
    if here < granted:
        log.warning(
            "Slurm granted %d cores to this job and bound it to %d of them, which slows it down; "
            "hydra.launcher.setup=['export SRUN_CPUS_PER_TASK=%d'] lifts that.", granted, here, granted,
        )  # fmt: skip
    if n is None and cores == here and not any(w in str(launcher.get("_target_")) for w in ("joblib", "submitit")):
        return cores  # one job after another, with all there is
    n = n or min(threads_for(launcher, cores), here)
    os.environ.update(thread_limits(n))
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_info, threadpool_limits

        # A lower limit, which the user may have set at the start, stays.
        many = {pool["prefix"]: n for pool in threadpool_info() if pool["num_threads"] > n}
        if many:
            threadpool_limits(many)
    numba = sys.modules.get("numba")
    if numba is not None:
        numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS, numba.get_num_threads()))
    return n
