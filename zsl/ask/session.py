"""Which image to ask about next, and what the answers make of the predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.class_table import values
from zsl.data.labelled import in_front
from zsl.errors import UserError
from zsl.inference import Inference, rules
from zsl.inference.asking import WORTH_ASKING, Clusters, Question


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
        rows, labels = in_front(classifier.labelled_, X, table.index)
        known = np.empty(0, np.int64) if labels is None else labels[: len(rows) - len(X)]
        rule = rules.find("labels", "asked")
        inference = Inference(labels="asked", settings=classifier.inference_.settings)
        Z = classifier.semantics_.transform(values(table))
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
