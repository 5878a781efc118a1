"""The rules that a setting names, run one after another: :class:`Inference`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from zsl.checks import Array, Count, check_value
from zsl.config import inference_preset
from zsl.errors import UserError
from zsl.inference import rules
from zsl.inference.blocks import MOST_IMAGES, Prepared
from zsl.inference.labels import checked_labels
from zsl.inference.prediction import Prediction, rule_name
from zsl.inference.rules import NATIVE, TRANSDUCTIVE, Rule
from zsl.inference.stages import Pair, Stages, used_by
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import largest

# What the base rule ``auto`` and the rule ``inductive`` are for models without dictionaries.
_WITHOUT_CODES = {"auto": NATIVE, "inductive": "bidirectional"}


class Inference(BaseEstimator):
    """The rules that turn images into scores of classes, with their settings.

    Parameters
    ----------
    attributes : str or callable
        The attribute rule: ``agnostic``, ``aware``, ``self_trained``; ``own``, the model's native scores take the place
        of predicted attributes; or ``auto``: what fits the model and the label rule.
    labels : str or callable
        The label rule: ``nearest``, ``cosine``, ``spread``, ``mixture``, ...; ``own``, the model's native scores;
        ``auto``: with ``attributes="auto"`` the paper's TAAw for models with dictionaries, else native scores; after
        ``agnostic`` ``nearest``, after ``aware`` ``spread``; or
        ``inductive``: ``code_eszsl`` for models with dictionaries, ``cosine`` for embeddings of images and classes in
        one space (:class:`zsl.models.CLIP`), else ``bidirectional``; or ``transductive``: ``mixture`` for such
        embeddings, else ``naming``.
    fallback : bool
        Whether a transductive label rule is used only if it helps on validation classes; the inductive stage before it
        is the answer otherwise. The decision is made in :meth:`zsl.ZeroShotClassifier.fit`.
    settings : mapping, optional
        By rule: its settings, such as ``{"spread": {"mu": 0.1}}``. What is left out has the rule's default.

    Examples
    --------
    >>> Inference("agnostic", "cosine")
    Inference(attributes='agnostic', labels='cosine')
    >>> Inference.preset("taaw").labels
    'spread'
    """

    def __init__(
        self,
        attributes: str | Callable[..., Any] = "auto",
        labels: str | Callable[..., Any] = "auto",
        fallback: bool = False,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.attributes = attributes
        self.labels = labels
        self.fallback = fallback
        self.settings = settings

    @classmethod
    def preset(cls, name: str) -> Inference:
        """The inference of ``conf/inference/NAME.yaml``, or the label rule NAME with ``attributes="auto"``.

        Raises
        ------
        UserError
            If there is neither.
        """
        found = inference_preset(name)
        if found is None:
            rules.find("labels", name)
            found = {"labels": name}
        return cls(**found)

    def resolved(self, model: Any) -> Pair:
        """The attribute rule and the label rule for a model, with ``auto`` and ``inductive`` replaced."""
        attributes, labels = self.attributes, self.labels
        if attributes == "auto":
            if labels in ("auto", NATIVE):
                attributes = "aware" if labels == "auto" and hasattr(model, "codes") else NATIVE
            else:
                attributes = "agnostic" if hasattr(model, "predict_attributes") else NATIVE
        if labels == "auto":
            labels = NATIVE if attributes == NATIVE else "spread" if attributes == "aware" else "nearest"
        if labels == "inductive":
            labels = _fitting(labels, model, attributes)
        if labels == "transductive":
            # The mixture relies on the base scores, which are CLIP's; names by a Gaussian process ignore them.
            labels = "mixture" if getattr(model, "one_space", False) else "naming"
        return rules.by_name("attributes", attributes), rules.by_name("labels", labels)

    def check(self, model: Any) -> None:
        """Refuse rules that do not exist, settings out of range, and pairs of rules that do not fit the model.

        Raises
        ------
        UserError
            With the names that fit.
        """
        check_value(bool, self.fallback, "inference.fallback")
        for name, settings in (self.settings or {}).items():
            rule = rules.rules("labels").get(name) or rules.rules("attributes").get(name) or self.own_rule(name)
            if rule is None:
                known = [n for kind in ("attributes", "labels") for n, one in rules.rules(kind).items() if one.settings]
                raise UserError(f"inference.{name} does not exist; the rules with settings are: {', '.join(known)}.")
            rule.checked(settings)
        self._check_pair(model)
        if self.fallback and TRANSDUCTIVE in getattr(model, "information", ()):
            raise UserError(
                "inference.fallback=true decides between a transductive rule and the inductive one before it, and "
                f"{type(model).__name__} is transductive by itself; set inference.fallback=false."
            )
        if self.fallback and self.one_by_one(model):
            raise UserError(
                "inference.fallback=true decides whether a transductive rule is used, and this rule is inductive; set "
                "inference.fallback=false."
            )

    def check_no_given_shares(self, why: str) -> None:
        """Refuse shares of the unseen classes that were given as numbers where other classes are predicted, too."""
        for name, settings in (self.settings or {}).items():
            shares = settings.get("class_prior")
            if shares is not None and not isinstance(shares, str):
                raise UserError(
                    f"inference.{name}.class_prior has a share for each unseen class, and {why} predicts among other "
                    f"classes; set it to {'none' if why == 'tune' else 'false'}, or class_prior to uniform, cpe or em."
                )

    def check_labelled(self, model: Any) -> None:
        """Refuse labelled images with a sentence where the chosen rule cannot use them."""
        attributes, labels = self.resolved(model)
        if self.fallback or not self.asks_for("labelled", model, (attributes, labels)):
            why = "fallback=true decides without them" if self.fallback else f"labels={rule_name(labels)} ignores them"
            remedy = "set it to false" if self.fallback else "use inference=asked"
            raise UserError(f"images of unseen classes have labels, and inference.{why}; {remedy}.")

    def one_by_one(self, model: Any) -> bool:
        """Whether the answer for an image does not depend on the other test images."""
        return not any(TRANSDUCTIVE in used_by(self, model, pair) for pair in self._pairs(model))

    def check_one_by_one(self, model: Any) -> None:
        """Refuse a rule that looks at all test images together, for images in chunks."""
        if not self.one_by_one(model):
            raise UserError(
                "X is a dask.array, and this inference looks at all test images together; give an array in memory "
                '(X.compute()), or fit with inference="inductive".'
            )

    def _check_pair(self, model: Any) -> None:
        attributes, labels = self.resolved(model)
        names, name = (rule_name(attributes), rule_name(labels)), type(model).__name__
        label_rule = None if labels == NATIVE else rules.find("labels", labels)
        attribute_rule = None if attributes == NATIVE else rules.find("attributes", attributes)
        chain = self.chain(model, (attributes, labels))
        if labels == NATIVE and attributes != NATIVE:
            raise UserError(
                f"inference.attributes={names[0]} and inference.labels=own do not go together; own stands for the "
                "model's native scores and is chosen for both (inference=own)."
            )
        if attribute_rule is None:
            if label_rule is not None and "Z_hat" in label_rule.asks_for:
                raise UserError(
                    f"inference.attributes=own and inference.labels={names[1]} do not go together: {names[1]} needs "
                    "predicted attributes; use inference.attributes=agnostic with a model that predicts attributes."
                )
            for rule, below in pairwise(chain):
                if "Z_hat" in below.asks_for:
                    raise UserError(
                        f"inference.{rule.name}.base={below.name} needs predicted attributes, and "
                        f"inference.attributes=own predicts none; set inference.{rule.name}.base=own."
                    )
            return
        if not hasattr(model, "predict_attributes"):
            raise UserError(
                f"inference.attributes={names[0]} needs predicted attributes, and {name} has none; use inference=own."
            )
        if "start" in attribute_rule.asks_for and not hasattr(model, "codes"):
            raise UserError(
                f"inference.attributes={names[0]} needs dictionaries, and {name} has none; "
                "use inference.attributes=agnostic."
            )

    def predict(
        self, model: Any, X: Array, Z: Array, statistics: SeenStatistics | None = None, labelled: Array | None = None
    ) -> Prediction:
        """Scores of images for classes by the pair of rules, and by the pairs on the way to it.

        A pair (attributes, labels) passes through (agnostic, nearest) and (attributes, nearest) and, where the label
        rule builds on a base rule, through that one. Native scores take the place of the nearest class where the
        attribute rule is ``own``.

        Parameters
        ----------
        model : fitted model
        X : (L, p)
            Test images, pre-processed. A transductive rule uses all of them at once.
        Z : (C, q)
            Attributes of the classes, pre-processed.
        statistics : SeenStatistics, optional
            Needed where a rule on the way asks for them (:meth:`asks_for`).
        labelled : (L,) integers, optional
            The class 0..C-1 of each image whose class is given, -1 for all others.

        Returns
        -------
        Prediction
        """
        labelled = self._labels(model, labelled, len(X), len(Z))
        run = Stages(self, model, X, Z, statistics, labelled)
        stages = [run.stage(pair) for pair in self._pairs(model)]
        return Prediction(stages, stages[-1])

    def best(
        self, model: Any, X: Array, Z: Array, k: int, statistics: SeenStatistics | None = None,
        labelled: Array | None = None, *, inductive: bool = False, prepare: Callable[[Array], Array] = np.asarray,
    ) -> Iterator[tuple[Array, Array]]:  # fmt: skip
        """The k likeliest classes of each image and their scores, a block of images at a time.

        Scores of all images for all classes are never in memory together, unless a transductive rule needs them.

        Parameters
        ----------
        model, X, Z, statistics, labelled
            As for :meth:`predict`.
        inductive : bool
            Take the last inductive stage in place of the last one.
        prepare : callable
            Pre-processing of the rows of X, each by itself.

        Yields
        ------
        columns : (l, k) integers, the likeliest class first; of equal scores the first class
        scores : (l, k)

        Raises
        ------
        UserError
            For a rule that needs all scores at once where the machine has too little memory for them.

        Examples
        --------
        >>> import zsl
        >>> data = zsl.load_dataset("digits")
        >>> model = zsl.models.ESZSL().fit(data.X, data.y, data.Z, data.Z_unseen)
        >>> columns, scores = next(Inference.preset("own").best(model, data.X_unseen[:4], data.Z_unseen, 2))
        >>> columns.shape
        (4, 2)
        """
        check_value(Count, k, "k")
        labels = self._labels(model, labelled, len(X), len(Z))
        pair = [p for p in self._pairs(model) if not inductive or TRANSDUCTIVE not in used_by(self, model, p)][-1]
        together = TRANSDUCTIVE in used_by(self, model, pair)
        step = len(X) if together else MOST_IMAGES
        for i in range(0, len(X), step):
            rows = slice(i, i + step)
            few = len(X[rows]) <= MOST_IMAGES
            ready: Any = prepare(X[rows]) if few else Prepared(X, prepare)
            run = Stages(self, model, ready, Z, statistics, labels[rows])
            for _, scores in run.in_blocks(pair).blocks():
                columns = largest(scores, k)
                yield columns, np.take_along_axis(scores, columns, axis=1)

    def _labels(self, model: Any, labelled: Array | None, n: int, M: int) -> Array:
        found = checked_labels(labelled, n, M)
        if (found >= 0).any():
            self.check_labelled(model)
        return found

    def record(self, model: Any) -> dict[str, Any]:
        """The rules for a model, with the settings of every rule that they use: part of a result's key."""
        attributes, labels = self.resolved(model)
        used = {rule.name: rule for pair in self._pairs(model) for rule in self.chain(model, pair)}
        return {
            "attributes": rule_name(attributes),
            "labels": rule_name(labels),
            "fallback": self.fallback,
            **{name: settings for name, rule in used.items() if (settings := self.setting(rule))},
        }

    def asks_for(self, quantity: str, model: Any, pair: Pair | None = None) -> bool:
        """Whether a rule asks for this quantity, such as ``statistics``, on the way or behind one pair of rules."""
        pairs = self._pairs(model) if pair is None else [pair]
        return any(quantity in rule.asks_for for one in pairs for rule in self.chain(model, one))

    def setting(self, rule: Rule) -> dict[str, Any]:
        """The settings of a rule, checked and completed by the rule's defaults."""
        return rule.checked((self.settings or {}).get(rule.name, {}))

    def base(self, model: Any, attributes: Any, rule: Rule) -> Any:
        """The rule that ``rule`` builds on; :class:`UserError` for one that builds on ``rule`` itself."""
        name = given = self.setting(rule)["base"]
        if name in _WITHOUT_CODES:
            return _fitting(name, model, attributes)
        seen = [rule.name]
        while name not in (NATIVE, *_WITHOUT_CODES):
            if name in seen:
                raise UserError(
                    f"inference.{rule.name}.base={given} builds on {rule.name} itself; take another, such as cosine."
                )
            seen.append(name)
            other = rules.find("labels", name, f"inference.{seen[-2]}.base")
            if other.base is None:
                break
            name = self.setting(other)["base"]
        return given

    def own_rule(self, name: str) -> Rule | None:
        """The rule of this name among functions that were given in the place of names."""
        given = (("attributes", self.attributes), ("labels", self.labels))
        return next((r for kind, f in given if callable(f) and (r := rules.find(kind, f)).name == name), None)  # type: ignore[arg-type]

    def _pairs(self, model: Any) -> list[Pair]:
        attributes, labels = self.resolved(model)
        native = attributes == NATIVE
        simplest = NATIVE if native else "nearest"
        pairs = [(NATIVE if native else "agnostic", simplest), (attributes, simplest)]
        if labels != NATIVE:
            rule = rules.find("labels", labels)
            # What bidirectional adds up is no stage of its own: half of a sum is no result.
            if rule.base not in (None, "auto"):
                pairs.append((attributes, self.base(model, attributes, rule)))
        return list(dict.fromkeys([*pairs, (attributes, labels)]))

    def chain(self, model: Any, pair: Pair) -> list[Rule]:
        """The rules behind a pair: the attribute rule, the label rule, the latter's base rule and so on."""
        attributes, labels = pair
        found = [] if attributes == NATIVE else [rules.find("attributes", attributes)]
        while labels != NATIVE:
            rule = rules.find("labels", labels)
            found.append(rule)
            if rule.base is None:
                break
            labels = self.base(model, attributes, rule)
        return found


def _fitting(name: str, model: Any, attributes: Any) -> str:
    """The rule that ``auto`` or ``inductive`` stands for: ESZSL on codes for models with dictionaries."""
    if name == "inductive" and attributes != NATIVE and getattr(model, "one_space", False):
        return "cosine"  # CLIP's scores (docs/clip.md)
    return "code_eszsl" if attributes != NATIVE and hasattr(model, "codes") else _WITHOUT_CODES[name]
