"""Fetching the published archives: checked, resumed, unpacked without surprises."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import logging
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from zsl.data.catalogue import ENTRIES, Archive
from zsl.data.readers.files import file_hash, foreign
from zsl.errors import UserError, reason, writing

log = logging.getLogger(__name__)

# Checksums recorded at first use, in the data folder: a later download that differs is refused.
RECORD = "checksums.json"
_TIMEOUT_S = 60
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
# What the standard library raises for an archive whose bytes are not what they should be.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error, EOFError,
    RuntimeError, UnicodeDecodeError,
)  # fmt: skip
_ANOTHER_FOLDER = "choose another folder with --data-dir or ZSL_DATA"


class BadArchive(UserError):
    """The archive itself is at fault: damaged, no archive, or one that would write where it should not."""


def download(
    name: str,
    data_dir: Path,
    *,
    form: str | None = None,
    url: str | None = None,
    known_hash: str | None = None,
    progress: bool = False,
) -> list[Path]:
    """Fetch an archive of a dataset into ``data_dir/downloads`` and unpack it in ``data_dir``.

    What is there already is not fetched again, and no file is overwritten.

    Parameters
    ----------
    form : str, optional
        Which archive; default the first of the dataset's in :mod:`zsl.data.catalogue`.
    url : str, optional
        Another address of it.
    known_hash : str, optional
        ``ALGORITHM:DIGEST``, instead of the one known or recorded.

    Returns
    -------
    list of Path
        The top-level folders and files that it unpacks to.

    Raises
    ------
    UserError
        For an address that cannot be reached or does not exist, a transfer that stops early (it goes on where it
        stopped when called again), a wrong checksum, a file that is no archive, members outside the target, links,
        existing files of another content, too little space.
    """
    archive = _archive(name, form)
    url = url or archive.url
    file = _file_name(url)
    if known_hash is not None:
        known_hash = _checksum(known_hash)
    store = data_dir / "downloads"
    with writing(store, _ANOTHER_FOLDER):
        store.mkdir(parents=True, exist_ok=True)
    expected = known_hash or archive.known_hash or _recorded(data_dir).get(url)
    path = _fetch(url, file, store, expected, progress)
    try:
        unpacked = unpack(path, data_dir / archive.into)
    except BadArchive as error:
        # Aside, so that the next try neither finds it and believes it, nor loses what somebody put there by hand.
        aside = path.with_name(path.name + ".refused")
        with writing(aside, _ANOTHER_FOLDER):
            os.replace(path, aside)
        raise UserError(
            f"{str(error).removesuffix('.')}; it now lies in {aside}, and running this again fetches it anew."
        ) from None
    if expected is None:
        # Only what unpacked whole is worth holding later downloads to.
        with writing(data_dir / RECORD, _ANOTHER_FOLDER):
            _record(data_dir, url, f"sha256:{file_hash(path)}")
    return unpacked


def _archive(name: str, form: str | None) -> Archive:
    entry = ENTRIES.get(name)
    if entry is None or not entry.archives:
        has = ", ".join(n for n, e in ENTRIES.items() if e.archives)
        what = "comes with the package" if entry else "is not known"
        raise UserError(f"{name} {what}; what can be downloaded: {has}.")
    form = form or next(iter(entry.archives))
    if form not in entry.archives:
        raise UserError(f"--form {form} does not exist for {name}; it has: {', '.join(entry.archives)}.")
    return replace(entry.archives[form])


def _file_name(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is no number is found out only when asked for
    except ValueError as error:
        raise UserError(f"{url} is not the address of a file ({error}); http://... or https://... is needed.") from None
    name = PurePosixPath(unquote(parts.path)).name
    if parts.scheme not in {"http", "https"} or not host or not name or name == ".." or set(name) & set("\\\0"):
        raise UserError(f"{url} is not the address of a file; http://... or https://... is needed.")
    return name


def _checksum(given: str) -> str:
    """``ALGORITHM:DIGEST`` with the digest in lower case; without an algorithm it is SHA-256."""
    algorithm, _, digest = given.lower().rpartition(":")
    algorithm = algorithm or "sha256"
    # The shake functions give digests of any length, so there is none to check.
    if algorithm not in hashlib.algorithms_available or algorithm.startswith("shake"):
        raise UserError(f"--hash {given}: {algorithm} is no known algorithm; use md5:DIGEST or sha256:DIGEST.")
    length = 2 * hashlib.new(algorithm).digest_size
    if not re.fullmatch(f"[0-9a-f]{{{length}}}", digest):
        raise UserError(f"--hash {given}: a digest of {algorithm} has {length} hexadecimal digits.")
    return f"{algorithm}:{digest}"


def _fetch(url: str, file: str, store: Path, expected: str | None, progress: bool) -> Path:
    """The file, complete and with the expected checksum."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    path = store / file
    if path.is_file():
        if expected is None:
            return path
        algorithm, _, digest = expected.rpartition(":")
        if pooch.file_hash(str(path), alg=algorithm or "sha256") == digest.lower():
            return path
        raise UserError(
            f"{path} is there already and its checksum is not {expected}; remove it to download it again, or, if you "
            f"trust it, remove its line from {store.parent / RECORD}."
        )
    try:
        pooch.retrieve(url, known_hash=expected, fname=file, path=str(store), downloader=_Resuming(store, progress))
    except ValueError as error:
        if isinstance(error, UserError) or "hash" not in str(error):
            raise
        raise UserError(
            f"{url} is not the expected file: its checksum is not {expected}; nothing was kept. If the publisher has "
            "replaced it, give the new one with --hash."
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be written ({reason(error)}); {_ANOTHER_FOLDER}.") from None
    return path


class _Resuming:
    """A downloader for pooch that keeps what has arrived, and asks for the rest the next time."""

    def __init__(self, store: Path, progress: bool) -> None:
        self.store, self.progress = store, progress

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        import requests

        part = self.store / f"{_file_name(url)}.part"
        about = part.with_name(part.name + ".json")
        known = self._known(part, about, url)
        have = part.stat().st_size if known else 0
        # Identity, because the length of a compressed transfer says nothing about the file's.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": known["validator"]}
        answered = False
        try:
            with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
                answered = True
                if response.status_code == 416 and have == known.get("total"):
                    os.replace(part, output_file)
                    about.unlink(missing_ok=True)
                    return
                if response.status_code >= 400:
                    raise UserError(
                        f"{url} answers {response.status_code} {response.reason}; see whether the dataset's page gives "
                        f"another address (--url), or put the archive into {self.store} by hand and run this again."
                    )
                resumed = response.status_code == 206
                have = have if resumed else 0
                length = response.headers.get("Content-Length")
                total = have + int(length) if length else None
                # A weak tag does not promise the same bytes.
                tag = response.headers.get("ETag", "")
                validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
                about.write_text(json.dumps({"url": url, "validator": validator, "total": total}), encoding="utf-8")
                with part.open("ab" if resumed else "wb") as f:
                    self._copy(response, f, have, total, part.name)
        except requests.RequestException as error:
            if not answered:
                raise UserError(
                    f"{url} cannot be reached ({_why(error)}); check the address and the network, or give another "
                    "address with --url."
                ) from None
            arrived = part.stat().st_size if part.is_file() else 0
            raise UserError(
                f"{url} cannot be read to its end ({_why(error)}, {arrived / 2**20:.1f} MB arrived); "
                "run this again to go on."
            ) from None
        arrived = part.stat().st_size
        if total is not None and arrived != total:
            raise UserError(
                f"{url} stopped after {arrived / 2**20:.1f} of {total / 2**20:.1f} MB; run this again to go on."
            )
        os.replace(part, output_file)
        about.unlink(missing_ok=True)

    def _known(self, part: Path, about: Path, url: str) -> dict[str, Any]:
        """What is known of an interrupted transfer, if it can be resumed; else it starts again."""
        try:
            known = json.loads(about.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        same = isinstance(known, dict) and known.get("url") == url and known.get("validator")
        return known if same and part.is_file() and part.stat().st_size else {}

    def _copy(self, response: Any, f: IO[bytes], have: int, total: int | None, name: str) -> None:
        if not self.progress:
            for chunk in response.iter_content(2**16):
                f.write(chunk)
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name.removesuffix(".part"), total=total, completed=have)
            for chunk in response.iter_content(2**16):
                f.write(chunk)
                bar.advance(task, len(chunk))


def _why(error: BaseException) -> str:
    """What a network library means, without its object addresses."""
    from requests import Timeout, TooManyRedirects
    from requests.exceptions import SSLError

    if isinstance(error, TooManyRedirects):
        return "it redirects in a circle"
    if isinstance(error, SSLError):
        return "its certificate is not accepted"
    if isinstance(error, Timeout):
        return f"no answer within {_TIMEOUT_S} s"
    text = str(error)
    if "NameResolutionError" in text or "getaddrinfo" in text:
        return "there is no such host"
    if "refused" in text:
        return "the connection is refused"
    return type(error).__name__


def _recorded(data_dir: Path) -> dict[str, str]:
    try:
        found = json.loads((data_dir / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise UserError(f"{data_dir / RECORD} is not readable JSON; repair or remove it.") from None
    return found if isinstance(found, dict) else {}


def _record(data_dir: Path, url: str, digest: str) -> None:
    path = data_dir / RECORD
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps({**_recorded(data_dir), url: digest}, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


# --- unpacking --------------------------------------------------------------------------------------------


def _members(path: Path) -> list[tuple[str, int]]:
    """Names and sizes of the files of an archive; refused unless every one is a plain file with a harmless name."""
    found: list[tuple[str, int]] = []
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as z:
                for info in z.infolist():
                    if stat.S_ISLNK(info.external_attr >> 16):
                        raise BadArchive(f"{path} holds the link {info.filename!r}; nothing was unpacked.")
                    if info.flag_bits & 1:
                        raise BadArchive(f"{path} is encrypted ({info.filename!r}); unpack it yourself, or use --url.")
                    if info.compress_type not in _METHODS:
                        raise BadArchive(
                            f"{path} is compressed by a method that Python does not know ({info.filename!r}); "
                            "unpack it yourself, or use --url."
                        )
                    if not info.is_dir():
                        found.append((info.filename, info.file_size))
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as t:
                for member in t:
                    if member.isdir():
                        continue
                    if not member.isfile():
                        raise BadArchive(f"{path} holds the link or device {member.name!r}; nothing was unpacked.")
                    found.append((member.name, member.size))
                # A .tar ends before the file does; the checksum of a .gz comes last, and is checked only if it is read.
                assert t.fileobj is not None
                while t.fileobj.read(2**20):
                    pass
        else:
            raise BadArchive(f"{path} is not an archive: {_no_archive(path)} (--url).")
    except (*_DAMAGE, OSError) as error:
        raise BadArchive(f"{path} is a damaged archive ({reason(error)}).") from None
    for name, _ in found:
        pure = PurePosixPath(name.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or ":" in pure.parts[0] or "\0" in name:
            raise BadArchive(f"{path} would write outside its folder ({name!r}); nothing was unpacked.")
    found = [(n, s) for n, s in found if not n.startswith("__MACOSX/")]
    if not found:
        raise BadArchive(f"{path} holds no files; the address may have changed (--url).")
    folders = {str(parent) for name, _ in found for parent in PurePosixPath(name).parents}
    both = next((name for name, _ in found if str(PurePosixPath(name)) in folders), None)
    if both is not None:
        raise BadArchive(f"{path} holds {both!r} both as a file and as a folder; nothing was unpacked.")
    return found


def _no_archive(path: Path) -> str:
    with path.open("rb") as f:
        start = f.read(1024)
    if start.startswith(b"PK"):
        return "it is a .zip that is cut short; download it again"
    if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")):
        return "it is a compressed file, but a damaged one or no .tar; download it again"
    return (
        f"{foreign(start) or ('it is neither .zip nor .tar' if start else 'it is empty')}; the address may have changed"
    )


def unpack(path: Path, target: Path) -> list[Path]:
    """Unpack an archive in ``target``: files appear whole, existing ones stay (and must be the same).

    Returns
    -------
    list of Path
        The top-level entries.

    Raises
    ------
    BadArchive
        If the archive is at fault; UserError, see :func:`download`, for the rest.
    """
    members = _members(path)
    with writing(target, _ANOTHER_FOLDER):
        target.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target).free
        needed = sum(size for _, size in members)
        if needed > free:
            raise UserError(
                f"{path} needs {needed / 2**20:.0f} MB and {target} has {free / 2**20:.0f} MB left; {_ANOTHER_FOLDER}."
            )
        folder = target.resolve()
        for name, size in members:
            place = target / name
            # A link that lies in the target already could lead a harmless name elsewhere.
            if not place.resolve().is_relative_to(folder):
                raise UserError(f"{place} leads outside {target} (through a link); nothing was unpacked.")
            if place.exists() and (not place.is_file() or place.stat().st_size != size):
                raise UserError(f"{place} exists with another content and is not overwritten; move it away first.")
        with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as temporary:
            try:
                _place_all(path, target, {name for name, _ in members}, Path(temporary) / "file")
            except (*_DAMAGE, OSError) as error:
                # bz2 has no exception of its own; an OSError without a number is none of the operating system's.
                if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno is not None:
                    raise
                raise BadArchive(f"{path} is a damaged archive ({reason(error)}).") from None
    return [target / top for top in dict.fromkeys(PurePosixPath(name).parts[0] for name, _ in members)]


def _place_all(path: Path, target: Path, names: set[str], new: Path) -> None:
    """Each file under its name once it is whole; ``new`` is where it grows."""
    for name, stream in _streams(path, names):
        place = target / name
        with new.open("wb") as f:
            shutil.copyfileobj(stream, f, 2**20)
        if place.exists():
            if file_hash(place) != file_hash(new):
                raise UserError(f"{place} exists with another content and is not overwritten; move it away first.")
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(new, place)


def _streams(path: Path, names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            for info in z.infolist():
                if info.filename in names:
                    with z.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(path) as t:
        for member in t:
            if member.name in names and member.isfile():
                content = t.extractfile(member)
                assert content is not None
                with contextlib.closing(content):
                    yield member.name, content
