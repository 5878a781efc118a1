"""Slurm sweeps (``hydra/launcher=submitit_slurm``): settings are checked before, and the command waits for all jobs.

submitit gives up at the first job that leaves no result, and Slurm goes on with the others, so the end of a sweep waits
for those.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError
from zsl.runs import slurm
from zsl.runs import status as records

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# Between two looks at the queue, and between two lines on how far a sweep is.
_LOOK_S, _REPORT_S = 3.0, 60.0


def check(config: DictConfig) -> None:
    """Refuse settings under which Slurm would signal each job at its start, and warn of a store that jobs cannot share.

    Raises
    ------
    UserError
        If Slurm's signal before the end of a job's time comes no later than the job's start.
    """
    launcher = config.hydra.launcher
    minutes, delay = float(launcher.timeout_min), float(launcher.signal_delay_s)
    if delay >= 60 * minutes:
        raise UserError(
            f"hydra.launcher.signal_delay_s={delay:.0f} is no shorter than the time limit of {minutes:g} min, so Slurm "
            f"would signal the end to each job at its start; set hydra.launcher.signal_delay_s={30 * minutes:.0f}."
        )
    uri = config.tracking.get("uri") if config.tracking.get("_target_") else "none"
    if not uri or str(uri).startswith("sqlite"):
        log.warning(
            "every job writes to the database file of the tracking store, which is safe on one machine and not on a "
            "network file system; set tracking.uri=http://HOST:PORT, or tracking=none and later run `zsl tracking "
            "upload --all`."
        )


def report(sweep: Mapping[str, Any]) -> None:
    """Log each minute how many jobs of a sweep run and are over, while this process waits for them."""

    def look() -> None:
        while True:
            time.sleep(_REPORT_S)
            words = ", ".join(f"{n} {word.lower()}" for word, n in sorted(counts(sweep).items())) or "none started"
            log.info("sweep of %s jobs: %s", sweep["jobs"] or "some", words)

    threading.Thread(target=look, daemon=True, name="sweep report").start()


def counts(sweep: Mapping[str, Any]) -> Counter[str]:
    """How many jobs of a sweep have which status; a folder may hold those of earlier sweeps as well."""
    found: Counter[str] = Counter()
    for name in (records.STATUS, records.SKIPPED):
        for path in Path(sweep["folder"]).glob(f"*/{name}"):
            record = records.read(path)
            if record.get("sweep") == sweep["id"]:
                found[str(record.get("status", "SKIPPED"))] += 1
    return found


def wait(sweep: Mapping[str, Any], interrupted: bool) -> tuple[str, bool, str]:
    """Wait until no job of a sweep is in Slurm's queue.

    Parameters
    ----------
    sweep : mapping
        The ``sweep.json``.
    interrupted : bool
        Whether the command was stopped; it then waits no longer.

    Returns
    -------
    (str, bool, str)
        Which jobs ended otherwise than by themselves; whether one of them was cancelled; and, where jobs wait or run
        after an interruption, a sentence on what becomes of them.
    """
    numbers = slurm.jobs_of(sweep)
    try:
        told = False
        while (left := slurm.queue(numbers)) and not interrupted:
            if not told:
                log.info("a job was lost; waiting for the %d jobs that are still in Slurm's queue", len(left))
                told = True
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        left, interrupted = slurm.queue(numbers), True
    if left:
        arrays = " ".join(sorted({n.partition("_")[0] for n in left}))
        return "", False, (
            f"{len(left)} jobs of the sweep stay in Slurm's queue and go on; `scancel {arrays}` stops them. When they "
            f"are over, `zsl tracking repair {sweep['folder']}` ends the sweep."
        )  # fmt: skip
    words = {n: word for n, word in slurm.ends(numbers).items() if word != "COMPLETED"}
    logs = f"; their output is in {sweep['launcher']['submitit_folder']}"
    said = ", ".join(f"{n} {word}" for n, word in sorted(words.items()))
    return (f"Slurm says: {said}{logs}" if said else ""), "CANCELLED" in words.values(), ""
