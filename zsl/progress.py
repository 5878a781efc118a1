"""What a long computation shows: a progress bar, and that kernels are being compiled."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any

log = logging.getLogger(__name__)
# Seconds before the bar appears.
_PATIENCE = 5.0
# Seconds between two lines in a log.
_A_MINUTE = 60.0


class Compilation:
    """Say once per process that kernels are being compiled, and count the seconds that it takes.

    Attributes
    ----------
    seconds : float
        The time that this process has spent on compiling; no part of the time of a fit.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._start, self._said = 0, 0.0, False

    def begin(self) -> None:
        """A kernel starts to be compiled, on its own or as a part of another one."""
        if not self._depth:
            self._start = time.perf_counter()
            if not self._said:
                log.info("compiling the sparse coding kernels, once after an installation, about a minute")
                self._said = True
        self._depth += 1

    def end(self) -> None:
        """The kernel that started last is compiled."""
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            self.seconds += time.perf_counter() - self._start


compilation = Compilation()


class Bar:
    """Show the steps done, some figures and the time left, once ``patience`` seconds have passed.

    On a terminal it is a bar, elsewhere a line in the log each minute. Of bars within bars the first one is shown.

    Parameters
    ----------
    title : str
    n_steps : int
        Number of steps of the whole work.
    done : int
        Steps that an earlier process has done.
    patience : float
        Seconds before the bar appears.

    Examples
    --------
    >>> with Bar("fitting", n_steps=2) as bar:
    ...     bar.step(objective=0.5)
    """

    _shown: Bar | None = None

    def __init__(self, title: str, n_steps: int, done: int = 0, patience: float = _PATIENCE) -> None:
        self.title, self.n_steps, self.done, self.patience = title, n_steps, done, patience
        self._earlier = done
        self._start = self._last = time.monotonic()
        self._bar: Any = None

    def step(self, n: int = 1, /, **figures: float) -> None:
        """One step more is done, or n."""
        self.done += n
        now = time.monotonic()
        if now - self._start < self.patience or Bar._shown not in (None, self):
            return
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        if sys.stderr.isatty():
            if self._bar is None:
                self._show()
            self._bar.update(self._task, completed=self.done, figures=text)
        elif now - self._last >= _A_MINUTE and self.done < self.n_steps:
            Bar._shown, self._last = self, now
            left = time_left(now - self._start, self.done - self._earlier, self.n_steps - self.done)
            log.info("%s: %d of %d, %s", self.title, self.done, self.n_steps, left)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        Bar._shown = self
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.n_steps, completed=self.done, figures="")

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if Bar._shown is self:
            Bar._shown = None


def time_left(seconds: float, done: int, left: int) -> str:
    """How long ``left`` steps will take if ``done`` steps took ``seconds``, in words.

    Examples
    --------
    >>> time_left(90, done=3, left=4)
    'about 2 minutes left'
    """
    return f"{duration(seconds / max(done, 1) * left)} left"


def duration(seconds: float) -> str:
    """A length of time in words, as exact as an estimate is.

    Examples
    --------
    >>> duration(200)
    'about 3 minutes'
    """
    if seconds < 90:
        n = max(round(seconds), 1)
        return f"about {n} second{'s' * (n > 1)}"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
