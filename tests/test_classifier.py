"""ZeroShotClassifier: scikit-learn's manners, classes that training never saw, files that execute nothing."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import skops.io
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import models
from zsl import CoupledDictionaries, UserError, ZeroShotClassifier, compose, run
from zsl.data.checked_rows import training_rows
from zsl.data.preprocess import Preprocess
from zsl.evaluation import evaluate, gzsl
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.inference import Inference
from zsl.inference.labels import checked_labels
from zsl.model_selection import ClassFold
from zsl.models import ESZSL, MDP, VSOP, DSRLStyle, Ridge
from zsl.runs import model_file

FEW = {"coupled": ["model.n_iter=1"], "cmt": ["model.max_iter=20"], "bucher_metric": ["model.max_iter=20"],
       "fclswgan": ["model.n_epochs=2"]}  # fmt: skip


@pytest.fixture(scope="module")
def raw():
    return load(checked(compose(["dataset=synthetic"])))


@pytest.fixture(scope="module")
def table(raw):
    """The class attributes as a user has them."""
    return pd.DataFrame(raw.attributes, raw.class_names, [f"a{i}" for i in range(raw.attributes.shape[1])])


@pytest.fixture(scope="module")
def names(raw):
    return np.array(raw.class_names)[raw.seen[raw.y]]


@pytest.fixture(scope="module")
def fitted(raw, table, names):
    return ZeroShotClassifier(Ridge(), inference="own").fit(raw.X, names, table)


# --- fitting and predicting ---------------------------------------------------------------------------------------


def test_classes_without_images_are_recognised(raw, table, names):
    classifier = ZeroShotClassifier(CoupledDictionaries(n_iter=2)).fit(raw.X, names, table)
    assert list(classifier.classes_) == raw.unseen_names
    truth = np.array(raw.unseen_names)[raw.y_unseen]
    assert classifier.score(raw.X_unseen, truth) > 0.6  # chance is a fifth
    assert_array_equal(
        classifier.predict(raw.X_unseen), classifier.classes_[classifier.decision_function(raw.X_unseen).argmax(axis=1)]
    )
    assert classifier.n_features_in_ == raw.X.shape[1]
    assert classifier.predict_attributes(raw.X_unseen[:3]).shape == (3, table.shape[1])


@pytest.mark.parametrize("model", models(quick={"coupled", "eszsl", "gfzsl"}))
def test_a_run_is_a_thin_layer_over_the_classifier(tmp_path, model):
    cfg = compose(
        ["dataset=synthetic", "tracking=none", "save_precision=double", f"model={model}", *FEW.get(model, ())]
    )
    result, raw = run(cfg, tmp_path), load(checked(cfg))
    stored = ZeroShotClassifier.load(tmp_path / "model.skops")
    assert list(stored.classes_) == raw.unseen_names
    assert_array_equal(stored.decision_function(raw.X_unseen), result.prediction.scores)
    # New classes with the attributes of the unseen ones are the unseen ones, whatever they are called.
    new = {f"new {m}": row for m, row in enumerate(raw.Z_unseen)}
    assert_allclose(stored.decision_function(raw.X_unseen, new), result.prediction.scores, rtol=1e-9)
    assert set(stored.predict(raw.X_unseen, new)) <= set(new)


@pytest.mark.parametrize(
    "overrides",
    [
        ["feature.pca=8", "feature.power=0.5", "feature.standardise=true", "dataset.semantics.pca=3"],
        ["feature.dtype=float32"],
        ["inference=taaw"],
        ["inference=transductive", "model=ridge", "evaluation.n_validation_splits=2"],
        ["solver=fista"],
        ["model=eszsl", "tune=class_cv", "tune.grid={model.gamma:[0.01,100],feature.pca:[5,20]}"],
    ],
)
@pytest.mark.slow
def test_stored_pre_processing_settings_and_rules_are_those_of_the_run(tmp_path, overrides):
    quick = [] if any(o.startswith("model=") for o in overrides) else ["model.n_atoms=30", "model.n_iter=1"]
    cfg = compose(["dataset=synthetic", "tracking=none", "save_precision=double", *quick, *overrides])
    result, raw = run(cfg, tmp_path), load(checked(cfg))
    stored = ZeroShotClassifier.load(tmp_path / "model.skops")
    assert_array_equal(stored.decision_function(raw.X_unseen), result.prediction.scores)


def test_one_image_is_predicted_as_among_many_and_transductive_rules_take_one(raw, fitted, table, names):
    assert_allclose(
        fitted.decision_function(raw.X_unseen[3:4])[0], fitted.decision_function(raw.X_unseen)[3], rtol=1e-9
    )
    taaw = ZeroShotClassifier(CoupledDictionaries(n_atoms=30, n_iter=1), "taaw").fit(raw.X, names, table)
    assert np.isfinite(taaw.decision_function(raw.X_unseen[:1], table)).all()


def test_every_class_seen_is_an_ordinary_classifier(raw, table, names):
    seen = table.loc[[raw.class_names[c] for c in raw.seen]]
    classifier = ZeroShotClassifier(ESZSL()).fit(raw.X, names, seen)
    assert list(classifier.classes_) == list(seen.index)
    assert classifier.score(raw.X, names) > 0.9


def test_order_and_kind_of_the_attributes_do_not_matter(raw, table, names, fitted):
    as_mapping = {name: list(row) for name, row in zip(table.index, table.to_numpy())}
    for given in (as_mapping, table.iloc[::-1]):
        other = ZeroShotClassifier(Ridge(), inference="own").fit(raw.X, names, given)
        assert_array_equal(other.predict(raw.X_unseen), fitted.predict(raw.X_unseen))


def test_missing_attributes_take_the_mean_of_the_seen_classes(raw, table, fitted):
    row, filled = table.iloc[0].copy(), table.iloc[0].copy()
    row["a2"], filled["a2"] = np.nan, raw.Z_seen[:, 2].mean()
    scores = fitted.decision_function(raw.X_unseen, pd.DataFrame([row, filled], ["gap", "filled"]))
    assert_allclose(scores[:, 0], scores[:, 1])
    with_none = {"gap": [None if np.isnan(v) else v for v in row]}
    assert_allclose(fitted.decision_function(raw.X_unseen, with_none)[:, 0], scores[:, 0])


def test_columns_of_new_classes_go_by_name(raw, table, fitted):
    turned = table[table.columns[::-1]].assign(more=1.0)
    assert_array_equal(fitted.decision_function(raw.X_unseen, turned), fitted.decision_function(raw.X_unseen, table))
    with pytest.raises(UserError, match="has no column 'a19'"):
        fitted.predict(raw.X_unseen, table.drop(columns="a19"))
    with pytest.raises(UserError, match="classes has no column 'a0'"):
        fitted.predict(raw.X_unseen, table.set_axis([f"b{i}" for i in range(20)], axis=1))


@pytest.mark.parametrize("first", [0, 2000])
def test_numbered_columns_go_by_number(raw, table, names, first):
    numbered = table.set_axis(range(first, first + 20), axis=1)
    fitted = ZeroShotClassifier(Ridge(), "own").fit(raw.X, names, numbered)
    turned = numbered[numbered.columns[::-1]]
    assert_array_equal(fitted.predict(raw.X_unseen, turned), fitted.predict(raw.X_unseen, numbered))


def test_names_keep_their_type(raw, table):
    labels = raw.seen[raw.y]
    fitted = ZeroShotClassifier(Ridge(), "own").fit(raw.X, labels, table.set_axis(range(len(table))))
    for classes in ("unseen", "all", raw.unseen.tolist()):
        assert fitted.predict(raw.X_unseen, classes).dtype.kind == "i"
    mixed = ZeroShotClassifier(Ridge(), "own").fit(raw.X, labels, table.set_axis([*range(len(table) - 1), "x"]))
    assert mixed.classes_.dtype == object


def test_scores_are_of_classes_that_can_be_answered(raw, names, fitted):
    with pytest.raises(UserError, match="y has none of the classes that are chosen from"):
        fitted.score(raw.X, names)
    assert fitted.score(raw.X, names, classes="all") > 0.5


def test_probabilities_exist_where_they_are_calibrated(raw, table, names, fitted):
    assert not hasattr(fitted, "predict_proba")
    calibrated = ZeroShotClassifier(Ridge(), "own", calibrate=True).fit(raw.X, names, table)
    P = calibrated.predict_proba(raw.X_unseen)
    assert_allclose(P.sum(axis=1), 1)
    assert_array_equal(P.argmax(axis=1), calibrated.decision_function(raw.X_unseen).argmax(axis=1))


def test_a_transductive_rule_is_decided_on_in_fit(raw, table, names):
    rule = Inference(labels="mixture", fallback=True)
    classifier = ZeroShotClassifier(Ridge(), rule, n_validation_splits=3).fit(raw.X, names, table)
    assert classifier.decision_.use_transductive in (True, False)
    chosen = classifier.predict_stages(raw.X_unseen).chosen
    assert chosen.transductive is classifier.decision_.use_transductive


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attributes": None}, "attributes is needed"),
        ({"attributes": {"a": [1.0], "b": [1.0, 2.0]}}, "attributes has rows of 1 to 2 values"),
        ({"attributes": {"a": ["x"]}}, "attributes must be numbers"),
        ({"attributes": {"stranger": [1.0] * 20}}, "attributes has no row for the class"),
        ({"attributes": np.inf}, "has an infinite attribute"),
        ({"attributes": np.nan}, "has no attribute value at all"),
        ({"attributes": pd.DataFrame([[1.0, 2.0]], ["a"], ["b", "b"])}, "more than one column 'b'"),
        ({"preprocess": StandardScaler()}, "it should be a Preprocess of zsl.data"),
        ({"y": None}, "y has no class name in row 0"),
        ({"y": 0}, "attributes has no row for the class 0"),
        ({"calibrate": True, "y": "few"}, "calibrate needs five seen classes or more"),
        ({"inference": "nonsense"}, "inference.labels=nonsense does not exist"),
        ({"inference": "taaw"}, "needs dictionaries, and Ridge has none"),
        ({"calibrate": 3}, "calibrate=3 is not accepted"),
        ({"model": Ridge(gamma=1.0).set_params(gamma=-1.0)}, "gamma=-1.0 is not accepted"),
    ],
)
def test_mistakes_are_said_before_work(raw, table, names, change, message):
    attributes = change.pop("attributes", table)
    if isinstance(attributes, float):
        attributes = table.assign(**dict.fromkeys(table.columns, attributes))
    names = {"few": np.where(names == names[0], names[0], raw.class_names[raw.seen[1]]), "as is": names}.get(
        wrong := change.pop("y", "as is"), np.array([wrong] * len(names))
    )
    with pytest.raises(UserError, match=message):
        ZeroShotClassifier(**{"model": Ridge(), "inference": "own", **change}).fit(raw.X, names, attributes)


def test_wrong_features_and_classes_are_said(raw, table, fitted):
    with pytest.raises(UserError, match="X has 3 features, but ZeroShotClassifier is expecting 40"):
        fitted.predict(raw.X_unseen[:, :3])
    with pytest.raises(UserError, match="has 19 attributes where training had 20"):
        fitted.predict(raw.X_unseen, {"x": np.zeros(19)})
    with pytest.raises(UserError, match="there is no class to choose from"):
        fitted.predict(raw.X_unseen, "none")
    with pytest.raises(
        UserError, match="classes is of no kind that is accepted; it may be: unseen, seen, all, none, a list"
    ):
        fitted.predict(raw.X_unseen, table.to_numpy())
    with pytest.raises(UserError, match="has more than one row"):
        fitted.predict(raw.X_unseen, pd.concat([table, table]))


# --- scikit-learn -------------------------------------------------------------------------------------------------


def test_parameters_clone_and_display():
    classifier = ZeroShotClassifier(CoupledDictionaries(lam_relative=0.2), inference=Inference("agnostic", "cosine"))
    assert classifier.get_params()["model__lam_relative"] == 0.2
    assert classifier.set_params(model__n_atoms=7).model.n_atoms == 7
    assert repr(clone(classifier)) == repr(classifier)
    assert "CoupledDictionaries" in classifier._repr_html_()


def test_grid_search_and_cross_validation_over_classes(raw, table, names):
    seen = table.loc[[raw.class_names[c] for c in raw.seen]]
    classifier = ZeroShotClassifier(Ridge(), inference="own")
    values = cross_val_score(classifier, raw.X, names, cv=ClassFold(3), params={"attributes": seen})
    assert values.mean() > 0.5
    search = GridSearchCV(classifier, {"model__gamma": [0.1, 1e6], "preprocess__l2": [True]}
                          | {"preprocess": [Preprocess()]}, cv=ClassFold(3))  # fmt: skip
    search.fit(raw.X, names, attributes=seen)
    assert search.best_params_["model__gamma"] == 0.1
    assert search.best_estimator_.predict(raw.X_unseen, table.loc[raw.unseen_names]).shape == (len(raw.X_unseen),)


def test_pipelines_and_data_frames(raw, table, names):
    steps = make_pipeline(StandardScaler(), ZeroShotClassifier(Ridge(), inference="own"))
    assert isinstance(steps.fit(raw.X, names, zeroshotclassifier__attributes=table), Pipeline)
    assert steps.score(raw.X_unseen, np.array(raw.unseen_names)[raw.y_unseen]) > 0.5
    frame = pd.DataFrame(raw.X, columns=[f"f{i}" for i in range(raw.X.shape[1])])
    classifier = ZeroShotClassifier(Ridge(), inference="own").fit(frame, names, table)
    assert list(classifier.feature_names_in_) == list(frame.columns)
    with pytest.raises(UserError, match="feature names"):
        classifier.predict(frame[frame.columns[::-1]])


class OneHot(ZeroShotClassifier):
    """Every class described by itself alone, since scikit-learn's checks know no attributes: all classes are seen."""

    def fit(self, X, y, attributes=None):
        classes = np.unique(np.asarray(y)) if y is not None else []
        return super().fit(X, y, attributes or dict(zip(classes, np.eye(max(len(classes), 1)))))


