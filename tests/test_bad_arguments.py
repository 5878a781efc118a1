"""Rules and metrics refuse wrong arguments with a UserError, whichever argument is wrong."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl import evaluation, inference
from zsl.errors import UserError
from zsl.inference import rules
from zsl.inference.entropy import soft_assignment
from zsl.inference.statistics import seen_statistics
from zsl.linalg import standard_scores, unit_rows
from zsl.models import CoupledDictionaries

N, P, Q, M = 20, 8, 4, 3


@pytest.fixture(scope="module")
def good():
    """Valid arguments that fit together, by name."""
    rng = np.random.default_rng(0)
    X, y, Z, Z_unseen = rng.random((60, P)), np.repeat(np.arange(6), 10), rng.random((6, Q)), rng.random((M, Q))
    test, scores = rng.random((N, P)), rng.random((N, M))
    model = CoupledDictionaries(n_atoms=12, n_iter=2).fit(X, y, Z[y], Z_unseen)
    attributes = inference.agnostic(model, test)
    return {
        "model": model, "statistics": seen_statistics(model, X, y, Z[y]), "attributes": attributes, "X": test,
        "Z_hat": attributes.Z_hat, "Z_unseen": Z_unseen, "Z": Z_unseen, "scores": scores, "base_scores": scores,
         "P": scores / scores.sum(axis=1, keepdims=True), "y": rng.integers(M, size=N),
        "is_seen_class": np.array([True, False, True]), "temperature": 1.0, "k": 1, "rho": 1.0,
    }  # fmt: skip


RULES = (*(r.function for kind in ("labels", "attributes") for r in rules.rules(kind).values()), soft_assignment)
METRICS = tuple(f for f in vars(evaluation).values() if inspect.isfunction(f))
# Optional arguments that are passed in these tests.
OPTIONAL = {evaluation.hubness_report: ("Z_hat", "Z")}


def arguments(function, good):
    parameters = inspect.signature(function).parameters.values()
    return {p.name: good[p.name] for p in parameters if p.default is p.empty or p.name in OPTIONAL.get(function, ())}


def spoilt(values):
    """Wrong values in place of a matrix, a vector of labels, or a number."""
    values = np.asarray(values)
    if values.ndim == 2:
        hole = values.copy()
        hole[1, 2] = np.nan
        other = [values[:0], values[:, :0], values[0], values[None], values + 1j, [[1.0], [1.0, 2.0]], "text"]
        return [hole, values * np.nan, *other, values.astype("U5").astype(object) + "x"]
    if values.dtype == bool:
        return [values[:-1], values.astype(int), values[None], values | True, "text", None]
    if values.ndim == 1:
        numbers = [values - 1, values + 1, values + 0.5, values * np.nan, values.astype(str), values > 0]
        return [*numbers, values[:-1], values[:, None], values[:0], "text", None]
    return [float("nan"), -1, 0, "text", None, True]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [*RULES, *METRICS], ids=lambda f: f.__name__)
def test_every_argument_is_looked_at(good, function):
    right = arguments(function, good)
    function(**right)
    for name, value in right.items():
        if name in ("model", "statistics", "attributes"):
            continue
        for wrong in spoilt(value):
            if function is evaluation.hubness_report and (name == "y" and np.array_equal(wrong, right["y"] - 1)):
                continue  # -1 stands for an image of unknown class
            try:
                result = function(**{**right, name: wrong})
            except UserError:
                continue
            pytest.fail(f"{name}={wrong!r} gave {result!r}")


@pytest.mark.parametrize("function", [*RULES, *METRICS], ids=lambda f: f.__name__)
def test_lists_will_do(good, function):
    right = arguments(function, good)
    lists = {k: v.tolist() if isinstance(v, np.ndarray) and k != "is_seen_class" else v for k, v in right.items()}
    for ours, expected in zip(_arrays(function(**lists)), _arrays(function(**right)), strict=True):
        assert_array_equal(ours, expected)


def _arrays(result):
    if isinstance(result, inference.Attributes):
        return [result.Z_hat]
    if isinstance(result, dict):
        return list(result.values())
    return result if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_rows_of_any_size_become_unit_rows_and_standard_scores(good, size):
    Z = good["scores"] - 0.4
    assert_allclose(unit_rows(Z * size), unit_rows(Z), atol=1e-12)
    assert_allclose(standard_scores(Z * size), standard_scores(Z), atol=1e-12)
    assert_allclose(unit_rows((Z * 1e-30).astype(np.float32)), unit_rows(Z), atol=1e-6)


def test_scores_that_are_equal_but_for_rounding_are_equal():
    # Rounding errors are not standardised, whatever the scores of the other images are.
    scores = np.full((2, 3), 0.1) + np.array([0, 1, -1]) * 2.0**-56
    assert_array_equal(standard_scores(scores), np.zeros((2, 3)))
    assert_array_equal(standard_scores(np.vstack([scores, [[0, 1, 2]]]))[:2], np.zeros((2, 3)))


def test_the_message_names_the_argument(good):
    model, X, Z = good["model"], good["X"], good["Z_unseen"]
    with pytest.raises(UserError, match="Z_hat has 4 columns where 3 are needed"):
        inference.aware(model, X, Z[:, :3])
    with pytest.raises(UserError, match="Z_unseen holds nan in row 0, column 0"):
        inference.aware(model, X, Z * np.nan)
    with pytest.raises(UserError, match="X has 7 columns where 8 are needed"):
        inference.mixture(good["base_scores"], X[:, :7], good["statistics"])


def test_further_arguments_of_metrics_and_rules(good):
    scores, y, seen = good["scores"], good["y"], good["is_seen_class"]
    for ks in (3, "12", (0,), ("a",), None):
        with pytest.raises(UserError, match="is not accepted"):
            evaluation.evaluate(scores, y, ks)
    for offset in (None, "a", np.zeros(2), np.nan):
        with pytest.raises(UserError, match="offset"):
            evaluation.gzsl(scores, y, seen, offset)
    with pytest.raises(UserError, match="different lengths"):
        evaluation.evaluate(scores, [[1], [1, 2]] + [0] * (N - 2))
    with pytest.raises(UserError, match="best score is infinite"):
        evaluation.probabilities(np.full((2, 3), -np.inf), 1.0)
    short = inference.agnostic(good["model"], good["X"][:3])
    with pytest.raises(UserError, match=r"start\.codes has 3 rows"):
        inference.aware(good["model"], good["X"], good["Z_unseen"], start=short)


def test_what_means_the_same_is_taken_alike(good):
    expected = inference.spread(good["Z_hat"], good["Z_unseen"], class_prior=[1.0, 1.0, 2.0])
    for shares in ((1.0, 1.0, 2.0), np.array([1.0, 1.0, 2.0]), [5e307, 5e307, 1e308]):
        assert_allclose(inference.spread(good["Z_hat"], good["Z_unseen"], class_prior=shares), expected)
    # Rows that are rounded to three digits sum to one up to three digits.
    P = good["P"].astype(np.float16)
    exact = P.astype(float) / P.astype(float).sum(axis=1, keepdims=True)
    assert_allclose(evaluation.ece(P, good["y"]), evaluation.ece(exact, good["y"]), atol=2e-3)


def test_rows_come_from_tables_as_well(good):
    rng = np.random.default_rng(1)
    X, y, Z = rng.random((60, P)), np.repeat(np.arange(6), 10), rng.random((6, Q))
    fits = [
        CoupledDictionaries(n_atoms=9, n_iter=1, batch_size=10).fit(table, y, Z[y], good["Z_unseen"])
        for table in (X, pd.DataFrame(X), X.tolist())
    ]
    for m in fits[1:]:
        assert_array_equal(m.Dx_, fits[0].Dx_)


@pytest.mark.parametrize("kind", ["M8[D]", "m8[D]", "U5", "c16"])
def test_rows_read_piece_by_piece_are_numbers_too(good, kind):
    y, Z = np.repeat(np.arange(6), 10), np.ones((6, Q))
    with pytest.raises(UserError, match=r"X holds .* numbers are needed"):
        CoupledDictionaries(n_atoms=9, n_iter=1, batch_size=10).fit(np.ones((60, P)).astype(kind), y, Z[y], Z[:2])
