"""Speed of sparse coding: who is compared, on which problems, and how they are timed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from zsl.bench.data import perturbed, real, synthetic
from zsl.checks import Array
from zsl.sparse.encode import sparse_encode
from zsl.sparse.kernels.products import product
from zsl.sparse.problem import duality_gap, lambda_max, scale

TOL = 1e-4
# Atoms of the parts image and learn on features of cifar_awa; -r does not change this number.
REAL_ATOMS = 1400
# Dimensions, atoms and numbers of non-zeros of the part sweep.
SWEPT = ((128, 300, (20, 160)), (256, 320, (20, 200)), (1024, 1200, (20, 165)), (2048, 2560, (20, 68, 385, 900)))

# Sizes of the part growth; what does not grow is 1000 rows, 256 dimensions (1024 for non-zeros) and 512 atoms (1280).
GROWING = {
    "n": (1000, 2000, 4000, 8000), "p": (128, 256, 512, 1024), "r": (300, 600, 1200, 2400),
    "non-zeros": (10, 30, 90, 270),
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Rows to encode: samples, dictionary, penalty, and codes to start from if the run is a warm one."""

    name: str
    X: Array
    D: Array
    lam: float
    init: Array | None = None


@dataclass
class Result:
    """The times of one contender on one problem."""

    problem: str
    contender: str
    seconds: list[float] = field(default_factory=list)
    n_rows: int = 0
    gap: float = float("nan")
    """Largest gap of a row, in units of ``|x|^2 / p``"""
    n_nonzero: float = float("nan")
    share: float = float("nan")
    """Reference time of :func:`limit` over the time taken"""
    note: str = ""

    @property
    def per_row(self) -> float:
        """Median seconds for a row."""
        return float(np.median(self.seconds)) / self.n_rows if self.seconds else float("nan")


# A contender is made ready for a problem outside the clock, and returns what is timed and how many of the rows it
# takes: the slow ones get fewer.
Run = tuple[Callable[[], Array], int]
Contender = Callable[[Problem], Run]


def ours(problem: Problem, dtype: type = np.float64) -> Run:
    """zsl's default solver, timed from X and D to codes, the certificate included."""
    X: Array = problem.X.astype(dtype)
    D: Array = problem.D.astype(dtype)
    init: Array | None = None if problem.init is None else problem.init.astype(dtype)
    return lambda: sparse_encode(X, D, problem.lam, init=init, tol=TOL).A, len(X)


def spams_lasso(problem: Problem, dtype: type = np.float64, rows: int | None = None) -> Run:
    """SPAMS's homotopy, on some of the rows."""
    import spams

    X: Array = np.asfortranarray(problem.X[:rows].T, dtype=dtype)
    D: Array = np.asfortranarray(problem.D.T, dtype=dtype)
    r, p = problem.D.shape
    encode = partial(spams.lasso, X, D=D, lambda1=problem.lam * p / (2 * r), mode=2, numThreads=2)
    return lambda: np.ascontiguousarray(encode().toarray().T), X.shape[1]


def sklearn_encode(problem: Problem, algorithm: str, n_jobs: int, rows: int) -> Run:
    """scikit-learn's ``sparse_encode``."""
    from sklearn.decomposition import sparse_encode as encode

    X = problem.X[:rows]
    r, p = problem.D.shape
    alpha = p * problem.lam / (2 * r)
    return lambda: encode(X, problem.D, algorithm=algorithm, alpha=alpha, n_jobs=n_jobs), len(X)


def sklearn_lasso(problem: Problem) -> Run:
    """scikit-learn's ``Lasso`` on the first row."""
    from sklearn.linear_model import Lasso

    columns, x = np.asfortranarray(problem.D.T), problem.X[0]
    model = Lasso(problem.lam / (2 * len(problem.D)), fit_intercept=False)
    return lambda: model.fit(columns, x).coef_[None], 1


OURS: dict[str, Contender] = {"zsl float64": ours, "zsl float32": partial(ours, dtype=np.float32)}


def race(problem: Problem, contenders: dict[str, Contender], rounds: int) -> list[Result]:
    """Time the contenders in turn, so that a busy machine slows all of them.

    The first run of each warms up, and yields the gap that it reached.
    """
    results, runs = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, contender in contenders.items():
            result = Result(problem.name, name)
            results.append(result)
            try:
                run, result.n_rows = contender(problem)
            except ImportError as error:
                result.note = f"needs {error.name}: pip install -e '.[bench]'"
                continue
            A, X = run(), problem.X[: result.n_rows]
            result.gap = float((duality_gap(X, problem.D, A, problem.lam) / scale(X)).max())
            result.n_nonzero = np.count_nonzero(A) / len(X)
            runs.append((run, result))
        for _ in range(rounds):
            for run, result in runs:
                start = time.perf_counter()
                run()
                result.seconds.append(time.perf_counter() - start)
    for result in results:
        if result.contender in OURS:
            result.share = limit(problem, result.contender.split()[-1], result.n_nonzero) / result.per_row
    return results


