"""A zero-shot classifier as one scikit-learn estimator: pre-processing, model and inference rule."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from zsl.checks import Array, Count, Seed, check_arguments
from zsl.data import class_table
from zsl.data.checked_rows import rows_like_training, training_rows
from zsl.data.class_table import Classes
from zsl.data.dataset import ZeroShotData
from zsl.data.labelled import check_labelled, in_front
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.signs import of_data
from zsl.errors import UserError, raise_if_interrupted
from zsl.evaluation.calibration import probabilities
from zsl.inference.inference import Inference
from zsl.inference.prediction import Prediction
from zsl.inference.reliability import needed_statistics
from zsl.model_selection.decision import Decision, decide
from zsl.models.averaged import AveragedDictionaries
from zsl.models.base import alike, check_model, fit_all
from zsl.models.by_chunk import by_chunk, each_chunk
from zsl.runs import model_file
from zsl.sparse.chunks import first_rows


def _is_calibrated(self: ZeroShotClassifier) -> bool:
    if not self.calibrate:
        raise AttributeError("predict_proba needs calibrate=True.")
    return getattr(getattr(self, "decision_", None), "temperature", None) is not None


class ZeroShotClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that recognises classes without training images from a table of class attributes.

    Parameters
    ----------
    model : estimator, optional
        A model of :mod:`zsl.models`; :class:`zsl.AveragedDictionaries` by default.
    inference : str or Inference
        How predicted attributes become classes: a preset (``auto``, ``aag``, ``aaw``, ``taaw``, ``own``, ``inductive``,
        ``transductive``), the name of a label rule, or an :class:`zsl.inference.Inference`.
    preprocess : Preprocess, optional
        Pre-processing of the features; by default centring and unit length (no centring for CLIP's own rule).
    semantics : Preprocess, optional
        That of the attributes, with the same default. Missing attributes (NaN) take the mean of the seen classes.
    calibrate : bool
        Fit a temperature on validation classes, so that ``predict_proba`` is available.
    n_validation_splits : int
        How many random sets of seen classes are held out for ``calibrate`` and for inference ``fallback``.
    seed : int
        Seed of these sets.

    Attributes
    ----------
    classes_ : (M,) array
        The classes that ``predict`` chooses from: those without training images, in the order of the table. Where
        every class has training images, all of them.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    attributes_ : DataFrame
        The rows of the seen classes (the first ``n_seen_``), then of the unseen ones, before pre-processing.
    model_, preprocess_, semantics_, inference_
        The fitted parts.
    statistics_, decision_ : SeenStatistics or None, Decision
        Statistics of the seen classes where a rule needs them, and what was decided on validation classes.
    labelled_ : pair or None
        The images of unseen classes that ``fit`` was given, and their class names.
    example_, about_ : (2, p), dict
        Two training images as an example of the input, and what a run says of the classifier's origin.

    Examples
    --------
    >>> import zsl
    >>> X = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> attributes = {"zebra": [1.0, 0.0], "horse": [0.0, 1.0], "okapi": [0.6, 0.5], "pony": [0.1, 0.9]}
    >>> classifier = zsl.ZeroShotClassifier(zsl.models.ESZSL(), inference="own")
    >>> classifier.fit(X, ["zebra", "zebra", "horse", "horse"], attributes).classes_
    array(['okapi', 'pony'], dtype='<U5')
    >>> classifier.predict([[0.05, 1.0], [1.0, 0.0]])
    array(['okapi', 'pony'], dtype='<U5')
    """

    def __init__(
        self, model: Any = None, inference: str | Inference = "auto", preprocess: Preprocess | None = None,
        semantics: Preprocess | None = None, calibrate: bool = False, n_validation_splits: Count = 6, seed: Seed = 0,
    ) -> None:  # fmt: skip
        self.model, self.inference = model, inference
        self.preprocess, self.semantics = preprocess, semantics
        self.calibrate = calibrate
        self.n_validation_splits = n_validation_splits
        self.seed = seed

    def fit(self, X: Any, y: Any, attributes: Any = None, labelled: Any = None, blocks: Any = ((), ())) -> Self:
        """Learn from images of the seen classes and from the attributes of all classes.

        Data that show a sign of :mod:`zsl.data.signs` cost a ``UserWarning`` for each.

        Parameters
        ----------
        X : (n, p) array or DataFrame
            Features of the training images; a ``dask.array`` is learned from where its chunks lie (docs/dask.md).
        y : (n,) sequence
            The class name of each training image.
        attributes : DataFrame or mapping
            One row of attributes for each class, by class name. Classes without training images are the unseen ones.
        labelled : (X_few, y_few), optional
            A few images of unseen classes with their class names, for ``inference="asked"``. They are not trained on:
            they stand before the images of every prediction, and name the clusters that they are in.
        blocks : pair of sequences of int, optional
            The numbers of columns of X for each network, and of ``attributes`` for each kind, where there are several.

        Raises
        ------
        UserError
            If ``attributes`` is no table or lacks a class, or a setting or a label is wrong.
        """
        X, y = training_rows(self, X, y)
        table = class_table.as_table(attributes)
        labels, names = class_table.labels_of(y, table), tuple(class_table.column_names(table.columns))
        data = ZeroShotData.for_training(X, labels, tuple(table.index), class_table.values(table), names, blocks)
        self.fit_data(data).keep_labelled(labelled)
        for sentence in of_data(data, self.preprocess_, self.semantics_):
            warnings.warn(sentence, stacklevel=2)
        self.decide(data)
        return self

    def fit_data(self, data: ZeroShotData) -> Self:
        """Fit pre-processing, model and statistics to the training part of ``data``; decide nothing."""
        return next(fitted for _, fitted in ZeroShotClassifier.fit_many([self], data))

    def keep_labelled(self, labelled: Any) -> Self:
        """Keep labelled images of unseen classes as in :meth:`fit`; None removes them. Validation never has any."""
        names, n = list(self.attributes_.index), self.n_seen_
        self.labelled_ = check_labelled(labelled, partial(rows_like_training, self), names[n:], names[:n])
        if self.labelled_:
            self.inference_.check_labelled(self.model_)
        return self

    def decide(self, data: ZeroShotData, *, generalized: bool = False) -> Decision:
        """Decide on validation classes of ``data``, and keep the decision, see :func:`zsl.model_selection.decision`."""
        self.decision_ = decide(
            self, data, fallback=self.inference_.fallback, calibrate=self.calibrate, generalized=generalized,
            n_splits=self.n_validation_splits, seed=self.seed,
        )  # fmt: skip
        return self.decision_

    @staticmethod
    def fit_many(
        classifiers: Sequence[ZeroShotClassifier], data: ZeroShotData
    ) -> Iterator[tuple[int, ZeroShotClassifier]]:
        """Fit classifiers to the same data, one after another in any order, and share what they have in common.

        Classifiers with the same pre-processing share the pre-processed data, those with the same model share the fit,
        and models that offer ``fit_grid`` share what their fits have in common.

        Yields
        ------
        position in ``classifiers``, fitted classifier
        """
        for classifier in classifiers:
            classifier._check()
        for group in alike(range(len(classifiers)), lambda i: classifiers[i]._transforms()):
            feature, semantics = map(clone, classifiers[group[0]]._transforms())
            ready = preprocess(data, feature, semantics)
            members = alike(group, lambda i: [classifiers[i].model])
            models = [clone(classifiers[m[0]]._model(), safe=False) for m in members]
            for model in models:
                getattr(model, "set_blocks", lambda *_: None)(feature.sizes_, semantics.sizes_)
            # Where every class is seen, the seen classes are the ones to choose from.
            Z_unseen = ready.Z_unseen if len(ready.unseen) else ready.Z_seen
            for which, model in zip(members, fit_all(models, ready.X, ready.y, ready.Z, Z_unseen)):
                raise_if_interrupted()
                rules = [classifiers[i]._inference() for i in which]
                statistics = needed_statistics(rules, model, ready.X, ready.y, ready.Z, len(Z_unseen))
                for i, rule in zip(which, rules):
                    fitted = classifiers[i]
                    fitted.model_, fitted.preprocess_, fitted.semantics_ = model, feature, semantics
                    fitted.inference_, fitted.decision_ = rule, Decision()
                    fitted.statistics_ = statistics if rule.asks_for("statistics", model) else None
                    fitted._describe(data)
                    yield i, fitted

    def _check(self) -> None:
        check_model(model := self._model())
        if not isinstance(inference := self._inference(), Inference):
            raise UserError(f"inference={inference!r} is neither the name of a preset or rule nor an Inference.")
        inference.check(model)
        for name in ("preprocess", "semantics"):
            if not isinstance(part := getattr(self, name), Preprocess | None):
                raise UserError(f"{name}={part!r} is not accepted: it should be a Preprocess of zsl.data.preprocess.")
        check_arguments(ZeroShotClassifier, self.get_params(deep=False))

    def _model(self) -> Any:
        return AveragedDictionaries() if self.model is None else self.model

    def _inference(self) -> Inference:
        return Inference.preset(self.inference) if isinstance(self.inference, str) else self.inference

    def _transforms(self) -> tuple[Preprocess, Preprocess]:
        default = Preprocess(centre=getattr(self._model(), "centred", True))
        return self.preprocess or default, self.semantics or default

    def _describe(self, data: ZeroShotData) -> None:
        """Keep the table of classes, and what scikit-learn expects of a fitted estimator."""
        self.attributes_, self.n_seen_ = class_table.of_data(data), len(data.seen)
        self.classes_ = class_table.name_array(class_table.part(self.attributes_, self.n_seen_, "unseen").index)
        self.n_features_in_ = data.X.shape[1]
        self.example_ = first_rows(data.X, 2)
        self.about_: dict[str, Any] = {}
        self.labelled_ = None

    def class_attributes(self, which: str = "unseen") -> pd.DataFrame:
        """The attributes, before pre-processing, of the "unseen", "seen", "all" or "none" of the classes of ``fit``.

        Raises
        ------
        UserError
            For another word.
        """
        check_is_fitted(self)
        return class_table.part(self.attributes_, self.n_seen_, which)

    def predict_stages(self, X: Any, classes: Classes = "unseen") -> Prediction:
        """The scores of every stage of the inference rule for images X (L, p), and which stage is the answer.

        Parameters
        ----------
        classes : "unseen", "seen", "all", a list of names, or a table of attributes as in ``fit``
            The classes to choose from: known ones, or others.

        Raises
        ------
        UserError
            If there is no class to choose from, and for features or attributes of the wrong kind.
        """
        table, X = self._candidates(classes), rows_like_training(self, X)
        rows, labels = in_front(self.labelled_, X, table.index)
        Z = self.semantics_.transform(class_table.values(table))
        prediction = self.inference_.predict(self.model_, self.preprocess_.transform(rows), Z, self.statistics_, labels)
        return self.decision_.apply(prediction.last(len(X)))

    @by_chunk
    def decision_function(self, X: Any, classes: Classes = "unseen") -> Array:
        """Scores (L, C) of images X (L, p), larger is likelier; columns as in ``classes_`` or ``classes``."""
        return self.predict_stages(X, classes).scores

    @by_chunk
    def predict(self, X: Any, classes: Classes = "unseen") -> Array:
        """The name of the most likely class of each image of X (L, p); ``classes`` as in :meth:`predict_stages`."""
        return np.concatenate([names[:, 0] for names, _ in self.predict_top(X, 1, classes)])

    @each_chunk
    def predict_top(self, X: Any, k: int = 5, classes: Classes = "unseen") -> Iterator[tuple[Array, Array]]:
        """The k likeliest classes of images X (L, p), a block of images at a time; ``classes`` as in :meth:`predict`.

        Yields
        ------
        (l, k) class names, the likeliest first, and their (l, k) scores, of the next l images
        """
        table, X = self._candidates(classes), rows_like_training(self, X)
        rows, labels = in_front(self.labelled_, X, table.index)
        names, Z = class_table.name_array(table.index), self.semantics_.transform(class_table.values(table))
        left_out, inductive = len(rows) - len(X), self.decision_.use_transductive is False
        for columns, scores in self.inference_.best(
            self.model_, rows, Z, k, self.statistics_, labels, inductive=inductive, prepare=self.preprocess_.transform
        ):
            yield names[columns[left_out:]], scores[left_out:]
            left_out = max(left_out - len(columns), 0)

    def score(self, X: Any, y: Any, sample_weight: Any = None, classes: Classes = "unseen") -> float:
        """Accuracy on images X (L, p) of the classes y (L,), chosen among ``classes`` as in :meth:`predict_stages`.

        Raises
        ------
        UserError
            If no image is of one of these classes: images of seen classes cannot be scored among unseen ones.
        """
        class_table.check_some_known(y, self._candidates(classes).index)
        return float(accuracy_score(y, self.predict(X, classes), sample_weight=sample_weight))

    @available_if(_is_calibrated)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, classes: Classes = "unseen") -> Array:
        """Probabilities (L, C) at the temperature that was fitted on validation classes; needs ``calibrate=True``."""
        assert self.decision_.temperature is not None
        return probabilities(self.decision_function(X, classes), self.decision_.temperature)

    @by_chunk
    def predict_attributes(self, X: Any) -> Array:
        """Predicted attributes (L, q) of images X (L, p), in the units of the pre-processed attributes.

        Raises
        ------
        UserError
            For a model that predicts no attributes.
        """
        chosen = self.predict_stages(X).chosen.Z_hat
        if chosen is None and hasattr(self.model_, "predict_attributes"):
            chosen = self.model_.predict_attributes(self.preprocess_.transform(rows_like_training(self, X)))
        if chosen is None:
            raise UserError(f"{type(self.model_).__name__} predicts no attributes; use another model, such as ridge.")
        return chosen

    def _candidates(self, classes: Classes) -> pd.DataFrame:
        check_is_fitted(self)
        return class_table.chosen(self.attributes_, self.n_seen_, classes)

    def check_by_chunk(self) -> None:
        """Refuse to predict chunk by chunk with a rule that looks at all test images together."""
        check_is_fitted(self)
        if self.decision_.use_transductive is not False:
            self.inference_.check_one_by_one(self.model_)

    def save(self, path: str | Path, precision: Literal["single", "double"] = "double") -> None:
        """Write the fitted classifier to a file, without the training data that scores do not need, but ``example_``.

        In "single" precision matrices take half the space, and scores change by about 1e-7.
        """
        check_is_fitted(self)
        table, columns = self.attributes_, class_table.column_names(self.attributes_.columns) or None
        model_file.save(self, [list(table.index), table.to_numpy(), columns], Path(path), precision)

    @classmethod
    def load(cls, path: str | Path, allow: str | Sequence[str] = ()) -> Self:
        """Read what :meth:`save` wrote; nothing in the file is executed.

        Parameters
        ----------
        allow : str or sequence of str
            Packages outside ``zsl`` whose classes the file may name. The file itself cannot allow any.

        Raises
        ------
        UserError
            If the file is something else, or names a class that is not allowed.
        """
        model_file.restore(fitted := cls(), Path(path), (allow,) if isinstance(allow, str) else tuple(allow))
        return fitted
