"""Downloads against a local server that behaves as servers do: whole, cut short, moved, gone, something else."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from zsl.data.__main__ import main
from zsl.data.download import RECORD, download, unpack
from zsl.errors import UserError


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, content in files.items():
            z.writestr(name, content)
    return out.getvalue()


GOOD = zipped({
    "xlsa17/data/AWA2/att_splits.mat": b"table", "xlsa17/data/AWA2/res101.mat": np.random.default_rng(0).bytes(300_000),
    "__MACOSX/junk": b"",
})  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """``/whole /cut /moved /html /gone``; ranges are served with an ETag, except under ``/plain``."""

    cuts = 1
    seen: list[tuple[str, str | None]] = []
    content = GOOD

    def do_GET(self) -> None:
        cls, path = type(self), self.path.rsplit("/", 1)[0]
        wanted = self.headers.get("Range")
        cls.seen.append((self.path, wanted))
        if path == "/gone":
            self.send_error(404)
            return
        if path == "/circle":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()
            return
        if path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/whole/archive.zip")
            self.end_headers()
            return
        body = b"<!DOCTYPE html><p>moved</p>" if path == "/html" else cls.content
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        start = 0
        if wanted and path != "/plain" and self.headers.get("If-Range") == tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if path != "/plain":
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if path in {"/cut", "/plain"} and cls.cuts:
            cls.cuts -= 1
            self.wfile.write(body[start : start + len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body[start:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    Handler.cuts, Handler.seen, Handler.content = 1, [], GOOD
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()
    thread.join()


def test_a_whole_file_is_unpacked_recorded_and_not_fetched_twice(server, tmp_path):
    url = f"{server}/whole/archive.zip"
    assert download("awa2", tmp_path, url=url) == [tmp_path / "xlsa17"]
    assert (tmp_path / "xlsa17/data/AWA2/att_splits.mat").read_bytes() == b"table"
    assert json.loads((tmp_path / RECORD).read_text()) == {url: f"sha256:{hashlib.sha256(GOOD).hexdigest()}"}
    download("awa2", tmp_path, url=url)
    assert len(Handler.seen) == 1
    assert not [p for p in tmp_path.rglob("*") if "part" in p.name or "unpacking" in p.name or "MACOSX" in p.name]


def test_a_transfer_that_stops_goes_on_where_it_stopped(server, tmp_path):
    with pytest.raises(UserError, match=r"run this again to go on"):
        download("awa2", tmp_path, url=f"{server}/cut/archive.zip")
    part = tmp_path / "downloads/archive.zip.part"
    arrived = part.stat().st_size
    assert 0 < arrived < len(GOOD)
    assert not (tmp_path / "downloads/archive.zip").exists()
    assert not (tmp_path / RECORD).exists()
    download("awa2", tmp_path, url=f"{server}/cut/archive.zip")
    assert Handler.seen[-1][1] == f"bytes={arrived}-"
    assert (tmp_path / "downloads/archive.zip").read_bytes() == GOOD


def test_a_file_that_changed_meanwhile_starts_again(server, tmp_path):
    with pytest.raises(UserError):
        download("awa2", tmp_path, url=f"{server}/cut/archive.zip")
    Handler.content = zipped({"other.txt": b"new"})
    assert download("awa2", tmp_path, url=f"{server}/cut/archive.zip") == [tmp_path / "other.txt"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    with pytest.raises(UserError):
        download("awa2", tmp_path, url=f"{server}/plain/archive.zip")
    download("awa2", tmp_path, url=f"{server}/plain/archive.zip")
    assert Handler.seen[-1][1] is None
    assert (tmp_path / "downloads/archive.zip").read_bytes() == GOOD


def test_a_redirect_is_followed(server, tmp_path):
    download("awa2", tmp_path, url=f"{server}/moved/archive.zip")
    assert (tmp_path / "xlsa17/data/AWA2/att_splits.mat").is_file()


def test_not_found_says_what_to_do(server, tmp_path):
    with pytest.raises(UserError, match=r"answers 404 Not Found; .*\(--url\), or put the archive into"):
        download("awa2", tmp_path, url=f"{server}/gone/archive.zip")
    with pytest.raises(UserError, match=r"cannot be reached \(the connection is refused\); check the address"):
        download("awa2", tmp_path, url="http://127.0.0.1:9/archive.zip")
    with pytest.raises(UserError, match="is not the address of a file"):
        download("awa2", tmp_path, url="file:///etc/passwd")


def test_a_wrong_file_is_refused_and_not_kept(server, tmp_path):
    with pytest.raises(UserError, match="is not an archive: it is an HTML page"):
        download("awa2", tmp_path, url=f"{server}/html/archive.zip")
    assert not (tmp_path / "downloads/archive.zip").exists()
    with pytest.raises(UserError, match="is not the expected file: its checksum is not md5:0000"):
        download("awa2", tmp_path, url=f"{server}/whole/archive.zip", known_hash="md5:" + "0" * 32)
    assert not (tmp_path / "downloads/archive.zip").exists()
    assert not (tmp_path / "xlsa17").exists()


def test_a_later_download_must_have_the_recorded_checksum(server, tmp_path):
    url = f"{server}/whole/archive.zip"
    download("awa2", tmp_path, url=url)
    (tmp_path / "downloads/archive.zip").unlink()
    Handler.content = zipped({"other.txt": b"new"})
    with pytest.raises(UserError, match="is not the expected file"):
        download("awa2", tmp_path, url=url)
    (tmp_path / "downloads/archive.zip").write_bytes(b"x")
    with pytest.raises(UserError, match="is there already and its checksum is not"):
        download("awa2", tmp_path, url=url)


def test_nothing_is_overwritten(server, tmp_path):
    place = tmp_path / "xlsa17/data/AWA2/att_splits.mat"
    place.parent.mkdir(parents=True)
    for content in (b"mine", b"tabel"):  # of another size, of the same
        place.write_bytes(content)
        with pytest.raises(UserError, match="exists with another content and is not overwritten"):
            download("awa2", tmp_path, url=f"{server}/whole/archive.zip")
        assert place.read_bytes() == content


def test_a_damaged_archive_is_put_aside_and_its_checksum_is_not_recorded(server, tmp_path):
    """The content of a member is damaged, which no list of members shows."""
    url, good = f"{server}/whole/archive.zip", GOOD
    at = good.index(b"res101.mat") + 1000
    Handler.content = good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :]
    with pytest.raises(UserError, match=r"is a damaged archive \(Bad CRC-32.*archive\.zip\.refused, and running this"):
        download("awa2", tmp_path, url=url)
    assert not (tmp_path / RECORD).exists()
    assert not (tmp_path / "downloads/archive.zip").exists()
    assert (tmp_path / "downloads/archive.zip.refused").read_bytes() == Handler.content
    assert not list(tmp_path.rglob("res101.mat"))
    Handler.content = good  # mended, and accepted at the next try
    assert download("awa2", tmp_path, url=url) == [tmp_path / "xlsa17"]
    assert (tmp_path / "xlsa17/data/AWA2/res101.mat").stat().st_size == 300_000


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_damage_inside_a_compressed_tar_is_told_in_a_sentence(server, tmp_path, mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as t:
        info = tarfile.TarInfo("CUB/x.txt")
        info.size = 400_000
        t.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(400_000)))
    content = bytearray(out.getvalue())
    content[-30_000] ^= 255
    Handler.content = bytes(content)
    with pytest.raises(UserError, match=r"damaged (archive|one).*archive\.tgz\.refused"):
        download("cub", tmp_path, form="xlsa17", url=f"{server}/whole/archive.tgz")
    assert not (tmp_path / RECORD).exists()


def flagged(content: bytes, local: int, central: int, value: int) -> bytes:
    """A zip of one file with a byte of its two headers changed."""
    out = bytearray(content)
    out[local] = out[content.index(b"PK\x01\x02") + central] = value
    return bytes(out)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (flagged(zipped({"a": b"xxxx"}), 6, 8, 1), r"is encrypted \('a'\); unpack it yourself"),
        (flagged(zipped({"a": b"xxxx"}), 8, 10, 99), "compressed by a method that Python does not know"),
        (zipped({"a": b"x", "a/b": b"y"}), "holds 'a' both as a file and as a folder"),
        (zipped({}), "holds no files; the address may have changed"),
        (zipped({"a" * 300: b"x"}), r"cannot be written \(File name too long\); choose another folder"),
        (GOOD[:100_000], r"is a \.zip that is cut short; download it again"),
        (b"", "is not an archive: it is empty"),
    ],
)
def test_an_archive_that_cannot_be_unpacked_is_refused_with_a_sentence(server, tmp_path, content, sentence):
    Handler.content = content
    with pytest.raises(UserError, match=sentence):
        download("awa2", tmp_path, url=f"{server}/whole/archive.zip")
    assert not (tmp_path / RECORD).exists()
    assert [p.name for p in tmp_path.iterdir()] == ["downloads"]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://[bad/y.zip", r"is not the address of a file \(Invalid IPv6 URL\)"),
        ("http://host:99999/y.zip", "is not the address of a file"),
        ("http://host/..", "is not the address of a file"),
        ("http:///y.zip", "is not the address of a file"),
        ("http://host/a%00.zip", "is not the address of a file"),
        ("http://no-such-host.invalid/y.zip", "cannot be reached"),
    ],
)
def test_a_wrong_address_is_told_in_a_sentence(tmp_path, url, sentence):
    with pytest.raises(UserError, match=sentence):
        download("awa2", tmp_path, url=url)


def test_a_circle_of_redirects_is_named(server, tmp_path):
    with pytest.raises(UserError, match=r"cannot be reached \(it redirects in a circle\)"):
        download("awa2", tmp_path, url=f"{server}/circle/archive.zip")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [("foo:00", "foo is no known algorithm"), ("xyz", "has 64 hexadecimal digits"), ("md5:00", "has 32 hexadecimal")],
)
def test_a_checksum_that_is_none_is_refused_before_the_transfer(server, tmp_path, given, sentence):
    with pytest.raises(UserError, match=sentence):
        download("awa2", tmp_path, url=f"{server}/whole/archive.zip", known_hash=given)
    assert not Handler.seen


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"downloads cannot be written \(Not a directory\); choose another folder"):
            download("awa2", place, url=f"{server}/whole/archive.zip")
    (tmp_path / RECORD).mkdir()
    with pytest.raises(UserError, match=rf"{RECORD} is not readable JSON|{RECORD}.* cannot be written"):
        download("awa2", tmp_path, url=f"{server}/whole/archive.zip")


def link(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("a/link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "C:/evil.txt", "..\\evil.txt"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_path_outside_the_target_is_refused(tmp_path, name, kind):
    path = tmp_path / "bad"
    if kind == "zip":
        path.write_bytes(zipped({"ok.txt": b"", name: b"evil"}))
    else:
        with tarfile.open(path, "w") as t:
            info = tarfile.TarInfo(name)
            info.size = 4
            t.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(UserError, match="would write outside its folder"):
        unpack(path, tmp_path / "in" / "side")
    assert not list(tmp_path.rglob("evil*"))
    assert not list(tmp_path.rglob("ok*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "bad.tar", "w") as t:
        t.addfile(link(kind))
    with pytest.raises(UserError, match="holds the link or device"):
        unpack(tmp_path / "bad.tar", tmp_path / "out")
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as z:
        z.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match="holds the link"):
        unpack(tmp_path / "bad.zip", tmp_path / "out")


def test_a_link_in_the_target_is_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "xlsa17").symlink_to(tmp_path / "outside")
    (tmp_path / "a.zip").write_bytes(GOOD)
    with pytest.raises(UserError, match=r"leads outside .* \(through a link\)"):
        unpack(tmp_path / "a.zip", tmp_path / "target")
    assert not any((tmp_path / "outside").iterdir())


def test_tar_gz_and_damaged_archives(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as t:
        info = tarfile.TarInfo("CUB/x.txt")
        info.size = 200_000
        t.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(200_000)))
    whole = (tmp_path / "a.tgz").read_bytes()
    assert unpack(tmp_path / "a.tgz", tmp_path / "out") == [tmp_path / "out" / "CUB"]
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged archive"):
        unpack(tmp_path / "cut.tgz", tmp_path / "out2")
    assert not list((tmp_path / "out2").rglob("*.txt")) if (tmp_path / "out2").exists() else True


def test_by_the_command_line(server, tmp_path, capsys):
    arguments = ["download", "awa2", "--data-dir", str(tmp_path)]
    assert main([*arguments, "--url", f"{server}/whole/archive.zip"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "xlsa17")
    assert main([*arguments, "--url", f"{server}/gone/other.zip"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["download", "digits", "--data-dir", str(tmp_path)]) == 1
    assert "digits comes with the package; what can be downloaded: awa1" in capsys.readouterr().err
    assert main([*arguments, "--form", "nothing"]) == 1
    assert "--form nothing does not exist for awa2; it has: xlsa17" in capsys.readouterr().err