def limit(problem: Problem, dtype: str, n_nonzero: float) -> float:
    """Reference seconds of a row: its products with all atoms, at the speed of matrix products on this machine.

    For codes with more than 200 non-zeros the reference adds a Cholesky factorisation and a product as the active set
    needs them; a solver without factorisations, such as ADMM, may be faster.
    """
    X, D = np.ascontiguousarray(problem.X, dtype), np.ascontiguousarray(problem.D, dtype)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        product(X, D.T)
        seconds.append(time.perf_counter() - start)
    (r, p), k = D.shape, n_nonzero
    more = (k**3 / 3 + k * r) / (r * p) if k > 200 else 0.0
    return float(np.median(seconds)) / len(X) * (1 + more)


def penalty_for(X: Array, D: Array, n_nonzero: float, rows: int = 100) -> float:
    """The lambda at which the codes of the first rows have about so many non-zeros."""
    X = X[:rows]
    high = float(np.median(lambda_max(X, D)))
    low = 1e-4 * high
    for _ in range(12):
        lam = (low * high) ** 0.5
        dense = np.count_nonzero(sparse_encode(X, D, lam, tol=TOL).A) > n_nonzero * len(X)
        low, high = (lam, high) if dense else (low, lam)
    return (low * high) ** 0.5


def encode(n: int, r: int, p: int, rounds: int) -> list[Result]:
    """Many rows: cold and warm, sparse and dense, on simulated and on image features."""
    out = []
    data = {"synthetic": synthetic(n, p, r), "cifar_awa": real(n, r)}
    for name, (X, D) in ((name, pair) for name, pair in data.items() if pair is not None):
        for n_nonzero in (20, 165):
            lam = penalty_for(X, D, n_nonzero)
            warm: dict[str, Contender] = {**OURS, "SPAMS float64": spams_lasso}
            few = max(n // (20 if n_nonzero < 100 else 100), 20)
            cold: dict[str, Contender] = {
                **warm,
                "scikit-learn lasso_cd": partial(sklearn_encode, algorithm="lasso_cd", n_jobs=1, rows=few),
                "scikit-learn lasso_cd, 2 jobs": partial(sklearn_encode, algorithm="lasso_cd", n_jobs=2, rows=few),
                "scikit-learn lasso_lars": partial(sklearn_encode, algorithm="lasso_lars", n_jobs=1, rows=few),
            }
            out += race(Problem(f"{name}, {n_nonzero} non-zeros, cold", X, D, lam), cold, rounds)
            codes = sparse_encode(X, D, lam, tol=TOL).A
            moved = perturbed(D, 0.02, np.random.default_rng(1))
            out += race(Problem(f"{name}, {n_nonzero} non-zeros, warm", X, moved, lam, codes), warm, rounds)
    return out


def sweep(n: int, rounds: int) -> list[Result]:
    """Dimensions, precision, and density up to codes with more non-zeros than dimensions."""
    out = []
    for p, r, numbers in SWEPT:
        X, D = synthetic(n, p, r)
        for n_nonzero in numbers:
            # SPAMS takes a quarter of a second for a row with 900 non-zeros.
            rows = n if n_nonzero < 50 else max(n // 4, 20) if n_nonzero < 200 else max(n // 40, 20)
            against: dict[str, Contender] = {
                **OURS, "SPAMS float64": partial(spams_lasso, rows=rows),
                "SPAMS float32": partial(spams_lasso, dtype=np.float32, rows=rows),
            }  # fmt: skip
            name = f"sweep: p={p}, r={r}, {n_nonzero} non-zeros"
            out += race(Problem(name, X, D, penalty_for(X, D, n_nonzero, 20)), against, rounds)
    return out


def image(r: int, p: int, rounds: int) -> list[Result]:
    """One image, with the threads of the linear algebra as they are, and with one."""
    X, D = real(1, r) or synthetic(1, p, r)
    problem = Problem("one image", X, D, 0.33 * float(lambda_max(X, D)[0]))
    out = []
    # Threads of a product wait for each other on a busy machine: scikit-learn may choose.
    for name, limit in (("one image", None), ("one image, 1 BLAS thread", 1)):
        with threadpool_limits(limit, user_api="blas"):
            out += race(replace(problem, name=name), {**OURS, "scikit-learn Lasso": sklearn_lasso}, rounds)
    return out


def growth(rounds: int) -> dict[str, dict[str, Any]]:
    """Time against rows, dimensions, atoms and non-zeros, and the exponent of the power law fitted to it."""
    out: dict[str, dict[str, Any]] = {}
    for axis, sizes in GROWING.items():
        seconds = []
        for size in sizes:
            shape = {"n": 1000, "p": 256, "r": 512} | {axis: size}
            if axis == "non-zeros":
                shape |= {"p": 1024, "r": 1280}
            X, D = synthetic(shape["n"], shape["p"], shape["r"])
            # The penalty per atom, lam / r, is what the codes see.
            lam = penalty_for(X, D, size) if axis == "non-zeros" else 0.3 * float(np.median(lambda_max(X, D)))
            (result,) = race(Problem(f"{axis}={size}", X, D, lam), {"zsl float64": ours}, rounds)
            seconds.append(float(np.median(result.seconds)))
        out[axis] = {"sizes": list(sizes), "seconds": seconds, "exponent": exponent(sizes, seconds)}
    return out


def exponent(sizes: Any, seconds: Any) -> float | None:
    """The b of ``seconds ~ sizes^b`` by least squares on logarithms; None for a single size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(set(sizes)) > 1 else None
