"""Fetching the published archives by pooch: over https, checked, unpacked without overwriting anything."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from zsl.data.catalogue import ENTRIES, Archive
from zsl.data.readers.files import file_hash, foreign
from zsl.errors import UserError, did_you_mean, reason, writing

# The published archives unpack to less than 60 times their size (text) and to 40,000 files.
_RATIO, _FREE, _MEMBERS = 200, 2**30, 500_000
# What the disk says rather than the archive.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)


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

    An archive that is there already, fetched earlier or put there by hand, is not fetched again. A transfer that stops
    leaves nothing behind and starts again the next time. No file is overwritten.

    Parameters
    ----------
    form : str, optional
        Which archive; default the first of the dataset's in :mod:`zsl.data.catalogue`.
    url : str, optional
        Another address of the same archive.
    known_hash : str, optional
        ``ALGORITHM:DIGEST`` (SHA-256 without ``ALGORITHM:``), instead of the one in the catalogue.

    Returns
    -------
    list of Path
        The top-level folders and files that it unpacks to.

    Raises
    ------
    UserError
        For an address that cannot be reached, a transfer that stops early, a wrong checksum, a file that is no archive,
        members outside the target, and existing files of another content.
    """
    archive = _archive(name, form)
    url, known_hash = url or archive.url, known_hash or archive.known_hash
    path = data_dir / "downloads" / _file_name(url, known_hash)
    with writing(path, "choose another folder with --data-dir or ZSL_DATA"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, path, known_hash, progress)
        return unpack(path, data_dir / archive.into)


def unpack(path: Path, target: Path) -> list[Path]:
    """Unpack an archive in ``target``; files that are there already must be the same, and stay.

    Returns
    -------
    list of Path
        The top-level folders and files.

    Raises
    ------
    UserError
        If the archive is damaged or no archive, would write outside ``target``, or holds a file that is there with
        another content. Nothing is unpacked then.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as temporary:
        try:
            _extract(path, temporary)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # zipfile, tarfile and the decompressors each have exceptions of their own
            if isinstance(error, OSError) and error.errno in _DISK:
                raise
            with path.open("rb") as f:
                what = foreign(f.read(1024)) or reason(error)
            raise UserError(
                f"{path} cannot be unpacked ({what}); remove it and run this again, or give another address with --url."
            ) from None
        files = [p for p in sorted(Path(temporary).rglob("*")) if p.is_file() and "__MACOSX" not in p.parts]
        if not files:
            raise UserError(f"{path} holds no file; remove it and run this again, or give another address with --url.")
        places = {p: target / p.relative_to(temporary) for p in files}
        for p, place in places.items():
            if place.exists() and (not place.is_file() or file_hash(place) != file_hash(p)):
                raise UserError(f"{place} exists with another content and is not overwritten; move it away first.")
        for p, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(p, place)
    return [target / top for top in dict.fromkeys(place.relative_to(target).parts[0] for place in places.values())]


def _extract(path: Path, folder: str) -> None:
    # Not pooch's processors: before Python 3.12 they unpack tar files without a look at the names.
    limit = min(path.stat().st_size * _RATIO + _FREE, shutil.disk_usage(folder).free)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            members = z.infolist()
            _check_size(path, len(members), sum(member.file_size for member in members), limit)
            z.extractall(folder)  # names that lead outside are made to lead inside
        return
    with tarfile.open(path) as t:
        size = 0
        for n, member in enumerate(t, start=1):
            size += member.size
            _check_size(path, n, size, limit)
            t.extract(member, folder, filter="data")
        # A tar ends before its .gz does, whose checksum comes last and is verified only if it is read.
        while t.fileobj is not None and (rest := t.fileobj.read(2**20)):
            size += len(rest)
            _check_size(path, 1, size, limit)


def _check_size(path: Path, n_members: int, size: int, limit: int) -> None:
    """Refuse an archive that unpacks to more than data does: a small file may fill a disk."""
    if n_members > _MEMBERS or size > limit:
        raise UserError(
            f"{path} unpacks to {n_members} files and {size / 2**30:.1f} GiB, more than there is room for or than its "
            f"{path.stat().st_size / 2**20:.1f} MiB can mean; unpack it by hand if you trust it, or remove it."
        )


def _archive(name: str, form: str | None) -> Archive:
    has = [n for n, entry in ENTRIES.items() if entry.archives]
    if name not in has:
        what = "comes with the package" if name in ENTRIES else f"is not known{did_you_mean(name, has)}"
        raise UserError(f"{name} {what}; what can be downloaded: {', '.join(has)}.")
    archives, by_hand = ENTRIES[name].archives, ENTRIES[name].by_hand
    if form in by_hand:
        raise UserError(f"{name} --form {form} cannot be fetched from here: {by_hand[form]}.")
    if form is not None and form not in archives:
        raise UserError(f"--form {form} does not exist for {name}; it has: {', '.join((*archives, *by_hand))}.")
    return archives[form or next(iter(archives))]


def _file_name(url: str, known_hash: str | None) -> str:
    """The last part of an address; an address that is not https (on this machine) needs a checksum."""
    parts = urlsplit(url)
    name = PurePosixPath(unquote(parts.path)).name
    if parts.scheme not in {"http", "https"} or not parts.netloc or not re.fullmatch(r"\w[\w.+-]*", name):
        raise UserError(f"{url} is not the address of a file; https://... is needed.")
    _check_protected(url, here=True)
    if parts.scheme != "https" and known_hash is None:
        raise UserError(f"{url} is not protected by https, so anybody could have changed the file; give its --hash.")
    return name


def _check_protected(url: str, *, here: bool) -> None:
    """Refuse an address that is not https, unless it is one of this machine and ``here`` allows these."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (here and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        raise UserError(
            f"{url} is not protected by https, so anybody could change the file on its way; give an address of https "
            "with --url."
        )


def _fetch(url: str, path: Path, known_hash: str | None, progress: bool) -> None:
    """Download the file unless it is there; it gets its name once it is complete and has the checksum."""
    import pooch
    import requests
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    here = urlsplit(url).scheme != "https"

    def check(response: Any, **_: Any) -> None:
        """Every redirect must be protected as well, before it is followed."""
        if response.is_redirect:
            _check_protected(urljoin(response.url, response.headers["Location"]), here=here)

    def downloader(url: str, part: str, _: Any) -> None:
        with (
            requests.get(url, stream=True, timeout=60, hooks={"response": check}) as response,
            Progress(*columns, console=Console(stderr=True), disable=not progress) as bar,
            Path(part).open("wb") as f,
        ):
            response.raise_for_status()
            task = bar.add_task(path.name, total=int(response.headers.get("Content-Length", 0)) or None)
            for chunk in response.iter_content(2**16):
                f.write(chunk)
                bar.advance(task, len(chunk))

    pooch.get_logger().setLevel("ERROR")
    try:
        pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, downloader=downloader)
    except UserError:
        raise
    except (requests.RequestException, ValueError) as error:  # ValueError: another checksum, or one that is none
        # What requests says of a connection holds addresses of Python's objects.
        what = reason(error) if isinstance(error, requests.HTTPError | ValueError) else type(error).__name__
        raise UserError(
            f"{url} cannot be downloaded ({what.rstrip('.')}); get {path.name} by hand, put it into {path.parent} "
            "and run this again, or give another address with --url or checksum with --hash."
        ) from None
