"""A measurement in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from zsl.errors import UserError

T = TypeVar("T")


def in_a_process(function: Callable[..., T], *arguments: object) -> T:
    """The result of ``function(*arguments)``, computed in a new process.

    Raises
    ------
    UserError
        If the process was killed. Exceptions of the function are raised here as well.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            asked = ", ".join(map(str, arguments))
            raise UserError(
                f"the process that measures {asked} was killed, as the system does where memory ends; leave that part "
                "out or make it smaller."
            ) from None


def memory_mb(name: str) -> float:
    """A line of this process's status in MB (NaN unless on Linux): ``VmHWM`` is the peak, ``RssAnon`` omits files.

    ``resource.getrusage`` would not do, because a new process inherits the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), float("nan"))
