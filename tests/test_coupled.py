"""Coupled dictionaries: descent with a certificate, recovery of a known pair, and what the options mean."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zsl
from zsl.data.readers.synthetic import draw
from zsl.errors import UserError
from zsl.models.coupled import CoupledDictionaries, default_n_atoms, initial_atoms
from zsl.sparse import lambda_max, objective, sparse_encode


@pytest.fixture(scope="module")
def problem():
    X, y, C, _ = draw(n_classes=12, n_images=240, p=20, q=15, n_atoms=24, n_nonzero=4, seed=1)
    seen = y < 9
    return X[seen], y[seen], C[y[seen]], C[9:], X[~seen], y[~seen] - 9


@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
@pytest.mark.parametrize("unseen_weight", ["eq2", "eq4", "none"])
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_objectives_never_rise_by_more_than_the_gaps(problem, atoms, unseen_weight, tol):
    X, y, Z, Z_unseen, _, _ = problem
    solver = partial(sparse_encode, tol=tol)
    model = CoupledDictionaries(n_atoms=30, n_iter=6, atoms=atoms, unseen_weight=unseen_weight, solver=solver)
    model.fit(X, y, Z, Z_unseen)
    for values, gaps in ((model.objective_x_, model.gap_x_), (model.objective_z_, model.gap_z_)):
        assert len(values) == len(gaps)
        for k in range(1, len(values)):
            # Redrawn atoms are unused, so they do not change F_x in the unit ball; with a ridge they may.
            exempt = atoms == "ridge" and values is model.objective_x_ and model.redrawn_[k - 1]
            assert exempt or values[k] <= values[k - 1] + gaps[k] + 1e-12
    assert model.objective_x_[-1] < model.objective_x_[0]


@pytest.mark.parametrize("weight", ["eq2", "eq4"])
def test_objectives_are_what_the_docstring_says(problem, weight):
    X, y, Z, Z_unseen, _, _ = problem
    m = CoupledDictionaries(n_atoms=10, n_iter=2, lam=0.2, beta=0.01, unseen_weight=weight).fit(X, y, Z, Z_unseen)
    n, q, r = len(X), Z.shape[1], 10
    w = {"eq2": 1 / len(Z_unseen), "eq4": 1 / n}[weight]
    assert_allclose(m.objective_x_[-1], objective(X, m.Dx_, m.A_, 0.2).mean())
    by_hand = (
        np.linalg.norm(Z - m.A_ @ m.Dz_) ** 2 / (n * q)
        + w * (np.linalg.norm(Z_unseen - m.B_ @ m.Dz_) ** 2 / q + 0.2 / r * np.abs(m.B_).sum())
        + 0.01 / q * np.linalg.norm(m.Dz_) ** 2
    )
    assert_allclose(m.objective_z_[-1], by_hand)


def test_semantic_atoms_solve_their_normal_equations(problem):
    # Without the B term the minimiser over Dz is ridge regression: (A'A/N + beta I) Dz = A'Z/N.
    X, y, Z, Z_unseen, _, _ = problem
    m = CoupledDictionaries(n_atoms=10, n_iter=2, atoms="ridge", unseen_weight="none").fit(X, y, Z, Z_unseen)
    left = m.A_.T @ m.A_ / len(X) + m.beta * np.eye(10)
    assert_allclose(left @ m.Dz_, m.A_.T @ Z / len(X), atol=1e-12)
    assert m.B_.shape == (0, 10)


@pytest.mark.parametrize("weight", ["eq2", "eq4"])
def test_semantic_atoms_with_unseen_classes(problem, weight):
    # (A'A/N + w B'B + beta I) Dz = A'Z/N + w B'Z', with the B of the alternation before.
    X, y, Z, Z_unseen, _, _ = problem
    n, w = len(X), {"eq2": 1 / len(Z_unseen), "eq4": 1 / len(X)}[weight]
    m = CoupledDictionaries(n_atoms=10, n_iter=3, atoms="ridge", unseen_weight=weight).fit(X, y, Z, Z_unseen)
    Dz, m.n_iter = m.Dz_, 2
    A = m.A_
    m._learn_semantic(n, A.T @ A / n, A.T @ Z / n, float((Z**2).sum()) / n, Z_unseen)
    assert m.B_.any()
    left = m.A_.T @ m.A_ / n + w * m.B_.T @ m.B_ + m.beta * np.eye(10)
    assert_allclose(left @ Dz, m.A_.T @ Z / n + w * m.B_.T @ Z_unseen, atol=1e-12)


def test_true_dictionaries_recognise_every_unseen_image():
    X, y, C, truth = draw(n_classes=40, n_images=400, p=20, q=15, n_atoms=24, n_nonzero=4, seed=1)
    m = CoupledDictionaries()
    m.Dx_, m.Dz_, m.Z_unseen_ = truth.Dx, truth.Dz, C
    m.lam_ = 0.05 * lambda_max(X, m.Dx_).mean()
    assert (m.scores(X).argmax(axis=1) == y).mean() > 0.98  # forty classes, chance 0.025


def test_learned_dictionaries_recognise_unseen_classes():
    X, y, C, _ = draw(n_classes=40, n_images=1200, p=40, q=20, n_atoms=30, n_nonzero=5, seed=1)
    seen = y < 30
    m = CoupledDictionaries(n_atoms=30, lam_relative=0.05, init="random", n_iter=40)
    m.fit(X[seen], y[seen], C[y[seen]], C[30:])
    assert (m.scores(X[~seen]).argmax(axis=1) == y[~seen] - 30).mean() > 0.8  # ten classes, chance 0.1


def test_recovers_a_planted_dictionary():
    X, y, Z, truth = draw(n_classes=40, n_images=1200, p=20, q=8, n_atoms=15, n_nonzero=2, within=0.5, noise=0.01)
    m = CoupledDictionaries(n_atoms=15, n_iter=60, lam_relative=0.05, init="random").fit(X, y, Z[y], Z[:1])
    atoms = m.Dx_ / np.linalg.norm(m.Dx_, axis=1, keepdims=True)
    found = np.abs(atoms @ truth.Dx.T).max(axis=0)
    assert (found > 0.95).mean() >= 0.8, found


def test_unit_ball_holds_for_both_dictionaries(problem):
    X, y, Z, Z_unseen, _, _ = problem
    m = CoupledDictionaries(n_atoms=30, n_iter=3, beta=1e-6).fit(X, y, Z * 20, Z_unseen * 20)
    assert np.linalg.norm(m.Dx_, axis=1).max() <= 1 + 1e-9
    assert np.linalg.norm(m.Dz_, axis=1).max() <= 1 + 1e-9


def test_lambda_relative_is_a_share_of_lambda_max(problem):
    X, y, Z, Z_unseen, _, _ = problem
    m = CoupledDictionaries(n_atoms=20, lam_relative=0.25, n_iter=1).fit(X, y, Z, Z_unseen)
    D = initial_atoms(X, 20, "samples", np.random.default_rng(0))
    assert_allclose(m.lam_, 0.25 * lambda_max(X, D).mean())
    huge = CoupledDictionaries(n_atoms=20, lam=1e6, n_iter=2).fit(X, y, Z, Z_unseen)
    assert not huge.A_.any()
    assert_allclose(huge.predict_attributes(X), 0)


def test_float32_stays_float32_and_agrees(problem):
    X, y, Z, Z_unseen, X_unseen, _ = problem
    a = CoupledDictionaries(n_atoms=20, n_iter=2).fit(X, y, Z, Z_unseen)
    b = CoupledDictionaries(n_atoms=20, n_iter=2).fit(*(v.astype(np.float32) for v in (X,)), y, Z, Z_unseen)
    assert b.Dx_.dtype == b.A_.dtype == b.Dz_.dtype == np.float32
    assert np.corrcoef(a.scores(X_unseen).ravel(), b.scores(X_unseen.astype(np.float32)).ravel())[0, 1] > 0.999


def test_dead_atoms_are_drawn_again(problem):
    X, y, Z, Z_unseen, _, _ = problem
    # More atoms than images can use at this lambda.
    m = CoupledDictionaries(n_atoms=150, lam_relative=0.7, n_iter=3, init="random").fit(X, y, Z, Z_unseen)
    assert sum(m.redrawn_) > 0
    assert_allclose(np.linalg.norm(m.Dx_, axis=1).max(), 1, atol=1e-6)


def test_default_number_of_atoms():
    assert default_n_atoms(10_000, 64, 16) == 80  # more than max(p, q)
    assert default_n_atoms(10_000, 20, 100) == 125
    assert default_n_atoms(50, 64, 16) == 50  # no more than images
    assert default_n_atoms(10**6, 4096, 85) == 2560  # where affordable


@pytest.mark.parametrize("how", ["samples", "random"])
def test_initial_atoms_have_unit_length(rng, how):
    X = rng.standard_normal((6, 4))
    X[2] = 0
    D = initial_atoms(X, 9, how, rng)
    assert_allclose(np.linalg.norm(D, axis=1), 1)


@pytest.mark.parametrize("settings", [{"n_atoms": 2.5}, {"n_iter": -1}, {"coupling": "loose"}])
def test_constructor_refuses(settings):
    (name,) = settings
    with pytest.raises(UserError, match=f"{name}=.* is not accepted: it should be "):
        CoupledDictionaries(**settings)


def test_fit_refuses(problem):
    X, y, Z, Z_unseen, _, _ = problem
    m = zsl.CoupledDictionaries(n_atoms=5, n_iter=1)
    for arguments, words in [
        ((X, y, Z[:3], Z_unseen), "Z has 3 rows where"),
        ((X, y, Z, Z_unseen.T), r"Z_unseen has 3 columns where 15 are needed \(is it transposed\?\)"),
        ((X, y + 1, Z, Z_unseen), r"number the seen classes 0\.\.C-1"),
        ((X, y[:3], Z, Z_unseen), "one integer for each of the"),
        ((X * 0, y, Z, Z_unseen), "every training image is zero"),
    ]:
        with pytest.raises(UserError, match=words):
            m.fit(*arguments)


def test_another_coupling_leaves_nothing_of_the_last_fit(problem):
    X, y, Z, Z_unseen, _, _ = problem
    model = CoupledDictionaries(n_atoms=24, n_iter=1)
    of = {"joint": ("objective_", "gap_"), "sequential": ("objective_x_", "objective_z_", "gap_x_", "gap_z_")}
    for coupling in ("sequential", "joint", "sequential"):
        model.set_params(coupling=coupling).fit(X, y, Z, Z_unseen)
        assert sorted(n for names in of.values() for n in names if hasattr(model, n)) == sorted(of[coupling])


@pytest.mark.parametrize("q", [1, 15])
def test_classes_need_the_attributes_of_training(problem, q):
    # With a single attribute, other columns were spread over it without a word.
    X, y, Z, Z_unseen, X_unseen, _ = problem
    model = CoupledDictionaries(n_atoms=24, n_iter=1).fit(X, y, Z[:, :q], Z_unseen[:, :q])
    with pytest.raises(UserError, match=f"class_attributes has 5 columns where {q}"):
        model.scores(X_unseen, np.ones((2, 5)))