# Checks of scikit-learn that cannot hold, with the reason.
CANNOT = {
    OneHot: {
        "check_classifiers_train": "decision_function is (L, C) for two classes too: candidates may be any number",
        "check_classifiers_classes": "decision_function is (L, C) for two classes too",
    },
    Preprocess: {
        "check_do_not_raise_errors_in_init_or_set_params": "types and ranges are checked by the constructor too"
    },
}


@parametrize_with_checks(
    [OneHot(ESZSL(), inference="own"), OneHot(CoupledDictionaries(n_atoms=5, n_iter=1), inference="aag"), Preprocess()],
    expected_failed_checks=lambda estimator: CANNOT[type(estimator)],
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- files --------------------------------------------------------------------------------------------------------


def test_what_is_saved_comes_back(tmp_path, fitted, raw):
    with pytest.raises(UserError, match="cannot be written"):
        fitted.save(tmp_path)
    fitted.save(tmp_path / "c.skops")
    back = ZeroShotClassifier.load(tmp_path / "c.skops")
    assert_array_equal(back.decision_function(raw.X_unseen), fitted.decision_function(raw.X_unseen))
    assert_array_equal(back.predict(raw.X_unseen), fitted.predict(raw.X_unseen))
    pd.testing.assert_frame_equal(back.attributes_, fitted.attributes_)
    values = {"none": None, "inf": float("inf"), "text": "ä", "type": np.dtype("f4"), "list": [1, [2.5, "x"]],
              "tuple": (1, (2,)), "map": {"a": [np.arange(3)]}}  # fmt: skip
    model_file.write(tmp_path / "v.skops", values)
    found = model_file.read(tmp_path / "v.skops")
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in values.items()}


