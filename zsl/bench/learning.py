"""Dictionary learning: speed to the same objective, memory of large fits, growth with the number of rows."""

from __future__ import annotations

import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zsl.bench.data import real, stored, synthetic
from zsl.bench.encode import REAL_ATOMS, TOL, exponent, penalty_for
from zsl.bench.process import in_a_process, memory_mb
from zsl.checks import Array
from zsl.costs.trial import N_CLASSES
from zsl.models.coupled import CoupledDictionaries
from zsl.models.coupling import ImageAttributes, Visual
from zsl.sparse import Codes, objective, sparse_encode
from zsl.sparse.learning import learn

# Published features in batch mode: images, dimensions, atoms.
SHAPES = {"awa2": (23527, 2048, 2100), "vgg19": (24295, 4096, 4400)}
# Passes that set the objective, passes after which a learner is given up, seconds after which a run is timed once.
_FIRST, _MOST_PASSES, _LONG = 2, 8, 10.0


def ours(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """This package's learner; a batch of all rows is the batch algorithm, with its warm starts."""

    def encode(X: Array, D: Array, init: Array | None, rough: float) -> Codes:
        return sparse_encode(X, D, lam, init=init, tol=TOL, rough=rough)

    task = Visual(X, ImageAttributes(np.zeros((len(X), 1)), np.zeros(len(X), np.int64)), 0.0)
    size = None if batch_size >= len(X) else batch_size
    return learn(task, D, encode, lam, passes, np.random.default_rng(0), batch_size=size, last_pass=False).D


def spams_train(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """SPAMS's ``trainDL``."""
    import spams

    r, p = D.shape
    learned = spams.trainDL(
        np.asfortranarray(X.T), D=np.asfortranarray(D.T), lambda1=lam * p / (2 * r), mode=2, numThreads=2,
        batchsize=batch_size, iter=-(-passes * len(X) // batch_size), verbose=False,
    )  # fmt: skip
    return np.ascontiguousarray(learned.T)


def sklearn_train(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """scikit-learn's ``MiniBatchDictionaryLearning``."""
    from sklearn.decomposition import MiniBatchDictionaryLearning

    r, p = D.shape
    model = MiniBatchDictionaryLearning(
        r, alpha=lam * p / (2 * r), max_iter=passes, batch_size=batch_size, fit_algorithm="cd", dict_init=D,
        n_jobs=2, random_state=0, max_no_improvement=None, tol=0.0, transform_max_iter=1000,
    )  # fmt: skip
    return model.fit(X).components_


def sklearn_batch(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """scikit-learn's ``DictionaryLearning``: all rows per update, whatever ``batch_size``."""
    from sklearn.decomposition import DictionaryLearning

    r, p = D.shape
    # Its dict_init counts only with codes, which its first iteration replaces.
    model = DictionaryLearning(
        r, alpha=lam * p / (2 * r), max_iter=passes, tol=0.0, fit_algorithm="cd", dict_init=D.copy(),
        code_init=np.zeros((len(X), r)), n_jobs=2, random_state=0, transform_max_iter=1000,
    )  # fmt: skip
    return model.fit(X).components_


Learner = Callable[[Array, Array, float, int, int], Array]
# Name, learner, and whether it takes batches. Ours comes first, because ratios are to it.
LEARNERS: dict[str, tuple[Learner, bool]] = {
    "zsl float64": (ours, True),
    "SPAMS trainDL float64": (spams_train, True),
    "scikit-learn MiniBatchDictionaryLearning": (sklearn_train, True),
    "scikit-learn DictionaryLearning": (sklearn_batch, False),
}


def value(X: Array, D: Array, lam: float) -> float:
    """Mean objective of the rows at codes of a certified gap."""
    return float(objective(X, D, sparse_encode(X, D, lam, tol=1e-5).A, lam).mean())


class Runs:
    """Runs of one learner: seconds and objective by passes and batch size, each made once."""

    def __init__(self, learner: Learner, X: Array, D: Array, lam: float) -> None:
        self.learner, self.problem = learner, (X, D, lam)
        self.found: dict[tuple[int, int], tuple[float, float]] = {}

    def run(self, passes: int, batch_size: int) -> tuple[float, float]:
        """Seconds and objective."""
        if (passes, batch_size) not in self.found:
            clock = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                D = self.learner(*self.problem, passes, batch_size)
            seconds = time.perf_counter() - clock
            self.found[passes, batch_size] = seconds, value(self.problem[0], D, self.problem[2])
        return self.found[passes, batch_size]

    def quickest(self, target: float, sizes: list[int]) -> tuple[int, int] | None:
        """The passes and the batch size that reach ``target`` in the least time, or None."""
        found: dict[tuple[int, int], float] = {}
        # The most promising first: what takes longer than a choice already found is not tried any further.
        for size in sorted(sizes, key=lambda size: self.run(_FIRST, size)[1]):
            for passes in range(1, _MOST_PASSES + 1):
                seconds, reached = self.run(passes, size)
                if reached <= target:
                    found[passes, size] = seconds
                if reached <= target or seconds > min(found.values(), default=np.inf):
                    break
        return min(found, key=found.__getitem__) if found else None


def races(n: int, p: int, r: int, rounds: int) -> list[dict[str, Any]]:
    """Races with sparse codes, and against SPAMS alone with dense ones and at the size of SUN.

    scikit-learn would take hours for the latter two.
    """
    few = {name: learner for name, learner in LEARNERS.items() if not name.startswith("scikit-learn")}
    problems = {
        "sparse": (real(n, REAL_ATOMS) or synthetic(n, p, r), 20, LEARNERS),
        "dense": (real(n // 2, n * 2 // 5) or synthetic(n // 2, p, n * 2 // 5), n // 5, few),
        "size of SUN": (synthetic(10320 * n // 2000, 2048, 2560 * n // 2000), 64, few),
    }
    out = []
    for name, ((X, D), n_nonzero, learners) in problems.items():
        lam = penalty_for(X, D, n_nonzero)
        found = race(X, D, lam, rounds, (512,) if learners is few else (128, 512), learners)
        out += [
            {"problem": f"{name}: {len(X)} x {X.shape[1]}, r={len(D)}, {n_nonzero} non-zeros"} | row for row in found
        ]
    return out


def race(
    X: Array, D: Array, lam: float, rounds: int, batch_sizes: tuple[int, ...] = (128, 512),
    learners: Mapping[str, tuple[Learner, bool]] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """The time in which each learner gets from D to the same objective.

    Every learner runs two passes with each batch size; of the learners' best objectives the highest is the target,
    which all of them reach. Each then has the batch size and the number of passes that reach the target soonest; this
    choice is made outside the clock.
    """
    start, learners = value(X, D, lam), learners or LEARNERS
    sizes = {name: [*(batch_sizes if batches else ()), len(X)] for name, (_, batches) in learners.items()}
    ours(X[:256], D[:256], lam, 1, 128), ours(X[:256], D[:256], lam, 1, 256)  # compiles
    tried, best = {}, {}
    for name, (learner, _) in learners.items():
        runs = Runs(learner, X, D, lam)
        try:
            best[name] = min(runs.run(_FIRST, size)[1] for size in sizes[name])
        except ImportError as error:
            print(f"{name}: needs {error.name}: pip install -e '.[bench]'")
            continue
        tried[name] = runs
    target = max(best.values())
    chosen = {name: choice for name, runs in tried.items() if (choice := runs.quickest(target, sizes[name]))}
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for k in range(rounds):
        for name, choice in chosen.items():
            if not k or seconds[name][0] <= _LONG:
                seconds[name].append(Runs(LEARNERS[name][0], X, D, lam).run(*choice)[0])
    base = float(np.median(seconds["zsl float64"]))
    return [
        {"contender": name, "start": start, "target": target, "objective": tried[name].run(passes, size)[1],
         "passes": passes, "batch_size": size, "seconds": seconds[name],
         "ratio": float(np.median(seconds[name])) / base}
        for name, (passes, size) in chosen.items()
    ]  # fmt: skip


def growth(sizes: list[int], p: int = 256, r: int = 512) -> dict[str, Any]:
    """One online pass over rows in a memory map, for several numbers of rows."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [in_a_process(fit, (n, p, r), 1, folder) for n in sizes]
    return {"sizes": sizes, "runs": runs, "exponent": exponent(sizes, [run["seconds"] for run in runs])}


def fit(shape: tuple[int, int, int], n_iter: int, folder: str | None = None) -> dict[str, Any]:
    """Time and memory of one fit of simulated features; from files in ``folder``, in batches, if that is given."""
    n, p, r = shape
    X, y = stored(n, p, Path(folder) / "X.npy" if folder else None)
    table = np.random.default_rng(1).random((N_CLASSES + 10, 16 if folder else 85), np.float32)
    Z: Array = table[y]
    if folder:
        for name, array in (("y", y), ("Z", Z)):
            np.save(Path(folder) / f"{name}.npy", array)
        X, y, Z = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in ("X", "y", "Z"))
    new = partial(CoupledDictionaries, solver=partial(sparse_encode, tol=TOL), batch_size=2048 if folder else None)
    new(n_atoms=300, n_iter=1).fit(X[:2048], y[:2048], Z[:2048], table[N_CLASSES:])  # compiles
    model = new(n_atoms=r, n_iter=n_iter)
    clock = time.perf_counter()
    anonymous = _watched(lambda: model.fit(X, y, Z, table[N_CLASSES:]))
    return {
        "n": n, "p": p, "r": r, "n_iter": n_iter, "seconds": time.perf_counter() - clock, "anonymous_mb": anonymous,
        "peak_rss_mb": memory_mb("VmHWM"), "objective": model.objective_x_[-1], "relative_gap": model.gap_x_[-1] * p,
    }  # fmt: skip


def _watched(run: Callable[[], Any]) -> float:
    """The largest anonymous memory in MB while ``run`` runs: rows of a memory map do not count."""
    most, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], memory_mb("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run()
    finally:
        done.set()
        thread.join()
    return most[0]
