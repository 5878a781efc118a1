"""What this machine has for a process: cores, memory, and ports on which a command answers."""

from __future__ import annotations

import os
import socket

from zsl.errors import UserError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
                    "NUMBA_NUM_THREADS")  # fmt: skip
"""Environment variables in which BLAS, OpenMP and numba look up how many threads they may use."""


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_limits(n: int) -> dict[str, str]:
    """The values of ``THREAD_VARIABLES`` for ``n`` threads; where the user set one that allows fewer, it stays.

    Examples
    --------
    >>> thread_limits(1)["OMP_NUM_THREADS"]
    '1'
    """
    given = {name: os.environ.get(name, "") for name in THREAD_VARIABLES}
    return {
        name: value if value and not (value.isdigit() and int(value) > n) else str(n) for name, value in given.items()
    }


def machine_memory() -> int:
    """Bytes of memory that the machine has; 0 on systems that do not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def listen(host: str, first: int, *, tries: int = 50) -> socket.socket:
    """Listen at the first free port of ``tries`` ports from ``first`` on.

    Parameters
    ----------
    host : str
        An address of this machine.
    first, tries : int

    Returns
    -------
    socket.socket
        It listens already, so that no other process can take the port.

    Raises
    ------
    UserError
        If no port is free, or the host is not this machine's.

    Examples
    --------
    >>> with listen("127.0.0.1", 20000) as one, listen("127.0.0.1", 20000) as other:
    ...     one.getsockname()[1] < other.getsockname()[1]
    True
    """
    why = "no port has that number"
    for port in range(first, min(first + tries, 65536)):
        try:
            return socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
    others = " and those after it" if tries > 1 else ""
    raise UserError(f"--port={first}{others} cannot be used on {host} ({why}); name another.")
