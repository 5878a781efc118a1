"""End to end: the pipeline on digits and on simulated data, its files, and the control."""

from __future__ import annotations

import csv
import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from omegaconf import OmegaConf

from zsl import ZeroShotClassifier, compose, run
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.readers import digits
from zsl.errors import UserError
from zsl.evaluation import evaluate
from zsl.experiment.loading import load, load_dataset
from zsl.inference import nearest
from zsl.models import CoupledDictionaries
from zsl.runs import status as records

QUIET = ["tracking=none"]


def test_the_default_run(tmp_path, capsys):
    result = run(compose(QUIET), tmp_path)
    assert result.key["split"]["unseen"] == ["horse", "blue+whale", "seal", "dolphin"]
    assert result.metrics["aag/acc_class"] == pytest.approx(0.420, abs=2e-3)
    out = " ".join(capsys.readouterr().out.split())
    assert "800 images of 4 unseen classes; guessing is right for 0.250" in out
    assert "taaw (the answer)" in out
    assert "0.443 ± 0.011" in out
    assert "5 dictionaries of 160 atoms" in out
    assert "protocol transductive: all test images were used together" in out
    assert "training used the attributes" not in out  # as it does with model=coupled_paper
    assert "was trained on ImageNet" in out


def test_digits(tmp_path, capsys):
    result = run(compose([*QUIET, "dataset=digits"]), tmp_path)
    # All three stages of the default inference, the last one also under plain names.
    for stage in ("aag", "aaw", "taaw"):
        assert result.metrics[f"{stage}/acc_class"] > 0.5  # chance 0.333
    assert result.metrics["acc_class"] == result.metrics["taaw/acc_class"]
    assert "hit_3" not in result.metrics  # three classes: hit@3 cannot miss
    # tol times |x|^2 / p, and unit rows: the attributes, of which there are fewest columns, allow the largest gap.
    assert 0 <= result.metrics["lasso_gap_max"] <= 1e-4 / 16 + 1e-12
    assert result.key["split"]["unseen"] == ["two", "four", "six"]
    assert "unlabelled test images" in result.key["information_used"]
    out = " ".join(capsys.readouterr().out.split())
    assert "539 images of 3 unseen classes; guessing is right for 0.333" in out
    assert str(tmp_path) in out


def test_run_folder_is_complete(tmp_path):
    result = run(compose([*QUIET, "dataset=digits", "inference=aag", "model.n_iter=1"]), tmp_path)
    files = {"results.json", "config.yaml", "per_class.csv", "model.skops", "status.json"}
    files |= {"predictions.csv", "figures"}
    assert {p.name for p in tmp_path.iterdir()} == files
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["metrics"] == pytest.approx(result.metrics)
    assert record["key"]["dataset"]["content"] == result.key["dataset"]["content"]
    assert len(record["curves"]["objective_x"]) == 2
    assert set(record["versions"]) >= {"python", "numpy", "zsl-cdl"}
    rows = list(csv.DictReader((tmp_path / "per_class.csv").open()))
    assert [r["class"] for r in rows] == ["two", "four", "six"]
    assert_allclose(np.mean([float(r["aag/acc"]) for r in rows]), result.metrics["acc_class"])
    stored = ZeroShotClassifier.load(tmp_path / "model.skops").model_
    assert (stored.Dx_.shape, stored.Dz_.shape) == ((5 * 80, 64), (5 * 80, 16))
    # The resolved configuration composes the same run again.
    again = run(OmegaConf.load(tmp_path / "config.yaml"))
    assert again.metrics["acc_class"] == result.metrics["acc_class"]
    assert again.key == result.key


@pytest.mark.slow
def test_without_save_model_neither_the_classifier_nor_its_dictionaries_are_kept(tmp_path):
    words = [*QUIET, "inference=aag", "model.n_iter=1"]
    run(compose(words), tmp_path)
    run(compose([*words, "save_model=false"]), tmp_path)
    assert not list(tmp_path.glob("*.npz"))
    assert not (tmp_path / "model.skops").exists()


