"""``UserError``, commands that end errors in one sentence, atomic file writes and signal handling."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger(__name__)


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
        room = "make room, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise UserError(f"{error.filename or place} cannot be written ({reason(error)}); {room}{remedy}.") from None


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all, whatever ends the program meanwhile.

    Yields
    ------
    Path
        A new hidden file beside ``path``, with the same suffix. The block writes to it. If the block ends without an
        exception, the new file replaces ``path``; otherwise it is removed.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with atomic(target) as part:
    ...     _ = part.write_text("1 2 3")
    >>> target.read_text()
    '1 2 3'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{socket.gethostname()}-{os.getpid()}.part{path.suffix}")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (str(part), None):
            error.filename = str(path)  # the user has never heard of the hidden file
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def print_any_letter() -> None:
    """Let standard output escape the letters that its encoding lacks, as standard error does, where it would raise."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def remove_parts(folder: Path) -> list[Path]:
    """Remove the hidden files of :func:`atomic` under a folder whose process was killed; returns them.

    Files of processes that run, and of other machines, stay.
    """
    pattern = re.compile(rf"\..*\.{re.escape(socket.gethostname())}-(\d+)\.part(\.\w+)?")
    removed = []
    for path in folder.rglob(".*.part*"):
        match = pattern.fullmatch(path.name)
        if match and not process_runs(int(match[1])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def process_runs(number: int) -> bool:
    """Whether a process with this number runs on this machine; Windows does not say, so there it counts as running."""
    if os.name == "nt":
        return True  # os.kill would end it
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # the process of another user runs
    return True


class Parser(argparse.ArgumentParser):
    """The command line of a command; a mistake in it is a :class:`UserError`."""

    def error(self, message: str) -> NoReturn:
        """Raise a mistake in the command line as a :class:`UserError`."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        hint = did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise UserError(f"{message}{hint}; see {self.prog} --help.")


def stop_writing() -> None:
    """Write no more to the terminal, since the reader of a pipe has ended, as ``| head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_status(
    command: str,
    work: Callable[[], int | None],
    *,
    smaller: str = "free some, or use smaller data",
    interrupted: str = "interrupted.",
) -> int:
    """Do the work of a command, end its errors in one printed sentence, and return the exit status.

    Parameters
    ----------
    command : str
        The name that starts the sentence, such as ``zsl.data``.
    work : callable
        Reads the command line and does the work; may return an exit status.
    smaller : str
        The remedy where memory does not suffice.
    interrupted : str
        The sentence after Ctrl-C.

    Returns
    -------
    int
        0, 1 after one sentence on what the user can put right, or 130 after Ctrl-C.

    Examples
    --------
    >>> exit_status("zsl data", lambda: print("in order"))
    in order
    0
    """
    print_any_letter()
    try:
        return work() or 0
    except (BrokenPipeError, SystemExit) as ended:
        # rich ends the process with status 1 where the reader of a pipe has ended.
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        stop_writing()
        return 0
    except KeyboardInterrupt:
        sentence, status = interrupted, 130
    except UserError as error:
        sentence, status = str(error), 1
    except (OSError, MemoryError) as error:
        sentence, status = unforeseen(error, smaller), 1
    print(f"{command}: {sentence}", file=sys.stderr)
    return status


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
    """Whether ``error`` means that there is too little memory, or that an array would be too large for any memory."""
    # NumPy has no exception of its own for shapes beyond the range of addresses.
    beyond = ("array is too big", "Maximum allowed dimension exceeded", "maximum supported dimension")
    return isinstance(error, MemoryError) or (type(error) is ValueError and any(t in str(error) for t in beyond))


def unforeseen(
    error: Exception,
    smaller: str = "free some, or use smaller data",
    otherwise: str = "check that it exists and is yours to use",
) -> str:
    """The message for an error of the operating system that no other code has handled.

    Parameters
    ----------
    error : an OSError, or one that is :func:`too_large`
    smaller : what helps where memory does not suffice
    otherwise : what helps against an error that is not in the list below
    """
    if too_large(error) or getattr(error, "errno", None) == errno.ENOMEM:
        return f"there is not enough memory ({reason(error).rstrip('.')}); {smaller}."
    file = getattr(error, "filename", None) or "a file"
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, otherwise)
    return f"{file} cannot be used ({reason(error)}); {remedy}."


