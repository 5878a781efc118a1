"""Downloads against a local server that behaves as servers do: whole, cut short, moved, gone, something else."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from zsl.data.__main__ import main
from zsl.data.download import download, unpack
from zsl.errors import UserError


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, content in files.items():
            z.writestr(name, content)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as t:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()


RANDOM = np.random.default_rng(0).bytes(300_000)
GOOD = zipped({
    "xlsa17/data/AWA2/att_splits.mat": b"table", "xlsa17/data/AWA2/res101.mat": RANDOM, "__MACOSX/junk": b"",
})  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """``/whole /cut /moved /circle /away /html /gone``; ``/cut`` is cut short once."""

    cuts, requests, content = 1, 0, GOOD

    def do_GET(self) -> None:
        cls, path = type(self), self.path.rsplit("/", 1)[0]
        cls.requests += 1
        if path == "/gone":
            self.send_error(404)
            return
        if path in {"/moved", "/circle", "/away"}:
            self.send_response(302)
            places = {"/moved": "/whole/archive.zip", "/away": "http://zsl.invalid/archive.zip"}
            self.send_header("Location", places.get(path, self.path))
            self.end_headers()
            return
        body = b"<!DOCTYPE html><p>moved</p>" if path == "/html" else cls.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if path == "/cut" and cls.cuts:
            cls.cuts -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    Handler.cuts, Handler.requests, Handler.content = 1, 0, GOOD
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()
    thread.join()


def fetch(url: str, folder, content: bytes | None = None, **more):
    """Download over http, which needs the checksum."""
    return download("awa2", folder, url=url, known_hash=hashlib.sha256(content or Handler.content).hexdigest(), **more)


def test_a_whole_file_is_unpacked_and_not_fetched_twice(server, tmp_path):
    for _ in range(2):
        assert fetch(f"{server}/whole/archive.zip", tmp_path, progress=True) == [tmp_path / "xlsa17"]
        assert (tmp_path / "xlsa17/data/AWA2/att_splits.mat").read_bytes() == b"table"
        assert Handler.requests == 1
    assert {p.name for p in tmp_path.iterdir()} == {"downloads", "xlsa17"}
    assert [p.name for p in (tmp_path / "downloads").iterdir()] == ["archive.zip"]


def test_an_archive_that_was_put_there_by_hand_is_taken(tmp_path):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "xlsa17.zip").write_bytes(GOOD)
    assert download("awa2", tmp_path) == [tmp_path / "xlsa17"]


def test_a_transfer_that_stops_leaves_nothing_and_starts_again(server, tmp_path):
    with pytest.raises(UserError, match=r"cannot be downloaded \(.*run this again"):
        fetch(f"{server}/cut/archive.zip", tmp_path)
    assert not any((tmp_path / "downloads").iterdir())
    fetch(f"{server}/cut/archive.zip", tmp_path)
    assert (tmp_path / "downloads/archive.zip").read_bytes() == GOOD


def test_a_redirect_is_followed(server, tmp_path):
    fetch(f"{server}/moved/archive.zip", tmp_path)
    assert (tmp_path / "xlsa17/data/AWA2/att_splits.mat").is_file()


def test_a_redirect_to_an_address_without_protection_is_refused(server, tmp_path):
    with pytest.raises(UserError, match=r"http://zsl\.invalid/archive\.zip is not protected by https"):
        fetch(f"{server}/away/archive.zip", tmp_path)
    assert Handler.requests == 1
    assert not any((tmp_path / "downloads").iterdir())


@pytest.mark.parametrize("path", ["gone", "circle", "refused"])
def test_what_cannot_be_fetched_says_what_to_do(server, tmp_path, path):
    url = "http://127.0.0.1:9/archive.zip" if path == "refused" else f"{server}/{path}/archive.zip"
    with pytest.raises(UserError, match=r"get archive\.zip by hand, put it into .*downloads and run this again"):
        fetch(url, tmp_path)
    assert not any((tmp_path / "downloads").iterdir())


def test_a_file_of_another_checksum_is_refused_and_not_kept(server, tmp_path):
    for known in ("md5:" + "0" * 32, "0" * 64, "foo:00"):
        with pytest.raises(UserError, match=r"cannot be downloaded .*checksum with --hash"):
            download("awa2", tmp_path, url=f"{server}/whole/archive.zip", known_hash=known)
        assert not any((tmp_path / "downloads").iterdir())
    assert not (tmp_path / "xlsa17").exists()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://host/..", "https:///y.zip", "https://host/a%00.zip"])
def test_an_address_of_no_file_is_refused(tmp_path, url):
    with pytest.raises(UserError, match="is not the address of a file"):
        download("awa2", tmp_path, url=url)


def test_http_without_a_checksum_is_refused(server, tmp_path):
    with pytest.raises(UserError, match="is not protected by https"):
        download("awa2", tmp_path, url=f"{server}/whole/archive.zip")
    assert Handler.requests == 0


def test_nothing_is_overwritten(server, tmp_path):
    place = tmp_path / "xlsa17/data/AWA2/att_splits.mat"
    place.parent.mkdir(parents=True)
    for content in (b"mine", b"tabel"):  # of another size, of the same
        place.write_bytes(content)
        with pytest.raises(UserError, match="exists with another content and is not overwritten"):
            fetch(f"{server}/whole/archive.zip", tmp_path)
        assert place.read_bytes() == content
    assert [p.name for p in place.parent.iterdir()] == ["att_splits.mat"]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>404</html>",
        GOOD[:100_000],
        flipped(GOOD, GOOD.index(b"res101.mat") + 1000),
        *(flipped(tarred({"CUB/x.txt": RANDOM}, f"w:{kind}"), -30_000 % 300_000) for kind in ("gz", "bz2", "xz")),
        tarred({"CUB/x.txt": RANDOM})[:150_000],
    ],
    ids=["empty", "page", "zip cut short", "zip damaged", "gz damaged", "bz2 damaged", "xz damaged", "gz cut short"],
)
def test_a_damaged_archive_is_refused_and_nothing_is_unpacked(tmp_path, content):
    (tmp_path / "a.archive").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.archive cannot be unpacked .*remove it and run this again"):
        unpack(tmp_path / "a.archive", tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt"])
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_archive_writes_outside_the_target(tmp_path, name, pack):
    (tmp_path / "bad").write_bytes(pack({"ok.txt": b"", name: b"evil"}))
    target = tmp_path / "in" / "side"
    with contextlib.suppress(UserError):  # refused, or put inside under a harmless name
        unpack(tmp_path / "bad", target)
    assert all(target in p.parents for p in tmp_path.rglob("evil*"))


def test_a_link_that_leads_outside_is_refused(tmp_path):
    with tarfile.open(tmp_path / "bad.tar", "w") as t:
        info = tarfile.TarInfo("a/link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        t.addfile(info)
    with pytest.raises(UserError, match="link"):
        unpack(tmp_path / "bad.tar", tmp_path / "out")


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "w"])
def test_every_kind_of_tar_is_unpacked(tmp_path, mode):
    (tmp_path / "a.tgz").write_bytes(tarred({"CUB/x.txt": RANDOM, "attributes.txt": b"a"}, mode))
    assert unpack(tmp_path / "a.tgz", tmp_path / "out") == [tmp_path / "out/CUB", tmp_path / "out/attributes.txt"]
    assert (tmp_path / "out/CUB/x.txt").read_bytes() == RANDOM


def test_by_the_command_line(server, tmp_path, capsys):
    arguments = ["download", "awa2", "--data-dir", str(tmp_path), "--hash", hashlib.sha256(GOOD).hexdigest()]
    assert main([*arguments, "--url", f"{server}/whole/archive.zip"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "xlsa17")
    (tmp_path / "file").write_text("x")
    for wrong, sentence in (
        ([*arguments, "--url", f"{server}/gone/other.zip"], "cannot be downloaded"),
        (["download", "digits"], "digits comes with the package; what can be downloaded: cifar_awa, awa1"),
        (["download", "awa3"], "awa3 is not known (did you mean awa"),
        ([*arguments, "--form", "nothing"], "--form nothing does not exist for awa2; it has: xlsa17"),
        ([*arguments[:3], str(tmp_path / "file")], "choose another folder with --data-dir"),
    ):
        assert main(wrong) == 1
        err = capsys.readouterr().err
        assert sentence in err
        assert err.count("\n") == 1


def test_what_is_public_without_an_address_names_its_page(tmp_path):
    with pytest.raises(UserError, match=r"AwA-features-vgg19.*https://cvml\.ista\.ac\.at/AwA/.*layout=official"):
        download("awa1", tmp_path, form="vgg19")
    with pytest.raises(UserError, match="it has: xlsa17, standard_split, vgg19"):
        download("awa1", tmp_path, form="vgg16")
