"""Everything about a run that looks worthless although nothing failed: the ``warnings`` of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from zsl.checks import Array, row_squares
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.data.signs import of_data
from zsl.evaluation import signs
from zsl.inference import Prediction, Stage
from zsl.inference.attributes import members
from zsl.sparse import sparse_encode

# Images that are pre-processed at a time.
_BLOCK = 4096


def of_run(fitted: ZeroShotClassifier, prediction: Prediction, data: ZeroShotData) -> list[str]:
    """One sentence for every sign that a run's result is not worth what it seems.

    Parameters
    ----------
    fitted : ZeroShotClassifier
    prediction : Prediction
        For ``data.X_unseen`` among the unseen classes.
    data : ZeroShotData
        Before pre-processing.
    """
    found = [*of_data(data, fitted.preprocess_, fitted.semantics_), *of_fit(fitted, prediction, data)]
    return found + of_answers(prediction, data.y_unseen, data.unseen_names)


def of_answers(prediction: Prediction, y: Array, names: list[str]) -> list[str]:
    """Signs of the answers of every stage; each kind once, in the words for the chosen stage if that has it."""
    known = y >= 0
    kinds: list[Callable[[Stage], str | None]] = [
        lambda stage: signs.one_class(stage.scores, names),
        lambda stage: signs.left_out(stage.scores, y, names),
        lambda stage: signs.at_chance(stage.scores[known], y[known]) if known.any() else None,
        lambda stage: None if stage.Z_hat is None else signs.empty_predictions(stage.Z_hat),
    ]
    found = [sentence for sentence in [signs.only_one(len(names))] if sentence]
    stages = sorted(prediction.stages, key=lambda stage: stage is not prediction.chosen)
    for kind in kinds:
        said = {stage.name: sentence for stage in stages if (sentence := kind(stage))}
        if said:
            first, *others = said
            also = f" (likewise {', '.join(others)})" if others else ""
            role = "" if first == prediction.chosen.name else ", not the answer"
            found.append(f"{first}{role}{also}: {said[first]}")
    return found


def of_fit(fitted: ZeroShotClassifier, prediction: Prediction, data: ZeroShotData) -> list[str]:
    """Signs of the fit: dense or empty codes, gaps above the tolerance, objectives that rise."""
    model = fitted.model_
    found = []
    if hasattr(model, "density_"):
        found.append(signs.density(model.density_, *members(model)[0].Dx_.shape))
    tol = _tolerance(model)
    if tol is not None:
        gap = max([float(model.lasso_gap_max_), *(stage.gap for stage in prediction.stages)])
        found.append(signs.unconverged(gap, tol * _largest_square(fitted, data)))
    found += [signs.rising(name, values, gaps) for name, values, gaps in _objectives(model)]
    return [sentence for sentence in found if sentence]


def _tolerance(model: Any) -> float | None:
    """The solver's relative tolerance of the duality gap, or None where there is no gap or it is not known."""
    solver = getattr(model, "solver", None)
    if not hasattr(model, "lasso_gap_max_"):
        return None
    if solver is None or solver is sparse_encode:
        return 1e-6
    return solver.keywords.get("tol", 1e-6) if isinstance(solver, partial) and solver.func is sparse_encode else None


def _largest_square(fitted: ZeroShotClassifier, data: ZeroShotData) -> float:
    """The largest ``|x|^2 / p`` of any image plus that of any class: an upper bound for joint codes too."""

    def largest(transform: Any, V: Array) -> float:
        blocks = [transform.transform(V[i : i + _BLOCK]) for i in range(0, len(V), _BLOCK)]
        return max(float(row_squares(block.astype(np.float64)).max()) / block.shape[1] for block in blocks)

    # Rows of unit length, the default, need not be looked at.
    one = getattr(fitted.preprocess_, "l2", False)
    p = len(fitted.model_.Dx_[0])
    features = 1 / p if one else max(largest(fitted.preprocess_, V) for V in (data.X, data.X_unseen))
    rows = data.attributes if data.Z_images is None else np.concatenate([data.attributes, data.Z_images])
    return features + largest(fitted.semantics_, rows)


def _objectives(model: Any) -> Iterator[tuple[str, list[float], list[float] | None]]:
    """Name, values and permitted rises of every objective that should fall."""
    for name in ("objective", "objective_x", "objective_z"):
        values = list(getattr(model, f"{name}_", None) or ())
        gaps = getattr(model, name.replace("objective", "gap") + "_", None)
        if not values:
            continue
        if gaps is not None and name != "objective_z":
            if getattr(model, "batch_size", None):
                continue  # means over passes with a changing dictionary
            redrawn = [0, *model.redrawn_]
            gaps = [np.nan if n else gap for n, gap in zip(redrawn, gaps, strict=True)]
        yield name, values, gaps
