"""What settings chosen on validation classes are worth: ``python docs/measure_tuning.py FOLDER --data FOLDER``.

For eleven models, four data sets, ten random and six alike draws of unseen classes, every setting of a model's grid is
tested on validation classes in eight divisions and, fitted on all seen classes, on the unseen ones. FOLDER keeps these
accuracies, a file for each draw and model, and the script goes on where it stopped. It prints, for each rule, the mean
accuracy on unseen classes with the chosen settings less that with the given ones (docs/choosing.md). With
OMP_NUM_THREADS=1 two cores take about 35 minutes, 20 of them for ``cifar_awa``.

``--data`` is a folder with ``letters`` and ``vowel`` in the xlsa17 layout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import pandas as pd

import zsl
from zsl.experiment.loading import load
from zsl.experiment.selection import accuracies
from zsl.experiment.setup import checked
from zsl.model_selection.holdout import folds, held_out
from zsl.model_selection.one_standard_error import choose, distances
from zsl.progress import Bar
from zsl.report.cells import layout
from zsl.system import usable_cores

MODELS = ["eszsl", "ridge", "ridge_reverse", "sae", "synthesis_gaussian", "ale", "sje", "devise", "latem", "costa",
          "conse"]  # fmt: skip
DRAWS = [("random", seed) for seed in range(10)] + [("alike", seed) for seed in range(6)]


def measure(job: tuple[Path, list[str]]) -> None:
    """Write the accuracies of one draw and model: (T, J) on J folds, and (T,) on unseen classes."""
    path, overrides = job
    setup = checked(zsl.compose([*overrides, "tune=class_cv", "inference=own", "tracking=none"]))
    data, tuning = load(setup), setup.tuning
    assert tuning is not None
    given = setup.values(tuning.space)
    trials = [given, *(settings for settings in tuning.trials() if settings != given)]
    classifiers = [setup.with_settings(settings).classifier for settings in trials]
    sets = folds(data, tuning.n_folds, tuning.seed, tuning.repeats)
    with Bar("", 0) as bar:
        on_folds = [[one.mean() for one in accuracies(classifiers, part, bar)] for part in held_out(data, sets)]
        unseen = [one.mean() for one in accuracies(classifiers, data, bar)]
    np.savez(path, folds=np.array(on_folds).T, unseen=unseen, distance=distances(trials, 0), repeats=tuning.repeats)


def rules() -> dict[str, Callable[[np.ndarray, np.ndarray, int], int]]:
    """Each rule: from accuracies (T, J), distances (T,) and the number of divisions to the chosen setting."""

    def rule(
        divisions: int | None = None, *, width: float = 1, fewest: int = 1, best: bool = False
    ) -> Callable[[np.ndarray, np.ndarray, int], int]:
        def chosen(accuracy: np.ndarray, distance: np.ndarray, repeats: int) -> int:
            n = accuracy.shape[1] // repeats
            if n < fewest:
                return 0
            # The standard error is a deviation over the root of the number of folds: fewer folds make it wider.
            found = choose(accuracy[:, : n * (divisions or repeats)], distance, 0, n / width**2)
            return found.best if best else found.chosen

        return chosen

    return {
        "best, one division": rule(1, best=True),
        "best, all divisions": rule(best=True),
        "one standard error, two divisions": rule(2),
        "one standard error, all divisions": rule(),
        "1.5 standard errors": rule(width=1.5),
        "two standard errors": rule(width=2),
        "one standard error, three folds or more": rule(fewest=3),
    }


def jobs(folder: Path, data: Path, sets: Iterable[str], seed: int) -> Iterator[tuple[str, str, Path, list[str]]]:
    """Data set, model, file and configuration of every draw."""
    for name in sets:
        known = [override for override in layout()["data"][name]["overrides"] if not override.startswith("split=")]
        for split, draw in DRAWS:
            words = [*known, f"data_dir={data}", f"split={split}", f"split.seed={draw}", f"tune.seed={seed}"]
            for model in MODELS:
                yield name, model, folder / f"{seed}-{name}-{split}-{draw}-{model}.npz", [*words, f"model={model}"]


def main() -> None:
    """Measure what is missing, and print a table for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["digits", "letters", "vowel", "cifar_awa"])
    parser.add_argument("--seed", type=int, default=0, help="of the divisions of the seen classes")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    todo = list(jobs(given.folder, given.data, given.sets, given.seed))
    missing = [(file, overrides) for _, _, file, overrides in todo if not file.exists()]
    with Pool(usable_cores()) as pool:
        for i, _ in enumerate(pool.imap_unordered(measure, missing), 1):
            print(f"{i} of {len(missing)}", flush=True)
    for title, rule in rules().items():
        gains: dict[tuple[str, str], list[float]] = {}
        for name, model, file, _ in todo:
            with np.load(file) as found:
                unseen = found["unseen"]
                chosen = rule(found["folds"], found["distance"], int(found["repeats"]))
            gains.setdefault((model, name), []).append(unseen[chosen] - unseen[0])
        table = pd.Series({key: np.mean(values) for key, values in gains.items()}).unstack()
        worst = min(min(values) for values in gains.values())
        lost = int((table < -0.005).sum().sum())
        print(f"\n{title}: mean {table.mean(axis=None):+.4f}, {lost} of {table.size} below -0.005, worst {worst:+.3f}")
        print(table.loc[MODELS].map("{:+.3f}".format).to_markdown())


if __name__ == "__main__":
    main()
