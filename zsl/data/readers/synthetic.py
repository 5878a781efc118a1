"""Simulated data: drawn from a known pair of dictionaries, or in the shape of network features and word vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import annotated_types as at
import numpy as np

from zsl.checks import Array, Count, NonNegative, Seed, Share, check_arguments
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


# The words data: superclasses, latent dimensions that words and images share, those of each alone, and nuisance ones.
_N_GROUPS, _N_SHARED, _N_OWN_WORD, _N_OWN_IMAGE, _N_NUISANCE, _N_HIDDEN = 20, 20, 30, 10, 20, 256


def draw_words(
    *,
    n_classes: Count = 100,
    n_images: Count = 10_000,
    p: Count = 256,
    q: Count = 100,
    shared: Share = 0.7,
    within: NonNegative = 1.5,
    nuisance: NonNegative = 3.0,
    seed: Seed = 0,
) -> tuple[Array, Array, Array]:
    """Features and class vectors that behave like those of a network and of a model of words.

    Classes lie in 20 groups of similar ones. A class's latent vector has a part that its word vector and its images
    share, with decreasing variances, and a part that each has alone. Word vectors are dense, of differing length, with
    a common mean. Images add noise within classes and nuisance dimensions that no class depends on, and pass through
    two random layers with rectifiers, so features are at least 0 and their spectrum decays.

    Parameters
    ----------
    shared : float in 0..1
        Weight of the shared part; with 0, word vectors say nothing about images.
    within, nuisance : float >= 0
        Standard deviations of the noise within classes and of the nuisance, in units of the mean absolute class latent.

    Returns
    -------
    X (n_images, p), y (n_images,), Z (n_classes, q)
    """
    check_arguments(draw_words, locals())
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((_N_GROUPS, _N_SHARED))
    common = 0.8 * groups[np.arange(n_classes) % _N_GROUPS] + 0.6 * rng.standard_normal((n_classes, _N_SHARED))
    common *= shared * (1 + np.arange(_N_SHARED)) ** -0.4
    of_words, of_images = (
        np.hstack([common, 1.5 * (1 - shared) * rng.standard_normal((n_classes, own))])
        for own in (_N_OWN_WORD, _N_OWN_IMAGE)
    )
    Z = of_words @ rng.standard_normal((of_words.shape[1], q)) / np.sqrt(_N_SHARED) + rng.standard_normal(q)
    y = np.sort(np.arange(n_images) % n_classes)
    scale = np.abs(of_images).mean()
    latent = of_images[y] + within * scale * rng.standard_normal((n_images, of_images.shape[1]))
    latent = np.hstack([latent, nuisance * scale * rng.standard_normal((n_images, _N_NUISANCE))])
    for width in (_N_HIDDEN, p):
        weights = rng.standard_normal((latent.shape[1], width)) / np.sqrt(latent.shape[1])
        latent = np.maximum(latent @ weights + 0.1 * rng.standard_normal(width), 0)
    return latent, y, Z


def load_words(
    *,
    shared: Share = 0.7,
    within: NonNegative = 1.5,
    nuisance: NonNegative = 3.0,
    seed: Seed = 0,
    feature: str = "drawn",
    name: str = "synthetic_words",
) -> ImageTable:
    """100 classes with word vectors of 100 dimensions and 100 images each, as a table; 20 classes are unseen."""
    X, y, Z = draw_words(shared=shared, within=within, nuisance=nuisance, seed=seed)
    names = tuple(f"class_{c:03d}" for c in range(len(Z)))
    provenance = {"simulated": True, "seed": seed}
    return ImageTable(name, feature, X, y, names, Z, n_unseen=20, semantics="word vectors", provenance=provenance)
