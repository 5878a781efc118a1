"""The benchmark's bookkeeping; its numbers are for machines and people."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.bench import learning as bench_learning
from zsl.bench.__main__ import Problem, main, ours, race, real, sklearn_encode, synthetic
from zsl.bench.report import Result, bar_plot, print_table, target_rows, write_table
from zsl.errors import UserError


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
    bar_plot(results, tmp_path / "bench.svg")
    assert (tmp_path / "bench.svg").stat().st_size > 1000
    json.dumps([r.seconds for r in results])


def test_real_features_are_found_or_missed_quietly(tmp_path, monkeypatch):
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    assert real(5, 5) is None


def test_learning_to_the_same_objective(monkeypatch, capsys):
    learners = bench_learning.LEARNERS | {"SPAMS trainDL float64": (missing, True)}
    monkeypatch.setattr(bench_learning, "LEARNERS", learners)
    X, D = synthetic(60, 20, 15)
    rows = bench_learning.race(X, D, 0.2, rounds=2, batch_sizes=(20, 30))
    assert [r["contender"] for r in rows] == [name for name in learners if name != "SPAMS trainDL float64"]
    for row in rows:
        assert row["objective"] <= row["target"] < row["start"]
        assert len(row["seconds"]) == 2
        assert row["ratio"] > 0
    assert max(row["objective"] for row in rows) == rows[0]["target"]
    assert "SPAMS trainDL float64: needs spams" in capsys.readouterr().out


def test_the_quickest_choice_that_reaches_the_objective():
    # Batches of 10 reach 0.5 in two passes of 1 s, batches of 20 in three of 0.5 s; 40 never do.
    class Scripted(bench_learning._Tried):
        def run(self, passes, batch_size):
            seconds = passes * {10: 1.0, 20: 0.5, 40: 0.1}[batch_size]
            value = {10: 1 - passes / 4, 20: 1 - passes / 6, 40: 1.0}[batch_size]
            return seconds, value

    t = Scripted(None, None, None, 0.1)
    assert t.quickest(0.5, [10, 20, 40]) == (3, 20)
    assert t.quickest(0.5, [40, 10]) == (2, 10)
    assert t.quickest(0.5, [40]) is None


def test_targets_are_judged_by_what_was_measured(tmp_path):
    def result(problem, contender, seconds):
        return Result(problem, contender, [seconds] * 5, 8, 1e-5, 20.0, shape=(2000, 1024, 1200))

    name = "synthetic, 20 non-zeros, cold"
    results = [
        result(name, "zsl float64", 1.0),
        result(name, "SPAMS float64", 3.0),
        result(name, "scikit-learn lasso_cd", 50.0),
        result(name, "scikit-learn lasso_cd, 2 jobs", 30.0),
    ]
    learned = [{"contender": c, "ratio": r, "seconds": [1.0], "passes": 1, "batch_size": 9, "objective": 1.0,
                "target": 1.0, "shape": [2000, 1280, 1400], "rounds": 5}
               for c, r in (("zsl float64", 1.0), ("SPAMS", 5.0), ("scikit-learn", 9.0))]  # fmt: skip
    spread = {"largest": {"L": 100_000, "seconds": 16.0, "peak_mb": 512.0}, "exponent": 2.0}
    record = {"learn": learned, "spreading": spread}
    record["targets"] = target_rows(results, record)
    met = {
        (t["work"], t["against"] or t["unit"]): (t["measured"], t["met"])
        for t in record["targets"]
        if t["met"] is not None
    }
    assert met == {
        ("encode, 20 non-zeros, cold", "SPAMS float64"): (3.0, False),
        ("encode, 20 non-zeros, cold", "scikit-learn lasso_cd, best n_jobs"): (30.0, True),
        ("learn a dictionary", "the best of SPAMS and scikit-learn"): (5.0, True),
        ("labels spread over 100000 images", "s"): (16.0, True),
        ("labels spread over 100000 images", "GiB"): (0.5, True),
        ("labels spread, processor time", "exponent"): (pytest.approx(2.0), False),
    }
    text = write_table(results, record, tmp_path / "b.md")
    assert "| 3 times | 4 | 8 | missed |" in text
    assert (tmp_path / "b.md").read_text().startswith(text)


def measured(shape=None, rounds=None, **changes):
    """Results and record of a run as all targets are stated, but for some changes; the numbers are made up."""
    results = []
    for problem in (
        *(f"synthetic, {k} non-zeros, {start}" for k in (20, 165) for start in ("cold", "warm")),
        "one image",
    ):
        one = problem == "one image"
        for who in ("zsl float64", "zsl float32", "SPAMS float64", "scikit-learn lasso_cd", "scikit-learn Lasso"):
            timed = [1.0] * (rounds or (100 if one else 5))
            results.append(
                Result(problem, who, timed, 1, shape=shape or ((1, 1280, 1400) if one else (2000, 1024, 1200)))
            )
    learned = [{"contender": c, "ratio": 5.0, "seconds": [1.0], "passes": 1, "batch_size": 9, "objective": 1.0,
                "target": 1.0, "shape": list(shape or (2000, 1280, 1400)), "rounds": rounds or 5}
               for c in ("zsl float64", "SPAMS")]  # fmt: skip
    fits = {"awa2": (23527, 2048, 2100), "vgg19": (24295, 4096, 4400)}
    record = {"learn": learned}
    for name, full in fits.items():
        record[name] = dict(zip("npr", shape or full)) | {"n_iter": 1, "peak_rss_mb": 9.0, "seconds": 1.0}
    record["rows"] = {"sizes": [10**4, 10**5, 10**6], "exponent": 1.0, "runs": [{"anonymous_mb": 9.0}] * 3}
    record["spreading"] = {"largest": {"L": 100_000, "seconds": 16.0, "peak_mb": 512.0}, "exponent": 1.0}
    return results, record | changes


def judged(results, record):
    return {(t["work"], t["against"], t["unit"]) for t in target_rows(results, record) if t["met"] is not None}


def test_targets_are_judged_only_as_they_are_stated(tmp_path):
    every = judged(*measured())
    assert len(every) == len(target_rows([], {}))
    assert judged([], {}) == set()
    of_shape = {row for row in every if row[0].startswith(("rows", "labels"))}
    assert judged(*measured(shape=(50, 20, 30))) == of_shape
    assert judged(*measured(rounds=4)) == of_shape | {row for row in every if row[0].startswith("fit")}
    few = {"sizes": [40], "exponent": None, "runs": [{"anonymous_mb": 9.0}]}
    assert every - judged(*measured(rows=few)) == {row for row in every if row[0].startswith("rows")}
    small = {"largest": {"L": 1000, "seconds": 1.0, "peak_mb": 1.0}, "exponent": None}
    rest = {row for row in every if not row[0].startswith("labels")}
    assert judged(*measured(spreading=small)) == rest
    results, record = measured(shape=(50, 20, 30))
    record["targets"] = target_rows(results, record)
    text = write_table(results, record, tmp_path / "b.md")
    assert (
        "| learn a dictionary | the best of SPAMS and scikit-learn | 5 times | 4 | 10 | not judged: other sizes or "
        in text
    )
    assert text.count("| not judged: other sizes or fewer rounds |") == len(every) - len(of_shape)


def test_growth_over_one_size_has_no_exponent(monkeypatch, capsys):
    monkeypatch.setattr(bench_learning, "in_a_process", lambda *_, n, **__: {"seconds": 1.0 * n, "anonymous_mb": 1.0})
    assert bench_learning.growth([40])["exponent"] is None
    assert bench_learning.growth([40, 40])["exponent"] is None
    assert bench_learning.growth([40, 400])["exponent"] == pytest.approx(1)
    assert "n^None" not in capsys.readouterr().out


REFUSED = ["--rounds 0", "--rounds -1", "-n 0", "-n -5", "-n many", "-r 0", "-p 0", "--sizes 0", "--sizes 50 -5",
           "--sizes 39", "--iterations -1", "--out file", "--out file/below", "--out taken"]  # fmt: skip


@pytest.mark.parametrize("arguments", REFUSED)
def test_arguments_that_mean_nothing_are_refused_before_any_work(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "bench.json").mkdir(parents=True)
    monkeypatch.setattr("zsl.bench._measure", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("python -m zsl.bench: error: ")
    assert arguments.split()[0] in said
    assert "not accepted" in said or "file" in said or "folder" in said


@pytest.mark.parametrize("n", [10**14, 10**18, 10**30])
def test_rows_that_no_memory_holds(n, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--only", "encode", "-n", str(n), "--out", str(tmp_path)])
    assert ended.value.code == 1
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said.startswith("zsl.bench: there is not enough memory (")
    assert not list(tmp_path.iterdir())


def test_what_was_measured_before_a_part_failed_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    monkeypatch.setattr("zsl.bench._REAL_ATOMS", 30)

    def fails(*_):
        raise MemoryError("9 TiB")

    monkeypatch.setattr("zsl.bench.growth", fails)
    with pytest.raises(SystemExit) as ended:
        main(["--only", "image", "growth", "--rounds", "1", "-p", "20", "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    assert "zsl.bench: there is not enough memory (9 TiB)" in capsys.readouterr().err
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert record["image"]
    assert record["arguments"]["p"] == 20
    assert "growth" not in record


def test_a_process_that_fails_is_one_sentence(monkeypatch, capfd):
    with pytest.raises(UserError, match=r"the process that measures rows, 1000000000000000 rows failed, as said above"):
        bench_learning.in_a_process("rows", 1, n=10**15, p=4, r=4, folder=None)
    (said,) = capfd.readouterr().err.strip().splitlines()
    assert said.startswith("zsl.bench: there is not enough memory")


def test_more_rows_than_there_are_images(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "data" / "cifar_awa"
    folder.mkdir(parents=True)
    np.savez(folder / "lite0_1280.npz", features=np.random.default_rng(0).random((20, 5), np.float32))
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    X, D = real(12, 8)
    assert (len(X), len(D)) == (12, 8)
    assert real(13, 8) is None
    assert (
        "cifar_awa is left out: it has 20 images, and 13 to encode and 8 as atoms make 21." in capsys.readouterr().out
    )


def test_command_writes_tables_and_plot(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZSL_SHARED", str(tmp_path))
    monkeypatch.setattr("zsl.bench._REAL_ATOMS", 300)
    main(["--only", "image", "--rounds", "1", "-p", "40", "--out", str(tmp_path / "out")])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["image.json", "image.md", "image.svg"]
    record = json.loads((tmp_path / "out" / "image.json").read_text())
    assert [r["contender"] for r in record["image"]][:2] == ["zsl float64", "zsl float32"]
    assert all(r["gap"] <= 1.1e-4 for r in record["image"])
    assert "| one image, float64 |" in capsys.readouterr().out
