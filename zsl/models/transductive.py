"""The base class of transductive models, whose scores use all test images together."""

from __future__ import annotations

from typing import ClassVar

from zsl.errors import UserError
from zsl.models.base import InductiveModel

TRANSDUCTIVE = "unlabelled test images"
"""What a transductive model uses beyond the seen images; a result's record says so."""
EVERY_CLASS = "every class is taken to have test images"
"""The assumption of methods that look for as many clusters as there are classes."""
EQUAL_SIZES = "class prior: classes are equally frequent"
"""The assumption of methods that give every class the same share of the test images."""


class TransductiveModel(InductiveModel):
    """Base class of transductive models: ``fit`` sees no test image, ``scores`` use all test images together.

    A subclass is written like an :class:`InductiveModel`: the rows of ``X`` in ``_scores(X, S)`` are all test images,
    so the scores of one image depend on the others and on which classes are to choose from. A result says that it is
    transductive, and tables rank it apart from inductive ones.

    Attributes
    ----------
    assumes : tuple of str
        What the method takes for granted of the test images, such as :data:`EVERY_CLASS` or :data:`EQUAL_SIZES`.
    """

    assumes: ClassVar[tuple[str, ...]] = ()

    @property
    def information(self) -> tuple[str, ...]:
        """What scores use beyond the image itself: the other test images, and assumptions on them."""
        return (TRANSDUCTIVE, *self.assumes)

    def check_by_chunk(self) -> None:
        """Refuse to score images chunk by chunk: each chunk would be taken for all test images."""
        raise UserError(
            f"X is a dask.array, and {type(self).__name__} looks at all test images together; give an array in memory "
            "(X.compute()), or use an inductive model."
        )