_AGAIN = "finished runs are complete, and the same command with skip_existing=true goes on"
_REMEDIES = {
    errno.ENOSPC: f"the disk is full: make room, or set output_dir=FOLDER; {_AGAIN}",
    errno.EDQUOT: f"your quota is used up: make room, or set output_dir=FOLDER; {_AGAIN}",
    errno.EFBIG: f"files may not be that large here: raise the limit (ulimit -f); {_AGAIN}",
    errno.EMFILE: f"too many files are open: raise the limit (ulimit -n); {_AGAIN}",
    errno.ENFILE: f"too many files are open on this machine: close some programs; {_AGAIN}",
    errno.EIO: f"the disk fails: set output_dir=FOLDER to another; {_AGAIN}",
    errno.EROFS: "it is on a disk that cannot be written: set output_dir=FOLDER to another",
    errno.ESTALE: f"a network disk was lost: connect it again; {_AGAIN}",
}
"""What helps against errors of the operating system, by their number"""


def address_space_left() -> float:
    """How many bytes a limit on this process's memory (``ulimit -v``) leaves; infinite without a limit."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        return math.inf if limit == resource.RLIM_INFINITY else limit - used
    except (ImportError, OSError, ValueError):  # not on every system
        return math.inf


# --- interruption -----------------------------------------------------------------------------------------

# The exceptions that signals raised inside `interruptible`.
_received: list[BaseException] = []


@contextlib.contextmanager
def interruptible() -> Iterator[bool]:
    """Turn SIGTERM into SystemExit and SIGINT into KeyboardInterrupt, so that a run that is stopped can record it.

    Compiled code may swallow the exception (numba does while it loads what it has compiled). Loops of long work
    therefore call :func:`raise_if_interrupted`, and whoever reports an exception asks :func:`interruption` first.

    submitit lets its jobs ignore SIGTERM, and its handler of SIGUSR2 puts a job back into the queue of a cluster. The
    first is replaced, so that a job that is cancelled can record it; the second is kept, and a job that it does not put
    back goes on for the time that it has left.

    Yields
    ------
    bool
        Whether SIGTERM is handled here. It is not in another than the main thread, and handlers that somebody else has
        set stay.
    """
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        _received.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        raise _received[-1]

    def put_back(number: int, frame: FrameType | None) -> None:
        # Slurm ends a job that is put back by SIGTERM, which must not disturb the record of how it ended.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            before[signal.Signals(number)](number, frame)
        except SystemExit:
            _received.append(SystemExit(128 + number))
            raise _received[-1] from None
        except Exception as refused:
            log.warning(
                "Slurm will end this job soon, because the job was not put back into the queue (%s); give the jobs "
                "more time (hydra.launcher.timeout_min).",
                refused,
            )
        signal.signal(signal.SIGTERM, stop)

    if threading.current_thread() is threading.main_thread():
        handlers = {
            signal.SIGTERM: (stop, signal.SIG_DFL), signal.SIGINT: (stop, signal.default_int_handler),
            **{n: (put_back, None) for n in signal.Signals if n.name in ("SIGUSR1", "SIGUSR2")},
        }  # fmt: skip
        for number, (handler, standard) in handlers.items():
            old = signal.getsignal(number)
            if old == standard or (number != signal.SIGINT and _of_submitit(old)):
                before[number] = old
                signal.signal(number, handler)
    try:
        yield signal.SIGTERM in before
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if before:
            _received.clear()


def _of_submitit(handler: Any) -> bool:
    return type(getattr(handler, "__self__", None)).__module__.partition(".")[0] == "submitit"


def raise_if_interrupted() -> None:
    """Raise the exception of a signal that compiled code has swallowed."""
    if _received:
        raise _received[-1]


def interruption() -> BaseException | None:
    """The exception of the last signal, or None. Any exception after a signal is due to the signal."""
    return _received[-1] if _received else None
