"""Fetching the published archives: checked, resumed, unpacked without surprises."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from zsl.data.catalogue import ENTRIES, Archive
from zsl.data.files import file_hash
from zsl.errors import UserError

log = logging.getLogger(__name__)

# Checksums recorded at first use, in the data folder: a later download that differs is refused.
RECORD = "checksums.json"
_TIMEOUT_S = 60


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
    store = data_dir / "downloads"
    store.mkdir(parents=True, exist_ok=True)
    expected = known_hash or archive.known_hash or _recorded(data_dir).get(url)
    path = _fetch(url, file, store, expected, progress)
    try:
        opened = _members(path)
    except UserError:
        path.unlink()  # so that the next try does not find it and believe it
        raise
    if expected is None:
        _record(data_dir, url, f"sha256:{file_hash(path)}")
    return unpack(path, data_dir / archive.into, opened)


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

    parts = urlsplit(url)
    name = PurePosixPath(unquote(parts.path)).name
    if parts.scheme not in {"http", "https"} or not name or "\\" in name:
        raise UserError(f"{url} is not the address of a file; http://... or https://... is needed.")
    return name


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
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from None
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
        try:
            with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
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
            arrived = part.stat().st_size if part.is_file() else 0
            reason = type(error).__name__
            raise UserError(
                f"{url} cannot be read to its end ({reason}, {arrived / 2**20:.1f} MB arrived); "
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
                        raise UserError(f"{path} holds the link {info.filename!r}; nothing was unpacked.")
                    if not info.is_dir():
                        found.append((info.filename, info.file_size))
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as t:
                for member in t:
                    if member.isdir():
                        continue
                    if not member.isfile():
                        raise UserError(f"{path} holds the link or device {member.name!r}; nothing was unpacked.")
                    found.append((member.name, member.size))
        else:
            start = path.open("rb").read(200).lstrip().lower()
            html = start.startswith((b"<!doctype", b"<html", b"<?xml"))
            what = "it is an HTML page" if html else "it is neither .zip nor .tar"
            raise UserError(f"{path} is not an archive: {what}; the address may have changed (--url).")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise UserError(f"{path} is a damaged archive ({error}); remove it and download it again.") from None
    for name, _ in found:
        pure = PurePosixPath(name.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts or ":" in pure.parts[0]:
            raise UserError(f"{path} would write outside its folder ({name!r}); nothing was unpacked.")
    return [(n, s) for n, s in found if not n.startswith("__MACOSX/")]


def unpack(path: Path, target: Path, members: list[tuple[str, int]] | None = None) -> list[Path]:
    """Unpack an archive in ``target``: files appear whole, existing ones stay (and must be the same).

    Returns
    -------
    list of Path
        The top-level entries.

    Raises
    ------
    UserError
        See :func:`download`.
    """
    members = _members(path) if members is None else members
    target.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target).free
    needed = sum(size for _, size in members)
    if needed > free:
        raise UserError(f"{path} needs {needed / 2**20:.0f} MB and {target} has {free / 2**20:.0f} MB left.")
    folder = target.resolve()
    for name, size in members:
        place = target / name
        # A link that lies in the target already could lead a harmless name elsewhere.
        if not place.resolve().is_relative_to(folder):
            raise UserError(f"{place} leads outside {target} (through a link); nothing was unpacked.")
        if place.exists() and (not place.is_file() or place.stat().st_size != size):
            raise UserError(f"{place} exists with another content and is not overwritten; move it away first.")
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as temporary:
        for name, stream in _streams(path, {name for name, _ in members}):
            place, new = target / name, Path(temporary) / "file"
            with new.open("wb") as f:
                shutil.copyfileobj(stream, f, 2**20)
            if place.exists():
                if file_hash(place) != file_hash(new):
                    raise UserError(f"{place} exists with another content and is not overwritten; move it away first.")
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(new, place)
    return [target / top for top in dict.fromkeys(PurePosixPath(name).parts[0] for name, _ in members)]


def _streams(path: Path, names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as z:
                for info in z.infolist():
                    if info.filename in names:
                        with z.open(info) as stream:
                            yield info.filename, stream
        else:
            with tarfile.open(path) as t:
                for member in t:
                    if member.name in names and member.isfile():
                        content = t.extractfile(member)
                        assert content is not None
                        with contextlib.closing(content):
                            yield member.name, content
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{path} is a damaged archive ({error}); remove it and download it again.") from None
