"""Kernels on another device give NumPy's results: with array-api-strict, which refuses what the standard does not have
and arrays of two devices in one product, and with PyTorch on the CPU where it is installed."""

from __future__ import annotations

import sys
import warnings

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import zsl.graph
import zsl.inference.blocks
import zsl.sparse.kernels.products as products
from zsl import CoupledDictionaries, UserError, ZeroShotClassifier
from zsl.data.preprocess import Preprocess
from zsl.device import CPU, Device, by_torch, current, on_device
from zsl.graph import neighbours, normalised, solve_spreading
from zsl.inference.entropy import entropies, entropy_gradient, log_mean_assignment
from zsl.inference.mixture import expectation_maximisation, mixture, spread_features
from zsl.inference.optimisers import AwareProblem, mm
from zsl.inference.spreading import spread_report
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import unit_rows
from zsl.sparse import sparse_encode
from zsl.sparse.dictionary import RidgeAtoms, gradient_atoms, ridge_atoms, unit_ball_atoms
from zsl.sparse.statistics import accumulate

# Not the default device of the library: an array that was not put there cannot be used with one that was.
STRICT = Device(strict, strict.Device("device1"), strict.Device("CPU_DEVICE"))


def torch_on_cpu():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")
    return by_torch(torch.device("cpu"))


@pytest.fixture(params=["strict", "torch"])
def device(request, monkeypatch):
    """A device that is not NumPy's, on which products of all sizes are computed."""
    monkeypatch.setattr(products, "_SMALL", 0)
    return STRICT if request.param == "strict" else torch_on_cpu()