@pytest.mark.slow
def test_same_seed_same_result_other_seed_other_dictionaries(tmp_path):
    words = [*QUIET, "dataset=synthetic", "dataset.seed=0", "save_precision=double"]
    seeds = {"a": 0, "b": 0, "c": 1}
    results = {name: run(compose([*words, f"seed={seed}"]), tmp_path / name) for name, seed in seeds.items()}
    Dx = {name: ZeroShotClassifier.load(tmp_path / name / "model.skops").model_.Dx_ for name in seeds}
    assert results["a"].key == results["b"].key
    np.testing.assert_array_equal(Dx["a"], Dx["b"])
    assert (Dx["a"] != Dx["c"]).any()


def test_unseen_labels_change_nothing_but_the_metrics(monkeypatch):
    """Permuting the labels of test images must leave every score as it is."""

    def relabelled(setup):
        data = load(setup)
        return dataclasses.replace(data, y_unseen=np.random.default_rng(3).permutation(data.y_unseen))

    first = run(compose([*QUIET, "dataset=synthetic"]))
    monkeypatch.setattr("zsl.experiment.run.load", relabelled)
    second = run(compose([*QUIET, "dataset=synthetic"]))
    for a, b in zip(first.prediction.stages, second.prediction.stages):
        np.testing.assert_array_equal(a.scores, b.scores)
    assert first.metrics["acc_class"] != second.metrics["acc_class"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["split=645_72", "dataset=digits"], r"belongs to dataset=sun; dataset=digits has: .*combination, file, fixed"),
        (["feature=vgg19", "dataset=digits"], r"feature=vgg19 does not exist for dataset=digits; it has: pixels"),
        (["seed=1.5"], r"seed=1.5 is not accepted: it should be a valid integer"),
        (["solver.max_iter=abc"], r"^solver.max_iter='abc' is not accepted"),
        (["inference.spread.mu=0"], r"inference.spread.mu=0 is not accepted: it should be greater than 0"),
        (["inference=taaw", "inference.labels=own"], r"attributes=aware and inference.labels=own do not go together"),
        (["dataset=xlsa17"], r"dataset.root has no value yet"),
        (["dataset=digits", "split.n_unseen=10"], r"split.n_unseen=10 leaves no seen class"),
        (["dataset.shuffle_attributes=x"], r"dataset.shuffle_attributes='x' is not accepted"),
    ],
)
def test_refusals(overrides, message):
    with pytest.raises(UserError, match=message):
        run(compose([*QUIET, *overrides]))


def test_number_like_names_must_be_quoted(cifar_awa):
    with pytest.raises(UserError, match=r"feature.name=64572 is not text; quote it"):
        run(compose([*QUIET, "dataset=xlsa17", f"dataset.root={cifar_awa}", "feature.name=645_72"]))


def test_digits_table_is_complete_and_distinct():
    table = digits.load()
    assert table.attributes.shape == (10, len(digits.ATTRIBUTES)) == (10, 16)
    assert len(np.unique(table.attributes, axis=0)) == 10
    assert table.features.shape == (1797, 64)
    # Seven-segment displays: an eight shows all bars, a one two.
    assert table.attributes[8, :7].sum() == 7
    assert table.attributes[1, :7].sum() == 2


def learn_attributes_again(model, data):
    """Dz for other attributes, with the codes as they are."""
    A, n = model.A_, len(data.y)
    model._learn_semantic(n, A.T @ A / n, A.T @ data.Z / n, float((data.Z**2).sum()) / n, data.Z_unseen)


