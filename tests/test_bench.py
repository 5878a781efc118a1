"""The benchmark's bookkeeping; its numbers are for machines and people."""

import json

import numpy as np
from numpy.testing import assert_allclose

from zsl import bench_learning
from zsl.bench import Problem, ours, print_table, race, real, save_plot, sklearn_encode, synthetic


def missing(*_):
    raise ImportError("no", name="spams")


def test_race(tmp_path, capsys):
    X, D = synthetic(12, 20, 30)
    assert_allclose(np.linalg.norm(X, axis=1), 1)
    assert_allclose(np.linalg.norm(D, axis=1), 1)
    problem = Problem("small", X, D, 0.3)
    contenders = {
        "ours": ours,
        "absent": missing,
        "theirs": lambda p: sklearn_encode(p, "lasso_lars", 1, 5),
    }
    results = race(problem, contenders, rounds=2)
    assert [len(r.seconds) for r in results] == [2, 0, 2]
    assert [r.n_rows for r in results] == [12, 0, 5]
    assert results[0].gap <= 1e-4
    assert results[2].gap <= 1e-4  # the same problem, in their constants
    assert "pip install" in results[1].note
    print_table(results)
    assert "pip install" in capsys.readouterr().out
    save_plot(results, tmp_path / "bench.svg")
    assert (tmp_path / "bench.svg").stat().st_size > 1000
    json.dumps([r.seconds for r in results])


def test_real_features_are_found_or_missed_quietly(tmp_path, monkeypatch):
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    assert real(5, 5) is None


def test_learning_to_the_same_objective(monkeypatch, capsys):
    monkeypatch.setattr(bench_learning, "spams_train", missing)
    X, D = synthetic(60, 20, 15)
    (row,) = bench_learning.race(X, D, 0.2, rounds=1, passes=1, batch_size=30)
    assert row["objective"] < row["start"]
    assert row["ratio"] > 0
    out = capsys.readouterr().out
    assert "SPAMS trainDL float64: needs spams" in out
    assert "scikit-learn" in out
