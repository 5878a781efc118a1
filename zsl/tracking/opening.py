"""Opening a tracking store: creating its database whole, noticing that it was damaged or replaced, and not waiting."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from zsl.config import credentials
from zsl.errors import address_space_left
from zsl.tracking import view

log = logging.getLogger(__name__)
T = TypeVar("T")

SQLITE = "sqlite:///"
DATABASE = "mlflow.db"
"""The database file in an output folder"""
PATIENCE_S = 10.0
"""How long to wait for a store that gives no sign of life"""
_BYTES_PER_S = 2e6
"""What even a slow connection carries: a large file extends the patience"""
_NEEDED = 0.4e9
"""Address space that MLflow takes and that a run then still needs, measured"""
_TABLES = {"alembic_version", "experiments", "runs", "metrics", "params", "tags"}


class Silent(ConnectionError):
    """A store that gave no sign of life for :data:`PATIENCE_S` seconds; nothing asks it again in this process."""


class Client:
    """MLflow's client, which notes when its calls begin and end, so that :func:`answered` can tell work from a hang."""

    def __init__(self, client: Any) -> None:
        self._client, self.alive = client, time.monotonic()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            self.alive = max(self.alive, time.monotonic())
            try:
                return method(*arguments, **named)
            finally:
                self.alive = time.monotonic()

        return call

    def expect(self, n_bytes: int) -> None:
        """Allow the next call the time that so many bytes may take."""
        self.alive = time.monotonic() + n_bytes / _BYTES_PER_S


def answered(work: Callable[[], T], client: Client | None = None) -> T:
    """The result of ``work``, which talks to a store; the caller goes on without it if the store hangs.

    Raises
    ------
    Silent
        If neither the work ends nor a call of the client begins or ends for :data:`PATIENCE_S` seconds.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    begun = time.monotonic()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        last = begun if client is None else max(begun, client.alive)
        if thread.is_alive() and time.monotonic() - last > PATIENCE_S:
            raise Silent(f"it gave no answer for {PATIENCE_S:.0f} s")
    if failed:
        raise failed[0]
    return found[0]


def environment() -> None:
    """Set the environment variables that MLflow reads on import, except those the user has set, and import MLflow."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # One try and one more: a server that is down costs seconds.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    left = address_space_left()
    if "mlflow" not in sys.modules and left < _NEEDED:
        raise MemoryError(
            f"the limit on memory (ulimit -v) leaves {left / 1e9:.2f} GB, and MLflow needs {_NEEDED / 1e9}"
        )
    import mlflow  # noqa: F401

    # These report every table that is created, every model that is saved, and a database that is locked in a traceback.
    for logger, level in (("alembic", logging.WARNING), ("mlflow.store.db.utils", logging.CRITICAL),
                          ("mlflow.pyfunc", logging.WARNING), ("sqlalchemy.pool", logging.CRITICAL)):  # fmt: skip
        logging.getLogger(logger).setLevel(level)


_USER, _PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
# What log_in has put into the environment, which is not the user's own.
_logged_in: dict[str, str] = {}


def log_in(uri: str) -> None:
    """Let MLflow send the login of a server to that server, and to no other that is asked afterwards."""
    for name, value in _logged_in.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _logged_in.clear()
    login = urlsplit(credentials.completed(uri))
    if uri.startswith("http") and login.username is not None:
        _logged_in.update({_USER: unquote(login.username), _PASSWORD: unquote(login.password or "")})
        os.environ.update(_logged_in)


# --- servers ------------------------------------------------------------------------------------------------


def server(uri: str, experiment: str) -> tuple[Client, str]:
    """MLflow's client of a server or of a database on one, and the id of an experiment, created if it is absent."""
    from mlflow import MlflowClient

    log_in(uri)
    complete = uri if uri.startswith("http") else credentials.completed(uri)
    client = Client(None)

    def connect() -> str:
        client._client = MlflowClient(tracking_uri=complete)
        return experiment_id(client, experiment)

    return client, answered(connect, client)


# --- a database file ----------------------------------------------------------------------------------------


def address(database: Path) -> str:
    """The ``sqlite:///`` address of a database file, with characters that are special in a URL escaped."""
    return f"{SQLITE}{quote(str(database), safe='/')}"


def file_of(uri: str) -> Path:
    """The absolute path of the file that a ``sqlite:///`` address names."""
    return Path(unquote(uri.removeprefix(SQLITE))).expanduser().resolve()


