"""``solver=torch`` on the CPU: the codes and dictionaries of NumPy, the exact finish, the device.

The tests that every solver passes are in tests/test_solvers.py.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl import CoupledDictionaries, UserError
from zsl.device import Device, on_device
from zsl.sparse import lambda_max, sparse_encode
from zsl.sparse.problem import scale

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")
solver = pytest.importorskip("zsl.sparse.solvers.torch")


@pytest.fixture(scope="module")
def problem():
    """Rows whose codes have about a hundred non-zeros of 300 atoms."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((40, 200))
    X, D = (rng.standard_normal((n, 40)) @ base + 2 * rng.standard_normal((n, 200)) for n in (700, 300))
    X, D = (V / np.linalg.norm(V, axis=1, keepdims=True) for V in (X, D))
    return X, D, 0.05 * float(lambda_max(X, D).mean())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_are_those_of_the_active_set(problem, dtype):
    X, D, lam = problem
    X, D = X.astype(dtype), D.astype(dtype)
    found = sparse_encode(X, D, lam, solver="torch")
    exact = sparse_encode(X.astype(float), D.astype(float), lam, solver="active_set", tol=1e-12)
    assert found.A.dtype == dtype
    assert (found.gap <= 1e-6 * scale(X)).all()
    assert 50 < exact.density * len(D) < 200
    # A gap g bounds the error of the fitted rows: |aD - a*D|^2 <= p g.
    error = np.square((found.A - exact.A) @ D).sum(axis=1)
    assert (error <= X.shape[1] * (found.gap + exact.gap) + 1e-12).all()
    tight = sparse_encode(X, D, lam, solver="torch", tol=1e-10 if dtype == np.float64 else 1e-7)
    assert_allclose(tight.A, exact.A, rtol=0, atol=1e-5)


def test_the_finish_solves_for_codes_with_given_signs(problem):
    X, D, lam = problem
    exact = sparse_encode(X, D, lam, solver="active_set", tol=1e-13).A
    rng = np.random.default_rng(1)
    with torch.inference_mode():
        splitting = solver._Splitting(torch, torch.device("cpu"), D, lam, 1e-10, 100)
        near = torch.as_tensor(exact * (1 + 0.1 * rng.random(exact.shape)))  # the same supports and signs
        x = torch.as_tensor(X)
        _, Q = splitting.certificate(x, near)
        t = torch.full((len(X), 1), splitting.t, dtype=torch.float64)
        finished = splitting._finished(near, Q, t)
        gap, _ = splitting.certificate(x, finished)
    assert_allclose(finished.numpy(), exact, rtol=0, atol=1e-9)
    assert (gap.numpy() <= 1e-12 * scale(X)).all()


def test_the_finish_leaves_what_it_cannot_solve(problem, monkeypatch):
    """Atoms that are there twice make the Gram matrix of a support singular."""
    X, D, _ = problem
    D = np.vstack([D, D])
    lam = 0.05 * float(lambda_max(X, D).mean())
    monkeypatch.setattr(solver, "_FINISH_BYTES", 1)  # one row at a time
    codes = sparse_encode(X[:40], D, lam, solver="torch", tol=1e-9)
    assert np.isfinite(codes.A).all()
    assert (codes.gap <= 1e-9 * scale(X[:40])).all()


def test_dictionaries_are_those_of_numpy():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 10
    S = rng.standard_normal((10, 8))
    X = S[y] @ rng.standard_normal((8, 30)) + rng.standard_normal((300, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    settings = {"n_atoms": 40, "n_iter": 3, "lam_relative": 0.2, "unseen_weight": "none"}

    def exact(X, D, lam, *, init=None, name):  # it takes no ``rough``, so that every pass is solved to the end
        return sparse_encode(X, D, lam, init=init, solver=name, tol=1e-10)

    by = [
        CoupledDictionaries(solver=partial(exact, name=name), **settings).fit(X, y, S[y], S[:3])
        for name in ("active_set", "torch")
    ]
    assert_allclose(by[1].Dx_, by[0].Dx_, rtol=0, atol=1e-5)
    assert_allclose(by[1].predict_attributes(X), by[0].predict_attributes(X), rtol=0, atol=1e-5)


def test_a_device_of_another_library_leaves_the_solver_on_the_cpu(problem):
    import array_api_strict as strict

    X, D, lam = problem
    device = Device(strict, strict.Device("device1"), strict.Device("CPU_DEVICE"))
    with on_device(device):
        assert (sparse_encode(X[:5], D, lam, solver="torch").gap <= 1e-6 * scale(X[:5])).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(problem):
    X, D, lam = problem
    with pytest.raises(UserError, match="PyTorch finds no GPU here"), on_device("cuda"):
        pass
    with on_device("auto"):
        assert (sparse_encode(X[:5], D, lam, solver="torch").gap <= 1e-6 * scale(X[:5])).all()
