"""What files from somebody else can and cannot do."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import skops.io

from commands import zsl
from zsl import ZeroShotClassifier, compose
from zsl.config.objects import build, locate
from zsl.config.registry import components, options
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.runs import model_file

TOUCH = "{_target_: pathlib.Path.touch, self: EXECUTED}"
NICE = {
    "a package that the file allows itself": "allow_targets: [pathlib]\nmodel: " + TOUCH,
    "a callback": "hydra: {callbacks: {x: " + TOUCH + "}}",
    "a log handler": "hydra: {job_logging: {handlers: {x: {(): pathlib.Path.touch, self: EXECUTED}}}}",
    "an environment": "hydra: {job: {env_set: {NUMBA_CACHE_DIR: EXECUTED}}}",
    "a launcher": "defaults: [{override /hydra/launcher: joblib}]",
    "a sweep over packages": "hydra: {mode: MULTIRUN, sweeper: {params: {+allow_targets: '[os],[pathlib]'}}}",
    "a target without permission": "split: " + TOUCH.replace("{", "{name: x, "),
    "a function of zsl": "split: {_target_: zsl.main.main, name: x}",
    "another package through zsl": "split: {_target_: zsl.runs.status.os.system, name: x}",
}


@pytest.mark.parametrize("text", NICE.values(), ids=NICE)
def test_a_configuration_file_runs_nothing(tmp_path, text):
    (tmp_path / "c" / "experiment").mkdir(parents=True)
    (tmp_path / "c" / "experiment" / "nice.yaml").write_text(f"# @package _global_\n{text}\n")
    out = zsl("--config-dir", "c", "experiment=nice", "tracking=none", "dataset=synthetic", cwd=tmp_path)
    assert out.returncode == 1
    (line,) = out.err.strip().splitlines()
    assert any(words in line for words in ("which only the command line may", "is outside zsl", "no component of zsl"))
    assert not (tmp_path / "EXECUTED").exists()


def test_a_group_of_a_sweep_may_not_reach_into_hydra(tmp_path):
    (tmp_path / "c" / "split").mkdir(parents=True)
    (tmp_path / "c" / "split" / "evil.yaml").write_text(f"# @package hydra.callbacks\nx: {TOUCH}\n")
    out = zsl("--config-dir", "c", "-m", "split=fixed,evil", "tracking=none", "dataset=synthetic", cwd=tmp_path)
    assert "sets its package hydra.callbacks" in out.err
    assert not (tmp_path / "EXECUTED").exists()


@pytest.mark.slow
def test_a_sweep_in_a_file_of_ones_own_still_works(tmp_path):
    (tmp_path / "c" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2'}}}\n"
    (tmp_path / "c" / "experiment" / "two.yaml").write_text(text)
    words = ("tracking=none", "dataset=synthetic", "model=ridge", "save_model=false")
    out = zsl("--config-dir", "c", "experiment=two", *words, cwd=tmp_path)
    assert out.returncode == 0, out.err
    assert "sweep of 2 jobs FINISHED" in out.out


@pytest.mark.parametrize("flag", ["--config-path", "-cn"])
def test_the_main_configuration_cannot_be_replaced(tmp_path, flag):
    assert "add your own files with --config-dir" in zsl(flag, "x", cwd=tmp_path).err


def test_packages_are_allowed_by_the_caller(monkeypatch):
    with pytest.raises(UserError, match="which only the command line may"):
        compose(["allow_targets=[${oc.env:HOME}]"])
    assert list(compose(["allow_targets=[json]"]).allow_targets) == ["json"]
    decoder = build({"_target_": "json.JSONDecoder"}, "model", allow_targets=["json"])
    assert decoder.decode("1") == 1
    # json.codecs is a module that json imports, and os.path.join belongs to posixpath.
    for name in ("json.codecs", "logging.os", "logging.warnings.warn"):
        with pytest.raises(UserError, match=r"no class or function|cannot be imported"):
            locate(name, "model", ["json", "logging"])


def test_components_are_those_of_the_group():
    for group in ("model", "split", "dataset", "tracking", "solver", "feature"):
        assert components(group)
        assert all(locate(name, group) for name in components(group))
    with pytest.raises(UserError, match=r"zsl.models.Rige is no component of zsl \(did you mean zsl.models.Ridge\?\)"):
        locate("zsl.models.Rige", "model")
    with pytest.raises(UserError, match="no component"):
        locate("zsl.models.Ridge", "split")
    assert len(components("model")) >= len(options("model")) - 3  # presets share a class


# --- fitted classifiers -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    words = ["dataset=synthetic", "tracking=none", "model.n_iter=1", "inference=aag"]
    run(compose(words), folder)
    return folder / "model.skops"


def rewrite(source, target, change, *, digest):
    """Copy an archive with one member changed, with the old digest or a right one."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        new.comment = old.comment
    if digest:
        with zipfile.ZipFile(target, "a") as archive:
            archive.comment = model_file._digest(archive)
    return target


def test_changed_numbers_are_noticed(stored, tmp_path):
    def flip(name, data):
        return data[:-1] + bytes([data[-1] ^ 1]) if name.endswith(".npy") else data

    with pytest.raises(UserError, match="does not hold what was written"):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", flip, digest=False))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"Dx_"', b'"Dy_"', "is not a fitted classifier of zsl"),
        (b'"model_"', b'"modul_"', "is not a fitted classifier of zsl"),
        (b'"table"', b'"tabel"', "holds no classifier that works"),
        (b'"format"', b'"farmot"', "was written by another version"),
        (b"sparse_encode", b"gram", "names zsl.sparse.encode.gram, which is no registered part of zsl"),
        (b'"__class__": "Inference"', b'"__class__": "import_module"', "is no registered part of zsl"),
        (b'"__module__": "zsl.inference.inference"', b'"__module__": "os"', "names os.Inference"),
    ],
)
def test_a_changed_structure_is_refused(stored, tmp_path, old, new, message):
    def change(name, data):
        return data.replace(old, new) if name == "schema.json" else data

    with pytest.raises(UserError, match=message):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", change, digest=True))


def test_a_file_that_unpacks_to_far_more_is_refused(stored, tmp_path):
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(tmp_path / "x.skops", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        new.writestr("more.npy", bytes(50_000_000))
    with pytest.raises(UserError, match="would unpack to far more"):
        ZeroShotClassifier.load(tmp_path / "x.skops")


def test_a_file_allows_itself_nothing(tmp_path):
    skops.io.dump({"format": 3, "about_": {"allow_targets": ["test_security"]}, "m": Stranger()}, tmp_path / "x.skops")
    with pytest.raises(UserError, match="no registered part of zsl"):
        ZeroShotClassifier.load(tmp_path / "x.skops")


class Stranger:
    """A class that is no part of zsl."""

    value = np.zeros(1)
