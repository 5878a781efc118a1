"""Small archives in the published layouts, for the tests of readers."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat, savemat

AWA_LIKE = ("antelope", "grizzly+bear", "killer+whale", "beaver", "dalmatian", "horse")


def features_for(labels: np.ndarray, d: int = 7, seed: int = 0) -> np.ndarray:
    """(n, d) float32, different for every image, nearer to others of its class."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((labels.max() + 1, d))
    return (centres[labels] + rng.standard_normal((len(labels), d))).astype(np.float32)


def cells(names: tuple[str, ...] | list[str]) -> np.ndarray:
    """A MATLAB column of strings, as published: (C, 1) objects."""
    out = np.empty((len(names), 1), dtype=object)
    out[:, 0] = [np.array([n]) for n in names]
    return out


def small(n_classes: int = 6, per_class: int = 10, q: int = 4) -> dict[str, np.ndarray]:
    """A class table with its proposed split: two unseen classes, the last fifth of each seen one for testing."""
    rng = np.random.default_rng(1)
    labels = np.arange(n_classes * per_class) % n_classes
    original = rng.integers(0, 100, (q, n_classes)).astype(float)
    unseen = labels >= n_classes - 2
    position = np.arange(len(labels)) // n_classes
    test_seen = ~unseen & (position >= per_class - per_class // 5)
    loc = {
        "trainval_loc": ~unseen & ~test_seen,
        "test_seen_loc": test_seen,
        "test_unseen_loc": unseen,
    }
    return {
        "labels": labels,
        "att": original / np.linalg.norm(original, axis=0),
        "original_att": original,
        "allclasses_names": cells([*AWA_LIKE, *(f"class{c}" for c in range(6, n_classes))][:n_classes]),
        **{k: (np.flatnonzero(v) + 1).astype(np.uint16)[:, None] for k, v in loc.items()},
    }


def write_xlsa17(folder: Path, table: dict | None = None, features: np.ndarray | None = None, **changes) -> dict:
    """``res101.mat`` and ``att_splits.mat`` as published; ``changes`` replace or (None) remove variables."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {**(table or small()), **changes}
    labels = table.pop("labels")
    X = features_for(labels) if features is None else features
    savemat(folder / "res101.mat", {"features": X.T, "labels": (labels + 1).astype(float)[:, None]})
    savemat(folder / "att_splits.mat", {k: v for k, v in table.items() if v is not None})
    return {"labels": labels, "features": X, **table}


def write_v73(path: Path, variables: dict) -> None:
    """MATLAB v7.3: HDF5 behind a 512-byte header, dimensions reversed, strings as references to character codes."""
    with h5py.File(path, "w", userblock_size=512) as f:
        refs = f.create_group("#refs#")
        for name, value in variables.items():
            if value.dtype == object:
                out = f.create_dataset(name, value.T.shape, dtype=h5py.ref_dtype)
                for i, cell in enumerate(value.ravel()):
                    text = np.array([ord(c) for c in str(cell[0])], np.uint16)[:, None]
                    out[0, i] = refs.create_dataset(f"{name}{i}", data=text).ref
            else:
                f.create_dataset(name, data=value.T)
    with path.open("r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def real_labels(folder: Path) -> np.ndarray:
    """Labels (0-based) that agree with a real ``att_splits.mat``: unseen images get unseen classes in turn."""
    stored = loadmat(folder / "att_splits.mat")
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    unseen = [names.index(line.strip()) for line in (folder / "testclasses.txt").read_text().split() if line.strip()]
    seen = [c for c in range(len(names)) if c not in unseen]
    n = sum(stored[k].size for k in ("trainval_loc", "test_seen_loc", "test_unseen_loc"))
    labels = np.empty(n, np.int64)
    for keys, classes in ((("trainval_loc", "test_seen_loc"), seen), (("test_unseen_loc",), unseen)):
        for key in keys:
            rows = stored[key].ravel().astype(np.int64) - 1
            labels[rows] = np.resize(classes, len(rows))
    return labels


def write_awa(folder: Path, *, names=AWA_LIKE, per_class: int = 6, d: int = 5, version: int = 2) -> dict:
    """An official AwA archive: AwA2 with one text of features, AwA1 with one text per image."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    q = 4
    matrix = rng.integers(0, 10000, (len(names), q)) / 100
    matrix[0, :2] = -1
    predicates = ("black", "white", "big", "furry")
    (folder / "classes.txt").write_text("".join(f"{i + 1:6d}\t{n}\n" for i, n in enumerate(names)))
    (folder / "predicates.txt").write_text("".join(f"{i + 1:6d}\t{n}\n" for i, n in enumerate(predicates)))
    (folder / "predicate-matrix-continuous.txt").write_text(
        "".join("  ".join(f"{v:7.2f}" for v in row) + "\n" for row in matrix)
    )
    (folder / "predicate-matrix-binary.txt").write_text(
        "".join(" ".join(str(int(v > 30)) for v in row) + "\n" for row in matrix)
    )
    (folder / "trainclasses.txt").write_text("".join(f"{n}\n" for n in names[:-2]))
    (folder / "testclasses.txt").write_text("".join(f"{n}\n" for n in names[-2:]))
    labels = np.repeat(np.arange(len(names)), per_class)
    X = features_for(labels, d)
    if version == 2:
        base = folder / "Features" / "ResNet101"
        base.mkdir(parents=True)
        (base / "AwA2-features.txt").write_text("".join(" ".join(repr(float(v)) for v in row) + " \n" for row in X))
        (base / "AwA2-labels.txt").write_text("".join(f"{c + 1}\n" for c in labels))
        (base / "AwA2-filenames.txt").write_text("".join(f"{names[c]}_{i}.jpg\n" for i, c in enumerate(labels)))
    else:
        for i, c in enumerate(labels):
            file = folder / "Features" / "vgg19" / names[c] / f"{names[c]}_{i:04d}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(" ".join(repr(float(v)) for v in X[i]))
    return {"labels": labels, "features": X, "matrix": matrix, "names": names}


def write_cub(folder: Path, n_classes: int = 8, per_class: int = 5, q: int = 6) -> dict:
    """An official CUB archive without images, and features as ``zsl.extract`` writes them, in another order."""
    (folder / "attributes").mkdir(parents=True)
    rng = np.random.default_rng(3)
    names = tuple(f"{c + 1:03d}.Bird_{chr(65 + c)}" for c in range(n_classes))
    labels = np.repeat(np.arange(n_classes), per_class)
    images = [f"{names[c]}/bird_{i}.jpg" for i, c in enumerate(labels)]
    present = rng.integers(0, 2, (len(labels), q))
    certainty = rng.integers(1, 5, (len(labels), q))
    class_level = rng.integers(0, 10000, (n_classes, q)) / 100

    def numbered(items: list[str] | tuple[str, ...]) -> str:
        return "".join(f"{i + 1} {v}\n" for i, v in enumerate(items))

    (folder / "classes.txt").write_text(numbered(names))
    (folder / "images.txt").write_text(numbered(images))
    (folder / "image_class_labels.txt").write_text(numbered([str(c + 1) for c in labels]))
    (folder / "attributes" / "class_attribute_labels_continuous.txt").write_text(
        "".join(" ".join(str(v) for v in row) + "\n" for row in class_level)
    )
    lines = [
        f"{i + 1} {a + 1} {present[i, a]} {certainty[i, a]} {'0 ' if i == 3 else ''}1.5\n"
        for i in range(len(labels))
        for a in range(q)
    ]
    (folder / "attributes" / "image_attribute_labels.txt").write_text("".join(lines))
    (folder.parent / "attributes.txt").write_text(numbered([f"has_part::{a}" for a in range(q)]))
    X = features_for(labels)
    order = rng.permutation(len(labels))
    np.savez(
        folder / "lite0.npz", features=X[order], labels=labels[order] + 1, class_names=np.array(names),
        files=np.array(images)[order],
    )  # fmt: skip
    return {
        "labels": labels, "features": X, "names": names, "class_level": class_level,
        "rows": np.where(certainty == 1, np.nan, present), "images": images,
    }  # fmt: skip


def write_sun(folder: Path, classes=("abbey", "airlock", "temple/south_asia", "zoo"), per_class: int = 5) -> dict:
    """An official SUN archive without images, and features as ``zsl.extract`` writes them."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(len(classes)), per_class)
    images = [f"{classes[c][0]}/{classes[c]}/sun_{i}.jpg" for i, c in enumerate(labels)]
    rows = rng.integers(0, 4, (len(labels), 3)) / 3
    savemat(folder / "images.mat", {"images": cells(images)})
    savemat(folder / "attributes.mat", {"attributes": cells(["sailing", "driving", "biking"])})
    savemat(folder / "attributeLabels_continuous.mat", {"labels_cv": rows})
    X = features_for(labels)
    names = tuple(c.replace("/", "_") for c in classes)
    np.savez(folder / "lite0.npz", features=X, labels=labels + 1, class_names=np.array(names), files=np.array(images))
    return {"labels": labels, "features": X, "rows": rows, "names": names}
