"""What a served classifier answers to one request: the checks, the work, the answer as JSON has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from zsl.checks import as_matrix
from zsl.classifier import ZeroShotClassifier
from zsl.errors import UserError, did_you_mean
from zsl.predict.__main__ import rank

MOST_ROWS = 10_000
"""Images in one request; a transductive rule takes their number squared in memory"""
MOST_NEW, MOST_SCORES = 10_000, 1_000_000
"""New classes in one request; images times classes that are scored, or named in the answer"""
PARAMETERS = {"classes": "unseen", "new_classes": "{}", "top": 0}


def answer(
    classifier: ZeroShotClassifier, inputs: Any, params: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Rank the classes of some images.

    Parameters
    ----------
    classifier : ZeroShotClassifier
        Fitted.
    inputs : (L, p) array or nested lists
        Features before pre-processing, at most :data:`MOST_ROWS` images.
    params : mapping, optional
        ``classes`` to choose from (``unseen``, ``seen``, ``all``, ``none``), ``new_classes`` (name -> raw attributes,
        or JSON text of it), ``top`` (scores of so many classes; 0: all).

    Returns
    -------
    list of dict
        ``label`` and ``scores`` of each image, the scores by class, best first.

    Raises
    ------
    UserError
        For an unknown parameter, and for a value of the wrong kind, size or range.
    """
    if not isinstance(params, Mapping | None):
        raise UserError('params should be an object; write {"classes": ..., "new_classes": ..., "top": ...}.')
    given = dict(params or {})
    for name in given:
        if name not in PARAMETERS:
            short, has = str(name)[:60], ", ".join(PARAMETERS)
            raise UserError(f"there is no parameter {short!r}{did_you_mean(short, PARAMETERS)}; params has: {has}.")
    given = {**PARAMETERS, **given}
    top, classes = given["top"], given["classes"]
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 0:
        raise UserError(f"top={repr(top)[:60]} is not accepted: it should be a number of classes, or 0 for all.")
    if not isinstance(classes, str) or len(classes) > 60:
        raise UserError(f"classes={repr(classes)[:60]} is not accepted: it should be unseen, seen, all or none.")
    try:
        X = as_matrix(inputs, "inputs", n_columns=classifier.n_features_in_)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError("inputs should be one list of numbers for each image, all of one length.") from None
    if len(X) > MOST_ROWS:
        raise UserError(f"inputs has {len(X)} images; send at most {MOST_ROWS} in one request.")
    added = _new_classes(given["new_classes"], classifier.attributes_.shape[1])
    n_classes = len(added) + len(classifier.class_attributes(classes))
    most = MOST_SCORES * (10 if top else 1)  # what is scored costs less than what is written
    if len(X) * n_classes > most:
        raise UserError(
            f"{len(X)} images and {n_classes} classes make more than {most} scores; send fewer images, or fewer classes"
            f"{'' if top else ', or limit the answer by top'}."
        )
    found = rank(classifier, X, classes, added)
    return [{"label": best[0][0], "scores": dict(best)} for best in found.best(int(top) or None)]


def _new_classes(given: Any, q: int) -> Mapping[str, Any]:
    try:
        found = json.loads(given or "{}") if isinstance(given, str) else given
    except (ValueError, RecursionError, OverflowError):
        raise UserError('new_classes is no JSON; write {"NAME": [attribute, ...]}.') from None
    if isinstance(found, Mapping) and len(found) > MOST_NEW:
        raise UserError(f"new_classes has {len(found)} classes; send at most {MOST_NEW} in one request.")
    if not isinstance(found, Mapping) or not all(isinstance(row, list) for row in found.values()):
        raise UserError('new_classes is not accepted; write {"NAME": [attribute, ...]}.')
    for name, row in found.items():
        if len(name) > 200 or len(row) != q:
            raise UserError(
                f"a new class needs a name of at most 200 letters and {q} attributes, as in training's table."
            )
    try:
        for name, row in found.items():
            name.encode()
            np.asarray(row, dtype=float)
    except UnicodeEncodeError:
        raise UserError("new_classes holds a name that is no text; write it in UTF-8.") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise UserError("new_classes holds an attribute that is no number; write null where one is unknown.") from None
    return found
