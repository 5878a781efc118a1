"""Means over splits, paired differences and the table of methods: by hand, and against SciPy."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from report_records import frame, record
from zsl.config import compose
from zsl.data.preprocess import Preprocess, preprocess
from zsl.errors import UserError
from zsl.evaluation import evaluate
from zsl.experiment.loading import load
from zsl.experiment.run import run
from zsl.experiment.setup import checked
from zsl.model_selection.holdout import folds
from zsl.report.compare import compare, edges
from zsl.report.overall import overall
from zsl.report.statistics import (
    bootstrap,
    critical_difference,
    difference,
    mean_ranks,
    pooled,
    repetitions,
    summarise,
)
from zsl.runs.result import SELECTED


def test_seeds_are_averaged_within_their_split():
    runs = frame([record("ab", s, v) for s, v in enumerate([0.2, 0.4])] + [record("cd", 0, 0.5)]).assign(cell="x")
    (summary,) = summarise(runs, "acc_class", ["cell"]).itertuples()
    assert_allclose([summary.mean, summary.std], [0.4, np.std([0.3, 0.5], ddof=1)])
    assert_allclose(summary.error, summary.std / np.sqrt(2))
    assert repetitions(summary.n_splits, summary.n_seeds) == "2 splits x 2 seeds"
    # On one split the deviation is that of the seeds; a metric that no run has gives no rows.
    (one,) = summarise(runs[:2], "acc_class", ["cell"]).itertuples()
    assert_allclose(one.std, np.std([0.2, 0.4], ddof=1))
    assert summarise(runs, "hit_5", ["cell"]).empty


def test_without_overlap_it_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 0.1, (2, 8))
    ours, expected = pooled([(a - b, 0, 20)]), stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert_allclose([ours.p, ours.low, ours.high], [expected.pvalue, interval.low, interval.high])


def test_correction_by_hand():
    # d = 1, 2, 3: mean 2, variance 1; 5 unseen and 20 seen classes: 1/3 + 1/4 = 7/12.
    got = pooled([(np.array([1.0, 2.0, 3.0]), 5, 20)])
    assert_allclose(got.p, 2 * stats.t.sf(2 / np.sqrt(7 / 12), 2))
    assert_allclose(got.high - got.mean, stats.t.ppf(0.975, 2) * np.sqrt(7 / 12))


@pytest.mark.slow
def test_the_correction_keeps_its_level_where_the_usual_test_does_not():
    # Differences that share a part, as overlapping splits do: correlation n_test / (n_test + n_train) = 0.2.
    rng, usual, corrected, n = np.random.default_rng(0), 0, 0, 2000
    for _ in range(n):
        d = np.sqrt(0.2) * rng.standard_normal() + np.sqrt(0.8) * rng.standard_normal(10)
        usual += stats.ttest_1samp(d, 0).pvalue < 0.05
        corrected += pooled([(d, 5, 20)]).p < 0.05
    assert usual / n > 0.15
    assert 0.03 < corrected / n < 0.07


def test_differences_are_paired_over_common_splits():
    first = frame([record("ab", s, v) for s, v in enumerate([0.2, 0.4])] + [record("cd", 0, 0.5), record("ef", 0, 0.9)])
    second = frame([record("ab", 0, 0.1), record("cd", 0, 0.1), record("gh", 0, 0.0)])
    got = difference(first, second)
    assert_allclose(got.mean, (0.2 + 0.4) / 2)  # ef and gh have no pair


def test_one_split_is_compared_over_its_classes_and_never_over_seeds():
    # A hundred seeds without any noise: over seeds the difference would be certain.
    first = frame([record("abc", s, 0.5, (0.9, 0.5, 0.1)) for s in range(100)])
    second = frame([record("abc", s, 0.4, (0.1, 0.5, 0.6)) for s in range(100)])
    got = difference(first, second)
    assert_allclose(got.mean, (0.8 + 0 - 0.5) / 3)
    assert got.low < 0 < got.high
    assert np.isnan(got.p)
    assert difference(first, second, "hit_1") is None
    assert difference(first, second, "absent") is None


def test_bootstrap_covers_what_it_should():
    rng, covered, n = np.random.default_rng(1), 0, 300
    for i in range(n):
        got = bootstrap(rng.normal(0.3, 1, 40), n_draws=1000, seed=i)
        covered += got.low <= 0.3 <= got.high
    assert 0.90 < covered / n < 0.985


def test_ranks_by_hand():
    values = np.array([[0.5, 0.3, np.nan], [0.5, 0.2, 0.9], [0.1, 0.4, 0.8]])
    # Not every method was run on the last split; on the first, two methods share ranks 1 and 2.
    assert_allclose(mean_ranks(values), [(1.5 + 2) / 2, (1.5 + 3) / 2, (3 + 1) / 2])
    assert np.isnan(mean_ranks(values[:, 2:])).all()


# --- the table of methods -----------------------------------------------------------------------------------


def methods():
    """Two methods on three splits; b is better on two of them."""
    values = {"a": [0.2, 0.5, 0.1], "b": [0.4, 0.3, 0.3]}
    return [
        record(split, 0, v, model={"name": m}) for m, vs in values.items() for split, v in zip(("ab", "cd", "ef"), vs)
    ]


def test_methods_are_compared_on_the_same_splits():
    table = compare(frame(methods()))
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    assert list(rows) == ["b", "a"]
    assert_allclose([rows["a"]["mean"], rows["a"]["std"]], [0.8 / 3, np.std([0.2, 0.5, 0.1], ddof=1)])
    assert_allclose([rows["a"]["rank"], rows["b"]["rank"]], [5 / 3, 4 / 3])
    assert rows["b"]["to best"] == "-"
    assert_allclose(rows["a"]["to best"], (0.8 - 1.0) / 3)
    assert str(rows["a"]["splits"]) == "3"
    assert "d / f / random split: acc_class" in table.title


def test_transductive_methods_are_ranked_among_themselves():
    uses = ["images", "attributes", "unlabelled test images"]
    better = [record(split, 0, 0.9, model={"name": "t"}, information_used=uses) for split in ("ab", "cd", "ef")]
    table = compare(frame([*better, *methods()]))
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    assert list(rows) == ["b", "a", "t"]
    assert [rows[m]["protocol"] for m in rows] == ["inductive", "inductive", "transductive"]
    assert [rows["t"]["rank"], rows["t"]["to best"]] == [1.0, "-"]
    assert_allclose([rows["a"]["rank"], rows["b"]["rank"]], [5 / 3, 4 / 3])


@pytest.mark.parametrize("order", [1, -1])
def test_a_method_that_was_transductive_on_some_splits_is_a_transductive_one(order):
    """``inference.fallback`` decides on each split; the first run alone said which methods it is ranked among."""
    uses = [["images", "attributes"], ["images", "attributes"], ["images", "attributes", "unlabelled test images"]]
    splits = zip(("ab", "cd", "ef"), uses[::order])
    mixed = [record(split, 0, 0.9, model={"name": "t"}, information_used=used) for split, used in splits]
    table = compare(frame([*mixed, *methods()]))
    assert [row[:2] for row in table.rows] == [["b", "inductive"], ["a", "inductive"], ["t", "transductive"]]
    tables, _ = overall(frame([*mixed, *methods()]))
    assert [table.name for table in tables] == ["methods_inductive", "methods_transductive"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda r: r["key"]["dataset"].update(content="other"), "differ in their dataset"),
    (lambda r: r["key"]["dataset"].update(shuffle_attributes=1), "differ in their dataset"),
    (lambda r: r["key"]["feature"].update(name="vgg19"), "differ in their feature"),
    (lambda r: r["key"]["split"].update(name="standard"), "differ in their split"),
    (lambda r: r["metrics"].pop("acc_class"), "acc_class is not in every record"),
])  # fmt: skip
def test_what_does_not_belong_together_makes_no_table(change, message):
    records = methods()
    change(records[0])
    with pytest.raises(UserError, match=message):
        compare(frame(records))


def test_two_results_for_one_method_and_split_are_refused():
    records = [*methods(), deepcopy(methods()[0])]
    assert len(compare(frame(records)).rows) == 2
    records[-1]["metrics"]["acc_class"] += 0.1
    with pytest.raises(UserError, match=r"run twice on one split, with different results, in run\d and run\d; remove"):
        compare(frame(records))


# --- several data sets ---------------------------------------------------------------------------------------------


def several(accuracies, **more):
    """Records of methods on blocks: ``accuracies[method][block]`` are the values on three splits."""
    out = []
    for method, blocks in accuracies.items():
        for (data, split), values in blocks.items():
            for name, v in zip(("ab", "cd", "ef"), values):
                dataset = {"name": data, "content": data, "semantics": {"l2": True}, "shuffle_attributes": None}
                rows = {"name": split, "seed": 0, "rows": data + split + name, "unseen": list(name), "n_seen": 20}
                one = record(name, 0, v, model={"name": method}, dataset=dataset, **more)
                one["key"]["split"] = rows
                one["metrics"]["imbalanced_acc_class"] = v / 2
                out.append(one)
    return out


A, B = ("x", "random"), ("y", "alike")


def test_methods_over_several_data_sets_by_hand():
    found = several({"a": {A: [0.1, 0.2, 0.3], B: [0.5, 0.5, 0.5]}, "b": {A: [0.3, 0.2, 0.4], B: [0.4, 0.4, 0.7]},
                     "c": {A: [0.9, 0.9, 0.9]}})  # fmt: skip
    (table,), figures = overall(frame(found))
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    assert table.columns[1:3] == ["x random", "y alike"]
    assert list(rows) == ["b", "a", "c"]
    assert_allclose([rows["a"]["x random"], rows["a"]["y alike"], rows["a"]["mean"]], [0.2, 0.5, 0.35])
    assert_allclose(rows["a"]["10:1"], 0.175)
    # c lacks a column: no mean, no rank, and the others are ranked without it.
    assert [str(rows["c"][k]) for k in ("mean", "rank", "10:1")] == ["-", "-", "-"]
    assert_allclose([rows["a"]["rank"], rows["b"]["rank"]], [1.75, 1.25])
    assert_allclose(rows["a"]["to best"], -0.05)
    assert any("Not complete: c (3 of 6 runs)" in note for note in table.notes)
    assert list(figures) == ["methods_inductive"]


def test_a_method_that_lacks_a_split_of_the_others_has_no_mean_of_the_rest():
    """It came first with the easiest split alone."""
    found = several({"a": {A: [0.1, 0.2, 0.9]}, "b": {A: [0.3, 0.2, 0.8]}, "c": {A: [0.4, 0.3, 0.85]}})
    without = [one for one in found if one["key"]["model"]["name"] != "a" or one["metrics"]["acc_class"] > 0.5]
    assert len(without) == len(found) - 2
    (table,), _ = overall(frame(without))
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == ["c", "b", "a"]
    assert [str(v) for v in rows["a"][1:5]] == ["-", "-", "-", "-"]
    assert any("Not complete: a (1 of 3 runs)" in note for note in table.notes)
    (single,) = [compare(frame(without))]
    assert [row[0] for row in single.rows] == ["c", "b", "a"]
    assert [str(single.rows[2][single.columns.index(name)]) for name in ("mean", "std", "splits", "rank")] == [
        "-", "-", "1", "-",
    ]  # fmt: skip
    # A split that only one of three methods has is left out of the mean of each.
    more = [*found, *several({"a": {A: [0.1, 0.2, 0.9]}})[:1]]
    more[-1]["key"]["split"] = {**more[-1]["key"]["split"], "rows": "another", "seed": 99}
    (table,), _ = overall(frame(more))
    assert_allclose({row[0]: row[1] for row in table.rows}["a"], 0.4)


def test_runs_as_given_beside_tuned_ones_are_named():
    found = several({"a": {A: [0.1, 0.2, 0.3]}, "b": {A: [0.3, 0.2, 0.4]}})
    untuned = deepcopy(found[:3])
    for one in found[:3]:
        one["key"]["selection"] = SELECTED
    (table,), _ = overall(frame([*found, *untuned]))
    assert any("left out where others of the method were tuned: 3 of a." in note for note in table.notes)


def test_two_kinds_of_split_of_one_data_set_are_one_data_set():
    kinds = {("x", "random"): [0.1, 0.2, 0.3], ("x", "alike"): [0.5, 0.5, 0.5]}
    better = {("x", "random"): [0.2, 0.4, 0.3], ("x", "alike"): [0.6, 0.7, 0.9]}
    (table,), _ = overall(frame(several({"a": kinds, "b": better})))
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    d = np.array([-0.1, -0.2, 0.0, -0.1, -0.2, -0.4])
    assert_allclose([rows["a"]["to best"], rows["a"]["p"]], [d.mean(), pooled([(d, 2, 20)]).p])


def test_runs_that_do_not_stand_in_one_column_are_refused_over_several_data_sets_too():
    found = several({"a": {A: [0.1, 0.2, 0.3], B: [0.5, 0.5, 0.5]}, "b": {A: [0.3, 0.2, 0.4], B: [0.4, 0.4, 0.7]}})
    found[-1]["key"]["feature"] = {"name": "other"}
    with pytest.raises(UserError, match="differ in their feature"):
        overall(frame(found))


def test_the_pooled_difference_is_sharper_on_more_data_sets():
    d = np.array([0.1, 0.3, 0.2, 0.2])
    one, two = pooled([(d, 5, 20)]), pooled([(d, 5, 20), (d, 5, 20)])
    assert_allclose(two.mean, one.mean)
    # Twice the data: the variance halves, and the degrees of freedom double.
    t = stats.t.isf(two.p / 2, 6)
    assert_allclose(t, stats.t.isf(one.p / 2, 3) * np.sqrt(2))
    assert pooled([(np.zeros(3), 5, 20)]).p == 1
    equal = pooled([(np.array([0.3 - 0.2, 0.1]), 5, 20)])
    assert_allclose(equal.mean, 0.1)
    assert np.isnan([equal.p, equal.low, equal.high]).all(), "two equal differences say nothing of their error"
    # Under no difference, p is not too often small: independent splits need no correction, so n_test is 0.
    rng = np.random.default_rng(0)
    p = [pooled([(rng.standard_normal(6), 0, 1) for _ in range(4)]).p for _ in range(2000)]
    assert abs(np.mean(np.array(p) < 0.05) - 0.05) < 0.015


def test_critical_differences_are_those_of_the_published_table():
    # Demsar (2006), Table 5: q at 0.05 for 2, 5 and 10 classifiers.
    for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert_allclose(critical_difference(k, 6), q * np.sqrt(k * (k + 1) / 36), rtol=1e-3)


def test_inductive_and_transductive_methods_have_tables_of_their_own_and_tuned_runs_replace_others():
    uses = ["images", "attributes", "unlabelled test images", "class prior: classes are equally frequent"]
    tuned = several({"a": {A: [0.6, 0.6, 0.6]}}, selection="selected on validation classes")
    found = [*several({"a": {A: [0.1, 0.1, 0.1]}, "b": {A: [0.2, 0.2, 0.2]}}), *tuned,
             *several({"t": {A: [0.3, 0.3, 0.3]}}, information_used=uses)]  # fmt: skip
    tables, figures = overall(frame(found))
    assert [[row[0] for row in table.rows] for table in tables] == [["a", "b"], ["t"]]
    assert float(tables[0].rows[0][1]) == 0.6
    assert tables[1].rows[0][-1] == "class prior: classes are equally frequent"
    assert [row[-2] for row in tables[0].rows] == ["tuned", "as given"]
    assert figures == {}


def test_choices_at_the_edge_of_a_grid_are_counted():
    def tuned(chosen, tried):
        return record(chosen={"model.C": chosen}, tried=[{"model.C": v} for v in tried])

    assert edges([tuned(1, [1, 2, 3]), tuned(3, [1, 2, 3]), tuned(2, [1, 2, 3])]) == {"model.C": 2}
    # Two values, words and runs without tuning have no edges.
    assert edges([tuned(1, [1, 2]), tuned("a", ["a", "b", "c"]), record()]) == {}


@pytest.mark.long
def test_eszsl_on_real_images_is_near_the_formula(cifar_awa):
    # The reference is the formula in NumPy, on the same features, attributes, splits and folds.
    def formula(d, g, lam):
        S, Y = d.Z_seen, np.eye(len(d.seen))[d.y]
        left = np.linalg.solve(d.X.T @ d.X + g * np.eye(d.X.shape[1]), d.X.T @ Y @ S)
        V = left @ np.linalg.inv(S.T @ S + lam * np.eye(S.shape[1]))
        return evaluate(d.X_unseen @ V @ d.Z_unseen.T, d.y_unseen)["acc_class"]

    def ready(data):
        return preprocess(data, Preprocess(), Preprocess())

    ours, reference = [], []
    for seed in range(3):
        cfg = compose([
            "dataset=xlsa17", f"dataset.root={cifar_awa}", "feature.name=lite0_1280", "split=random",
            "split.n_unseen=5", f"split.seed={seed}", "model=eszsl", "tracking=none",
            "tune.grid={model.gamma:[1.0,10.0,100.0],model.lam:[1.0,10.0]}", "tune=class_cv",
            "tune.rule=best", "tune.repeats=1",
        ])  # fmt: skip
        ours.append(run(cfg).metrics["acc_class"])
        raw = load(checked(cfg))
        parts = [ready(raw.hold_out(held)) for held in folds(raw, 5, 0)]
        points = [(g, lam) for g in (1.0, 10.0, 100.0) for lam in (1.0, 10.0)]
        best = max(points, key=lambda point: np.mean([formula(part, *point) for part in parts]))
        reference.append(formula(ready(raw), *best))
    assert_allclose(ours, reference, atol=0.002)
    assert np.mean(ours) > 0.4
