"""CLIP's own rule, and a ridge adapter on top of it, where images and classes are embedded in one space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from zsl.checks import Array, Positive
from zsl.errors import UserError
from zsl.linalg import cosines, ridge, spectrum
from zsl.models.base import AttributePredictor, GridCache
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class CLIP(AttributePredictor):
    r"""Cosine of the image's embedding and the class's, where both are of one space (Radford et al., ICML 2021).

    The features of an image are its embedding, and the attributes of a class are the embedding of its text, by the two
    towers of one network such as CLIP or SigLIP. The score of class s for image x is ``cos(x, s) / temperature``.
    Nothing is learned from the seen images.

    Parameters
    ----------
    temperature : float > 0
        The temperature of the scores, 1/100 in CLIP. It changes no answer.

    Raises
    ------
    UserError
        In ``fit``, if features and attributes differ in number, so that they cannot be of one space.

    Notes
    -----
    CLIP's own rule does not centre. :class:`zsl.ZeroShotClassifier` therefore does not centre features and attributes
    for this model, unless it is given a pre-processing that does.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([0, 1]), np.eye(2)
    >>> CLIP().fit(X, y, Z, Z_unseen=np.array([[1.0, 1.0], [1.0, -1.0]])).predict(np.array([[0.9, -0.8]]))
    array([1])
    """

    temperature: Positive = 0.01

    one_space: ClassVar[bool] = True
    """Features and attributes are compared with each other, so that they have to come from one network"""
    centred: ClassVar[bool] = False
    """Whether the classifier centres features and attributes by default"""

    def set_blocks(self, features: Sequence[int], attributes: Sequence[int]) -> None:
        """Refuse several networks, or texts with attributes; the classifier calls it before ``fit``."""
        if max(len(features), len(attributes)) > 1:
            raise UserError(
                "features of several networks, or texts with attributes beside them, are not of one space as CLIP's "
                "rule needs; give one network's features, and texts alone."
            )

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        if X.shape[1] != Z.shape[1]:
            raise UserError(
                f"images have {X.shape[1]} features and classes {Z.shape[1]} attributes, and CLIP's rule needs equally "
                "many; describe the classes by sentences alone, with the network of the images (zsl extract --network "
                "NAME, zsl describe --encoder NAME)."
            )

    def _attributes(self, X: Array) -> Array:
        return X

    def _scores(self, X: Array, S: Array) -> Array:
        return cosines(self._attributes(X), S) / self.temperature


@dataclass(eq=False, repr=False)
class CLIPAdapter(CLIP):
    r"""CLIP's rule after a linear map of the images, by ridge regression that is penalised for leaving the identity.

    .. math:: \min_W \|XW - Z\|_F^2 + \gamma \|W - I\|_F^2, \qquad
        W = I + (X^\top X + \gamma I)^{-1} X^\top (Z - X)

    X (n, p) are the embeddings of the n seen images, and Z (n, p) those of their classes. The score of class s for
    image x is ``cos(xW, s) / temperature``. A large gamma gives CLIP's rule on centred embeddings, a small one least
    squares. The error is a sum over images, so the same gamma weighs less with more of them.

    Parameters
    ----------
    temperature : float > 0
        The temperature of the scores, 1/100 in CLIP. It changes no answer.
    gamma : float > 0
        The penalty that draws W towards the identity.

    Attributes
    ----------
    W_ : (p, p)
        The linear map of images.

    Raises
    ------
    UserError
        In ``fit``, if features and attributes differ in number, so that they cannot be of one space.

    Notes
    -----
    Features and attributes are centred by default: each modality loses its mean over seen images and classes, and with
    it the gap between all images and all texts.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([0, 1]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> CLIPAdapter(gamma=0.1).fit(X, y, Z, Z_unseen=Z).predict(X)  # the images lie across from their classes
    array([0, 1])
    """

    gamma: Positive = 300.0

    centred: ClassVar[bool] = True

    W_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        super()._fit(X, y, Z, shared)
        residual = shared("X'(Z - X)", lambda: cross(X, y, Z) - X.T.astype(np.float64) @ X)
        W = ridge(shared("X", lambda: spectrum(X)), residual, self.gamma)
        self.W_ = (np.eye(len(W)) + W).astype(X.dtype)

    def _attributes(self, X: Array) -> Array:
        return X @ self.W_
