"""Which image to ask about next, what the answers make of the predictions, and where the images' files are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.labelled import in_front
from zsl.errors import UserError
from zsl.inference import Inference, rules
from zsl.inference.asking import WORTH_ASKING, Clusters, Question


class TestImages(NamedTuple):
    """The images that a classifier is asked about."""

    X: Array
    """(L, p) features before pre-processing"""
    names: Sequence[str | int]
    """File names, or row numbers as in ``predictions.csv``"""
    column: str
    """What ``predictions.csv`` calls them: file, row or image"""
    y: Array
    """(L,) positions of the true classes among the unseen ones, -1 where unknown"""


@dataclass
class Session:
    """Answers that were given so far, and the questions that are left."""

    clusters: Clusters
    names: list[str]
    """The M unseen classes"""
    known: Array
    """Classes of the images that the classifier itself has labels of; they stand before the test images"""
    n_images: int
    answers: dict[int, int] = field(default_factory=dict)
    """By test image: its class 0..M-1"""

    @classmethod
    def of(cls, classifier: ZeroShotClassifier, X: Array) -> Session:
        """The session without an answer for test images X (L, p).

        Raises
        ------
        UserError
            If the classifier was fitted without what naming clusters needs.
        """
        if classifier.statistics_ is None:
            raise UserError(
                "this run stored no statistics of the seen classes, which naming clusters of other images needs; run "
                "it again with inference=asked."
            )
        table = classifier.class_attributes()
        rows, labels = in_front(getattr(classifier, "labelled_", None), X, table.index)
        known = np.empty(0, np.int64) if labels is None else labels[: len(rows) - len(X)]
        rule = rules.find("labels", "asked")
        inference = Inference(labels="asked", settings=classifier.inference_.settings)
        Z = classifier.semantics_.transform(np.ascontiguousarray(table.to_numpy(np.float64)))
        ready = classifier.preprocess_.transform(rows)
        base = inference.predict(classifier.model_, ready, Z, classifier.statistics_).stages[-2].scores
        settings = {k: v for k, v in inference.setting(rule).items() if k != "base"}
        clusters = Clusters(base, ready, Z, classifier.statistics_, **settings)
        return cls(clusters, [str(name) for name in table.index], known, len(X))

    def labelled(self) -> Array:
        """The labels of all images, those that the classifier has labels of before the test images."""
        given = np.full(self.n_images, -1)
        given[list(self.answers)] = list(self.answers.values())
        return np.concatenate([self.known, given])

    def scores(self) -> Array:
        """Log-probabilities (L, M) of the classes with the present answers."""
        P = self.clusters.posterior(self.labelled())[len(self.known) :]
        return np.log(np.maximum(P, np.finfo(float).tiny))

    def questions(self, shown: Callable[[int], bool] = lambda _: True) -> list[Question]:
        """Questions by expected gain; of each cluster about the image nearest its mean that can be ``shown``."""
        out = []
        for question in self.clusters.questions(self.labelled()):
            images = question.images - len(self.known)
            image = next((int(i) for i in images if shown(int(i))), int(images[0]))
            out.append(question._replace(image=image, images=images))
        return out

    def worth_asking(self, question: Question) -> bool:
        """Whether the answer is expected to rename as many images as a question is worth."""
        return question.gain >= WORTH_ASKING * self.n_images


class ImageFiles:
    """The files of images that tables know by name.

    Parameters
    ----------
    places : sequence of Path
        Folders. A name is tried as a path below each folder, then as the name of a file anywhere below the first folder
        that exists. Names that several files have there are not used.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place for place in places if place.is_dir()]
        self._by_name: dict[str, Path | None] = {}
        for path in sorted(self.places[0].rglob("*.*")) if self.places else ():
            # Of files that share a name none can be meant.
            self._by_name[path.name] = None if path.name in self._by_name else path

    def find(self, name: str | int) -> Path | None:
        """The file of an image, or None."""
        if isinstance(name, int):
            return None
        paths = (place / name for place in self.places)
        return next((p for p in paths if p.is_file()), self._by_name.get(name.rpartition("/")[2]))
