"""Parts of ``python -m zsl.bench`` that learn dictionaries: speed at equal objective, memory, growth with rows."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, unforeseen
from zsl.models.coupled import CoupledDictionaries
from zsl.models.coupling import Attributes, Visual
from zsl.sparse import Codes, objective, sparse_encode
from zsl.sparse.learning import learn

# Published features in batch mode: images, dimensions, atoms, attributes.
SHAPES = {"awa2": (23527, 2048, 2100, 85), "vgg19": (24295, 4096, 4400, 85)}
_TOL = 1e-4
# Seen classes of simulated rows, each with a row at least.
N_CLASSES = 40


def ours(X: Array, D: Array, lam: float, n_iter: int, batch_size: int | None) -> Array:
    """The dictionary after ``n_iter`` passes."""

    def encode(X: Array, D: Array, init: Array | None) -> Codes:
        return sparse_encode(X, D, lam, init=init, tol=_TOL)

    task = Visual(X, Attributes(np.zeros((len(X), 1)), np.zeros(len(X), np.int64)), 0.0)
    rng = np.random.default_rng(0)
    return learn(task, D, encode, lam, n_iter, rng, batch_size=batch_size, last_pass=False).D


def spams_train(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    import spams

    r, p = D.shape
    learned = spams.trainDL(
        np.asfortranarray(X.T), D=np.asfortranarray(D.T), lambda1=lam * p / (2 * r), mode=2, numThreads=2,
        batchsize=batch_size, iter=-(-passes * len(X) // batch_size), verbose=False,
    )  # fmt: skip
    return np.ascontiguousarray(learned.T)


def sklearn_train(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    from sklearn.decomposition import MiniBatchDictionaryLearning

    r, p = D.shape
    model = MiniBatchDictionaryLearning(
        r, alpha=lam * p / (2 * r), max_iter=passes, batch_size=batch_size, fit_algorithm="cd", dict_init=D,
        n_jobs=2, random_state=0, max_no_improvement=None, tol=0.0, transform_max_iter=1000,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X).components_


def sklearn_batch(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """``DictionaryLearning``: all rows per update, whatever ``batch_size``."""
    from sklearn.decomposition import DictionaryLearning

    r, p = D.shape
    # Its dict_init counts only with codes, which its first iteration replaces.
    model = DictionaryLearning(
        r, alpha=lam * p / (2 * r), max_iter=passes, tol=0.0, fit_algorithm="cd", dict_init=D.copy(),
        code_init=np.zeros((len(X), r)), n_jobs=2, random_state=0, transform_max_iter=1000,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X).components_


def ours_batch(X: Array, D: Array, lam: float, passes: int, batch_size: int) -> Array:
    """A batch of all rows is the batch algorithm, with its warm starts."""
    return ours(X, D, lam, passes, None if batch_size >= len(X) else batch_size)


def value(X: Array, D: Array, lam: float) -> float:
    """Mean objective of the rows at their best codes."""
    return float(objective(X, D, sparse_encode(X, D, lam, tol=1e-5).A, lam).mean())


Learner = Callable[[Array, Array, float, int, int], Array]
# Name, what learns, and whether it takes batches. Ours comes first: ratios are to it.
LEARNERS: dict[str, tuple[Learner, bool]] = {
    "zsl float64": (ours_batch, True),
    "SPAMS trainDL float64": (spams_train, True),
    "scikit-learn MiniBatchDictionaryLearning": (sklearn_train, True),
    "scikit-learn DictionaryLearning": (sklearn_batch, False),
}
# Passes that set the objective.
_FIRST = 2
# Passes after which a learner that has not reached the objective is given up.
_MOST_PASSES = 8
# Runs longer than this are timed once.
_LONG = 10.0


class _Tried:
    """Runs of one learner: seconds and objective by passes and batch size, each made once."""

    def __init__(self, learner: Learner, X: Array, D: Array, lam: float) -> None:
        self.learner, self.problem, self.runs = learner, (X, D, lam), {}  # type: ignore[var-annotated]

    def run(self, passes: int, batch_size: int) -> tuple[float, float]:
        if (passes, batch_size) not in self.runs:
            clock = time.perf_counter()
            learned = self.learner(*self.problem, passes, batch_size)
            seconds = time.perf_counter() - clock
            self.runs[passes, batch_size] = seconds, value(self.problem[0], learned, self.problem[2])
        return self.runs[passes, batch_size]

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


def race(
    X: Array, D: Array, lam: float, rounds: int, batch_sizes: tuple[int, ...] = (128, 512)
) -> list[dict[str, Any]]:
    """The time in which each learner gets from ``D`` to the same objective.

    That objective is one which all of them reach: each runs two passes with every batch size, all rows at once
    included; the best of these counts, and of the learners' best ones the highest is the target. Each then has the same
    choice, made outside the clock: the batch size and the number of passes that reach the target soonest. Objectives
    are those of the dictionaries: of all rows at codes of a certified gap, whatever the learner reports.
    """
    start = value(X, D, lam)
    sizes = {name: [*(batch_sizes if batches else ()), len(X)] for name, (_, batches) in LEARNERS.items()}
    tried, best = {}, {}
    ours(X[:256], D, lam, 1, 128), ours(X[:256], D, lam, 1, None)  # compiles
    for name, (learner, _) in LEARNERS.items():
        t = _Tried(learner, X, D, lam)
        try:
            best[name] = min(t.run(_FIRST, size)[1] for size in sizes[name])
        except ImportError as error:
            print(f"{name}: needs {error.name}: pip install 'zsl-cdl[bench]'")
            continue
        tried[name] = t
    target = max(best.values())
    print(
        f"learn {X.shape} r={len(D)}: objective {start:.6f} -> {target:.6f}, reached by all; own choice of batch size"
    )
    chosen = {name: choice for name, t in tried.items() if (choice := t.quickest(target, sizes[name])) is not None}
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for k in range(rounds):
        for name, choice in chosen.items():
            if k and seconds[name][0] > _LONG:
                continue
            seconds[name].append(_seconds(partial(LEARNERS[name][0], X, D, lam, *choice)))
    own = float(np.median(seconds["zsl float64"]))
    rows = []
    for name, (n_passes, size) in chosen.items():
        median = float(np.median(seconds[name]))
        row = {
            "contender": name, "start": start, "target": target, "objective": tried[name].run(n_passes, size)[1],
            "passes": n_passes, "batch_size": size, "seconds": seconds[name], "ratio": median / own,
            "shape": [*X.shape, len(D)], "rounds": rounds,
        }  # fmt: skip
        batch = "all rows at once" if size == len(X) else f"batches of {size}"
        print(f"  {name}: {median:.2f} s ({n_passes} passes, {batch}, {len(seconds[name])} rounds), "
              f"objective {row['objective']:.6f}: {row['ratio']:.1f} times ours")  # fmt: skip
        rows.append(row)
    return rows


def _seconds(run: Callable[[], Any]) -> float:
    clock = time.perf_counter()
    run()
    return time.perf_counter() - clock


def in_a_process(shape: str, n_iter: int, **more: Any) -> dict[str, Any]:
    """Time and peak memory of one fit, in a process of its own."""
    arguments = json.dumps({"shape": shape, "n_iter": n_iter, **more})
    out = subprocess.run([sys.executable, "-m", "zsl.bench.learning", arguments], stdout=subprocess.PIPE, text=True)
    if out.returncode:
        about = f"{shape}, {more['n']} rows" if "n" in more else shape
        how = "was killed, as the system does where memory ends" if out.returncode < 0 else "failed, as said above"
        raise UserError(f"the process that measures {about} {how}; leave that part out or make it smaller.")
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    print(f"{shape}: " + ", ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items()))
    return found


def growth(sizes: list[int], p: int = 256, r: int = 512) -> dict[str, Any]:
    """One online pass over rows in a memory map, for several numbers of rows."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            found.append(in_a_process("rows", 1, n=n, p=p, r=r, folder=folder))
    exponent = None
    if len(set(sizes)) > 1:
        exponent = float(np.polyfit(np.log(sizes), np.log([f["seconds"] for f in found]), 1)[0])
    memory = [f["anonymous_mb"] for f in found]
    grows = "" if exponent is None else f"time grows as n^{exponent:.3f} over n = {sizes}; "
    print(f"{grows}anonymous memory {min(memory):.0f}-{max(memory):.0f} MB")
    return {"sizes": sizes, "runs": found, "exponent": exponent}


