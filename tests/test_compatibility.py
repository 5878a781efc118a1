"""Compatibility models: losses and subgradients, values by hand, and what training does."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from conftest import central_differences
from zsl.bench.epochs import batch_by_batch, image_by_image
from zsl.models import ALE, CMT, SJE, DeViSE, LatEm
from zsl.models.compatibility import row_space

LEARNERS = [DeViSE, SJE, ALE, LatEm]


@pytest.fixture
def problem(rng):
    y = np.arange(120) % 6
    S = rng.standard_normal((6, 9))
    S /= np.linalg.norm(S, axis=1, keepdims=True)
    X = S[y] @ rng.standard_normal((9, 12)) + 0.3 * rng.standard_normal((120, 12))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y, S[y], rng.standard_normal((3, 9))


@pytest.mark.parametrize("learner", LEARNERS)
def test_subgradient_of_the_stated_objective(learner, rng):
    # The loss is piecewise linear, so finite differences are exact up to rounding unless a kink is near.
    model, y, S, X = learner(margin=0.7), np.arange(10) % 5, rng.standard_normal((5, 4)), rng.standard_normal((10, 6))
    shape = (2, 6, 4) if learner is LatEm else (6, 4)
    for _ in range(3):
        W = rng.standard_normal(shape)
        numeric = central_differences(lambda w: model._step(X, y, S, w.reshape(shape))[0], W.ravel(), 1e-6)
        assert_allclose(model._step(X, y, S, W)[1].ravel(), numeric, atol=1e-8 * np.abs(numeric).max())


@pytest.mark.parametrize(
    ("learner", "loss", "gradient"),
    [
        # Scores 1 (own), 1.5, 0.5, -1 with margin 1: the others violate it by 1.5, 0.5, 0.
        (DeViSE, 2.0, [-2, 1, 1, 0]),
        (SJE, 1.5, [-1, 1, 0, 0]),
        (ALE, 0.75 * 2.0, [-1.5, 0.75, 0.75, 0]),  # (1 + 1/2) / 2
        (LatEm, 2.0, [-2, 1, 1, 0]),
    ],
)
def test_losses_by_hand(learner, loss, gradient):
    value, G = learner(margin=1.0).loss(np.array([[1.0, 1.5, 0.5, -1.0]]), np.array([0]))
    assert_allclose(value, loss)
    assert_allclose(G, [gradient])


def test_latem_changes_the_best_map_of_each_side():
    # One feature, one attribute; classes 1 and -1, image 1 of class 0, maps 2 and -1: scores are max(2 s, -s).
    S, W = np.array([[1.0], [-1.0]]), np.array([[[2.0]], [[-1.0]]])
    value, gradient = LatEm(margin=3.0)._step(np.array([[1.0]]), np.array([0]), S, W)
    # F = (2 by map 0, 1 by map 1), a violation of 3 + 1 - 2. Map 0 falls by s_0 = 1, map 1 rises by s_1 = -1.
    assert_allclose(value, 2.0)
    assert_allclose(gradient.ravel(), [-1.0, -1.0])


@pytest.mark.parametrize("learner", LEARNERS)
def test_training_lowers_the_objective_and_stays_in_the_span_of_seen_attributes(learner, problem):
    X, y, Z, Z_unseen = problem
    model = learner(n_epochs=30).fit(X, y, Z, Z_unseen)
    assert model.objective_[-1] < 0.3 * model.objective_[0]
    assert (model.scores(X, np.array([Z[y == c][0] for c in range(6)])).argmax(axis=1) == y).mean() > 0.9
    outside = np.linalg.svd(Z)[2][6:]
    assert_allclose(model.W_ @ outside.T, 0, atol=1e-8)


def test_one_batch_of_everything_is_a_gradient_step_by_hand(problem):
    X, y, Z, Z_unseen = problem
    S = np.array([Z[y == c][0] for c in range(6)])
    W = DeViSE(n_epochs=1, batch_size=120, lr=0.5, average=False).fit(X, y, Z, Z_unseen).W_
    # At W = 0 every class violates: the gradient is the sum over classes of s_c - s_y.
    expected = -0.5 / 120 * X.T @ (S.sum(axis=0) - 6 * Z)
    assert_allclose(W, expected, atol=1e-12)


@pytest.mark.parametrize("learner", [DeViSE, SJE])
def test_training_comes_near_the_optimum_of_a_linear_program(learner, rng):
    # Both losses are the least slack that satisfies linear inequalities in W. The classes overlap, so the optimum is
    # not zero.
    y = np.arange(60) % 4
    S, X = rng.standard_normal((4, 3)), rng.standard_normal((60, 5))
    X += 0.5 * S[y] @ rng.standard_normal((3, 5))
    S, X = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (S, X))
    pairs = [(i, c) for i in range(60) for c in range(4) if c != y[i]]
    own = np.arange(len(pairs)) if learner is DeViSE else np.array([i for i, _ in pairs])
    n_slacks = int(own.max()) + 1
    lead = np.array([np.outer(X[i], S[c] - S[y[i]]).ravel() for i, c in pairs])
    found = linprog(
        np.r_[np.zeros(15), np.ones(n_slacks) / 60], A_ub=np.hstack([lead, -np.eye(n_slacks)[own]]),
        b_ub=-np.ones(len(pairs)), bounds=[(None, None)] * 15 + [(0, None)] * n_slacks,
    )  # fmt: skip
    model = learner(lr=0.3, n_epochs=1500, batch_size=60).fit(X, y, S[y], S[:2])
    value = model.loss(X @ model.W_ @ S.T, y)[0] / 60
    assert found.fun > 0.1
    assert found.fun - 1e-9 <= value < 1.01 * found.fun


@pytest.mark.parametrize("learner", LEARNERS)
def test_only_lr_over_margin_matters(learner, problem):
    X = problem[0]
    one = learner(margin=1.0, lr=1.0).fit(*problem).scores(X)
    assert_allclose(learner(margin=0.1, lr=0.1).fit(*problem).scores(X), 0.1 * one, atol=1e-10)


def test_the_seed_decides(problem):
    X = problem[0]
    assert not np.allclose(LatEm(seed=0).fit(*problem).scores(X), LatEm(seed=1).fit(*problem).scores(X))


def test_cmt_gradient_and_stationarity(problem, rng):
    X, _, Z, _ = problem
    X, Z = X[:60], Z[:60]
    model = CMT(n_hidden=4, lam=0.3, max_iter=5000, tol=1e-10)
    shapes = [(12, 4), (4, 9)]

    def parts(theta):
        return theta[:48].reshape(shapes[0]), theta[48:].reshape(shapes[1])

    theta = rng.standard_normal(84)
    numeric = central_differences(lambda t: model.objective(X, Z, *parts(t))[0], theta)
    gradient = np.concatenate([g.ravel() for g in model.objective(X, Z, *parts(theta))[1:]])
    assert_allclose(gradient, numeric, atol=1e-8 * np.abs(numeric).max())
    model.fit(X, problem[1][:60], Z, problem[3])
    _, d1, d2 = model.objective(X, Z, model.T1_, model.T2_)
    assert max(np.abs(d1).max(), np.abs(d2).max()) < 1e-8 * np.abs(gradient).max()
    assert_allclose(model.predict_attributes(X), np.tanh(X @ model.T1_) @ model.T2_)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.slow
def test_batches_of_one_are_the_plain_loop(learner, problem):
    X, y, Z, Z_unseen = problem
    S = np.array([Z[y == c][0] for c in range(6)])
    model = learner(n_epochs=1, batch_size=1, lr=0.3, average=False, seed=4).fit(X, y, Z, Z_unseen)
    rng = np.random.default_rng(4)
    start = model._start(12, 9, rng)
    if learner is LatEm:  # only the part in the span of the seen classes' attributes counts
        Q = row_space(S)
        start = start @ Q @ Q.T
    order = rng.permutation(len(X))
    W, loss = image_by_image(learner, X[order], y[order], S, lr=0.3, W=start)
    assert_allclose(model.W_, W, atol=1e-10)
    assert_allclose(model.objective_, [loss], atol=1e-10)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("learner", LEARNERS)
def test_epochs_are_the_plain_loop_over_batches(learner, batch_size, rng):
    # 300 images are five blocks of products, the last one and the last batch being short; in the second epoch most
    # images make no step.
    y = rng.permutation(np.arange(300) % 6)
    S = rng.standard_normal((6, 4))
    X = S[y] @ rng.standard_normal((4, 12)) + 0.3 * rng.standard_normal((300, 12))
    S, X = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (S, X))
    model = learner(n_epochs=2, batch_size=batch_size, lr=0.4, average=False, seed=4).fit(X, y, S[y], S[:2])
    rng = np.random.default_rng(4)
    W, losses = model._start(12, 4, rng), []
    for _ in range(2):
        order = rng.permutation(300)
        W, loss = batch_by_batch(learner, X[order], y[order], S, lr=0.4, W=W, batch_size=batch_size)
        losses.append(loss)
    assert_allclose(model.W_, W, rtol=1e-9, atol=1e-10)
    assert_allclose(model.objective_, losses, rtol=1e-9)