def digits_accuracy(table, index, n_shuffles):
    """AAg's acc_class on one choice of three unseen digits: with the true attributes, then with shuffled ones."""
    raw = ZeroShotData.from_table(table, splits.combination(table, index=index))
    out = []
    for seed in (None, *range(n_shuffles)):
        data = preprocess(raw if seed is None else raw.shuffle_attributes(seed), Preprocess(), Preprocess())
        if seed is None:
            model = CoupledDictionaries().fit(data.X, data.y, data.Z, data.Z_unseen)
            A = model.codes(data.X_unseen).A
        else:
            # Dx and the codes see no attributes: only Dz is learned again.
            learn_attributes_again(model, data)
        out.append(evaluate(nearest(A @ model.Dz_, data.Z_unseen), data.y_unseen)["acc_class"])
    return out


@pytest.mark.long
def test_digits_over_all_splits_and_twenty_shuffles():
    table = digits.load()
    accuracy = np.array([digits_accuracy(table, i, 20) for i in range(120)])
    real, shuffled = accuracy[:, 0].mean(), accuracy[:, 1:].mean(axis=0)
    print(f"digits, AAg, 120 splits: acc_class {real:.3f}; shuffled {shuffled.mean():.3f}, max {shuffled.max():.3f}")
    assert real >= 0.45
    assert real > np.percentile(shuffled, 95)
    assert abs(shuffled.mean() - 1 / 3) < 0.03


@pytest.mark.long
@pytest.mark.parametrize(("split", "least"), [("proposed", 0.38), ("standard", 0.47)])
def test_cifar_awa(cifar_awa, split, least):
    data = load_dataset("xlsa17", root=cifar_awa, feature="lite0_pca128", split=split)
    models = [CoupledDictionaries(seed=s).fit(data.X, data.y, data.Z, data.Z_unseen) for s in range(3)]
    Z_hat = [m.predict_attributes(data.X_unseen) for m in models]
    real = np.mean([evaluate(nearest(z, data.Z_unseen), data.y_unseen)["acc_class"] for z in Z_hat])
    shuffled = []
    for seed in range(20):
        over = (f"dataset.shuffle_attributes={seed}",)
        control = load_dataset("xlsa17", root=cifar_awa, feature="lite0_pca128", split=split, overrides=over)
        learn_attributes_again(models[0], control)
        scores = nearest(models[0].predict_attributes(data.X_unseen), control.Z_unseen)
        shuffled.append(evaluate(scores, data.y_unseen)["acc_class"])
    high = np.percentile(shuffled, 95)
    print(f"cifar_awa {split}, AAg, 3 seeds: {real:.3f}; shuffled {np.mean(shuffled):.3f}, 95th percentile {high:.3f}")
    assert real >= least
    assert real > high
    assert abs(np.mean(shuffled) - 0.25) < 0.05


@pytest.mark.slow
def test_a_finished_run_of_other_settings_is_not_replaced(tmp_path):
    quick = [*QUIET, "dataset=synthetic", "model=ridge"]
    first = run(compose(quick), tmp_path)
    with pytest.raises(UserError, match="holds a finished run of other settings or data, which this run would replace"):
        run(compose([*quick, "model.gamma=3.0"]), tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["digest"] == first.digest
    run(compose(quick), tmp_path)  # the same run again
    # Nor is it by a third run, after one that was killed or refused has written its status into the folder.
    status = json.loads((tmp_path / "status.json").read_text())
    records.write(tmp_path / "status.json", {**status, "status": "FAILED", "digest": None})
    with pytest.raises(UserError, match="holds a finished run of other settings or data"):
        run(compose([*quick, "model.gamma=3.0"]), tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["digest"] == first.digest
    # A result that is elsewhere already is no reason to refuse.
    other = compose([*quick, "model.gamma=3.0", f"output_dir={tmp_path}"])
    run(other, tmp_path / "other")
    assert run(compose([*quick, "model.gamma=3.0", f"output_dir={tmp_path}", "skip_existing=true"]), tmp_path).digest
    assert json.loads((tmp_path / "results.json").read_text())["digest"] == first.digest
