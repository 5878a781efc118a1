"""The model of costs: its formulas' limits, its file, and ``zsl run --estimate``. No test here measures a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commands import zsl
from zsl.bench import __main__ as bench
from zsl.bench import model as against
from zsl.costs import calibration, large, model, work
from zsl.costs.machine import Machine, memory_limit, place
from zsl.costs.trial import Timed
from zsl.costs.work import Shape
from zsl.errors import UserError
from zsl.experiment import estimate as command

RATES = {
    **{key: [1.0, 50.0, 1.5, 0.05, 3.0, 0.001] for key in ("active cold", "active second", "active later")},
    **{key: [2.0, 30.0, 0.3, 3.0, 0.002] for key in ("admm first", "admm middle")},
    **{key: [2.0, 80.0, 0.3, 10.0, 0.002] for key in ("admm last", "admm test")},
    "single cold": [0.9], "single warm": [0.9], "rest": [0.3, 1.5, 0.1, 80.0, 0.5, 10.0, 1.0, 0.01],
    "aag": [1.0, 6.0, 4.0, 1.0, 0.01], "aaw": [0.3, 0.5, 90.0, 2.0, 300.0, 0.01], "taaw": [0.3, 0.5, 90.0, 50.0, 0.01],
}  # fmt: skip
GROWTH = {"one": 0.1, "k/p": 0.1, "n/r": 0.03, "later": 0.65, "test one": 0.1, "test k/p": 0.05, "test n/r": -0.01}
MACHINE = Machine(1e10, 2e10, 1e9, 5e8, 4e8, RATES, GROWTH, {"cores": 2})
SHAPE = Shape(n=100_000, p=256, r=320, q=85, L=5000, M=20, k=40.0)


@pytest.fixture
def measured(monkeypatch):
    """The constants above in place of a minute of measurements."""
    monkeypatch.setattr(command, "machine", lambda: MACHINE)


def seconds(shape, part="fit"):
    return next(p.seconds for p in model.estimate(shape, MACHINE) if p.name == part)


@pytest.mark.parametrize("k", [40.0, 200.0])
def test_a_fit_takes_twice_as_long_with_twice_as_many_images(k):
    shape = replace(SHAPE, n=1_000_000, k=k)
    ratio = seconds(replace(shape, n=2_000_000)) / seconds(shape)
    assert 1.95 < ratio < 2.1


def test_inference_grows_with_test_images_and_load_with_all():
    more = replace(SHAPE, L=50_000)
    for part in ("aag", "aaw"):
        assert 9 < seconds(more, part) / seconds(SHAPE, part) < 10.5
    assert seconds(more, "load") / seconds(SHAPE, "load") == pytest.approx(150_000 / 105_000)


def test_dictionaries_and_passes_add_up():
    assert seconds(replace(SHAPE, K=5)) == pytest.approx(5 * seconds(SHAPE))
    assert seconds(replace(SHAPE, n_iter=9)) > 2 * seconds(SHAPE)


def test_codes_follow_the_share_of_images_that_are_atoms():
    none = dict.fromkeys(GROWTH, 0.0)
    assert work.densities(replace(SHAPE, n=640), none)[0] == pytest.approx(0.5 * 40 + 0.5)
    assert max(work.densities(replace(SHAPE, k=255.0), {**none, "one": 9.0})) == 256  # at most p


def test_dense_codes_are_those_that_the_solver_calls_dense():
    from zsl.sparse.solvers.auto import admm_margin, prefers_admm

    for n, r, k in [(63, 300, 200), (5000, 255, 200), (5000, 320, 40), (5000, 320, 200), (300, 2560, 400)]:
        assert (
            (admm_margin(n, r, k) > 1)
            == prefers_admm(n, r, k)
            == (n * k**3 > 8 * r**2 * (n + r / 8) and min(n - 63, r - 255) > 0)
        )


def test_memory_of_features_is_exact():
    load = model.load_alone(SHAPE, MACHINE)
    assert load.memory - MACHINE.base == 2 * (SHAPE.n + SHAPE.L) * SHAPE.p * 8
    assert (
        model.load_alone(replace(SHAPE, single=True), MACHINE).memory - MACHINE.base == (load.memory - MACHINE.base) / 2
    )


def test_no_images_cost_nothing_but_the_process():
    load = model.load_alone(replace(SHAPE, n=0, L=0), MACHINE)
    assert (load.seconds, load.memory) == (0, MACHINE.base)


def test_coefficients_are_found_again():
    """Runs whose times are those of the model give the model back, as far as these runs can tell."""
    runs = []
    for trial in calibration.TRIALS:
        shape = replace(trial, k=(0.2 if trial.share >= 0.05 else 0.7) * trial.p)
        ks, k = work.densities(shape, GROWTH), work.test_density(shape, GROWTH)
        share, codings = min(shape.r / shape.n, 1.0), []
        for i, density in enumerate(ks):
            kind, start = calibration.kind_of(i, shape.n_iter), ks[max(i - 1, 0)]
            taken = calibration.coding_seconds(
                MACHINE, shape, shape.n, shape.p, density, kind, k_start=start, atoms=share
            )
            codings.append((density, taken))
        parts = {p.name: p.seconds for p in model.estimate(shape, MACHINE)}
        coded = calibration.coding_seconds(MACHINE, shape, shape.L, shape.p, k, "test")
        rest = parts["fit"] - sum(taken for _, taken in codings)
        assert rest > 0
        runs.append((shape, Timed(parts["fit"], parts["aag"], parts["aaw"], parts["taaw"], codings, k, coded)))
    raw = {name: getattr(MACHINE, name) for name in ("product", "product32", "disk", "loading")}
    found = calibration.fitted(raw, MACHINE.base, runs)
    for shape, timed in runs:
        again = {p.name: p.seconds for p in model.estimate(shape, found)}
        for name in ("fit", "aag", "aaw", "taaw"):
            assert again[name] == pytest.approx(getattr(timed, name), rel=0.1), (shape, name)


def test_constants_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "machine.json"
    MACHINE.write(path)
    assert Machine.read(path) == MACHINE
    assert calibration.machine(path=path) == MACHINE
    path.write_text("{}")
    with pytest.raises(UserError, match=r"machine.json does not hold the constants .*delete it"):
        calibration.machine(path=path)


def test_constants_are_measured_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(calibration, "measured", lambda: calls.append(1) or MACHINE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibration.machine() == calibration.machine() == MACHINE
    assert len(calls) == 1
    assert place().is_file()
    calibration.machine(again=True)
    assert len(calls) == 2


def test_estimate_says_what_a_run_takes_and_writes_nothing(measured, tmp_path):
    ended = zsl("--estimate", "dataset=digits", "model=coupled", cwd=tmp_path)
    assert ended.returncode == 0, ended.err
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines[:6]] == ["part", "load", "fit", "aag", "aaw", "taaw"]
    assert lines[6].startswith("1010 training images, 539 test images, 64 features, 3 classes; 5 x 80 atoms")
    assert "The whole takes about" in lines[7]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-m", "model.lam=1,2"], "so -m does not go with it"),
        (["model.lam=1,2"], "model.lam=1,2 is a sweep; give it one value"),
        (["model.widht=1"], "widht"),
    ],
)
def test_estimate_refuses_what_is_no_single_run(measured, tmp_path, words, sentence):
    ended = zsl("--estimate", "dataset=digits", *words, cwd=tmp_path)
    assert ended.returncode == 1
    assert sentence in ended.err
    assert list(tmp_path.iterdir()) == []


def test_other_models_have_load_and_memory_alone(measured, tmp_path):
    ended = zsl("--estimate", "dataset=digits", "model=eszsl", cwd=tmp_path)
    assert [line.split()[0] for line in ended.out.splitlines()[:2]] == ["part", "load"]
    assert "models with dictionaries only, and ESZSL has none" in ended.out


def test_what_memory_cannot_hold_is_refused_with_what_would_fit(measured, tmp_path, monkeypatch):
    given = ("dataset=digits", "model=coupled", "model.n_dictionaries=5", "tracking=none")
    needed = float(MACHINE.base) + 6e6
    monkeypatch.setattr(command, "memory_limit", lambda: needed)
    ended = zsl("--estimate", *given, cwd=tmp_path)
    assert ended.returncode == 1
    assert "this run needs about" in ended.err
    assert "it would fit with" in ended.err
    remedy = ended.err.split("it would fit with ")[1].rstrip(".\n").split(" or ")[0]
    assert zsl("--estimate", *given, remedy, cwd=tmp_path).returncode == 0


def test_where_no_setting_helps_the_sentence_says_so(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "memory_limit", lambda: 1e6)
    ended = zsl("--estimate", "dataset=digits", cwd=tmp_path)
    assert ended.returncode == 1
    assert "no single setting" in ended.err


@pytest.mark.parametrize("stages", [("aag", "aaw", "taaw"), ("aag",)])
def test_every_remedy_is_below_the_limit(stages):
    shape = replace(SHAPE, n=2_000_000, L=100_000, M=5000, K=3)
    limit = 0.9 * model.peak(model.estimate(shape, MACHINE, stages))
    found = model.remedies(shape, MACHINE, limit, stages)
    assert found
    changed = {
        "feature.dtype": lambda v: replace(shape, single=True),
        "model.batch_size": lambda v: replace(shape, batch_size=int(v)),
        "model.n_atoms": lambda v: replace(shape, r=int(v)), "model.n_dictionaries": lambda v: replace(shape, K=int(v)),
    }  # fmt: skip
    for remedy in found:
        key, _, value = remedy.partition("=")
        if key in changed:
            assert model.peak(model.estimate(changed[key](value), MACHINE, stages)) < limit


def test_a_limit_of_the_machine_is_never_above_its_memory(monkeypatch):
    whole = memory_limit()
    assert whole > 0
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    assert memory_limit() == min(whole, 100 * 2**20)


def test_imagenet_on_paper():
    one, one_gpu, many, many_gpu = large.imagenet(MACHINE)
    assert 14 < one["fit (h)"] / many["fit (h)"] <= 16 * large.DASK + 1e-9
    assert one_gpu["fit (h)"] < one["fit (h)"]
    assert many_gpu["fit (h)"] < many["fit (h)"]
    memory = large.imagenet_memory()
    assert memory["scores of all test images"] == pytest.approx(8 * 1_400_000 * 21_841 / 2**30)
    assert memory["graph of 15 neighbours"] < 1 < 1000 < memory["labels while they spread"]


def test_the_ten_problems_are_others_than_those_of_the_calibration():
    sizes = {(t.n, t.p, t.r) for t in calibration.TRIALS}
    assert len(against.PROBLEMS) == 10
    assert not sizes & {(t.n, t.p, t.r) for t in against.PROBLEMS}


def test_predictions_stand_beside_measurements(monkeypatch):
    """The bookkeeping of the table, with the model's own numbers as measurements that are 10 % and 50 % off."""
    off = iter([1.1, 1.5])

    def measure(problem, folder):
        f, parts = next(off), model.estimate(replace(problem, k=20.0), MACHINE)
        return {**{p.name: p.seconds * f for p in parts}, "memory": model.peak(parts) * f / 2**20, "k": 20.0}

    monkeypatch.setattr(
        against, "in_a_process", lambda f, *given: None if given and f.__name__ == "write" else f(*given)
    )
    monkeypatch.setattr(against, "machine", lambda: MACHINE)
    monkeypatch.setattr(against, "measure", measure)
    found = against.compare((Shape(2000, 64, 80, 16, 500, 5, 0.1), Shape(3000, 64, 80, 16, 500, 5, 0.1)))
    assert found["all"] == 1
    assert found["within"]["fit"] == 1
    assert [round(row["fit ratio"], 3) for row in found["runs"]] == [round(1 / 1.1, 3), round(1 / 1.5, 3)]
    table = bench.table_of("model", found, {})
    assert "1 are within 30 %" in table.notes[1]


def test_a_run_is_timed_part_by_part(tmp_path):
    from zsl.costs import trial

    t = Shape(120, 20, 16, 6, 30, 3, 0.1, 1)
    trial.write(t, str(tmp_path))
    data, taken = trial.read(t, str(tmp_path))
    timed = trial.run(t, data)
    assert taken > 0
    assert len(timed.codings) == 2
    assert min(timed.fit, timed.aag, timed.aaw, timed.taaw, timed.test_coding) > 0
    assert 1 <= trial.probed(t, data) <= 20