@pytest.fixture(scope="module")
def points():
    """Predictions V (60, 5) around classes Z (4, 5)."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((4, 5))
    return Z[np.arange(60) % 4] + 0.7 * rng.standard_normal((60, 5)), Z


def both(device, compute):
    """What ``compute()`` gives on the CPU and on the device."""
    expected = compute()
    with on_device(device):
        found = compute()
    return found, expected


def assert_same(device, compute, atol=1e-11):
    found, expected = both(device, compute)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected, strict=True):
        assert isinstance(a, np.ndarray)
        assert a.dtype == b.dtype
        assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("kernel", ["student", "gaussian"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_entropy_and_its_gradient(device, points, kernel, dtype, monkeypatch):
    monkeypatch.setattr(zsl.inference.blocks, "MOST_SCORES", 100)  # blocks of 25 images
    V, Z = points[0].astype(dtype), points[1]
    mean = np.log([0.4, 0.3, 0.2, 0.1])
    atol = 1e-11 if dtype == np.float64 else 1e-5
    assert_same(device, lambda: entropies(V, Z, 0.7, kernel), atol)
    assert_same(device, lambda: entropy_gradient(V, Z, 0.7, kernel), atol)
    assert_same(device, lambda: entropy_gradient(V, Z, 0.7, kernel, mean), atol)
    assert_same(device, lambda: log_mean_assignment(V, Z, 0.7, kernel, np.arange(1.0, 61)), atol)


@pytest.mark.parametrize("shares", [None, np.array([0.4, 0.3, 0.2, 0.1])])
@pytest.mark.slow
def test_expectation_maximisation(device, points, shares):
    U, means = unit_rows(points[0]), unit_rows(points[1])
    prior = np.random.default_rng(1).standard_normal((60, 4))

    def compute():
        found = expectation_maximisation(U, means, 5.0, prior, shares=shares)
        return found.P, found.means, found.proportions, np.array(found.objective)

    assert_same(device, compute)


@pytest.mark.slow
def test_rules_of_clusters_and_of_graphs(device, points):
    V, Z = points
    statistics = SeenStatistics(np.eye(5), unit_rows(Z), Z, concentration=5.0)
    scores = V @ Z.T
    assert_same(device, lambda: mixture(scores, V, statistics))
    assert_same(device, lambda: mixture(scores, V, statistics, class_prior="uniform"))
    assert_same(device, lambda: spread_features(scores, V, statistics))
    assert_same(device, lambda: spread_report(V, Z, n_neighbors=6).scores)


def test_neighbours(device, points, monkeypatch):
    monkeypatch.setattr(zsl.graph, "_PAIRS", 600)  # ten rows at a time
    V = np.vstack([points[0], points[0][:3]])  # duplicates are each other's neighbours
    found, expected = both(device, lambda: neighbours(V, 5))
    assert_allclose(found.distance, expected.distance, rtol=0, atol=1e-12)
    # Which of two equal points comes first is open.
    assert_allclose(np.linalg.norm(V[found.nodes] - V[:, None], axis=2), found.distance, rtol=0, atol=1e-12)
    assert (np.sort(found.nodes, axis=1)[:, 1:] > np.sort(found.nodes, axis=1)[:, :-1]).all()
    assert (found.nodes != np.arange(len(V))[:, None]).all()


def test_spreading_is_certified_on_the_device(device):
    rng = np.random.default_rng(0)
    W = np.abs(rng.standard_normal((40, 40)))
    S = normalised(sp.csr_array(np.triu(W, 1) + np.triu(W, 1).T))
    Y = np.eye(40, 6)
    Y[:, 5] = 0  # a column without labels
    found, expected = both(device, lambda: solve_spreading(S, Y, mu=0.1))
    assert found.n_iter == expected.n_iter
    assert found.residual.max() < 1e-9
    assert_allclose(found.F, np.linalg.solve(1.1 * np.eye(40) - S.toarray(), 0.1 * Y), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_and_updates_of_dictionaries(device, dtype):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, 12)) * (rng.random((50, 12)) < 0.2)
    A, X, D = A.astype(dtype), rng.standard_normal((50, 7)).astype(dtype), rng.standard_normal((12, 7)).astype(dtype)
    D /= np.linalg.norm(D, axis=1, keepdims=True) + 1e-6
    B, Z = rng.standard_normal((2, 12)), rng.standard_normal((2, 7))

    def sums():
        AtA, AtX = np.ones((12, 12)), np.ones((12, 7), dtype)
        accumulate(sp.csr_array(A), X, AtA, AtX, keep=0.5, add=0.1)
        return AtA, AtX

    atol = 1e-11 if dtype == np.float64 else 1e-5
    assert_same(device, sums, atol)
    H, C = (A.T @ A / 50).astype(np.float64), A.T @ X / 50
    assert_same(device, lambda: ridge_atoms(H, C, 0.01), atol)
    assert_same(device, lambda: RidgeAtoms(H, C, 0.01).with_rows(B, Z, 0.1), atol)
    assert_same(device, lambda: unit_ball_atoms(H.astype(dtype), C, D, n_passes=2), atol)
    assert_same(device, lambda: gradient_atoms(H.astype(dtype), C, D, 0.01), atol)
    with on_device(device), pytest.raises(UserError, match="lost in rounding"):
        ridge_atoms(np.outer([1.0, 1.0], [1.0, 1.0]), np.ones((2, 3)), 1e-20)


def seen_and_unseen(dtype=np.float64):
    rng = np.random.default_rng(0)
    S = rng.standard_normal((10, 8))
    y = np.arange(300) % 7
    W = rng.standard_normal((8, 30))
    X, T = (unit_rows(S[k] @ W + rng.standard_normal((len(k), 30))) for k in (y, 7 + np.arange(60) % 3))
    names = np.array([f"class {i}" for i in range(10)])
    return X.astype(dtype), names[y], dict(zip(names, S.astype(dtype))), T.astype(dtype)


@pytest.mark.parametrize("inference", ["aag", "aaw", "taaw", "mixture", "inductive", "transductive"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_classifier_answers_alike(device, inference, dtype):
    """The whole way from images to scores; beta is small, so that attribute atoms leave the unit ball and are moved."""
    X, y, attributes, T = seen_and_unseen(dtype)

    def scores():
        model = CoupledDictionaries(n_atoms=40, n_iter=3, lam_relative=0.2, beta=1e-6, solver=_tight)
        parts = (Preprocess(dtype=np.dtype(dtype).name) for _ in range(2))
        classifier = ZeroShotClassifier(model, inference, *parts).fit(X, y, attributes)
        return classifier.decision_function(T)

    found, expected = both(device, scores)
    tolerance = 1e-5 if dtype == np.float64 else 2e-3
    assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()


def _tight(X, D, lam, *, init=None):
    return sparse_encode(X, D, lam, init=init, tol=1e-11)


def test_attribute_aware_codes_on_the_device_fall_monotonically(device):
    """Rounds that are coded by PyTorch promise what those of NumPy do: no image ends above its start."""
    rng = np.random.default_rng(0)
    Dx, Dz, Z = rng.standard_normal((30, 12)), rng.standard_normal((30, 6)), rng.standard_normal((5, 6))
    X, ones = rng.standard_normal((20, 12)), np.ones(20)
    start = sparse_encode(X, Dx, 0.5).A
    problem = AwareProblem(X, Dx, Dz, Z, 0.5, 0.3 * ones, rho=1.0, kernel="student", stretch=ones)
    before = problem.objective(start)
    with on_device(device):
        A, n_iter = mm(problem, start, 1e-6, 200)
    assert n_iter.max() > 1
    after = problem.objective(A)
    assert (after <= before + 1e-12).all()
    assert after.sum() < before.sum() - 1e-3
    expected = problem.objective(mm(problem, start, 1e-6, 200)[0])
    assert_allclose(after, expected, rtol=0, atol=1e-4)


def test_what_is_no_singular_matrix_is_not_called_one(device, monkeypatch):
    def no_memory(*_):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(device.xp.linalg, "inv", no_memory)
    with on_device(device), pytest.raises(RuntimeError, match="out of memory"):
        ridge_atoms(np.eye(3), np.ones((3, 2)), 0.1)


def test_arrays_that_cannot_be_written_to(device, points):
    V = points[0].copy()
    V.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(device, lambda: entropies(V, points[1], 1.0))
    assert_same(device, lambda: entropies(V[:0], points[1], 1.0))


def test_the_device_belongs_to_the_context():
    assert current() is CPU
    with on_device(STRICT):
        assert current() is STRICT
        with on_device("cpu"):
            assert current() is CPU
        assert current() is STRICT
        with pytest.raises(UserError, match="device=cuda"), on_device("cuda"):
            pass
    with pytest.raises(ZeroDivisionError), on_device(STRICT):
        raise ZeroDivisionError
    assert current() is CPU


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    with pytest.raises(UserError, match="device='tpu' is not accepted"), on_device("tpu"):
        pass
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match="device=cuda needs PyTorch; pip install"), on_device("cuda"):
        pass
    assert current() is CPU
