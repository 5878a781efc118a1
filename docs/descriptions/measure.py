"""The table of docs/descriptions.md: cifar_awa with class rows of attributes and of descriptions, and rows shuffled.

python docs/descriptions/measure.py FEATURE...      (lite0_pca128 is in the package; others are read from ZSL_DATA)
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from zsl.config import compose
from zsl.data.readers.cifar_awa import load, packaged
from zsl.describe.__main__ import main as describe
from zsl.experiment.run import run

CLASSES = Path(__file__).with_name("cifar_awa.yaml")
ENCODERS = {"tfidf": "tfidf", "hashed": "hashed", "MiniLM": "sentence-transformers/all-MiniLM-L6-v2"}


def accuracies(folder: Path, feature: str, table: str, rule: str, shuffles: list[int | None]) -> np.ndarray:
    """Mean per-class accuracy of ESZSL for each shuffle of rows, on the splits 0 to 9 in turn."""
    found = []
    for k, shuffle in enumerate(shuffles):
        config = compose([
            "dataset=tabular", f"dataset.features={folder}/{feature}.npz", f"dataset.attributes={folder}/{table}.npz",
            "dataset.cache=off", f"dataset.shuffle_attributes={'null' if shuffle is None else shuffle}", "split=random",
            "split.n_unseen=5", f"seed={k % 10}", "model=eszsl", f"inference={rule}", "tracking=none", "figures=false",
        ])  # fmt: skip
        found.append(run(config).metrics["acc_class"])
    return np.array(found)


def main(features: list[str]) -> None:
    """Print a row for each feature, table and rule."""
    logging.disable(logging.WARNING)
    own = packaged()
    names, data = own["class_names"], Path(os.environ.get("ZSL_DATA", "data")) / "cifar_awa"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "attributes.npz", **{k: own[k] for k in ("attributes", "class_names", "attribute_names")})
        for table, encoder in ENCODERS.items():
            assert describe([str(CLASSES), "--encoder", encoder, "--to", str(folder / f"{table}.npz")]) == 0
        for feature in features:
            images = load(str(data), feature=feature, cache="off")
            np.savez(folder / f"{feature}.npz", features=images.features, labels=names[images.labels])
            for table in ("attributes", *ENCODERS):
                for rule in ("own", "inductive"):
                    real = accuracies(folder, feature, table, rule, [None] * 10)
                    control = accuracies(folder, feature, table, rule, list(range(20)))
                    print(
                        f"| {feature} | {table} | {rule} | {real.mean():.3f} ± {real.std(ddof=1):.3f} | "
                        f"{control.mean():.3f} ± {control.std(ddof=1):.3f} |", flush=True,
                    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:] or ["lite0_pca128"])
