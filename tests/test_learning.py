"""Dictionary learning: statistics, both couplings, pieces of rows and online learning."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from zsl.data.readers.synthetic import draw
from zsl.errors import UserError
from zsl.models.coupled import CoupledDictionaries
from zsl.models.coupling import ImageAttributes, Joint, Visual
from zsl.models.rows import Rows
from zsl.progress import Bar
from zsl.sparse import Codes, learner, learning, objective, sparse_encode
from zsl.sparse.dictionary import duplicate_atoms
from zsl.sparse.kernels.residuals import compressed
from zsl.sparse.problem import row_objectives
from zsl.sparse.statistics import accumulate


@pytest.fixture(scope="module")
def problem():
    X, y, C, _ = draw(n_classes=12, n_images=240, p=20, q=15, n_atoms=24, n_nonzero=4, seed=1)
    seen = y < 9
    return X[seen], y[seen], C[y[seen]], C[9:]


def sparse_codes(rng, n, r, density):
    return rng.standard_normal((n, r)) * (rng.random((n, r)) < density)


@pytest.mark.parametrize("density", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_statistics_are_the_dense_products(rng, density, dtype):
    A, X = sparse_codes(rng, 50, 13, density).astype(dtype), rng.standard_normal((50, 7)).astype(dtype)
    D = rng.standard_normal((13, 7)).astype(dtype)
    codes = compressed(A)
    assert_array_equal(codes.toarray(), A)
    AtA, AtX = np.ones((13, 13)), np.ones((13, 7), dtype)
    accumulate(codes, X, AtA, AtX, keep=0.5, add=0.1)
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    assert_allclose(AtA, 0.5 + 0.1 * A.T @ A, rtol=rtol, atol=rtol)
    assert_allclose(AtX, 0.5 + 0.1 * A.T @ X, rtol=rtol, atol=rtol)
    R = X.astype(float) - A.astype(float) @ D
    expected = (R**2).sum(axis=1) / 7 + 0.3 / 13 * np.abs(A).sum(axis=1)
    for form in (codes, A):
        assert_allclose(row_objectives(X, D, form, 0.3), expected, rtol=1e-6)


@pytest.mark.parametrize("repeated", [True, False])
def test_attribute_products_from_class_sums(rng, repeated):
    y = np.r_[0:5, rng.integers(5, size=25)]
    Z = rng.standard_normal((5, 3))[y]
    if not repeated:
        Z[-1, 0] += 1
    A = sp.csr_array(sparse_codes(rng, 30, 6, 0.3))
    attributes = ImageAttributes(Z, y)
    assert attributes.repeat == repeated
    total = sum(attributes.products(rows, A[rows]) for rows in (slice(0, 12), slice(12, 30)))
    assert_allclose(attributes.mean_products(total), A.toarray().T @ Z / 30, atol=1e-14)
    assert_allclose(attributes.mean_square, (Z**2).sum() / 30)


def test_duplicate_atoms_are_the_shorter_ones_of_a_pair(rng):
    D = rng.standard_normal((8, 5))
    D[3], D[6], D[7] = -0.5 * D[1], 2 * D[2] + 1e-9, 0
    assert [found.tolist() for found in duplicate_atoms(D)] == [[2, 3], [6, 1]]
    D[6, 0] += 0.1
    assert duplicate_atoms(D.astype(np.float32))[0].tolist() == [3]


def test_duplicate_atoms_are_drawn_again(problem):
    X, y, Z, Z_unseen = problem
    twice = np.vstack([X[:1]] * 40 + [X])  # so that the initial dictionary has copies of one image
    y, Z = np.r_[[y[0]] * 40, y], np.vstack([Z[:1]] * 40 + [Z])
    m = CoupledDictionaries(n_atoms=60, n_iter=2).fit(twice, y, Z, Z_unseen)
    assert m.redrawn_[0] >= 2
    assert not duplicate_atoms(m.Dx_)[0].size


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_atoms_drawn_again_do_not_raise_the_objective(rng, coupling, atoms, size):
    # There are fewer images than atoms, and some images are copies. In every iteration most atoms are unused or
    # duplicates, and some used atoms are copies of unused ones. With a ridge and small features all may be unused.
    X = rng.standard_normal((60, 20)) * size / 20**0.5
    X[40:50] = X[:10]
    y = np.arange(60) % 10
    Z, Z_unseen = rng.random((10, 8))[y], rng.random((3, 8))
    m = CoupledDictionaries(n_atoms=100, n_iter=6, atoms=atoms, coupling=coupling).fit(X, y, Z, Z_unseen)
    assert sum(m.redrawn_) > 50
    values = np.array(m.objective_ if coupling == "joint" else m.objective_x_)
    assert (np.diff(values) <= 1e-6 * values[0]).all()


def test_stacked_rows_are_one_lasso(problem, rng):
    # 1/P |s - a D|^2 = 1/p |x - a Dx|^2 + 1/q |z - a Dz|^2.
    X, y, Z, Z_unseen = problem
    task = Joint(X, ImageAttributes(Z, y), Z_unseen, 0.0, 0.1, 0.5, sparse_encode, 0.3)
    Dx, Dz, A = rng.standard_normal((6, 20)), rng.standard_normal((6, 15)), rng.standard_normal((len(X), 6))
    D = task.stacked(Dx, Dz)
    for part, whole in zip(task.split(D), (Dx, Dz)):
        assert_allclose(part, whole)
    by_hand = ((X - A @ Dx) ** 2).sum(1) / 20 + ((Z - A @ Dz) ** 2).sum(1) / 15 + 0.3 / 6 * np.abs(A).sum(1)
    assert_allclose(objective(task.rows(slice(None)), D, A, 0.3), by_hand)


@pytest.mark.parametrize("weight", ["eq2", "eq4", "none"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_joint_objective_is_eq_2_and_never_rises(problem, weight, atoms):
    X, y, Z, Z_unseen = problem
    m = CoupledDictionaries(
        n_atoms=30, n_iter=5, lam=0.3, beta=0.01, coupling="joint", unseen_weight=weight, atoms=atoms
    )
    m.fit(X, y, Z, Z_unseen)
    n, p, q, r = len(X), 20, 15, 30
    w = {"eq2": 1 / len(Z_unseen), "eq4": 1 / n, "none": 0.0}[weight]
    B = m.B_ if w else np.zeros((len(Z_unseen), r))
    assert m.B_.shape == ((len(Z_unseen) if w else 0), r)
    by_hand = (
        ((X - m.A_ @ m.Dx_) ** 2).sum() / (n * p)
        + ((Z - m.A_ @ m.Dz_) ** 2).sum() / (n * q)
        + 0.3 / r * np.abs(m.A_).sum() / n
        + w * (((Z_unseen - B @ m.Dz_) ** 2).sum() / q + 0.3 / r * np.abs(B).sum())
        + 0.01 / q * (m.Dz_**2).sum()
        + (0.01 / p * (m.Dx_**2).sum() if atoms == "ridge" else 0)
    )
    assert_allclose(m.objective_[-1], by_hand)
    assert len(m.objective_) == len(m.gap_) == 6
    for k in range(1, 6):
        assert m.objective_[k] <= m.objective_[k - 1] + m.gap_[k] + 1e-12 or (atoms == "ridge" and m.redrawn_[k - 1])
    assert m.objective_[-1] < m.objective_[0]
    if atoms == "unit_ball":
        assert max(np.linalg.norm(D, axis=1).max() for D in (m.Dx_, m.Dz_)) <= 1 + 1e-9
    assert m.scores(X).shape == (n, len(Z_unseen))


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_gradient_steps_learn_a_dictionary_and_never_rise(problem, coupling, atoms):
    settings = {"n_atoms": 20, "n_iter": 60, "lam": 0.2, "beta": 0.01, "coupling": coupling, "atoms": atoms}
    name, gaps = ("objective_", "gap_") if coupling == "joint" else ("objective_x_", "gap_x_")
    m, exact = (CoupledDictionaries(update=update, **settings).fit(*problem) for update in ("gradient", "exact"))
    values = getattr(m, name)
    for k in range(1, 61):
        assert values[k] <= values[k - 1] + getattr(m, gaps)[k] + 1e-12 or (atoms == "ridge" and m.redrawn_[k - 1])
    assert values[-1] < 1.05 * getattr(exact, name)[-1] < values[0]
    assert np.abs(m.Dx_ - exact.Dx_).max() > 1e-6
    if atoms == "unit_ball":
        assert np.linalg.norm(m.Dx_, axis=1).max() <= 1 + 1e-9


def test_joint_converges_to_a_stationary_point(problem):
    # With the penalty alone both dictionaries end where the gradient of Eq. (2) vanishes.
    X, y, Z, Z_unseen = problem
    m = CoupledDictionaries(n_atoms=8, n_iter=300, lam=0.3, beta=0.05, coupling="joint", atoms="ridge")
    m.fit(X, y, Z, Z_unseen)
    n, M, A, B = len(X), len(Z_unseen), m.A_, m.B_
    of_Dx = A.T @ (A @ m.Dx_ - X) / n + 0.05 * m.Dx_
    of_Dz = A.T @ (A @ m.Dz_ - Z) / n + B.T @ (B @ m.Dz_ - Z_unseen) / M + 0.05 * m.Dz_
    for gradient, scale in ((of_Dx, A.T @ X / n), (of_Dz, A.T @ Z / n)):
        assert np.abs(gradient).max() <= 1e-3 * np.abs(scale).max()


def test_pieces_change_nothing(problem, monkeypatch):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 40, "n_iter": 3, "lam_relative": 0.5}
    whole = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    monkeypatch.setattr(learner, "piece_rows", lambda D: 50)
    pieces = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    assert pieces.redrawn_ == whole.redrawn_
    assert_allclose(pieces.Dx_, whole.Dx_, atol=1e-6)
    assert_allclose(pieces.objective_x_, whole.objective_x_, rtol=1e-8)
    assert_allclose(pieces.objective_z_, whole.objective_z_, rtol=1e-6)


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_online_learning_comes_near_batch_learning(problem, coupling, atoms):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 24, "coupling": coupling, "atoms": atoms, "lam": 0.2}
    batch = CoupledDictionaries(n_iter=20, **settings).fit(X, y, Z, Z_unseen)
    online = CoupledDictionaries(n_iter=20, batch_size=40, **settings).fit(X, y, Z, Z_unseen)
    name = "objective_" if coupling == "joint" else "objective_x_"
    assert len(getattr(online, name)) == 21
    assert getattr(online, name)[-1] < 1.1 * getattr(batch, name)[-1]
    assert online.codes_ is None
    assert not hasattr(online, "A_")
    if coupling == "sequential":
        A = online.codes(X).A
        assert_allclose(online.objective_x_[-1], objective(X, online.Dx_, A, 0.2).mean()
                        + (1e-3 / 20 * (online.Dx_**2).sum() if atoms == "ridge" else 0), rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
def test_online_learning_of_one_batch_is_batch_learning(problem, coupling):
    # A batch of all rows replaces all older statistics, so the updates are the same up to cold starts of the codes.
    settings = {
        "n_atoms": 24,
        "coupling": coupling,
        "lam": 0.2,
        "n_iter": 6,
        "solver": partial(sparse_encode, tol=1e-12),
    }
    batch, online = (CoupledDictionaries(batch_size=size, **settings).fit(*problem) for size in (None, 1000))
    assert batch.redrawn_ == online.redrawn_ == [0] * 6
    assert_allclose(online.Dx_, batch.Dx_, atol=1e-4)
    name = "objective_" if coupling == "joint" else "objective_x_"
    assert_allclose(getattr(online, name), getattr(batch, name), rtol=1e-5)


def test_one_online_pass_sees_the_unseen_classes(problem):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 24, "coupling": "joint", "lam": 0.2, "n_iter": 1, "batch_size": 60}
    one, other = (CoupledDictionaries(**settings).fit(X, y, Z, V) for V in (Z_unseen, Z_unseen[::-1] + 1))
    assert np.abs(one.Dz_ - other.Dz_).max() > 1e-3


def test_statistics_remember_one_pass_or_everything(problem):
    # Expected weights of 8 batches, newest first, with 4 batches in a pass: batch t multiplies the older ones by
    # (1 - 1/min(t, 4))^forgetting.
    X, y, Z, _ = problem
    task = Visual(X[:160], ImageAttributes(Z[:160], y[:160]), 0.0)
    for forgetting, expected in (
        (0.0, [1 / 8] * 8),
        (1.0, 0.75 ** np.array([0, 1, 2, 3, 4, 5, 5, 5]) * [1, 1, 1, 1, 1, 1, 2 / 3, 1 / 3]),
    ):
        seen = []

        def encode(X, D, init, rough, seen=seen):
            seen.append(X)
            return Codes(np.ones((len(X), 1)), np.zeros(len(X)), 1)

        D = np.zeros((1, 20))
        state = learning.learn(
            task, D, encode, 0.1, 2, np.random.default_rng(0), batch_size=40, forgetting=forgetting, last_pass=False
        )
        means = np.array([V.mean(axis=0) for V in reversed(seen)])
        assert len(means) == 8
        assert_allclose(state.AtX[0], np.asarray(expected) / np.sum(expected) @ means, rtol=1e-10)


@pytest.mark.slow
def test_online_learning_reads_any_rows(problem, tmp_path):
    import h5py

    X, y, Z, Z_unseen = problem
    kept = {}
    np.save(tmp_path / "X.npy", X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = X
        for name, source in (("array", X), ("map", np.load(tmp_path / "X.npy", mmap_mode="r")), ("h5", file["X"])):
            m = CoupledDictionaries(n_atoms=12, n_iter=2, batch_size=70).fit(source, y, Z, Z_unseen)
            kept[name] = m.Dx_
    assert_array_equal(kept["map"], kept["array"])
    assert_array_equal(kept["h5"], kept["array"])


def test_rows_refuse_what_is_no_matrix():
    with pytest.raises(UserError, match="X has shape"):
        Rows(np.zeros(3), "X")
    X = np.zeros((9, 2), np.float16)
    X[7, 1] = np.nan
    assert Rows(X, "X")[:3].dtype == np.float64
    with pytest.raises(UserError, match="row 7, column 1"):
        Rows(X, "X")[5:]


def test_bar_is_silent_unless_on_a_terminal(monkeypatch, capsys):
    with Bar("work", 3, patience=0) as bar:
        bar.step(objective=1.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Bar("work", 3, patience=0) as bar:
        bar.step(objective=0.125, gap=1e-7)
        bar.step(objective=0.125, gap=1e-7)
    assert "objective 0.125" in capsys.readouterr().err