class Stranger:
    """A class that is no part of zsl."""


def test_a_file_cannot_run_what_it_names(tmp_path):
    for value in (Stranger(), model_file.read, subprocess_of("os.getcwd")):
        skops.io.dump({"format": 3, "value": value}, tmp_path / "x.skops")
        with pytest.raises(UserError, match="is no registered part of zsl"):
            ZeroShotClassifier.load(tmp_path / "x.skops")
    model_file.write(tmp_path / "x.skops", {"value": Stranger()})
    assert isinstance(model_file.read(tmp_path / "x.skops", ("test_classifier",))["value"], Stranger)


def subprocess_of(name):
    import os

    return getattr(os, name.partition(".")[2])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.skops", b"nothing of this kind", "is not a fitted classifier of zsl"),
        ("x.skops", None, "does not exist"),
        ("model.npz", b"", "was written by zsl 0.1"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        ZeroShotClassifier.load(tmp_path / name)


class Mine(Ridge):
    """A model outside zsl."""


def test_a_model_of_ones_own_is_read_once_its_package_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("zsl.models.Ridge", Mine)
    run(compose(["dataset=synthetic", "tracking=none", "model=ridge"]), tmp_path)
    with pytest.raises(
        UserError, match=r'allow=\["test_classifier"\] in Python, --allow test_classifier for zsl.predict'
    ):
        ZeroShotClassifier.load(tmp_path / "model.skops")
    for allow in ("test_classifier", ["test_classifier"]):
        assert type(ZeroShotClassifier.load(tmp_path / "model.skops", allow=allow).model_) is Mine


class Stateful(Ridge):
    """A model whose fit leaves something behind that has no safe form."""

    def fit(self, X, y, Z, Z_unseen):
        super().fit(X, y, Z, Z_unseen)
        self.memory_ = (i for i in range(3))
        return self


def test_a_model_that_cannot_be_saved_says_so_and_is_recorded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("zsl.models.Ridge", Stateful)
    (tmp_path / "model.skops").write_bytes(b"of a run before")
    with caplog.at_level(logging.WARNING):
        run(compose(["dataset=synthetic", "tracking=none", "model=ridge"]), tmp_path)
    assert "cannot be saved" in caplog.text
    assert (tmp_path / "results.json").is_file()
    assert not (tmp_path / "model.skops").exists()


def test_masked_entries_are_refused_wherever_they_are(raw, table, names, fitted):
    # NumPy and scikit-learn drop the mask and take what lies under it.
    X, y, few = raw.X, names, raw.X_unseen[:2]
    hidden = np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) == 3)
    unknown = np.ma.array(y, mask=y == y[0])
    row, gap = np.ma.array(table.iloc[0], mask=np.arange(table.shape[1]) == 1), np.arange(2) == 1
    unseen, classifier = raw.unseen_names, ZeroShotClassifier(Ridge(), inference="own")
    asked = ZeroShotClassifier(Ridge(), inference="asked")
    Z, code = raw.Z, np.ma.array(raw.y, mask=raw.y == 0)
    calls = [
        lambda: classifier.fit(hidden, y, table),
        lambda: classifier.fit(X, unknown, table),
        lambda: classifier.fit(X, y, {**dict(zip(table.index, table.to_numpy())), table.index[0]: row}),
        lambda: asked.fit(X, y, table, labelled=(few, np.ma.array(unseen[:2], mask=gap))),
        lambda: fitted.predict(hidden),
        lambda: fitted.score(few, np.ma.array(unseen[:2], mask=gap)),
        lambda: Preprocess().fit(hidden),
        lambda: Preprocess().fit(X).transform(hidden),
        lambda: Ridge().fit(X, code, Z, raw.Z_unseen),
        lambda: CoupledDictionaries(n_iter=1, batch_size=50).fit(hidden, raw.y, Z, raw.Z_unseen),
        lambda: [*ClassFold(2).split(X, unknown)],
        lambda: evaluate(np.eye(2), np.ma.array([0, 1], mask=gap)),
        lambda: gzsl(np.eye(2), np.array([0, 1]), np.ma.array([True, False], mask=gap)),
        lambda: checked_labels(np.ma.array([0, 1], mask=gap), 2, 2),
    ]
    for call in calls:
        with pytest.raises(UserError, match="masked entries"):
            call()
    # A mask without masked entries hides nothing.
    assert_array_equal(fitted.predict(np.ma.array(few)), fitted.predict(few))


