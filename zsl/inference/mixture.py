r"""Label rules that take classes as clusters of the test images in feature space (transductive).

The posterior of class m for image i follows from the directions :math:`u_i` of whitened images, the mean directions
:math:`\mu_m`, the mixing proportions :math:`\pi_m` and the standardised scores :math:`s_{im}` of an inductive rule:

.. math:: p_{im} \propto \pi_m \exp(\kappa \langle u_i, \mu_m \rangle + \tau s_{im}) .

This is the E-step of a mixture of von Mises-Fisher distributions with a common concentration, in which the scores from
attributes are a prior. The M-step sets :math:`\mu_m \propto \sum_i p_{im} u_i` and :math:`\pi_m = \sum_i p_{im} / L`.
The log-likelihood :math:`\sum_i \log \sum_m \pi_m \exp(\kappa \langle u_i, \mu_m \rangle + \tau s_{im})` never falls
if ``class_prior`` is null.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.special import softmax

from zsl.checks import Array, Count, NonNegative, Positive, Share, as_matrix, check_arguments
from zsl.device import current
from zsl.errors import raise_if_interrupted
from zsl.inference.blocks import Scores
from zsl.inference.feature_space import confident_means
from zsl.inference.priors import ClassPrior, class_shares, use_of
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.spreading import spread_from
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import sinkhorn, standard_scores, unit_rows
from zsl.progress import Bar

log = logging.getLogger(__name__)

# The least mixing proportion: the logarithm of zero must not occur for a class without images.
_LEAST = 1e-12
# Weight of the base scores where spread features do not tell classes apart; far below any difference of the latter.
_TIE = 1e-9


@dataclass
class Mixture:
    """The state in which the iteration ended."""

    posterior: Scores
    """(L, M) posterior, rows sum to 1; computed again for each block of images where the prior is in blocks"""
    means: Array
    """(M, p) unit mean directions"""
    proportions: Array
    """(M,) mixing proportions, sum 1"""
    objective: list[float] = field(default_factory=list)
    """Mean log-likelihood of each iteration; with free proportions it never falls."""

    @property
    def P(self) -> Array:
        """(L, M) the posterior as one array."""
        return self.posterior.in_memory("mixture")


@label_rule(
    "attributes of unseen classes",
    TRANSDUCTIVE,
    when={"class_prior": use_of},
    base="bidirectional",
    in_blocks=True,
)
def mixture(
    base_scores: Array | Scores,
    X: Array,
    statistics: SeenStatistics,
    *,
    prior_weight: NonNegative = 1.0,
    class_prior: ClassPrior = None,
    confident: Share = 0.5,
    concentration: Positive | None = None,
    max_iter: Count = 100,
) -> Array | Scores:
    """Logarithm of the posterior of each class for each image, by EM from the confident images of each class.

    Scores in blocks (:class:`zsl.inference.blocks.Scores`) are computed again in every iteration, so that memory holds
    one block of them and a few arrays (M, p). The result then is in blocks too.

    Parameters
    ----------
    base_scores : (L, M)
        Scores of the base rule, which is inductive.
    X : (L, p)
        Test images, pre-processed.
    statistics : SeenStatistics
        Whitening and concentration, from training images.
    prior_weight : float >= 0
        tau, the weight of the standardised scores in the posterior; 0: they only start the iteration.
    class_prior : None, "uniform", "cpe", "bbse", "em" or M shares
        How frequent the classes are. ``None``: EM estimates the mixing proportions along with the means. Otherwise the
        posteriors of a class add up to its share (Sinkhorn), which is given or estimated at the start
        (:func:`zsl.inference.priors.class_shares`).
    confident : 0..1
        Share of each class's images, by margin of their scores, whose mean starts the class.
    concentration : float > 0, optional
        kappa; ``None``: the value that explains the labels of seen images best.
    max_iter : int
        Iterations of EM at most.

    Returns
    -------
    (L, M) log-probabilities

    Examples
    --------
    >>> X = np.array([[1.0, 0.1], [1.0, -0.1], [0.9, 0.3], [0.1, 1.0]])
    >>> statistics = SeenStatistics(np.eye(2), np.eye(2), np.eye(2), concentration=10.0)
    >>> mixture(X.copy(), X, statistics).argmax(axis=1)
    array([0, 0, 0, 1])
    """
    check_arguments(mixture, locals())
    U = statistics.directions(X)
    given = base_scores if isinstance(base_scores, Scores) else Scores.of(as_matrix(base_scores, "base_scores"))
    if class_prior is not None:
        given = Scores.of(given.in_memory("mixture with class_prior"))
    base = given.map(lambda rows, s: as_matrix(s, "base_scores", n_rows=len(U[rows])).astype(np.float64, copy=False))
    kappa = statistics.concentration if concentration is None else concentration
    start = confident_means(U, base, confident)
    evidence = base.map(lambda rows, s: prior_weight * standard_scores(s)).kept()
    shares = None
    if class_prior is not None:
        posterior = softmax(kappa * (U @ start.T) + evidence.in_memory("mixture"), axis=1)
        shares = class_shares(class_prior, U, start, posterior, resultant=statistics.resultant)
    found = expectation_maximisation(U, start, kappa, evidence, shares=shares, max_iter=max_iter)
    n_iter, proportions = len(found.objective), found.proportions
    log.debug("mixture: %d iterations, mixing proportions %.3f to %.3f", n_iter, proportions.min(), proportions.max())
    # Where shares alone decide, as for a single image, the base scores tell classes apart.
    tie = 0 if shares is None else _TIE * evidence.in_memory("mixture")
    scores = found.posterior.map(lambda rows, P: np.log(np.maximum(P, np.finfo(float).tiny)) + tie)
    return scores if not given.whole else scores.in_memory("mixture")


def expectation_maximisation(
    U: Array,
    means: Array,
    kappa: float,
    prior: Array | Scores,
    *,
    shares: Array | None = None,
    max_iter: int = 100,
    tol: float = 1e-8,
) -> Mixture:
    """EM from ``means`` (M, p) for unit rows U (L, p), with ``prior`` (L, M) added to the log-posterior.

    The mixing proportions are free, unless ``shares`` (M,) says what the posteriors of each class add up to, for which
    the prior has to be one block. EM stops when the mean log-likelihood gains at most ``tol``.
    """
    prior = Scores.of(prior)
    M = prior.shape[1]
    here, kappa = current(), float(kappa)
    images = here.put(U)
    offsets = np.full(M, -np.log(M))
    objective: list[float] = []
    P = here.put(np.empty((0, M)))
    with Bar("mixture, at most", max_iter * prior.n_blocks) as bar:
        for _ in range(max_iter):
            old, used, likelihood = here.put(means), here.put(offsets), 0.0
            sums, mass = np.zeros((M, U.shape[1])), np.zeros(M)
            for rows, evidence in prior.blocks():
                raise_if_interrupted()
                u = images[rows, :]
                P, log_total = _posterior(u, old, kappa, here.put(evidence), used, shares)
                likelihood += float(here.xp.sum(log_total))
                sums += here.get(P.T @ u)
                mass += here.get(here.xp.sum(P, axis=0))
                bar.step(log_likelihood=likelihood / rows.stop)
            objective.append(likelihood / len(U))
            # A class whose images cancel keeps its direction.
            norms = np.linalg.norm(sums, axis=1, keepdims=True)
            means = np.where(norms > _LEAST, sums / np.maximum(norms, _LEAST), means)
            proportions = mass / len(U)
            offsets = np.log(np.maximum(proportions, _LEAST))
            if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol:
                break

    def posterior(rows: slice, evidence: Array) -> Array:
        return here.get(_posterior(images[rows, :], old, kappa, here.put(evidence), used, None)[0])

    return Mixture(Scores.of(here.get(P)) if prior.whole else prior.map(posterior), means, proportions, objective)


def _posterior(U: Any, means: Any, kappa: float, evidence: Any, offsets: Any, shares: Array | None) -> tuple[Any, Any]:
    """The posterior (l, M) of some images, and the logarithm (l, 1) of the likelihood of each, on the device."""
    xp = array_namespace(U)
    logits = kappa * (U @ means.T) + evidence
    logits += offsets if shares is None else sinkhorn(logits, shares)
    top = xp.max(logits, axis=1, keepdims=True)
    P = xp.exp(logits - top)
    total = xp.sum(P, axis=1, keepdims=True)
    P /= total
    return P, xp.log(total) + top


@label_rule("attributes of unseen classes", TRANSDUCTIVE, base="bidirectional")
def spread_features(
    base_scores: Array,
    X: Array,
    statistics: SeenStatistics,
    *,
    confident: Share = 0.5,
    mu: Positive = 0.1,
    sigma: Positive | None = None,
    n_neighbors: Count = 15,
) -> Array:
    """Label spreading (Eqs. 9-10) over a graph of whitened features, from the means of each class's confident images.

    Neighbours in feature space share their class far more often than neighbours among predicted attributes.

    Parameters
    ----------
    base_scores : (L, M)
        Scores of the base rule; they say which images belong to a class with confidence.
    X : (L, p)
        Test images, pre-processed.
    statistics : SeenStatistics
        Its whitening is used.
    confident : 0..1
        Share of each class's images, by margin of their scores, whose mean is the labelled node of the class.
    mu, sigma, n_neighbors
        The settings of the graph, as in :func:`zsl.inference.spread`.

    Returns
    -------
    (L, M) scores

    Examples
    --------
    >>> X = np.array([[1.0, 0.1], [1.0, -0.1], [0.9, 0.3], [0.1, 1.0]])
    >>> statistics = SeenStatistics(np.eye(2), np.eye(2), np.eye(2), concentration=10.0)
    >>> spread_features(X.copy(), X, statistics, n_neighbors=2).argmax(axis=1)
    array([0, 0, 0, 1])
    """
    check_arguments(spread_features, locals())
    U = statistics.directions(X)
    base_scores = as_matrix(base_scores, "base_scores", n_rows=len(U)).astype(np.float64, copy=False)
    means = confident_means(U, base_scores, confident)
    found = spread_from(means, U, mu=mu, sigma=sigma, n_neighbors=n_neighbors)
    F, lost = found.scores, found.unreached
    if lost.any():
        log.info("%d of %d test images are connected to no class and take the nearest one", lost.sum(), len(U))
        # These scores lie below every score that spreading gives, so such images do not outweigh others.
        F[lost] = unit_rows(U[lost]) @ means.T - 2
    # Only the base scores tell classes apart that start at one point, as with a single image.
    return F + _TIE * standard_scores(base_scores)
