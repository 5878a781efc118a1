"""Class priors: how frequent each class is among the test images, as given or as estimated without any label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.inference.feature_space import spherical_k_means
from zsl.linalg import shares_of

ClassPrior = Literal["uniform", "cpe", "bbse", "em"] | list[float] | None
"""What the setting ``class_prior`` of a rule may be; see :func:`class_shares`."""

# Simulated images of each class from which BBSE learns which classes are confused.
_N_SIMULATED = 500
_MAX_ITER = 1000


def class_shares(
    class_prior: str | Sequence[float],
    points: Array,
    means: Array,
    posterior: Array,
    *,
    resultant: float | None = None,
    rule: str = "mixture",
) -> Array:
    """The shares of the classes among the test images that a setting ``class_prior`` stands for.

    Parameters
    ----------
    class_prior : str or sequence of M numbers
        ``"uniform"``: all classes are equally frequent. ``"cpe"``: :func:`cluster_shares`. ``"bbse"``:
        :func:`confusion_shares`. ``"em"``: :func:`posterior_shares`. Numbers are shares, which need not add up to 1.
    points : (L, d)
        Unit rows, one for each test image.
    means : (M, d)
        Unit rows: where images of each class are expected.
    posterior : (L, M)
        Probability of each class for each image if all classes were equally frequent.
    resultant : float in 0..1, optional
        Mean cosine of an image and its class's mean direction, which ``"bbse"`` needs.
    rule : str
        The rule whose setting it is, for messages.

    Returns
    -------
    (M,) with sum 1

    Raises
    ------
    UserError
        For numbers that are not one share per class, none negative, with a positive sum; for ``"bbse"`` without
        ``resultant``.

    Examples
    --------
    >>> points, means = np.eye(2)[[0, 0, 0, 1]], np.eye(2)
    >>> class_shares("cpe", points, means, posterior=np.full((4, 2), 0.5))
    array([0.75, 0.25])
    """
    M = len(means)
    if not isinstance(class_prior, str):
        return _given(class_prior, M, rule)
    if class_prior == "uniform":
        return np.full(M, 1 / M)
    if class_prior == "cpe":
        return cluster_shares(points, means)
    if class_prior == "em":
        return posterior_shares(posterior)
    if resultant is None:
        raise UserError(
            f"inference.{rule}.class_prior=bbse simulates images in feature space, which this rule does not see; "
            "use cpe or em, or inference.labels=mixture."
        )
    confusion = simulated_confusion(means, resultant)
    predicted = np.bincount((points @ means.T).argmax(axis=1), minlength=M) / len(points)
    return confusion_shares(confusion, predicted, 1 / min(len(points), _N_SIMULATED))


def _given(shares: Sequence[float], M: int, rule: str) -> Array:
    found = np.asarray(shares, dtype=np.float64)
    if found.shape != (M,) or not np.isfinite(found).all() or (found < 0).any() or not found.max(initial=0) > 0:
        raise UserError(
            f"inference.{rule}.class_prior={shares} does not fit {M} classes; give one share for each, none negative "
            f"and not all zero, or uniform, cpe, {'bbse, ' if rule == 'mixture' else ''}em."
        )
    return shares_of(found)


def use_of(class_prior: ClassPrior) -> str:
    """What a result's record says of a class prior; empty where nothing was assumed about the frequencies."""
    if class_prior == "uniform":
        return "class prior: classes are equally frequent"
    return "" if class_prior is None or isinstance(class_prior, str) else "class prior: given frequencies"


def cluster_shares(points: Array, means: Array) -> Array:
    """Shares (M,) of the clusters of spherical k-means that starts at the expected means (CPE).

    Class-prior estimation of Bi-VAEGAN (Wang et al., CVPR 2023). A cluster that loses all its images keeps its mean.

    Parameters
    ----------
    points : (L, d)
        Unit rows.
    means : (M, d)
        Unit rows.
    """
    labels = (points @ spherical_k_means(points, means).T).argmax(axis=1)
    return np.bincount(labels, minlength=len(means)) / len(points)


def confusion_shares(confusion: Array, predicted: Array, penalty: float) -> Array:
    """Shares of the classes from how often each is predicted and which are confused (BBSE).

    Black-box shift estimation (Lipton, Wang and Smola, ICML 2018), regularised. With C the confusion and m the shares
    predicted, the shares are ``(C'C + penalty I)^-1 (C'm + penalty / M)``. A large penalty pulls the shares towards
    equal ones; the original pulls them towards zero. Negative shares become zero.

    Parameters
    ----------
    confusion : (M, M)
        Probability of predicting the class of the row for an image of the class of the column.
    predicted : (M,)
        Share of the test images for which each class is predicted.
    penalty : float >= 0

    Returns
    -------
    (M,) with sum 1

    Examples
    --------
    >>> confusion_shares(np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([0.55, 0.45]), penalty=0.0).round(6)
    array([0.5, 0.5])
    """
    M = len(predicted)
    system = confusion.T @ confusion + penalty * np.eye(M)
    # A class that nothing tells apart from another leaves a singular system when there is no penalty.
    shares = np.linalg.lstsq(system, confusion.T @ predicted + penalty / M, rcond=None)[0]
    shares = np.maximum(shares, 0)
    return shares / shares.sum() if shares.sum() > 0 else np.full(M, 1 / M)


def simulated_confusion(means: Array, resultant: float, *, seed: int = 0) -> Array:
    """Confusion (M, M) of the nearest-mean rule on simulated directions around the means (M, d).

    No labelled image of an unseen class exists, so images are drawn: ``resultant`` times the mean, plus Gaussian noise
    whose expected length brings the sum to length one.
    """
    M, d = means.shape
    rng = np.random.default_rng(seed)
    deviation = np.sqrt(max(1 - resultant**2, 0) / d)
    columns = []
    for mean in means:
        images = resultant * mean + deviation * rng.standard_normal((_N_SIMULATED, d))
        columns.append(np.bincount((images @ means.T).argmax(axis=1), minlength=M) / _N_SIMULATED)
    return np.array(columns).T


def posterior_shares(posterior: Array, *, tol: float = 1e-8) -> Array:
    """Shares (M,) of the classes by EM from the posterior under equal shares (Saerens, Latinne and Decaestecker, 2002).

    Each round weighs the posterior (L, M) by the present shares and takes the mean as the next ones. The likelihood
    never falls. The estimate is right if the posterior is calibrated.
    """
    shares = np.full(posterior.shape[1], 1 / posterior.shape[1])
    for _ in range(_MAX_ITER):
        weighted = posterior * shares
        new = (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(new - shares).max() <= tol:
            break
        shares = new
    return new