def test_what_the_caller_changes_after_fit_changes_no_answer(raw, table, names):
    X, y, Z, Z_unseen, few = (V.copy() for V in (raw.X, raw.y, raw.Z, raw.Z_unseen, raw.X_unseen[:2]))
    fitted = [
        m.fit(X, y, Z, Z_unseen) for m in (Ridge(), CoupledDictionaries(n_iter=1), MDP(), VSOP(), DSRLStyle(n_iter=2))
    ]
    asked = ZeroShotClassifier(Ridge(), inference="asked").fit(X, names, table, labelled=(few, raw.unseen_names[:2]))
    test = raw.X_unseen[:20]
    before = [model.scores(test) for model in fitted], asked.decision_function(test)
    for V in (X, Z, Z_unseen, few):
        V[:] = V[::-1].copy() + 1
    y[:] = y[::-1].copy()
    for old, model in zip(before[0], fitted):
        assert_array_equal(model.scores(test), old, err_msg=str(model))
    assert_array_equal(asked.decision_function(test), before[1])


def test_rows_with_labels_go_by_their_labels(raw, table, names):
    # Rows were read by position, so a class whose values had another order got those of other attributes.
    rows = dict(table.iterrows())
    rows[raw.unseen_names[0]] = rows[raw.unseen_names[0]][::-1]
    classifier = ZeroShotClassifier(Ridge(), inference="own").fit(raw.X, names, rows)
    expected = ZeroShotClassifier(Ridge(), inference="own").fit(raw.X, names, table)
    pd.testing.assert_frame_equal(classifier.attributes_, expected.attributes_)
    new = {"new": table.iloc[0][::-1]}
    assert_array_equal(
        classifier.decision_function(raw.X[:5], new), expected.decision_function(raw.X[:5], table.iloc[[0]])
    )
    rows[raw.unseen_names[0]] = rows[raw.unseen_names[0]].rename({"a0": "b0"})
    with pytest.raises(UserError, match="values of different attributes; give all classes the same"):
        ZeroShotClassifier(Ridge()).fit(raw.X, names, rows)


def test_a_class_is_named_once(raw, fitted):
    # A class that was named twice had two columns of scores: each got half of its probability, and rules that look for
    # one cluster for each class looked for two of it.
    name = raw.unseen_names[0]
    for classes in ([name, name], np.array([*raw.unseen_names, name])):
        with pytest.raises(UserError, match="2 times; name each class once"):
            fitted.predict(raw.X_unseen[:2], classes)


def test_names_of_columns_do_not_outlive_a_fit_to_chunks(raw, names):
    da = pytest.importorskip("dask.array")
    X = pd.DataFrame(raw.X, columns=[f"x{i}" for i in range(raw.X.shape[1])])
    chunked = da.from_array(raw.X, chunks=(100, -1))
    classifier, scaling = ZeroShotClassifier(), Preprocess().fit(X)
    training_rows(classifier, X, names)
    assert len(classifier.feature_names_in_) == len(scaling.feature_names_in_) == raw.X.shape[1]
    training_rows(classifier, chunked, names)
    scaling._rows(chunked, reset=True)
    assert not hasattr(classifier, "feature_names_in_")
    assert not hasattr(scaling, "feature_names_in_")
