"""Methods made of classifiers of the seen classes: losses, optimality, oracles, values by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import central_differences
from zsl.linalg import spectrum
from zsl.models import CMT, COSTA, DAP, IAP, BucherMetric, ConSE, SynC
from zsl.models.dap import binary, log_posterior
from zsl.models.descent import descend, polish
from zsl.models.one_vs_rest import Linear, fit_linear, logistic, multiclass_hinge, multinomial, squared_hinge


@pytest.fixture
def problem(rng):
    y = np.arange(80) % 5
    S = rng.standard_normal((5, 6))
    X = S[y] @ rng.standard_normal((6, 7)) + 2 * rng.standard_normal((80, 7))
    return X, y, S[y], rng.standard_normal((3, 6))


LOSSES = {
    "logistic": lambda y, k: logistic(y[:, None] == np.arange(k)),
    "multinomial": multinomial,
    "squared_hinge": lambda y, k: squared_hinge(y[:, None] == np.arange(k)),
    "multiclass_hinge": lambda y, k: multiclass_hinge(y, 1.0 - np.eye(k)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_against_finite_differences(loss, rng):
    y = np.arange(8) % 4
    of = LOSSES[loss](y, 4)
    F = rng.standard_normal(32)
    numeric = central_differences(lambda f: of(f.reshape(8, 4))[0], F)
    assert_allclose(of(F.reshape(8, 4))[1].ravel(), numeric, atol=1e-8 * np.abs(numeric).max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_the_objective_vanishes(problem, loss, bias):
    X, y, _, _ = problem
    of = LOSSES[loss](y, 5)
    found = fit_linear(X, of, 5, 0.3, bias=bias, of=spectrum(X), tol=1e-11)
    G = of(X @ found.W + found.b)[1]
    assert_allclose(found.W + 0.3 * X.T @ G, 0, atol=1e-8)
    if bias:
        assert_allclose(G.sum(axis=0), 0, atol=1e-8)
    assert found.residual < 1e-9


def test_classifiers_agree_with_scikit_learn(problem):
    from sklearn.linear_model import LogisticRegression

    X, y, _, _ = problem
    oracle = LogisticRegression(C=0.3, tol=1e-10, max_iter=10_000).fit(X, y)
    found = fit_linear(X, multinomial(y, 5), 5, 0.3, of=spectrum(X), tol=1e-11)
    assert_allclose(found.W, oracle.coef_.T, atol=1e-5)
    binary_oracle = LogisticRegression(C=0.3, tol=1e-10, max_iter=10_000).fit(X, y == 1)
    found = fit_linear(X, logistic((y == 1)[:, None]), 1, 0.3, of=spectrum(X), tol=1e-11)
    assert_allclose(found.W[:, 0], binary_oracle.coef_[0], atol=1e-5)
    assert_allclose(found.b, binary_oracle.intercept_, atol=1e-5)


def test_fewer_images_than_features(rng):
    X, y = rng.standard_normal((12, 30)), np.arange(12) % 3
    found = fit_linear(X, multinomial(y, 3), 3, 2.0, of=spectrum(X), tol=1e-11)
    assert_allclose(found.W + 2.0 * X.T @ multinomial(y, 3)(X @ found.W + found.b)[1], 0, atol=1e-8)


def test_losses_by_hand():
    F = np.array([[2.0, 1.5, 0.0]])
    y = np.array([0])
    # 1 - 2 < 0; 1 + 1.5; 1 + 0.
    assert_allclose(squared_hinge(np.array([[True, False, False]]))(F)[0], 2.5**2 + 1)
    # Class 1: 1 + 1.5 - 2; class 2: 1 + 0 - 2 < 0.
    value, G = multiclass_hinge(y, 1.0 - np.eye(3))(F)
    assert_allclose(value, 0.25)
    assert_allclose(G, [[-1, 1, 0]])
    assert_allclose(multinomial(y, 3)(np.log([[2.0, 1.0, 1.0]]))[0], np.log(2))
    assert_allclose(logistic(np.array([[True]]))(np.zeros((1, 1)))[0], np.log(2))


def test_conse_by_hand(problem):
    X, y, Z, Z_unseen = problem
    model = ConSE(T=2).fit(X, y, Z, Z_unseen)
    model.classifier_ = Linear(np.zeros((7, 5)), np.log([4.0, 1.0, 3.0, 1.0, 1.0]), 0.0)
    assert_allclose(model.predict_attributes(X[:1]), [(4 * model.S_[0] + 3 * model.S_[2]) / 7])
    model.T = 1000
    assert_allclose(model.predict_attributes(X[:1]), [np.array([4, 1, 3, 1, 1]) / 10 @ model.S_])


def test_posterior_by_hand():
    # Two attributes with p(a|x) = .8, .3, priors .5, .25; a class has the first only.
    expected = np.log(0.8 / 0.5) + np.log(0.7 / 0.75)
    assert_allclose(log_posterior(np.array([[0.8, 0.3]]), np.array([[True, False]]), np.array([0.5, 0.25])), expected)


def test_binary_attributes_are_above_the_mean_and_constant_ones_unused():
    b = binary(np.array([[0.0, 1.0, 0.1], [0.0, 3.0, 0.1], [6.0, 2.5, 0.1]]))
    assert b.used.tolist() == [True, True, False]
    assert_allclose(b.prior, [1 / 3, 2 / 3, 0])
    assert_allclose(b.high[:2], [6, 2.75])
    assert_allclose(b.low[:2], [0, 1])
    assert_allclose(b.high[2], b.low[2])
    assert b(np.array([[3.0, 2.0, 5.0]])).tolist() == [[True, False, True]]


@pytest.mark.parametrize("rounding", [0.0, 1e-16, -1e-16])
def test_an_attribute_equal_to_the_mean_is_absent_wherever_it_is_asked_for(rounding, rng):
    S = np.array([[0, 0, 1], [1, 0.5, 0], [0.5, 1, 0], [0.5, 0.5, 1]])
    has = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    b = binary(S)
    assert_array_equal(b(S + rounding), has)
    for scale in (0.1, 0.3, 0.7):
        in_single = (scale * S).astype(np.float32)
        assert_array_equal(binary(in_single.astype(np.float64))(in_single), has)
    y = np.repeat(np.arange(4), 5)
    X = rng.standard_normal((20, 6))
    dap, iap = (kind().fit(X, y, S[y], S[:2]) for kind in (DAP, IAP))
    assert_allclose(dap.binary_.prior, dap.binary_(S[y]).mean(axis=0))
    assert_allclose(dap.binary_.prior, [0.25, 0.25, 0.5])
    assert_allclose(iap.binary_.prior, iap.has_.mean(axis=0))
    assert_allclose([b.low, b.high], [[1 / 3, 1 / 3, 0], [1, 1, 1]])


def test_dap_survives_an_attribute_that_all_seen_classes_share(problem):
    X, y, Z, Z_unseen = problem
    Z = np.column_stack([Z, np.ones(len(Z))])
    model = DAP().fit(X, y, Z, np.column_stack([Z_unseen, [0.0, 1.0, 2.0]]))
    without = DAP().fit(X, y, Z[:, :-1], Z_unseen)
    assert_allclose(model.scores(X), without.scores(X), atol=1e-6)
    assert_allclose(model.predict_attributes(X)[:, -1], 1)


def test_dap_is_one_logistic_regression_per_attribute(problem):
    from sklearn.linear_model import LogisticRegression

    X, y, Z, Z_unseen = problem
    model = DAP(C=0.5, prior="half", tol=1e-10).fit(X, y, Z, Z_unseen)
    S = np.array([Z[y == c][0] for c in range(5)])
    expected = 0.0
    for m in range(6):
        threshold = S[:, m].mean()
        p = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, Z[:, m] > threshold).predict_proba(X)[:, 1:]
        p = np.clip(p, 1e-3, 1 - 1e-3)
        expected = expected + np.log(np.where(Z_unseen[:, m] > threshold, p, 1 - p) / 0.5)
    assert_allclose(model.scores(X), expected, atol=1e-4)


def test_iap_mixes_the_attributes_of_seen_classes(problem):
    X, y, Z, Z_unseen = problem
    model = IAP(prior="half").fit(X, y, Z, Z_unseen)
    model.classifier_ = Linear(np.zeros((7, 5)), np.log([4.0, 1.0, 3.0, 1.0, 1.0]), 0.0)
    P = np.array([[0.4, 0.1, 0.3, 0.1, 0.1]]) @ model.has_
    assert_allclose(model.scores(X[:1]), log_posterior(P, model.binary_(Z_unseen), np.full(6, 0.5)))


def test_costa_copies_the_nearest_class_when_cold_and_averages_when_hot(problem):
    X, y, Z, _ = problem
    cold = COSTA(temperature=1e-3).fit(X, y, Z, Z[:5])
    assert_allclose(cold.scores(X), cold.classifier_(X), atol=1e-8)
    hot = COSTA(temperature=1e6).fit(X, y, Z, Z[:5])
    assert_allclose(hot.scores(X), np.repeat(hot.classifier_(X).mean(axis=1)[:, None], 5, axis=1), atol=1e-4)


@pytest.mark.parametrize("loss", ["one_vs_other", "multiclass", "struct"])
def test_sync_is_stationary_in_the_bases_of_its_phantoms(problem, loss):
    # The objective as the paper states it, in V: its gradient is the chain rule through W = V Sim'.
    X, y, Z, Z_unseen = problem
    model = SynC(lam=0.05, sigma=0.7, loss=loss, tol=1e-12).fit(X, y, Z, Z_unseen)
    S = np.array([Z[y == c][0] for c in range(5)])
    d = np.linalg.norm(S[:, None] - S[None], axis=2)
    width = 0.7 * np.median(d[~np.eye(5, dtype=bool)])
    similarity = np.exp(-(d**2) / (2 * width**2))
    similarity /= similarity.sum(axis=1, keepdims=True)
    W = model.V_ @ similarity.T
    of = {
        "one_vs_other": squared_hinge(y[:, None] == np.arange(5)),
        "multiclass": multiclass_hinge(y, 1.0 - np.eye(5)),
        "struct": multiclass_hinge(y, d),
    }[loss]
    gradient = (X.T @ of(X @ W)[1] / len(X) + 0.05 * W) @ similarity
    assert_allclose(gradient, 0, atol=1e-8)
    assert_allclose(model.scores(X, S), X @ W, atol=1e-8)


def test_sync_with_two_classes_of_the_same_attributes(problem):
    X, y, Z, Z_unseen = problem
    Z = np.where((y == 4)[:, None], Z[3], Z)
    assert np.isfinite(SynC().fit(X, y, Z, Z_unseen).scores(X)).all()


def test_descent_reaches_a_gradient_that_values_cannot_tell():
    # In a narrow valley, values near the minimum differ by less than rounding, and gradients by more.
    def valley(x):
        value = 1e3 + (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        return value, np.array(
            [-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)]
        )  # fmt: skip

    found = descend(valley, np.array([-1.2, 1.0]), tol=1e-12, max_iter=1000)
    assert found.residual <= 1e-12
    assert_allclose(found.x, 1, atol=1e-9)


def test_steps_by_gradients_alone_stay_near_where_they_start():
    # The gradient is almost constant, so the quotient of differences gives a step of 4e8, where exp overflows.
    def slope(x):
        return 1 - 1e-9 * np.exp(-x)

    with np.errstate(all="raise"):
        x, g = polish(slope, np.ones(1), slope(np.ones(1)), 1e-9)
    assert_allclose(x, -9 * np.log(10))
    assert np.abs(g) <= 1e-9


@pytest.mark.parametrize("kind", [CMT, BucherMetric])
def test_a_fit_that_the_limit_of_iterations_ends_says_so_in_one_line(kind, problem, caplog):
    caplog.set_level("INFO")
    model = kind(max_iter=2).fit(*problem)
    assert model.residual_ > model.tol
    (line,) = [r.getMessage() for r in caplog.records if "residual" in r.getMessage()]
    assert f"max_iter=2 with a residual of {model.residual_:.1e}, above tol=0.0001" in line
    caplog.clear()
    model = kind(max_iter=20_000, tol=1e-3).fit(*problem)
    assert model.residual_ <= model.tol
    assert not caplog.records


def test_descent_from_nothing_from_the_minimum_and_from_outside_the_numbers():
    assert descend(lambda x: (0.0, x), np.zeros(0), tol=1e-9, max_iter=10).residual == 0
    assert descend(lambda x: (float(x @ x), 2 * x), np.zeros(3), tol=1e-9, max_iter=10).n_iter == 0
    with pytest.raises(FloatingPointError):
        descend(lambda x: (np.inf, x), np.ones(3), tol=1e-9, max_iter=10)