def _features(n: int, p: int, path: Path | None, seed: int = 0) -> tuple[Array, Array]:
    """l2-normalised ReLU features of ``N_CLASSES`` classes, float32, made in pieces; in a memory map at ``path``."""
    rng = np.random.default_rng(seed)
    common, means = rng.gamma(1.0, 1.0, p) - 0.3, 0.8 * rng.standard_normal((N_CLASSES, p))
    mixing = (rng.standard_normal((64, p)) / 8).astype(np.float32)
    X: Array = np.empty((n, p), np.float32)[:0] if path else np.empty((n, p), np.float32)
    if path:
        X = np.lib.format.open_memmap(path, "w+", np.float32, (n, p))
    y = rng.integers(N_CLASSES, size=n)
    y[:N_CLASSES] = np.arange(N_CLASSES)
    for i in range(0, n, 2048):
        label = y[i : i + 2048]
        F = (common + means[label]).astype(np.float32)
        F += rng.standard_normal((len(F), 64), np.float32) @ mixing
        F += 0.4 * rng.standard_normal(F.shape, np.float32)
        np.maximum(F, 0, out=F)
        X[i : i + 2048] = F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), 1e-12)
    return X, y


def _status(name: str) -> float:
    """A line of this process's status, in MB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _watched(run: Callable[[], Any]) -> float:
    """The largest anonymous memory in MB while ``run`` runs, looked at fifty times a second."""
    import threading

    most, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], _status("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run()
    finally:
        done.set()
        thread.join()
    return most[0]


def _fit(shape: str, n_iter: int, n: int = 0, p: int = 0, r: int = 0, q: int = 85, folder: str | None = None) -> None:
    """What the child process does; prints a line of JSON."""
    if shape in SHAPES:
        n, p, r, q = SHAPES[shape]
    path = Path(folder) / "X.npy" if folder else None
    X, y = _features(n, p, path)
    table = np.random.default_rng(1).random((N_CLASSES + 10, q), np.float32)
    Z: Array = table[y]
    if path:
        q = 16
        np.save(path.with_name("y.npy"), y)
        np.save(path.with_name("Z.npy"), table[y, :q])
        table = table[:, :q]
        del X, Z, y
        X, y, Z = (np.load(path.with_name(name + ".npy"), mmap_mode="r") for name in ("X", "y", "Z"))
    solver = partial(sparse_encode, tol=_TOL)
    small = CoupledDictionaries(n_atoms=300, n_iter=1, solver=solver, batch_size=2048 if path else None)
    small.fit(X[:2048], y[:2048], Z[:2048], table[N_CLASSES:])  # compiles
    # The penalty is the model's default.
    model = CoupledDictionaries(n_atoms=r, n_iter=n_iter, solver=solver, batch_size=2048 if path else None)
    clock = time.perf_counter()
    anonymous = _watched(lambda: model.fit(X, y, Z, table[N_CLASSES:]))
    found = {
        "n": n, "p": p, "r": r, "n_iter": n_iter, "seconds": time.perf_counter() - clock,
        "anonymous_mb": anonymous, "peak_rss_mb": _status("VmHWM"),
        "objective": model.objective_x_[-1], "relative_gap": model.gap_x_[-1] * p,
    }  # fmt: skip
    if model.codes_ is not None:
        found["non_zeros"] = model.codes_.nnz / n
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        _fit(**json.loads(sys.argv[1]))
    except (OSError, MemoryError) as refused:
        sys.exit(f"zsl.bench: {unforeseen(refused)}")
