"""Data drawn from a known pair of dictionaries, as the method assumes: for tests and for studies of failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import annotated_types as at
import numpy as np

from zsl.checks import Array, Count, NonNegative, Seed, check_arguments
from zsl.data.table import ImageTable
from zsl.errors import UserError
from zsl.sparse.dictionary import unit_atoms

# classes, unseen classes, images, p, q: in the shape of each benchmark. AwA and CUB classes are near equal here.
SHAPES = {
    "small": (20, 5, 800, 40, 20),
    "awa1": (50, 10, 30475, 2048, 85),
    "awa2": (50, 10, 37322, 2048, 85),
    "cub": (200, 50, 11788, 2048, 312),
    "sun": (717, 72, 14340, 2048, 102),
}


@dataclass(frozen=True)
class Truth:
    """The dictionaries and codes that :func:`draw` drew from: ``X = A Dx + noise``, class attributes ``C Dz``."""

    Dx: Array
    Dz: Array
    A: Array
    C: Array


def draw(
    *,
    n_classes: Count = 20,
    n_images: Count = 800,
    p: Count = 40,
    q: Count = 20,
    n_atoms: Count = 30,
    n_nonzero: Count = 5,
    within: NonNegative = 0.2,
    noise: NonNegative = 0.05,
    shift: NonNegative = 0.0,
    n_shifted: Annotated[int, at.Ge(0)] = 0,
    seed: Seed = 0,
) -> tuple[Array, Array, Array, Truth]:
    """Images, labels and class attributes from a random pair of dictionaries with unit atoms.

    Each class has a code with ``n_nonzero`` entries, uniform in [0.5, 1.5] up to sign; an image's code multiplies
    each of them by ``1 + within * N(0, 1)``, its features add ``noise * N(0, 1) / sqrt(p)``.

    Domain shift: one vector of length ``shift``, with ``n_nonzero`` entries, is added to the codes of all images of the
    last ``n_shifted`` classes. Class attributes do not contain it, so a model of the other classes predicts attributes
    of these classes that are off in one common direction.

    Returns
    -------
    X (n_images, p), y (n_images,), Z (n_classes, q), Truth
    """
    check_arguments(draw, locals())
    if n_nonzero > n_atoms:
        raise UserError(f"n_nonzero={n_nonzero} is more than n_atoms={n_atoms}; a code cannot have so many entries.")
    rng = np.random.default_rng(seed)
    Dx, Dz = unit_atoms(rng.standard_normal((n_atoms, p))), unit_atoms(rng.standard_normal((n_atoms, q)))
    C = np.zeros((n_classes, n_atoms))
    for row in C:
        support = rng.choice(n_atoms, n_nonzero, replace=False)
        row[support] = rng.uniform(0.5, 1.5, n_nonzero) * rng.choice([-1, 1], n_nonzero)
    y = np.sort(np.arange(n_images) % n_classes)
    A = C[y] * (1 + within * rng.standard_normal((n_images, n_atoms)))
    # The shift has a generator of its own, so that the same seed gives the same data but for the shift.
    own = np.random.default_rng([seed, 1])
    common = np.zeros(n_atoms)
    common[own.choice(n_atoms, n_nonzero, replace=False)] = own.standard_normal(n_nonzero)
    A[y >= n_classes - n_shifted] += shift / np.linalg.norm(common) * common
    X = A @ Dx + noise / np.sqrt(p) * rng.standard_normal((n_images, p))
    return X, y, C @ Dz, Truth(Dx, Dz, A, C)


def load(
    *,
    preset: Literal["small", "awa1", "awa2", "cub", "sun"] = "small",
    n_classes: Count | None = None,
    n_atoms: Count | None = None,
    n_nonzero: Count = 5,
    within: NonNegative = 0.2,
    noise: NonNegative = 0.05,
    shift: NonNegative = 0.0,
    seed: Seed = 0,
    feature: str = "drawn",
    name: str = "synthetic",
) -> ImageTable:
    """A table in the shape of a benchmark (``preset``); ``n_atoms=None`` is 1.5 times the number of attributes.

    ``n_classes=None`` is the number of the preset; its images are shared among the classes. A model learns from the
    seen classes how attributes follow from codes, so with fewer seen classes than attributes (15 and 20 in ``small``)
    it cannot learn all of it. ``shift`` moves the images of the unseen classes, which come last, see :func:`draw`.
    """
    check_arguments(load, {"preset": preset, "n_classes": n_classes})
    of_preset, n_unseen, n_images, p, q = SHAPES[preset]
    n_classes = n_classes or of_preset
    if n_classes <= n_unseen:
        raise UserError(f"dataset.n_classes={n_classes} leaves no seen class; preset={preset} has {n_unseen} unseen.")
    X, y, Z, _ = draw(
        n_classes=n_classes, n_images=n_images, p=p, q=q, n_atoms=n_atoms or 3 * q // 2, n_nonzero=n_nonzero,
        within=within, noise=noise, shift=shift, n_shifted=n_unseen, seed=seed,
    )  # fmt: skip
    return ImageTable(
        name=name if preset == "small" else f"{name}-{preset}",
        feature="drawn",
        features=X,
        labels=y,
        class_names=tuple(f"class_{c:03d}" for c in range(n_classes)),
        attributes=Z,
        n_unseen=n_unseen,
        provenance={"simulated": True, "preset": preset, "seed": seed, "shift": shift},
    )
