"""Ports of this machine on which a command answers."""

from __future__ import annotations

import socket

from zsl.errors import UserError


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
