"""Signals that end a run as an exception does, even where compiled code swallows exceptions."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# How soon an exception that did not get out is raised again.
_AGAIN_S = 0.5


@contextmanager
def terminable() -> Iterator[bool]:
    """SIGTERM raises SystemExit and SIGINT KeyboardInterrupt inside, so that what is stopped can say so.

    An exception that a signal raises is lost if it falls into a callback of compiled code (numba's, while it loads what
    it has compiled), and the program would run on. So it is raised again, until it is being handled.

    Yields whether SIGTERM is handled here: not where somebody else does, or in another than the main thread. Handlers
    that were set by somebody else (a cluster's) stay.
    """
    ours: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        standard = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
        ours = {number: old for number, old in standard.items() if signal.getsignal(number) == old}
    raised: list[BaseException] = []

    def stop(number: int, frame: FrameType | None) -> None:
        again = number == signal.SIGALRM
        if not again:
            raised[:] = [KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)]
            ours.setdefault(signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        # Cleaning up is not to be interrupted by what made it necessary.
        if not (again and _is_handled(raised[0])):
            raise raised[0]

    for number in tuple(ours):
        signal.signal(number, stop)
    try:
        yield signal.SIGTERM in ours
    finally:
        if signal.SIGALRM in ours:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in ours.items():
            signal.signal(number, old)


def _is_handled(error: BaseException) -> bool:
    """Whether the main thread is in an except or finally clause because of ``error`` or one that followed from it."""
    handled = sys.exc_info()[1]
    while handled is not None and handled is not error:
        handled = handled.__context__
    return handled is error
