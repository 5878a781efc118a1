"""Tests of every LASSO solver of zsl.sparse; a new module in zsl/sparse/solvers is tested without an edit here."""

import gc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from conftest import for_any_number_of_threads
from zsl.config import compose, resolve, without_package
from zsl.config.objects import build
from zsl.errors import UserError
from zsl.sparse import duality_gap, lambda_max, objective, soft_threshold, solver_names, sparse_encode
from zsl.sparse.problem import scale

CONF = Path(__file__).resolve().parents[1] / "conf" / "solver"
# Solvers that reach any tolerance, in a number of steps that the number of atoms bounds.
EXACT = {"active_set", "lars"}
# Number of steps after which the other solvers should have a small gap.
PATIENCE = 3000


@pytest.fixture(params=solver_names())
def solver(request):
    if request.param in without_package("solver"):
        pytest.skip("torch is not installed: pip install -e '.[torch]'")
    return request.param


def problems(dtype=np.float64):
    """Problems on which solvers tend to fail, by name: (X, D)."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    base = normal((30, 20))
    zero_row, zero_atom = normal((10, 12)), normal((20, 12))
    zero_row[3], zero_atom[[0, 4]] = 0, 0
    kinds = {
        "r > p": (normal((20, 15)), normal((40, 15))),
        "r < p": (normal((20, 30)), normal((12, 30))),
        "correlated": (normal((20, 30)) + 5, normal((50, 30)) + 5),
        "duplicated": (normal((20, 20)), np.r_[base, base, -base[:5]]),
        "nearly duplicated": (normal((20, 20)), np.r_[base, base + 1e-6 * normal((30, 20))]),
        "zero row": (zero_row, normal((20, 12))),
        "zero atom": (normal((10, 12)), zero_atom),
        "only zero atoms": (normal((5, 6)), np.zeros((7, 6))),
        "rank one": (normal((8, 10)), np.outer(normal(15), normal(10))),
        "low rank": (normal((10, 20)), normal((40, 6)) @ normal((6, 20))),
        "samples are atoms": (base[:4], base),
        "atoms of many sizes": (normal((10, 40)), normal((25, 40)) * np.logspace(-2, 2, 25)[:, None]),
        "one of each": (normal((1, 1)), normal((1, 1))),
        "small numbers": (1e-6 * normal((10, 12)), normal((30, 12))),
        "ties": (np.sign(normal((20, 12))), np.sign(normal((40, 12)))),
    }
    return {kind: (X.astype(dtype), D.astype(dtype)) for kind, (X, D) in kinds.items()}


def assert_honest(X, D, codes, lam):
    """Assert that the reported gaps are those of the codes, up to rounding."""
    assert np.isfinite(codes.A).all()
    assert codes.A.dtype == X.dtype
    true = duality_gap(X, D, codes.A, lam)
    assert_allclose(codes.gap, true, rtol=1e-3, atol=2e-12 * max(scale(X).max(), 1e-300))


@pytest.mark.parametrize("share", [1.2, 1.0, 0.3, 0.03, 1e-5])
@pytest.mark.parametrize("kind", problems())
def test_solvers_agree_within_their_gaps(solver, kind, share):
    X, D = problems()[kind]
    lam = share * (lambda_max(X, D).max() or 1.0)
    codes = sparse_encode(X, D, lam, solver=solver, tol=1e-9, max_iter=300)
    assert_honest(X, D, codes, lam)
    best = sparse_encode(X, D, lam, solver="active_set", tol=1e-12)
    value, least = objective(X, D, codes.A, lam), objective(X, D, best.A, lam)
    rounding = 1e-13 * scale(X)
    assert (value - codes.gap <= least + rounding).all()
    assert (least - best.gap <= value + rounding).all()
    if share >= 1:
        assert_allclose(value, least, rtol=1e-14)
    if solver in EXACT:
        assert (codes.gap <= 1e-9 * scale(X)).all()


@pytest.mark.parametrize("kind", ["r > p", "r < p", "duplicated", "zero row", "zero atom", "ties"])
def test_tolerance_is_reached(solver, kind):
    X, D = problems()[kind]
    lam = 0.2 * lambda_max(X, D).max()
    codes = sparse_encode(X, D, lam, solver=solver, tol=1e-6, max_iter=PATIENCE)
    assert (codes.gap <= 1e-6 * scale(X)).all()


@pytest.mark.parametrize("kind", problems())
def test_float32_within_its_gap(solver, kind):
    X, D = problems(np.float32)[kind]
    lam = 0.1 * (lambda_max(X, D).max() or 1.0)
    codes = sparse_encode(X, D, lam, solver=solver, tol=1e-4, max_iter=300)
    assert_honest(X, D, codes, lam)
    least = objective(X, D, sparse_encode(X.astype(float), D.astype(float), lam, tol=1e-12).A, lam)
    assert (objective(X, D, codes.A, lam) - codes.gap <= least + 1e-9 * scale(X)).all()
    if solver in EXACT:
        assert (codes.gap <= 1e-4 * scale(X)).all()


def test_lambda_zero(solver):
    if solver == "sklearn":
        pytest.skip("scikit-learn divides by its alpha")
    # With more atoms than dimensions least squares leaves no residual, and the gap is |residual|^2 / p.
    X, D = problems()["r > p"]
    codes = sparse_encode(X, D, 0.0, solver=solver, tol=1e-6, max_iter=PATIENCE)
    assert_honest(X, D, codes, 0.0)
    assert (codes.gap <= 1e-6 * scale(X)).all()


def test_orthonormal_dictionary_gives_soft_threshold(solver):
    # For D D^T = I, Eq. (5) decouples and its minimiser is S_t(x D^T) with t = lam p / 2r.
    rng = np.random.default_rng(0)
    p, r, lam = 9, 6, 0.3
    D = np.linalg.qr(rng.standard_normal((p, r)))[0].T
    X = rng.standard_normal((5, p))
    expected = soft_threshold(X @ D.T, lam * p / (2 * r))
    assert_allclose(sparse_encode(X, D, lam, solver=solver, tol=1e-12).A, expected, atol=1e-6)


def test_one_atom_by_hand(solver):
    # a = S_t(<x, d>) / |d|^2 with t = lam p / 2 = 2: <x, d> = 6, |d|^2 = 4.
    X, D = np.array([[3.0, 4.0], [-3.0, 1.0], [0.5, 7.0]]), np.array([[2.0, 0.0]])
    codes = sparse_encode(X, D, 2.0, solver=solver, tol=1e-12)
    assert_allclose(codes.A, [[1.0], [-1.0], [0.0]], atol=1e-6)


@pytest.mark.parametrize("shape", [(30, 40, 25), (30, 20, 50)])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_scikit_learn_agrees(shape, share):
    from sklearn.linear_model import Lasso

    n, r, p = shape
    rng = np.random.default_rng(3)
    X, D = rng.standard_normal((n, p)), rng.standard_normal((r, p))
    lam = share * lambda_max(X, D).max()
    codes = sparse_encode(X, D, lam, solver="active_set", tol=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn comes close to so small a tolerance but warns
        model = Lasso(alpha=lam / (2 * r), fit_intercept=False, tol=1e-15, max_iter=100_000)
        expected = np.array([model.fit(D.T, x).coef_ for x in X])
    assert_allclose(codes.A, expected, atol=1e-8)


def matrices(n, m):
    return arrays(np.float64, (n, m), elements=st.floats(-10, 10, allow_subnormal=False))


@settings(max_examples=40, deadline=None)
@given(X=matrices(3, 6), D=matrices(8, 6), share=st.floats(0.01, 1))
def test_optimality_conditions(X, D, share):
    # For t = lam p / 2r: <x - aD, d_j> = t sign(a_j) where a_j != 0, and at most t in size elsewhere. A gap g
    # bounds the distance of the residual from the optimal one: |R - R*|^2 <= p g.
    X = X + 1e-3
    D = D + 1e-3 * np.arange(1, 9)[:, None]
    lam = share * lambda_max(X, D).max()
    codes = sparse_encode(X, D, lam, tol=1e-10)
    assert (codes.gap <= 1e-10 * scale(X)).all()
    t = lam * 6 / 16
    slack = np.sqrt(6 * codes.gap)[:, None] * np.linalg.norm(D, axis=1) + 1e-9 * (1 + t)
    q = (X - codes.A @ D) @ D.T
    assert (np.abs(q) <= t + 2 * slack).all()


@settings(max_examples=25, deadline=None)
@given(start=matrices(4, 10), seed=st.integers(0, 5))
def test_any_start_reaches_the_same_objective(start, seed):
    rng = np.random.default_rng(seed)
    X, D = rng.standard_normal((4, 7)), rng.standard_normal((10, 7))
    lam = 0.1 * lambda_max(X, D).max()
    cold, warm = (sparse_encode(X, D, lam, init=init, tol=1e-9) for init in (None, start))
    assert (warm.gap <= 1e-9 * scale(X)).all()
    difference = np.abs(objective(X, D, cold.A, lam) - objective(X, D, warm.A, lam))
    assert (difference <= np.maximum(cold.gap, warm.gap) + 1e-13).all()


def test_start_is_not_modified_and_the_solution_needs_no_steps(solver):
    X, D = problems()["r < p"]
    lam = 0.2 * lambda_max(X, D).max()
    init = sparse_encode(X, D, lam, tol=1e-12).A
    before = init.copy()
    codes = sparse_encode(X, D, lam, solver=solver, init=init, tol=1e-6)
    assert_array_equal(init, before)
    assert (objective(X, D, codes.A, lam) <= objective(X, D, init, lam) + 1e-6 * scale(X)).all()
    if solver == "active_set":
        assert codes.n_iter == 0


def features(n, r, p, seed=0):
    """Non-negative features with a large common part, so that atoms resemble each other."""
    rng = np.random.default_rng(seed)
    F = np.maximum(rng.gamma(1, 1, p) + 0.5 * rng.standard_normal((n + r, p)), 0)
    F /= np.linalg.norm(F, axis=1, keepdims=True)
    return F[:n], F[n:]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.3, 0.03])
def test_features_that_share_a_common_part(dtype, share):
    X, D = (M.astype(dtype) for M in features(60, 150, 100))
    lam = share * float(np.median(lambda_max(X, D)))
    for tol in (1e-4, 1e-10) if dtype == np.float64 else (1e-4,):
        codes = sparse_encode(X, D, lam, tol=tol)
        assert_honest(X, D, codes, lam)
        assert (codes.gap <= tol * scale(X)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.3, 0.02])
def test_one_image(dtype, share):
    # A small batch is solved in another way, without the Gram matrix of all atoms.
    X, D = (M.astype(dtype) for M in features(3, 600, 80))
    lam = share * float(lambda_max(X, D).min())
    many = sparse_encode(np.r_[X, X], D, lam, tol=1e-4)
    for i in range(3):
        one = sparse_encode(X[i : i + 1], D, lam, tol=1e-4)
        assert_honest(X[i : i + 1], D, one, lam)
        assert one.gap[0] <= 1e-4 * scale(X)[i]
        warm = sparse_encode(X[i : i + 1], D, lam, tol=1e-4, init=many.A[i : i + 1])
        assert warm.gap[0] <= 1e-4 * scale(X)[i]


@pytest.mark.parametrize("n", [1, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_dictionary_that_is_not_finite_is_refused(n, dtype, bad):
    # For a small batch the products of D with a row show it, even if the row is zero in that column.
    X, D = (M.astype(dtype) for M in features(n, 300, 40))
    X[:, 7], D[123, 7] = 0, bad
    for init in (None, np.ones((n, 300), dtype)):
        with pytest.raises(UserError, match=r"D holds -?(nan|inf) in row 123, column 7"):
            sparse_encode(X, D, 0.1, init=init)


def test_atoms_whose_squares_overflow_are_no_error():
    # One atom has the squared length inf in float32; it is orthogonal to everything else and not in the solution.
    X, D = (M.astype(np.float32) for M in features(1, 300, 40))
    X[:, 3] = D[:, 3] = D[5] = 0
    D[5, 3] = 1e30
    codes = sparse_encode(X, D, 0.6 * float(lambda_max(X, D)[0]), tol=1e-4)
    assert codes.gap[0] <= 1e-4 * scale(X)[0]


@pytest.mark.parametrize("name", ["active_set", "coordinate", "lars"])
def test_any_number_of_threads_gives_the_same_codes(name):
    X, D = features(31, 60, 40)
    lam = 0.1 * float(np.median(lambda_max(X, D)))
    for_any_number_of_threads(lambda: sparse_encode(X, D, lam, solver=name, tol=1e-4).A)


@pytest.mark.slow
def test_memory_does_not_grow(solver):
    X, D = problems()["r > p"]
    lam = 0.3 * lambda_max(X, D).max()

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("reads /proc, which this system lacks")
    calls = 200 if solver == "active_set" else 50
    for _ in range(20):
        sparse_encode(X, D, lam, solver=solver, tol=1e-4, max_iter=50)
    before = resident()
    for _ in range(calls):
        sparse_encode(X, D, lam, solver=solver, tol=1e-4, max_iter=50)
    assert resident() - before < 8 * 2**20


def test_giving_up_is_honest(solver):
    X, D = problems()["correlated"]
    lam = 0.01 * lambda_max(X, D).max()
    codes = sparse_encode(X, D, lam, solver=solver, tol=1e-12, max_iter=1)
    assert_honest(X, D, codes, lam)


def test_every_solver_is_in_conf():
    assert sorted(p.stem for p in CONF.glob("*.yaml")) == solver_names()


def test_conf_builds_solvers(solver):
    encode = build(resolve(compose([f"solver={solver}"]))["solver"], "solver")
    X, D = problems()["one of each"]
    assert_allclose(encode(X, D, 0.1).gap, 0, atol=1e-5)


def test_what_is_no_solver_is_refused():
    X, D = np.ones((5, 8)), np.eye(8)
    with pytest.raises(UserError, match=r"solver=nope does not exist; zsl\.sparse has: active_set, admm"):
        sparse_encode(X, D, 0.1, solver="nope")
    with pytest.raises(UserError, match="returned NoneType"):
        sparse_encode(X, D, 0.1, solver=lambda *args, **kwargs: None)


@pytest.mark.long
def test_long_homotopies():
    # Two exact solvers agree on paths with hundreds of kinks per row.
    X, D = features(200, 500, 300)
    lam = 0.005 * float(np.median(lambda_max(X, D)))
    values = []
    for name in ("active_set", "lars"):
        codes = sparse_encode(X, D, lam, solver=name, tol=1e-8)
        assert (codes.gap <= 1e-8 * scale(X)).all()
        values.append(objective(X, D, codes.A, lam))
    assert_allclose(values[0], values[1], atol=2e-8 * scale(X).max())


def _one_by_one(X, D, lam, dtype, tol, init=None):
    starts = [None] * len(X) if init is None else [init[i : i + 1].astype(dtype) for i in range(len(X))]
    rows = [sparse_encode(x[None].astype(dtype), D.astype(dtype), lam, init=a, tol=tol) for x, a in zip(X, starts)]
    return np.vstack([codes.A for codes in rows]), np.concatenate([codes.gap for codes in rows])


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-6), (np.float64, 1e-4), (np.float32, 1e-5)])
def test_one_image_at_a_time_is_as_good_as_many(dtype, tol):
    # The gap may rise while the working set grows; the search must not stop there.
    rng = np.random.default_rng(180)
    for p in (10, 20):
        X, D = rng.standard_normal((100, p)), rng.standard_normal((300, p))
        lam = 0.02 * float(lambda_max(X, D).mean())
        together = sparse_encode(X, D, lam, tol=1e-10)
        A, gap = _one_by_one(X, D, lam, dtype, tol)
        assert (gap <= tol * scale(X)).all()
        assert (
            objective(X, D, A, lam) - together.gap <= objective(X, D, together.A, lam) + 1.01 * tol * scale(X)
        ).all()
        # Warm starts come from the codes of similar images.
        _, gap = _one_by_one(X + 0.1 * rng.standard_normal(X.shape), D, lam, dtype, tol, together.A)
        assert (gap <= 1.5 * tol * scale(X)).all()


def test_the_reported_gap_is_that_of_the_penalty_itself():
    # The search rounds the penalty to single precision; the effect shows if rows have few non-zeros.
    rng = np.random.default_rng(0)
    X, D = rng.standard_normal((400, 24)), rng.standard_normal((300, 24))
    lam = 0.99 * float(np.median(lambda_max(X, D)))
    for tol in (1e-4, 1e-2, 1.0):
        codes = sparse_encode(X, D, lam, tol=tol)
        assert ((duality_gap(X, D, codes.A, lam) - codes.gap) <= 1e-13 * scale(X)).all()


def test_single_precision_reaches_tol_where_codes_are_as_dense_as_samples():
    X, D = features(100, 96, 64)
    lam = 2e-4 * float(np.median(lambda_max(X, D)))
    codes = sparse_encode(X.astype(np.float32), D.astype(np.float32), lam, tol=1e-5)
    assert codes.density * len(D) > 48
    assert (codes.gap <= 1e-5 * scale(X)).all()


def test_rounding_to_single_precision_does_not_lift_a_row_over_tol():
    rng = np.random.default_rng(3)
    X, D = (np.abs(rng.standard_normal((n, 64))) + 3 for n in (300, 400))
    X, D = X.astype(np.float32), (D / np.linalg.norm(D, axis=1, keepdims=True)).astype(np.float32)
    lam = 1e-5 * float(np.median(lambda_max(X, D)))
    # Rounding to single precision alone raises a gap by up to 3e-5, so a search must aim below 1e-4.
    assert (sparse_encode(X, D, lam, tol=1e-4).gap <= 1e-4 * scale(X)).all()


def test_where_descent_stalls_the_path_is_followed():
    rng = np.random.default_rng(16)
    X, D = rng.standard_normal((6, 20)), rng.standard_normal((30, 20))
    D[15:] = D[:15] + 1e-5 * rng.standard_normal((15, 20))
    lam = 1e-6 * float(np.median(lambda_max(X, D)))
    # Descent alone ends at a gap of 3.5e-2 here.
    assert (sparse_encode(X, D, lam).gap <= 1e-5 * scale(X)).all()


@pytest.mark.filterwarnings("error")
def test_what_overflows_is_said_or_does_no_harm(solver):
    rng = np.random.default_rng(0)
    X, D = rng.standard_normal((5, 8)), np.eye(8)
    for dtype, lam in ((np.float64, 1e308), (np.float32, 1e39)):
        codes = sparse_encode(X.astype(dtype), D, lam, solver=solver)
        assert_array_equal(codes.A, 0)
        assert_array_equal(codes.gap, 0)
    for x, d, name in ((X * 1e160, D, "X"), (X, D * 1e160, "D"), (X.astype(np.float32), D * 1e300, "D")):
        with pytest.raises(UserError, match=f"{name} is as large as .*, whose squares overflow"):
            sparse_encode(x, d, 0.1, solver=solver)
    # Rows of a start that overflow begin at zero.
    for dtype, size in ((np.float64, 1e200), (np.float32, 1e30), (np.float32, 1e300)):
        codes = sparse_encode(X.astype(dtype), D, 0.1, solver=solver, init=X * size, tol=1e-5, max_iter=PATIENCE)
        assert (codes.gap <= 1e-5 * scale(X)).all()
    with pytest.raises(UserError, match="init holds inf"):
        sparse_encode(X, D, 0.1, solver=solver, init=X * np.inf)
    assert (sparse_encode(X, D, 0.1, solver=solver, max_iter=2**63).gap <= 1e-6 * scale(X)).all()


@pytest.mark.parametrize(
    "spoil",
    [lambda M: None, lambda M: scipy.sparse.csr_array(M), lambda M: M.astype(str), lambda M: M.astype("M8[D]"),
     lambda M: np.ma.masked_greater(M, 0), lambda M: [[10**400] * 8]],
    ids=["None", "sparse", "text", "dates", "masked", "beyond float64"],
)  # fmt: skip
def test_what_is_no_matrix_of_numbers_is_refused(spoil):
    X, D, A = np.ones((5, 8)), np.eye(8), np.ones((5, 8))
    for function, arguments in ((sparse_encode, (X, D)), (lambda_max, (X, D)), (duality_gap, (X, D, A))):
        more = () if function is lambda_max else (0.1,)
        for i, argument in enumerate(arguments):
            with pytest.raises(UserError):
                function(*arguments[:i], spoil(argument), *arguments[i + 1 :], *more)


@pytest.mark.parametrize("lam", [-1.0, np.nan, "x", None])
def test_penalties_are_looked_at(lam):
    X, D, A = np.ones((5, 8)), np.eye(8), np.ones((5, 8))
    for function in (objective, duality_gap):
        with pytest.raises(UserError, match="lam="):
            function(X, D, A, lam)


def test_torch_is_asked_for_where_it_is_not_installed(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"solver=torch needs PyTorch; pip install -e '\.\[torch\]'"):
        sparse_encode(np.ones((5, 8)), np.eye(8), 0.1, solver="torch")
