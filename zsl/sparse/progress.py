"""A progress bar that appears only when a computation takes long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

# Seconds before the bar appears.
_PATIENCE = 5.0


class Bar:
    """Show the steps done, some figures and the time left, on a terminal only and once ``patience`` seconds have
    passed.

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

    def __init__(self, title: str, n_steps: int, done: int = 0, patience: float = _PATIENCE) -> None:
        self.title, self.n_steps, self.done, self.patience = title, n_steps, done, patience
        self._start = time.monotonic()
        self._bar: Any = None

    def step(self, **figures: float) -> None:
        self.done += 1
        if self._bar is None:
            if not sys.stderr.isatty() or time.monotonic() - self._start < self.patience:
                return
            self._show()
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self._bar.update(self._task, completed=self.done, figures=text)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.n_steps, completed=self.done, figures="")

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
