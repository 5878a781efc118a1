"""The table of methods: from records alone, and never from runs that do not belong together."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.config import compose
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.report import compare


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for model in ("ridge", "eszsl"):
        for seed in range(3):
            overrides = ["dataset=digits", "split=random", f"split.seed={seed}", f"model={model}", "tracking=none"]
            run(compose(overrides), folder / f"{model}-{seed}")
    return folder


def test_means_ranks_and_times_come_from_the_records(folder, capsys):
    records = compare.read(folder)
    rows = {row.method: row for row in compare.table(records)}
    values = {
        model: [
            json.loads((folder / f"{model}-{seed}" / "results.json").read_text())["metrics"]["acc_class"]
            for seed in range(3)
        ]
        for model in ("ridge", "eszsl")
    }
    for model, expected in values.items():
        assert_allclose(rows[model].mean, np.mean(expected))
        assert_allclose(rows[model].std, np.std(expected, ddof=1))
        assert rows[model].time_fit > 0
        assert rows[model].selection == "none: settings as given"
    better = np.array(values["ridge"]) > np.array(values["eszsl"])
    assert_allclose(rows["ridge"].rank, np.where(better, 1, 2).mean())
    compare.main([str(folder), "hit_1"])
    out = capsys.readouterr().out
    assert "digits / pixels / random split: hit_1" in out
    assert "eszsl" in out


def test_ranks_by_hand():
    values = np.array([[0.5, 0.3, np.nan], [0.5, 0.2, 0.9], [0.1, 0.4, 0.8]])
    # The last split was not run by all; in the first, two methods share ranks 1 and 2.
    assert_allclose(compare.mean_ranks(values), [(1.5 + 2) / 2, (1.5 + 3) / 2, (3 + 1) / 2])
    assert np.isnan(compare.mean_ranks(values[:, 2:])).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["key"]["dataset"].update(content="other"), "differ in their dataset"),
        (lambda r: r["key"]["dataset"].update(shuffle_attributes=1), "differ in their dataset"),
        (lambda r: r["key"]["feature"].update(name="vgg19"), "differ in their feature"),
        (lambda r: r["key"]["split"].update(name="standard"), "differ in their split"),
        (lambda r: r["metrics"].pop("acc_class"), "acc_class is not in every record"),
    ],
)
def test_what_does_not_belong_together_makes_no_table(folder, change, message):
    records = compare.read(folder)
    change(records[0])
    with pytest.raises(UserError, match=message):
        compare.table(records)


def test_two_results_for_one_method_and_split_are_refused(folder):
    records = compare.read(folder)
    again = deepcopy(records[0])
    assert len(compare.table([*records, again])) == 2
    again["metrics"]["acc_class"] += 0.1
    with pytest.raises(UserError, match="run twice on one split"):
        compare.table([*records, again])


def test_an_empty_folder_is_told(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path)])
    assert "holds no results.json" in capsys.readouterr().err


def test_the_experiment_is_what_it_says():
    cfg = compose(["experiment=compare"])
    assert (cfg.dataset.name, cfg.feature.name, cfg.split.n_unseen) == ("xlsa17", "lite0_1280", 5)
    assert cfg.tune.name == "class_cv"


@pytest.mark.slow
def test_eszsl_on_real_images_is_near_the_plain_formula(cifar_awa):
    # The reference takes part with the same features, attributes, splits and folds, written out in NumPy.
    from zsl.experiment.loading import read_data, transform_data
    from zsl.experiment.run import resolve
    from zsl.experiment.selection import fold, validation_folds

    def formula(d, g, lam):
        S, Y = d.Z_seen, np.eye(len(d.seen))[d.y]
        left = np.linalg.solve(d.X.T @ d.X + g * np.eye(d.X.shape[1]), d.X.T @ Y @ S)
        V = left @ np.linalg.inv(S.T @ S + lam * np.eye(S.shape[1]))
        correct = (d.X_unseen @ V @ d.Z_unseen.T).argmax(axis=1) == d.y_unseen
        return np.mean([correct[d.y_unseen == c].mean() for c in range(len(d.unseen))])

    ours, reference = [], []
    for seed in range(3):
        overrides = [
            "dataset=xlsa17", f"dataset.root={cifar_awa}", "feature.name=lite0_1280", "split=random",
            "split.n_unseen=5", f"split.seed={seed}", "model=eszsl", "tracking=none",
            "tune.grid={model.gamma:[1.0,10.0,100.0],model.lam:[1.0,10.0]}", "tune=class_cv",
        ]  # fmt: skip
        cfg = compose(overrides)
        ours.append(run(cfg).metrics["acc_class"])
        plain = resolve(cfg)
        raw = read_data(plain)
        folds = [transform_data(plain, fold(raw, held)) for held in validation_folds(raw, 5, 0)]
        points = [(g, lam) for g in (1.0, 10.0, 100.0) for lam in (1.0, 10.0)]
        best = max(points, key=lambda point: np.mean([formula(f, *point) for f in folds]))
        reference.append(formula(transform_data(plain, raw), *best))
    print(f"\nESZSL {np.mean(ours):.4f}, the formula {np.mean(reference):.4f}")
    assert_allclose(ours, reference, atol=0.002)
    assert np.mean(ours) > 0.4


def test_choices_at_the_edge_of_a_grid_are_counted():
    def record(chosen, tried):
        return {
            "key": {"tune": {"chosen": {"model.C": chosen}}},
            "trials": [{"settings": {"model.C": v}} for v in tried],
        }

    assert compare.edges([record(1, [1, 2, 3]), record(3, [1, 2, 3]), record(2, [1, 2, 3])]) == {"model.C": 2}
    # Two values, words and untuned runs have no edges.
    assert compare.edges([record(1, [1, 2]), record("a", ["a", "b", "c"]), {"key": {"tune": None}}]) == {}


def test_methods_are_compared_in_pairs(folder):
    records = compare.read(folder)
    rows = compare.table(records)
    assert rows[0].to_best is None
    assert_allclose(rows[1].to_best.mean, rows[1].mean - rows[0].mean)
