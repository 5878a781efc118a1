"""Codes with many non-zeros: the solver that is chosen, its certificates, and what learning makes of rough codes."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import for_any_number_of_threads
from zsl.models import CoupledDictionaries
from zsl.models.coupling import ImageAttributes, Visual
from zsl.sparse import duality_gap, lambda_max, objective, sparse_encode
from zsl.sparse.kernels.residuals import compressed
from zsl.sparse.kernels.splitting import rounds
from zsl.sparse.learning import learn
from zsl.sparse.problem import certificate, row_objectives, scale
from zsl.sparse.solvers import admm, auto
from zsl.sparse.statistics import accumulate


def problem(n, p, r, seed=0):
    """Rows that mix all atoms, of several lengths, and unit atoms."""
    rng = np.random.default_rng(seed)
    D = rng.standard_normal((r, p)) + 0.5 * rng.standard_normal(p)
    D /= np.linalg.norm(D, axis=1, keepdims=True)
    X = rng.laplace(size=(n, r)) @ D / r**0.5
    return X * rng.uniform(0.1, 10, (n, 1)), D


@pytest.fixture
def chosen(monkeypatch):
    """The solvers that ``auto`` calls, in order."""
    calls = []
    for name, solver in (("active_set", auto.active_set), ("admm", auto.admm)):

        def spy(*args, solve=solver.solve, name=name, **kwargs):
            calls.append(name)
            return solve(*args, **kwargs)

        monkeypatch.setattr(solver, "solve", spy)
    return calls


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.5, 0.002])
@pytest.mark.slow
def test_auto_chooses_by_the_number_of_non_zeros_and_certifies(chosen, dtype, share):
    X, D = problem(300, 200, 320)
    lam = share * float(np.median(lambda_max(X, D)))
    X, D = X.astype(dtype), D.astype(dtype)
    codes = sparse_encode(X, D, lam, tol=1e-6)
    assert chosen[0] == ("active_set" if share == 0.5 else "admm")
    assert (codes.density * len(D) > 100) == (share == 0.002)
    assert (codes.gap <= 1e-6 * scale(X)).all()
    assert_allclose(codes.gap, duality_gap(X, D, codes.A, lam), rtol=1e-3, atol=1e-12 * scale(X).max())
    exact = sparse_encode(X.astype(float), D.astype(float), lam, solver="active_set", tol=1e-10)
    excess = objective(X.astype(float), D.astype(float), codes.A, lam) - objective(X, D, exact.A, lam)
    assert (excess <= codes.gap + 1e-9 * scale(X)).all()


def test_a_warm_start_tells_the_density(chosen):
    X, D = problem(300, 200, 320)
    lam = 0.002 * float(np.median(lambda_max(X, D)))
    codes = sparse_encode(X, D, lam)
    del chosen[:]
    again = sparse_encode(X, D, lam, init=codes.A)
    assert chosen == ["admm"]
    assert again.n_iter == 0
    assert_array_equal(again.A, codes.A)


@pytest.mark.slow
def test_codes_are_the_same_for_any_number_of_threads():
    X, D = problem(1500, 60, 700)
    lam = 0.002 * float(np.median(lambda_max(X, D)))
    for_any_number_of_threads(lambda: sparse_encode(X, D, lam, solver="admm", tol=1e-4).A)


@pytest.mark.parametrize("solver", ["admm", "active_set", "fista", "coordinate"])
def test_a_zero_row_has_a_zero_code_from_any_start(solver):
    X, D = problem(8, 12, 20)
    X[3] = 0
    codes = sparse_encode(X, D, 0.5, solver=solver, init=np.ones((8, 20)), tol=1e-6)
    assert not codes.A[3].any()
    assert (codes.gap <= 1e-6 * scale(X)).all()


def test_arguments_need_not_be_contiguous():
    X, D = problem(600, 400, 700)
    A = np.random.default_rng(0).standard_normal((700, 600)).T
    for f in (objective, duality_gap):
        assert_allclose(f(X[:, ::2], D[:, ::2], A, 0.1), f(X[:, ::2].copy(), D[:, ::2].copy(), A.copy(), 0.1))


class Worsened(Visual):
    """An update that raises the objective, so that every pass starts from a worse dictionary."""

    def update(self, AtA, AtX, D, B):
        return 0.9 * D


def test_exact_codes_are_not_coded_again():
    # Only rough codes may be the reason for a rise.
    X, D = problem(100, 10, 12)
    task, calls = Worsened(X, ImageAttributes(np.zeros((100, 1)), np.zeros(100, np.int64)), 0.0), []

    def encode(X, D, init, rough):
        calls.append(rough)
        return sparse_encode(X, D, 0.1, init=init)

    state = learn(task, D, encode, 0.1, 4, np.random.default_rng(0))
    assert state.objectives[-1] > state.objectives[0]
    assert len(calls) == 5


def test_a_round_is_the_textbook_one():
    X, D = problem(5, 6, 9)
    rng, t, rho, relax = np.random.default_rng(1), np.full(5, 0.2), 0.7, 1.8
    G = D @ D.T
    M = np.linalg.inv(G + rho * np.eye(9))
    z, w = rng.standard_normal((5, 9)), rng.uniform(-0.2, 0.2, (5, 9))
    Z, U = z.copy(), w.copy()
    balance = rounds(X @ D.T - z @ G, Z, U, M, t, rho, relax, 2)
    for _ in range(2):
        a = (X @ D.T + rho * (z - w / rho)) @ M
        before, v = z, relax * a + (1 - relax) * z + w / rho
        z = np.sign(v) * np.maximum(np.abs(v) - 0.2 / rho, 0)
        w = rho * (v - z)
    assert_allclose(Z, z, atol=1e-12)
    assert_allclose(U, w, atol=1e-12)
    norm = np.linalg.norm
    assert_allclose(balance, norm(a - z) / norm(z) / (rho * norm(z - before) / norm(w)))


def test_an_exact_solution_stays_where_it_is():
    X, D = problem(40, 30, 50)
    lam = 0.05 * float(np.median(lambda_max(X, D)))
    A = sparse_encode(X, D, lam, solver="active_set", tol=1e-13).A
    t = lam * 30 / 100
    Q = certificate(X, D, A, lam)[1]
    M = np.linalg.inv(D @ D.T + np.eye(50))
    Z, U = A.copy(), np.where(A != 0, np.sign(A) * t, Q)
    rounds(Q, Z, U, M, np.full(40, t), 1.0, 1.8, 20)
    assert_allclose(Z, A, atol=1e-6 * np.abs(A).max())


@pytest.mark.parametrize("scaling", [1e-6, 1.0, 1e6])
def test_admm_does_not_depend_on_the_scale_of_rows(scaling):
    X, D = problem(80, 30, 60)
    lam = 0.02 * float(np.median(lambda_max(X, D)))
    plain = admm.solve(X, D, lam, init=None, tol=1e-6, max_iter=2000)
    scaled = admm.solve(scaling * X, D, scaling * lam, init=None, tol=1e-6, max_iter=2000)
    assert_allclose(scaled.gap / scaling**2, plain.gap, rtol=1e-3)
    assert_allclose(scaled.A / scaling, plain.A, atol=1e-5 * np.abs(plain.A).max())


@pytest.mark.parametrize("density", [0.05, 0.6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_codes(density, dtype):
    rng = np.random.default_rng(0)
    A = (rng.standard_normal((4200, 40)) * (rng.random((4200, 40)) < density)).astype(dtype)
    X, D = rng.standard_normal((4200, 20)).astype(dtype), rng.standard_normal((40, 20)).astype(dtype)
    AtA, AtX = np.eye(40), np.ones((40, 20), dtype)
    accumulate(compressed(A), X, AtA, AtX, keep=0.5, add=1 / 4200)
    tol = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-14}
    assert_allclose(AtA, 0.5 * np.eye(40) + A.T.astype(float) @ A / 4200, **tol)
    assert_allclose(AtX, 0.5 + A.T.astype(float) @ X / 4200, **tol)
    R = X.astype(float) - A.astype(float) @ D
    expected = (R**2).sum(axis=1) / 20 + 0.3 / 40 * np.abs(A.astype(float)).sum(axis=1)
    for form in (compressed(A), A):
        assert_allclose(row_objectives(X, D, form, 0.3), expected, rtol=1e-10)


@pytest.mark.slow
def test_rough_codes_on_the_way_end_at_certified_ones_and_the_objective_never_rises():
    X, _ = problem(700, 200, 320)
    y, Z = np.arange(700) % 7, np.eye(7)
    model = CoupledDictionaries(n_atoms=320, n_iter=6, lam_relative=0.002)
    model.fit(X, y, Z[y], Z[:2])
    assert model.density_ * 320 > 100
    values = np.array(model.objective_x_)
    assert (np.diff(values) <= 0).all()
    assert model.gap_x_[0] > 10 * model.gap_x_[-1]
    final = sparse_encode(X, model.Dx_, model.lam_, tol=1e-6)
    assert (duality_gap(X, model.Dx_, model.A_, model.lam_) <= 1e-6 * scale(X) * (1 + 1e-6)).all()
    assert_allclose(values[-1], objective(X, model.Dx_, final.A, model.lam_).mean(), rtol=1e-5)
    exact = CoupledDictionaries(
        n_atoms=320, n_iter=6, lam_relative=0.002, solver=partial(sparse_encode, solver="active_set")
    ).fit(X, y, Z[y], Z[:2])
    assert values[-1] <= 1.02 * exact.objective_x_[-1]


def test_learning_ends_where_it_gains_little():
    X, _ = problem(200, 20, 30)
    y, Z = np.arange(200) % 5, np.eye(5)
    whole, short = (CoupledDictionaries(n_atoms=30, n_iter=30, tol=tol).fit(X, y, Z[y], Z[:2]) for tol in (0, 1e-2))
    values = np.array(short.objective_x_)
    n = len(values) - 1
    assert n < 30
    assert_array_equal(values[:n], whole.objective_x_[:n])
    assert values[n - 2] - values[n - 1] <= 1e-2 * values[n - 1]
    assert len(whole.objective_x_) == 31
