"""CLIP's own rule, and a ridge adapter on top of it, where images and classes are embedded in one space."""

from __future__ import annotations

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

    The features X (n, p) are the embeddings of images, and the attributes S (C, p) are those of the classes' texts, by
    the two towers of one network such as CLIP or SigLIP. The score of class s for image x is ``cos(xW, s) /
    temperature``. Without ``gamma`` W is the identity and nothing is learned. With ``gamma`` the seen images adapt the
    image's embedding by ridge regression that is drawn towards the identity:

    .. math:: \min_W \|XW - Z\|_F^2 + \gamma \|W - I\|_F^2, \qquad
        W = I + (X^\top X + \gamma I)^{-1} X^\top (Z - X)

    where Z (n, p) holds the class's embedding of each image. A large gamma is CLIP's own rule, a small one is least
    squares from image to text embeddings.

    Parameters
    ----------
    gamma : float > 0, optional
        The penalty that draws the adapter towards the identity; ``None``: no adapter, and no training.
    temperature : float > 0
        The temperature of the scores, 1/100 in CLIP. It changes no answer.

    Attributes
    ----------
    W_ : (p, p) or None

    Raises
    ------
    UserError
        In ``fit``, if features and attributes differ in length, so that they cannot be of one space.

    Notes
    -----
    CLIP's own rule has no centring: use ``Preprocess(centre=False)`` for features and attributes, as
    :class:`zsl.ZeroShotClassifier` does for this model by default where ``gamma`` is ``None``. With centring, each
    modality loses its mean over seen classes, and with it what separates all images from all texts.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([0, 1]), np.eye(2)
    >>> CLIP().fit(X, y, Z, Z_unseen=np.array([[1.0, 1.0], [1.0, -1.0]])).predict(np.array([[0.9, -0.8]]))
    array([1])
    """

    gamma: Positive | None = None
    temperature: Positive = 0.01

    one_space: ClassVar[bool] = True
    """Features and attributes are compared with each other, so that they have to come from one network"""

    W_: Array | None = field(init=False, repr=False)

    @property
    def centred(self) -> bool:
        """Whether the classifier centres features and attributes by default."""
        return self.gamma is not None

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        if X.shape[1] != Z.shape[1]:
            raise UserError(
                f"images have {X.shape[1]} features and classes {Z.shape[1]} attributes, so they are not of one space, "
                "as model=clip needs; embed both by the same network (zsl extract --network NAME, zsl describe "
                "--encoder NAME)."
            )
        self.W_ = None
        if self.gamma is not None:
            residual = shared("X'(Z - X)", lambda: cross(X, y, Z) - X.T.astype(np.float64) @ X)
            W = ridge(shared("X", lambda: spectrum(X)), residual, self.gamma)
            self.W_ = (np.eye(len(W)) + W).astype(X.dtype)

    def _attributes(self, X: Array) -> Array:
        return X if self.W_ is None else X @ self.W_

    def _scores(self, X: Array, S: Array) -> Array:
        return cosines(self._attributes(X), S) / self.temperature