def database(path: Path, experiment: str) -> tuple[Client, str]:
    """MLflow's client of a database file, and the id of an experiment; the file is created if it is absent.

    A damaged file is renamed, and a new one takes its place.
    """
    if path.exists() and not path.is_file():
        what = "it is a folder" if path.is_dir() else "it is no regular file"
        raise FileExistsError(17, f"{what}; remove it, or name another", str(path))
    if not sound(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Processes that create the tables of one file at the same moment leave it broken for good.
        with _lock(path.with_name(f".{path.stem}.lock")):
            if not sound(path):
                set_aside(path)
                _create(path, experiment)
    client = client_of(path)
    artifacts = (path.parent / "mlartifacts").as_uri()
    return client, answered(lambda: experiment_id(client, experiment, artifacts), client)


def sound(path: Path, *, thorough: bool = False) -> bool:
    """Whether a file is a database with MLflow's tables.

    Parameters
    ----------
    thorough : bool
        Read all of it, which takes seconds for a large file, instead of the list of its tables.

    Raises
    ------
    sqlite3.OperationalError
        If it cannot be read now, because another process has locked it or the system forbids it.
    FileExistsError
        If it belongs to something else than a tracking store.
    """
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        ours = path.name == "mlflow.db" and path.stat().st_size % 512 == 0  # as the pages of a database are
        if file.read(15) != b"SQLite format 3" and not ours:
            raise FileExistsError(17, "it is no database, and stays as it is; move it, or name another", str(path))
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            versions = connection.execute("SELECT * FROM alembic_version").fetchall() if tables >= _TABLES else []
            checked = connection.execute("PRAGMA quick_check(1)").fetchone() if thorough else ("ok",)
    except sqlite3.OperationalError as error:
        if not is_damage(error) and "disk I/O error" not in str(error):
            raise
        return False
    except sqlite3.DatabaseError:  # the file is no database, or the database is malformed
        return False
    if tables and not tables & _TABLES:
        raise FileExistsError(17, "it holds the tables of something else; name another file", str(path))
    return len(versions) == 1 and checked == ("ok",)


def is_damage(error: BaseException) -> bool:
    """Whether an error says that a database file is damaged, whichever library passes SQLite's words on."""
    return any(words in str(error) for words in ("malformed", "not a database"))


def replace_if_damaged(path: Path) -> None:
    """Read a database whole, and set it aside if it is damaged."""
    with _lock(path.with_name(f".{path.stem}.lock")):
        if path.is_file() and not sound(path, thorough=True):
            set_aside(path)


def set_aside(path: Path) -> None:
    """Rename a damaged database file, with the two files that SQLite keeps beside it."""
    if not path.exists():
        return
    if path.stat().st_size == 0:
        path.unlink()
        return
    kept = path.with_name(f"{path.name}.damaged-{datetime.now():%Y%m%d-%H%M%S-%f}")
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(kept.with_name(kept.name + end))
    log.warning(
        "the tracking store %s is damaged; it is kept as %s, and a new one takes its place. To send the earlier runs "
        "to it: zsl tracking upload %s",
        path, kept.name, path.parent,
    )  # fmt: skip


def _create(path: Path, experiment: str) -> None:
    """Create the database under another name and rename it, so that it is complete whenever it is there."""
    for left in path.parent.glob(f".{path.stem}.*.new*"):
        left.unlink(missing_ok=True)  # by a process that was killed; the lock is ours
    new = path.with_name(f".{path.stem}.{os.getpid()}.new")
    try:
        experiment_id(client_of(new), experiment, (path.parent / "mlartifacts").as_uri())
        with closing(sqlite3.connect(new)) as connection:
            # Write-ahead logging lets parallel jobs write without waiting for each other.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                new.with_name(new.name + end).unlink(missing_ok=True)


def client_of(path: Path) -> Client:
    """MLflow's client of a database file that is there."""
    from mlflow import MlflowClient

    before, uri = os.environ.get("MLFLOW_SQLALCHEMYSTORE_POOLCLASS"), address(path)
    # A connection that stays open would go on writing into a file that was deleted or replaced.
    os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"
    # MLflow also makes the folder that the escaped address would name.
    stray = Path(uri.removeprefix(SQLITE)).parent
    made = [p for p in (stray, *stray.parents) if not p.exists()]
    try:
        client = Client(MlflowClient(tracking_uri=uri))
        client.search_experiments(max_results=1)
    finally:
        if before is None:
            del os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"]
        else:
            os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = before
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
    return client


def experiment_id(client: Any, name: str, artifacts: str | None = None) -> str:
    """The id of the experiment, which is created if it is absent."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            created: str = client.create_experiment(name, artifact_location=artifacts, tags=view.EXPERIMENT_TAGS)
            return created
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:  # else another job has created it meanwhile
                raise
    if artifacts is not None and not view.EXPERIMENT_TAGS.keys() <= found.tags.keys():  # on a server it may be others'
        for key, value in view.EXPERIMENT_TAGS.items():
            client.set_experiment_tag(found.experiment_id, key, value)
    known: str = found.experiment_id
    return known


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process in at a time; the lock is SQLite's, and the system frees it when a process dies."""
    with closing(sqlite3.connect(path, timeout=300, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
