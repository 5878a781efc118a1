"""Speed of sparse coding: who is compared, on which problems, and how they are timed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from zsl.bench.data import perturbed, real, synthetic
from zsl.checks import Array
from zsl.sparse.encode import sparse_encode
from zsl.sparse.problem import duality_gap, lambda_max, scale

TOL = 1e-4
# Atoms of the parts on image features, whatever -r says.
REAL_ATOMS = 1400


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
    """This package's active set, from X and D to codes, the certificate included."""
    X: Array = problem.X.astype(dtype)
    D: Array = problem.D.astype(dtype)
    init: Array | None = None if problem.init is None else problem.init.astype(dtype)
    return lambda: sparse_encode(X, D, problem.lam, init=init, tol=TOL).A, len(X)


def spams_lasso(problem: Problem, dtype: type = np.float64) -> Run:
    """SPAMS's homotopy."""
    import spams

    X: Array = np.asfortranarray(problem.X.T, dtype=dtype)
    D: Array = np.asfortranarray(problem.D.T, dtype=dtype)
    r, p = problem.D.shape
    encode = partial(spams.lasso, X, D=D, lambda1=problem.lam * p / (2 * r), mode=2, numThreads=2)
    return lambda: np.ascontiguousarray(encode().toarray().T), len(problem.X)


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
    return results


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
    """Dimensions, density up to codes with nearly p non-zeros, and precision; r = 1.25 p."""
    out = []
    against: dict[str, Contender] = {
        **OURS, "SPAMS float64": spams_lasso, "SPAMS float32": partial(spams_lasso, dtype=np.float32)
    }  # fmt: skip
    for p in (256, 1024, 2048):
        X, D = synthetic(n, p, 5 * p // 4)
        for n_nonzero in (20, p // 6, 4 * p // 5):
            if n_nonzero > 1000:  # such codes take seconds a row, here and there
                continue
            rows = n if n_nonzero < 200 else n // 5
            name = f"sweep: p={p}, r={len(D)}, {n_nonzero} non-zeros"
            out += race(Problem(name, X[:rows], D, penalty_for(X, D, n_nonzero, 20)), against, rounds)
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
    """Time against n and against r, and the exponent of the power law fitted to it."""
    out: dict[str, dict[str, Any]] = {}
    for axis, sizes in (("n", (1000, 2000, 4000, 8000)), ("r", (300, 600, 1200, 2400))):
        seconds = list(_seconds_by_size(axis, sizes, rounds))
        out[axis] = {"sizes": list(sizes), "seconds": seconds, "exponent": exponent(sizes, seconds)}
    return out


def _seconds_by_size(axis: str, sizes: tuple[int, ...], rounds: int) -> Iterator[float]:
    for size in sizes:
        n, r = (size, 512) if axis == "n" else (1000, size)
        X, D = synthetic(n, 256, r)
        # The penalty per atom, lam / r, is what the codes see.
        lam = 0.3 * float(np.median(lambda_max(X, D)))
        (result,) = race(Problem(f"{axis}={size}", X, D, lam), {"zsl float64": ours}, rounds)
        yield float(np.median(result.seconds))


def exponent(sizes: Any, seconds: Any) -> float | None:
    """The b of ``seconds ~ sizes^b`` by least squares on logarithms; None for a single size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(set(sizes)) > 1 else None
