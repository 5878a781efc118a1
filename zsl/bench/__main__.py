"""Speed against SPAMS and scikit-learn, as ratios in one process: ``python -m zsl.bench``.

Every contender solves the same problem in turn, round after round, so that a busy machine slows all of
them; the median of the rounds counts, and the duality gap that each reached is printed beside it. Competitors run as
shipped, on arrays already in the layout they want, which is not timed; ours is timed from X and D to codes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from zsl.bench import learning as bench_learning
from zsl.bench.arguments import need_writable, whole
from zsl.bench.report import Result, bar_plot, print_table, target_rows, write_table
from zsl.checks import Array
from zsl.errors import UserError, too_large, unforeseen
from zsl.sparse.encode import sparse_encode
from zsl.sparse.problem import duality_gap, lambda_max, scale

TOL = 1e-4
# Atoms of the parts on real features whatever `-r`: the targets name them.
_REAL_ATOMS = 1400


@dataclass
class Problem:
    """Rows to encode: samples, dictionary, penalty, and codes to start from if the run is a warm one."""

    name: str
    X: Array
    D: Array
    lam: float
    init: Array | None = None


def synthetic_features(p: int, rng: np.random.Generator, n_classes: int = 40) -> Callable[[int], Array]:
    """A sampler of l2-normalised ReLU features: heavy common part, class means, low-rank and white noise."""
    common = rng.gamma(1.0, 1.0, p) - 0.3
    means = 0.8 * rng.standard_normal((n_classes, p))
    mixing = rng.standard_normal((64, p)) / 8

    def sample(m: int) -> Array:
        F = common + means[rng.integers(n_classes, size=m)]
        F += rng.standard_normal((m, 64)) @ mixing + 0.4 * rng.standard_normal((m, p))
        return unit_rows(np.maximum(F, 0))

    return sample


def unit_rows(F: Array) -> Array:
    return F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), 1e-12)


def perturbed(S: Array, size: float, rng: np.random.Generator) -> Array:
    """``S`` with noise of norm ``size`` on every row, unit rows again."""
    return unit_rows(S + size * rng.standard_normal(S.shape) / S.shape[1] ** 0.5)


def synthetic(n: int, p: int, r: int, seed: int = 0) -> tuple[Array, Array]:
    """Samples, and a dictionary of perturbed other samples."""
    rng = np.random.default_rng(seed)
    sample = synthetic_features(p, rng)
    return sample(n), perturbed(sample(r), 0.5, rng)


def real(n: int, r: int, seed: int = 0) -> tuple[Array, Array] | None:
    """The same of image features (cifar_awa), or None where they are not on this machine or fewer than ``n + r``."""
    shared = Path(os.environ.get("ZSL_SHARED", Path(__file__).resolve().parents[2] / ".." / "shared"))
    path = shared / "data" / "cifar_awa" / "lite0_1280.npz"
    if not path.exists():
        return None
    rng = np.random.default_rng(seed)
    with np.load(path) as file:
        F = unit_rows(file["features"].astype(np.float64))
    if n + r > len(F):
        print(f"cifar_awa is left out: it has {len(F)} images, and {n} to encode and {r} as atoms make {n + r}.")
        return None
    rows = rng.permutation(len(F))
    return F[rows[:n]], perturbed(F[rows[n : n + r]], 0.5, rng)


def penalty_for(X: Array, D: Array, n_nonzero: float, rows: int = 100) -> float:
    """The lambda at which the codes of the first rows have about so many non-zeros."""
    X = X[:rows]
    high = float(np.median(lambda_max(X, D)))
    low = 1e-4 * high
    for _ in range(12):
        lam = (low * high) ** 0.5
        if np.count_nonzero(sparse_encode(X, D, lam, tol=TOL).A) > n_nonzero * len(X):
            low = lam
        else:
            high = lam
    return (low * high) ** 0.5


# A contender is made ready for a problem outside the clock, and returns what is to be timed and how many
# of the rows it takes: the slow ones get fewer.
Run = tuple[Callable[[], Array], int]
Contender = Callable[[Problem], Run]


def ours(problem: Problem, dtype: type = np.float64, solver: str = "active_set") -> Run:
    X: Array = problem.X.astype(dtype)
    D: Array = problem.D.astype(dtype)
    init: Array | None = None if problem.init is None else problem.init.astype(dtype)
    return lambda: sparse_encode(X, D, problem.lam, solver=solver, init=init, tol=TOL).A, len(X)


def spams_lasso(problem: Problem, dtype: type = np.float64) -> Run:
    import spams

    X: Array = np.asfortranarray(problem.X.T, dtype=dtype)
    D: Array = np.asfortranarray(problem.D.T, dtype=dtype)
    r, p = problem.D.shape
    encode = partial(spams.lasso, X, D=D, lambda1=problem.lam * p / (2 * r), mode=2, numThreads=2)
    return lambda: np.ascontiguousarray(encode().toarray().T), len(problem.X)


def sklearn_encode(problem: Problem, algorithm: str, n_jobs: int, rows: int) -> Run:
    from sklearn.decomposition import sparse_encode as encode

    X = problem.X[:rows]
    r, p = problem.D.shape
    alpha = p * problem.lam / (2 * r)
    return lambda: encode(X, problem.D, algorithm=algorithm, alpha=alpha, n_jobs=n_jobs), len(X)


def sklearn_lasso(problem: Problem) -> Run:
    from sklearn.linear_model import Lasso

    columns, x = np.asfortranarray(problem.D.T), problem.X[0]
    model = Lasso(problem.lam / (2 * len(problem.D)), fit_intercept=False)
    return lambda: model.fit(columns, x).coef_[None], 1


def race(problem: Problem, contenders: dict[str, Contender], rounds: int) -> list[Result]:
    """Time the contenders on the problem, in turn; the first run of each is a warm-up and yields its gap."""
    results, runs = [], []
    for name, contender in contenders.items():
        result = Result(problem.name, name, shape=(*problem.X.shape, len(problem.D)))
        results.append(result)
        try:
            run, result.n_rows = contender(problem)
        except ImportError as error:
            result.note = f"needs {error.name}: pip install 'zsl-cdl[bench]'"
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            A = run()
        X = problem.X[: result.n_rows]
        result.gap = float((duality_gap(X, problem.D, A, problem.lam) / scale(X)).max())
        result.n_nonzero = np.count_nonzero(A) / len(X)
        runs.append((run, result))
    for _ in range(rounds):
        for run, result in runs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                run()
                result.seconds.append(time.perf_counter() - start)
    return results


def encode_problems(n: int, r: int, p: int) -> list[tuple[Problem, dict[str, Contender]]]:
    """Cold and warm, sparse and dense, on synthetic and real features."""
    cases = []
    for name, data in (("synthetic", synthetic(n, p, r)), ("cifar_awa", real(n, r))):
        if data is None:
            continue
        X, D = data
        moved = perturbed(D, 0.02, np.random.default_rng(1))
        for n_nonzero in (20, 165):
            lam = penalty_for(X, D, n_nonzero)
            few = max(n // (20 if n_nonzero < 100 else 100), 20)
            against: dict[str, Contender] = {
                "zsl float64": ours,
                "zsl float32": partial(ours, dtype=np.float32),
                "SPAMS float64": spams_lasso,
                "scikit-learn lasso_cd": partial(sklearn_encode, algorithm="lasso_cd", n_jobs=1, rows=few),
                "scikit-learn lasso_cd, 2 jobs": partial(sklearn_encode, algorithm="lasso_cd", n_jobs=2, rows=few),
                "scikit-learn lasso_lars": partial(sklearn_encode, algorithm="lasso_lars", n_jobs=1, rows=few),
            }
            cases.append((Problem(f"{name}, {n_nonzero} non-zeros, cold", X, D, lam), against))
            codes = sparse_encode(X, D, lam, tol=TOL).A
            warm = {k: v for k, v in against.items() if not k.startswith("scikit")}
            cases.append((Problem(f"{name}, {n_nonzero} non-zeros, warm", X, moved, lam, codes), warm))
    return cases


def sweep_problems(n: int) -> list[tuple[Problem, dict[str, Contender]]]:
    """Dimensions, density up to codes with nearly p non-zeros, and precision; r = 1.25 p as models have it."""
    cases = []
    for p in (256, 1024, 2048):
        X, D = synthetic(n, p, 5 * p // 4)
        for n_nonzero in (20, p // 6, 4 * p // 5):
            # Codes of 1600 non-zeros take seconds a row, here and there.
            if n_nonzero > 1000:
                continue
            rows = n if n_nonzero < 200 else n // 5
            lam = penalty_for(X, D, n_nonzero, 20)
            against: dict[str, Contender] = {
                "zsl float64": ours,
                "zsl float32": partial(ours, dtype=np.float32),
                "SPAMS float64": spams_lasso,
                "SPAMS float32": partial(spams_lasso, dtype=np.float32),
            }
            cases.append((Problem(f"sweep: p={p}, r={len(D)}, {n_nonzero} non-zeros", X[:rows], D, lam), against))
    return cases


def one_image(r: int, p: int) -> tuple[Problem, dict[str, Contender]]:
    X, D = real(1, r) or synthetic(1, p, r)
    problem = Problem("one image", X, D, 0.33 * float(lambda_max(X, D)[0]))
    return problem, {
        "zsl float64": ours,
        "zsl float32": partial(ours, dtype=np.float32),
        "scikit-learn Lasso": sklearn_lasso,
    }


def growth(rounds: int) -> dict[str, dict[str, Any]]:
    """Time against n and against r, and the exponent of the power law fitted to it."""
    out: dict[str, dict[str, Any]] = {}
    for axis, sizes in (("n", (1000, 2000, 4000, 8000)), ("r", (300, 600, 1200, 2400))):
        seconds = []
        for size in sizes:
            n, r = (size, 512) if axis == "n" else (1000, size)
            X, D = synthetic(n, 256, r)
            # The penalty per atom, lam / r, is what the codes see.
            lam = 0.3 * float(np.median(lambda_max(X, D)))
            (result,) = race(Problem(f"{axis}={size}", X, D, lam), {"zsl float64": ours}, rounds)
            seconds.append(float(np.median(result.seconds)))
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        out[axis] = {"sizes": list(sizes), "seconds": seconds, "exponent": slope}
    return out


def environment() -> dict[str, Any]:
    """What a ratio depends on besides the code."""
    from importlib.metadata import version

    from threadpoolctl import threadpool_info

    libraries = [{k: i.get(k) for k in ("internal_api", "version", "architecture", "num_threads")}
                 for i in threadpool_info()]  # fmt: skip
    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": version("numba"),
        "sklearn": version("scikit-learn"),
        "libraries": libraries,
        "tol": TOL,
    }


PARTS = ("encode", "image", "sweep", "learn", "growth", "awa2", "vgg19", "rows", "spreading")
DEFAULT = ("encode", "image", "sweep", "learn", "growth")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m zsl.bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(DEFAULT),
        help="parts to run: encode many rows; one image; a sweep over p, density and precision; learn a dictionary; "
        "growth in n and r; memory and time of a fit in the shape of awa2 or vgg19; growth with rows read from a file; "
        "label spreading over many images (default: all but the last four)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=whole(1), default=5,
        help="timed rounds per problem of encode, sweep, learn and growth; 20 times as many of image (default 5)",
    )  # fmt: skip
    parser.add_argument(
        "-n", type=whole(1), default=2000, help="rows of encode and learn, and a tenth of them of sweep (default 2000)"
    )
    parser.add_argument(
        "-r", type=whole(1), default=1200,
        help="atoms of encode (default 1200), and of learn where no image features are here; "
        f"else learn, like image, has {_REAL_ATOMS}",
    )  # fmt: skip
    parser.add_argument(
        "-p", type=whole(1), default=1024,
        help="dimensions of synthetic features (default 1024): of encode, and of image and learn where no image "
        "features are here",
    )  # fmt: skip
    parser.add_argument(
        "--iterations", type=whole(0), default=1, help="alternations of the awa2 and vgg19 fits (default 1)"
    )
    parser.add_argument(
        "--sizes", type=whole(bench_learning.N_CLASSES), nargs="+", default=[10**4, 10**5, 10**6],
        help="row counts of rows (default 10000 100000 1000000)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("multirun/bench"), help="folder for JSON, tables and plot")
    arguments = parser.parse_args(argv)
    name = "bench" if len(arguments.only) > 1 else arguments.only[0]
    try:
        need_writable(arguments.out, [f"{name}.{suffix}" for suffix in ("json", "md", "svg")])
    except UserError as refused:
        parser.error(str(refused))
    began = time.perf_counter()
    record: dict[str, Any] = {"environment": environment(), "arguments": {**vars(arguments), "out": str(arguments.out)}}
    results: list[Result] = []
    failed = None
    try:
        _measure(arguments, record, results)
    except UserError as error:
        failed = str(error)
    except Exception as error:
        if not too_large(error):
            raise
        failed = unforeseen(error, "make -n, -r, -p or --sizes smaller")
    if record.keys() & set(PARTS):
        # Of the parts before one that failed too.
        record["targets"] = target_rows(results, record)
        record["minutes"] = (time.perf_counter() - began) / 60
        if results:
            bar_plot(results, arguments.out / f"{name}.svg")
        print(write_table(results, record, arguments.out / f"{name}.md"))
        path = arguments.out / f"{name}.json"
        path.write_text(json.dumps(record, indent=1))
        print(f"written: {path} and .md{', .svg' if results else ''}; {record['minutes']:.1f} minutes")
    if failed is not None:
        print(f"zsl.bench: {failed}", file=sys.stderr)
        sys.exit(1)


def _measure(arguments: argparse.Namespace, record: dict[str, Any], results: list[Result]) -> None:
    """Run the parts, and add what they find to ``record`` and ``results``."""
    parts = arguments.only
    for part in ("encode", "image", "sweep"):
        if part not in parts:
            continue
        found = []
        for problem, contenders in _problems(part, arguments.n, arguments.r, arguments.p):
            if part == "image":
                # On a busy machine the threads of a product wait for each other: scikit-learn may choose. Whoever
                # follows a long run is put off there as well, which no order of the contenders avoids.
                for name, limit in (("one image", None), ("one image, 1 BLAS thread", 1)):
                    with threadpool_limits(limit, user_api="blas"):
                        found += race(replace(problem, name=name), contenders, 20 * arguments.rounds)
            else:
                found += race(problem, contenders, arguments.rounds)
        print_table(found)
        record[part] = [asdict(r) for r in found]
        results += found
    if "growth" in parts:
        record["growth"] = growth(arguments.rounds)
        for axis, fit in record["growth"].items():
            print(f"time grows as {axis}^{fit['exponent']:.2f} over {axis} = {fit['sizes']}")
    if "learn" in parts:
        X, D = real(arguments.n, _REAL_ATOMS) or synthetic(arguments.n, arguments.p, arguments.r)
        record["learn"] = bench_learning.race(X, D, penalty_for(X, D, 20), arguments.rounds)
    for shape in ("awa2", "vgg19"):
        if shape in parts:
            record[shape] = bench_learning.in_a_process(shape, arguments.iterations)
    if "rows" in parts:
        record["rows"] = bench_learning.growth(arguments.sizes)
    if "spreading" in parts:
        from zsl.bench import spreading as bench_spreading

        record["spreading"] = bench_spreading.bench()


def _problems(part: str, n: int, r: int, p: int) -> list[tuple[Problem, dict[str, Contender]]]:
    if part == "encode":
        return encode_problems(n, r, p)
    return [one_image(_REAL_ATOMS, p)] if part == "image" else sweep_problems(max(n // 10, 20))


if __name__ == "__main__":
    main()
