"""The one exception for what a user can put right, and the parts of its sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path


class UserError(ValueError):
    """A mistake in the command, the configuration or the data.

    Its message is one sentence: the fact, the file or key, the remedy. The command line prints it
    without a traceback. A ``ValueError``, because Hydra lets the other jobs of a sweep go on after one,
    and because library users expect that type.
    """


@contextlib.contextmanager
def writing(place: Path, remedy: str) -> Iterator[None]:
    """What the operating system refuses while ``place`` is written, as a :class:`UserError` that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or place} cannot be written ({reason(error)}); {remedy}.") from None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the closest of ``names``, or nothing if none is close.

    Capitals do not count, and neither does the difference between ``+``, ``_`` and a blank.

    Examples
    --------
    >>> did_you_mean("grizzly bear", ["polar+bear", "grizzly+bear"])
    ' (did you mean grizzly+bear?)'
    >>> did_you_mean("cat", ["ant", "bee"])
    ''
    """
    import difflib

    def simple(text: str) -> str:
        return text.replace("+", " ").replace("_", " ").lower()

    spelled, mine = {simple(c): c for c in names}, simple(name)
    for close in difflib.get_close_matches(mine, spelled, n=5):
        # Short words are alike by chance (cat, ant), unless they have the same letters (dgo, dog).
        if difflib.SequenceMatcher(None, mine, close).ratio() >= 0.7 or sorted(close) == sorted(mine):
            return f" (did you mean {spelled[close]}?)"
    return ""


def reason(error: BaseException) -> str:
    """What went wrong, on one line: the operating system's own words where there are any."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


def too_large(error: BaseException) -> bool:
    """Whether ``error`` says that something does not fit into memory, or would not into any."""
    # NumPy has no exception of its own for shapes beyond the range of addresses.
    beyond = ("array is too big", "Maximum allowed dimension exceeded", "maximum supported dimension")
    return isinstance(error, MemoryError) or (type(error) is ValueError and any(t in str(error) for t in beyond))


def unforeseen(error: Exception, smaller: str = "free some, or use smaller data") -> str:
    """The sentence of a command that ends in an error of the machine which no reader or writer has foreseen.

    Parameters
    ----------
    error : an OSError, or one that is :func:`too_large`
    smaller : what helps where memory does not suffice
    """
    if too_large(error):
        return f"there is not enough memory ({reason(error).rstrip('.')}); {smaller}."
    file = getattr(error, "filename", None) or "a file"
    return f"{file} cannot be used ({reason(error)}); check that it exists and is yours to use."
