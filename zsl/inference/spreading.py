"""Label spreading (transductive; Eqs. 9-10): labels travel from the classes over a graph of all test images."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from zsl.checks import Array, Count, Positive, check_arguments
from zsl.graph import EXACT_UP_TO, gaussian_weights, neighbours, normalised, solve_spreading
from zsl.inference.labels import attribute_pair, nearest
from zsl.inference.priors import ClassPrior, class_shares, use_of
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.linalg import unit_rows

log = logging.getLogger(__name__)

# Weight of labels without a class prior where labels with one are tied; far below any other difference.
_TIE = 1e-9


@dataclass(frozen=True)
class SpreadReport:
    """Scores of spread labels with their certificate."""

    scores: Array
    """(L, M) larger is likelier"""
    residual: Array
    """(M,) the certificate: the residual of each column's linear system, relative to its right-hand side"""
    n_iter: int
    """Iterations of conjugate gradients"""
    unreached: Array
    """(L,) whether no label reaches the image, which then has the scores of the nearest class"""
    n_components: int
    """Number of connected components of the graph, in which equal points are one node"""
    recall: float
    """Share of true neighbours among those used, on a sample of nodes; 1 where the search was exact"""
    exact: bool
    """Whether the search for neighbours compared every pair"""


@label_rule("attributes of unseen classes", TRANSDUCTIVE, when={"class_prior": use_of})
def spread(
    Z_hat: Array,
    Z_unseen: Array,
    *,
    mu: Positive = 0.1,
    sigma: Positive | Literal["self_tuning"] | None = None,
    n_neighbors: Count = 15,
    unit: bool = True,
    class_prior: ClassPrior = None,
    exact_neighbors_up_to: Count = EXACT_UP_TO,
) -> Array:
    r"""Label spreading (Zhou et al. 2003) from the classes to all test images at once.

    The nodes of the graph are the M classes and the L images. S is the normalised graph, and Y has the labels of the
    classes, with nodes as rows. With each pair of nodes counted once, the solution of the linear system of Eq. (10),

    .. math:: F = \tfrac{\mu}{1 + \mu} \bigl(I - \tfrac{1}{1 + \mu} S\bigr)^{-1} Y ,

    minimises Eq. (9) (``eq:zhou``). Conjugate gradients solve the system.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes of all test images.
    Z_unseen : (M, q)
        Attributes of the classes, the labelled nodes.
    mu : float > 0
        Pull towards the initial labels: the larger mu is, the less far labels travel.
    sigma : float > 0, "self_tuning" or None
        Kernel width; ``None``: the median distance to the neighbours; ``self_tuning``: a width for each node
        (:func:`zsl.graph.gaussian_weights`).
    n_neighbors : int
        Neighbours of each node in the graph.
    unit : bool
        Scale predictions and prototypes to unit length first, which brings both to one scale. Predicted attributes are
        shrunken by a different factor for each image; without this step the prototypes are far from every image and
        neighbours of each other.
    class_prior : None, "uniform", "cpe", "em" or M shares
        A class prior by class-mass normalisation (Zhu, Ghahramani & Lafferty 2003): columns are scaled so that the
        images' labels, each image counting once, add up to these shares of the classes, which are given or estimated
        (:func:`zsl.inference.priors.class_shares`). Rows are not made to sum to one again. The record of a result
        declares a prior that is given.
    exact_neighbors_up_to : int
        Nodes up to which neighbours are exact; above, they are approximate, with a measured recall
        (:func:`zsl.graph.neighbours`).

    Returns
    -------
    (L, M) scores
        An image that no label reaches, because its part of the graph holds no class or is joined to one too weakly,
        gets the scores of :func:`zsl.inference.labels.nearest`. The log has the number of such images;
        :func:`spread_report` names them, with the residuals and the recall.

    Raises
    ------
    UserError
        For shapes that do not fit, and for a prior that is not one share per class, none negative, with a positive sum.

    Examples
    --------
    Two groups of images lie on either side of the classes; the images of a group share their label.

    >>> classes = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> images = np.array([[1.0, 0.2], [1.0, 0.4], [0.2, 1.0], [0.4, 1.0]])
    >>> spread(images, classes, n_neighbors=2).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    return spread_report(**locals()).scores


def spread_report(
    Z_hat: Array,
    Z_unseen: Array,
    *,
    mu: Positive = 0.1,
    sigma: Positive | Literal["self_tuning"] | None = None,
    n_neighbors: Count = 15,
    unit: bool = True,
    class_prior: ClassPrior = None,
    exact_neighbors_up_to: Count = EXACT_UP_TO,
) -> SpreadReport:
    """Run :func:`spread` and return its scores with the number of iterations, the residual and the unreached images.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> prototypes = np.eye(3)
    >>> images = np.repeat(prototypes, 10, axis=0) + 0.1 * rng.standard_normal((30, 3))
    >>> report = spread_report(images, prototypes)
    >>> report.scores.argmax(axis=1).tolist() == np.repeat([0, 1, 2], 10).tolist()
    True
    """
    if isinstance(class_prior, np.ndarray | tuple):
        class_prior = np.asarray(class_prior).tolist()
    check_arguments(spread, locals())
    Z_hat, Z_unseen = (Z.astype(np.float64, copy=False) for Z in attribute_pair(Z_hat, Z_unseen))
    if unit:
        Z_hat, Z_unseen = unit_rows(Z_hat), unit_rows(Z_unseen)
    found = spread_from(Z_unseen, Z_hat, mu=mu, sigma=sigma, n_neighbors=n_neighbors, exact_up_to=exact_neighbors_up_to)
    F, unreached = found.scores, found.unreached
    if class_prior is not None:
        F = with_class_prior(F, class_prior, ~unreached, unit_rows(Z_hat), unit_rows(Z_unseen))
    if unreached.any():
        log.info("%d of %d test images are connected to no class and take the nearest one", unreached.sum(), len(Z_hat))
        F[unreached] = nearest(Z_hat[unreached], Z_unseen)
    log.debug("labels spread in %d iterations, residual at most %.1e", found.n_iter, found.residual.max(initial=0))
    return replace(found, scores=F)


def spread_from(
    P: Array,
    V: Array,
    *,
    mu: float,
    sigma: float | Literal["self_tuning"] | None,
    n_neighbors: int,
    exact_up_to: int = EXACT_UP_TO,
) -> SpreadReport:
    """Spread labels from the points P (M, d), one of each class, to the points V (L, d).

    Equal points are one node, and nodes stand in the order of their coordinates. Copies of an image therefore have the
    same scores, however many copies there are, classes at one point have the same scores, and where distances are tied
    the order of the rows decides nothing.
    """
    points, of_class = np.unique(P, axis=0, return_inverse=True)
    nodes, of_image = np.unique(V, axis=0, return_inverse=True)
    m = len(points)
    found = neighbours(np.vstack([points, nodes]), n_neighbors, exact_up_to=exact_up_to)
    W = gaussian_weights(found, sigma)
    solution = solve_spreading(normalised(W), np.eye(m + len(nodes), m), mu)
    n_components, component = connected_components(W, directed=False)
    F = solution.F[m:]
    # An image is unreached too if none of its scores exceeds the error that the residual leaves possible.
    possible = float((solution.residual * mu / (1 + mu)).max()) * (1 + mu) / mu
    unreached = ~np.isin(component[m:], component[:m]) | (F.max(axis=1) <= possible)
    of_class, of_image = of_class.ravel(), of_image.ravel()
    return SpreadReport(
        F[of_image][:, of_class], solution.residual[of_class], solution.n_iter, unreached[of_image], int(n_components),
        found.recall, found.exact,
    )  # fmt: skip


def with_class_prior(F: Array, class_prior: str | list[float], counted: Array, points: Array, means: Array) -> Array:
    """F (L, M) with its columns scaled so that the labels of the ``counted`` (L,) images add up to a class prior.

    Each image has one unit of label, whatever the length of its row, because images near a class would otherwise count
    for more. A column without mass stays as it is. ``points`` (L, d) and ``means`` (M, d) are unit rows of the images
    and of the classes.
    """
    if not counted.any():
        return F
    rows = np.maximum(F[counted], 0)
    rows = rows / rows.sum(axis=1, keepdims=True)
    prior = class_shares(class_prior, points[counted], means, rows, rule="spread")
    mass = rows.sum(axis=0)
    scaled = F * np.divide(prior * counted.sum(), mass, out=np.ones_like(prior), where=mass > 0)
    # Where the prior alone decides, as for a single image, the labels tell classes apart.
    scaled[counted] += _TIE * rows
    return scaled
