"""The Dask cluster of a run with ``model.backend=dask``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zsl.checks import check_value
from zsl.errors import UserError, reason

log = logging.getLogger(__name__)

# Seconds in which a scheduler has to answer.
_PATIENCE = 30


@contextmanager
def dask_client(config: Mapping[str, Any]) -> Iterator[None]:
    """The client of ``dask.scheduler`` while a run learns on it; nothing for another ``model.backend``.

    Raises
    ------
    UserError
        If Dask is not installed, the scheduler does not answer, or its workers cannot import zsl.
    """
    scheduler = config["dask"]["scheduler"]
    check_value(str | None, scheduler, "dask.scheduler")
    if config["model"].get("backend") != "dask":
        if scheduler is not None:
            raise UserError("dask.scheduler is given, but nothing would be computed there; set model.backend=dask.")
        yield
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UserError("model.backend=dask needs Dask; pip install -e '.[dask]'.") from None
    if scheduler is None:
        workers = {"n_workers": config["threads"], "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**workers) as local, Client(local) as client:
            log.info(
                "learning on %d workers of this machine; %s shows them", len(client.nthreads()), client.dashboard_link
            )
            yield
        return
    try:
        file = {"scheduler_file": scheduler} if Path(scheduler).is_file() else {"address": scheduler}
        client = Client(**file, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise UserError(
            f"dask.scheduler={scheduler} does not answer ({reason(error)}); give the address that `dask scheduler` "
            "prints, or the file that it writes with --scheduler-file."
        ) from None
    with client:
        if not client.nthreads():
            log.warning("the Dask scheduler %s has no worker yet; the run waits for the first one", scheduler)
            client.wait_for_workers(1)
        _check_workers(client, scheduler)
        log.info("learning on the Dask cluster of %s; %s shows its tasks", scheduler, client.dashboard_link)
        yield


def _check_workers(client: Any, scheduler: str) -> None:
    """Refuse workers that cannot compute what they will be sent."""
    try:
        found = set(client.run(_version).values())
    except ImportError as error:
        raise UserError(
            f"the workers of dask.scheduler={scheduler} cannot import zsl ({reason(error)}); install it where they run."
        ) from None
    if found != {(here := _version())}:
        log.warning("workers have zsl %s, and this process has %s; install the same version", ", ".join(found), here)


def _version() -> str:
    from importlib.metadata import version

    import zsl.sparse  # noqa: F401

    return version("zsl-cdl")
