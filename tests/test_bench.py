"""The benchmark's bookkeeping; its numbers are for machines and people."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.bench import __main__ as command
from zsl.bench import encode, epochs, learning
from zsl.bench.data import real, stored, synthetic
from zsl.bench.encode import Problem, Result, exponent, ours, race, sklearn_encode
from zsl.bench.process import in_a_process, memory_mb
from zsl.errors import UserError


def missing(*_):
    raise ImportError("no", name="spams")


def test_contenders_solve_the_same_problem():
    X, D = synthetic(12, 20, 30)
    assert_allclose(np.linalg.norm(X, axis=1), 1)
    assert_allclose(np.linalg.norm(D, axis=1), 1)
    theirs = {"absent": missing, "theirs": lambda p: sklearn_encode(p, "lasso_lars", 1, 5)}
    results = race(Problem("small", X, D, 0.3), {"ours": ours, **theirs}, rounds=2)
    assert [len(r.seconds) for r in results] == [2, 0, 2]
    assert [r.n_rows for r in results] == [12, 0, 5]
    assert max(results[0].gap, results[2].gap) <= 1e-4  # in our units, at their constants
    assert "pip install" in results[1].note


def test_ratios_are_to_the_first_contender():
    results = [Result("p", "a", [1.0, 9.0, 2.0], 2), Result("p", "b", [3.0], 1), Result("q", "b", [5.0], 5)]
    assert command.ratios_of(results) == [1, 3, 1]
    assert_allclose(exponent([10, 100], [1, 100]), 2)
    assert exponent([10, 10], [1, 1]) is None


def test_the_share_of_the_limit_is_that_of_our_contenders():
    X, D = synthetic(200, 20, 30)
    found = race(Problem("small", X, D, 0.3), {"zsl float64": ours, "theirs": ours}, rounds=1)
    assert 0 < found[0].share < 2
    assert np.isnan(found[1].share)
    # With 300 non-zeros a row also needs 300^3 / 3 + 300 * 30 multiplications, 15015 times those of its products.
    few, many = (min(encode.limit(Problem("", X, D, 0.3), "float32", k) for _ in range(5)) for k in (200, 300))
    assert 2000 < many / few < 100_000


@pytest.mark.slow
def test_growth_along_every_axis(monkeypatch):
    monkeypatch.setattr(encode, "GROWING", {"n": (20, 30), "p": (10, 20), "r": (10, 20), "non-zeros": (4, 8)})
    seen = []
    monkeypatch.setattr(encode, "race", lambda problem, *_: seen.append(problem) or [Result("", "", [1.0], 1)])
    found = encode.growth(1)
    assert [axis["exponent"] for axis in found.values()] == pytest.approx([0, 0, 0, 0], abs=1e-12)
    shapes = [(*problem.X.shape, len(problem.D)) for problem in seen]
    assert shapes == [(20, 256, 512), (30, 256, 512), (1000, 10, 512), (1000, 20, 512), (1000, 256, 10),
                      (1000, 256, 20), (1000, 1024, 1280), (1000, 1024, 1280)]  # fmt: skip
    counts = [np.count_nonzero(encode.sparse_encode(p.X[:100], p.D, p.lam).A) / 100 for p in seen[-2:]]
    assert counts == pytest.approx([4, 8], rel=0.2)


def test_fits_of_three_sizes(monkeypatch):
    seen = []

    def race(X, D, lam, rounds, sizes, learners):
        seen.append((X.shape, len(D), len(learners)))
        return [{"contender": "zsl"}]

    monkeypatch.setattr(learning, "race", race)
    monkeypatch.setattr(learning, "real", lambda *_: None)
    rows = learning.races(50, 30, 40, 1)
    assert [row["problem"].partition(":")[0] for row in rows] == ["sparse", "dense", "size of SUN"]
    assert seen == [((50, 30), 40, 4), ((25, 30), 20, 2), ((258, 2048), 64, 2)]


@pytest.mark.slow
def test_learning_to_the_same_objective(monkeypatch, capsys):
    learners = learning.LEARNERS | {"SPAMS trainDL float64": (missing, True)}
    monkeypatch.setattr(learning, "LEARNERS", learners)
    X, D = synthetic(60, 20, 15)
    rows = learning.race(X, D, 0.2, rounds=2, batch_sizes=(20, 30))
    assert [r["contender"] for r in rows] == [name for name in learners if name != "SPAMS trainDL float64"]
    for row in rows:
        assert row["objective"] <= row["target"] < row["start"]
        assert len(row["seconds"]) == 2
        assert row["ratio"] > 0
    assert max(row["objective"] for row in rows) == rows[0]["target"]
    assert "SPAMS trainDL float64: needs spams" in capsys.readouterr().out


def test_the_quickest_choice_that_reaches_the_objective():
    # Batches of 10 reach 0.5 in two passes of 1 s, batches of 20 in three of 0.5 s; 40 never do.
    class Scripted(learning.Runs):
        def run(self, passes, batch_size):
            seconds = passes * {10: 1.0, 20: 0.5, 40: 0.1}[batch_size]
            return seconds, {10: 1 - passes / 4, 20: 1 - passes / 6, 40: 1.0}[batch_size]

    runs = Scripted(None, None, None, 0.1)
    assert [runs.quickest(0.5, sizes) for sizes in ([10, 20, 40], [40, 10], [40])] == [(3, 20), (2, 10), None]


def test_image_features_are_found_or_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    assert real(5, 5) is None
    folder = tmp_path / "data" / "cifar_awa"
    folder.mkdir(parents=True)
    np.savez(folder / "lite0_1280.npz", features=np.random.default_rng(0).random((20, 5), np.float32))
    X, D = real(12, 8)
    assert (len(X), len(D)) == (12, 8)
    assert real(13, 8) is None
    assert "cifar_awa is left out: it has 20 images" in capsys.readouterr().out


def test_stored_features_have_all_classes(tmp_path):
    X, y = stored(50, 6, tmp_path / "X.npy")
    assert len(set(y)) == 40
    assert_allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-6)
    assert_allclose(np.load(tmp_path / "X.npy"), X)


@pytest.mark.slow
def test_epochs_of_every_shape_and_model(monkeypatch):
    monkeypatch.setattr(epochs, "SHAPES", {"small": (12, 6, 4)})
    rows = epochs.epochs(rounds=1, n=70)
    assert [row["model"] for row in rows] == 4 * ["sje", "ale", "devise", "latem"]
    for row in rows:
        assert row["images / zsl 64"] == pytest.approx(row["images"] / row["zsl 64"])
        assert min(row[name] for name in ("images", "batches", "zsl 1", "zsl 64")) > 0


@pytest.mark.parametrize(
    "arguments", ["--rounds 0", "-n many", "-p -5", "--sizes 50 39", "--iterations -1", "--only x"]
)
def test_arguments_that_mean_nothing_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(arguments.split())
    assert ended.value.code == 2
    assert f"argument {arguments.split()[0]}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_is_killed_is_one_sentence(monkeypatch):
    import os

    assert in_a_process(memory_mb, "VmHWM") > 10
    with pytest.raises(UserError, match="was killed"):
        in_a_process(os._exit, 9)
    with pytest.raises(MemoryError):
        in_a_process(learning.fit, (10**15, 4, 4), 1)


def test_what_was_measured_before_a_part_failed_is_written(tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise MemoryError("9 TiB")

    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    monkeypatch.setattr(command, "REAL_ATOMS", 30)
    monkeypatch.setattr(encode, "growth", fails)
    with pytest.raises(SystemExit) as ended:
        command.main(["--only", "image", "growth", "--rounds", "1", "-p", "20", "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "zsl.bench: there is not enough memory (9 TiB)" in said.err
    assert "one image, 1 BLAS thread" in said.out
    names = {f"bench.{kind}" for kind in ("json", "md", "tex", "html", "svg", "png")} | {"bench_image.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert record["arguments"]["p"] == 20
    assert "growth" not in record
    assert all(r["gap"] <= 1.1e-4 for r in record["image"])


def test_tables_of_every_part(tmp_path):
    fit = {"n": 40, "seconds": 1.5}
    found = {
        "learn": [{"contender": "zsl", "seconds": [1.0, 3.0, 2.0], "ratio": 1.0}],
        "growth": {"n": {"sizes": [1, 2], "seconds": [1.0, 2.0], "exponent": 1.0}},
        "awa2": fit,
        "rows": {"sizes": [40], "runs": [fit], "exponent": None},
        "spreading": {"runs": [fit, fit], "exponent": 1.25},
        "epochs": [{"model": "sje", "images / zsl 1": 12.5}],
    }
    tables = {part: command.table_of(part, value, {}) for part, value in found.items()}
    assert tables["learn"].rows == [["zsl", "2", "1"]]
    assert tables["growth"].columns == ["axis", "sizes", "seconds", "exponent"]
    assert tables["rows"].rows == tables["awa2"].rows == [["40", "1.5"]]
    assert tables["epochs"].rows == [["sje", "12.5"]]
    assert tables["spreading"].notes == ["Time grows with the exponent 1.25."]
    with pytest.raises(SystemExit) as ended:
        command.main(["--only", "encode", "-n", str(10**18), "--out", str(tmp_path)])
    assert ended.value.code == 1
    assert not list(tmp_path.iterdir())
