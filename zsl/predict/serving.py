"""The fitted classifier as MLflow's servers run it; :mod:`zsl.tracking.models` hands this file to MLflow.

    mlflow models serve -m runs:/RUN/pipeline --env-manager local -p 5077
    curl 127.0.0.1:5077/invocations -H 'Content-Type: application/json' -d '{"inputs": [[0.1, ...]]}'

Parameters (``"params": {...}`` beside ``inputs``): ``classes`` to choose from (``unseen``, ``seen``, ``all``,
``none``), ``new_classes`` (a JSON text ``{"NAME": [attribute, ...]}`` of raw attributes), ``top`` (scores of so many
classes; 0: all).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel  # type: ignore[attr-defined]

from zsl.classifier import ZeroShotClassifier
from zsl.errors import UserError
from zsl.predict.__main__ import rank


class ServedClassifier(PythonModel):
    """Answers rows of features (before pre-processing) with a label and the scores of the classes, best first."""

    def load_context(self, context: Any) -> None:
        """Read the stored classifier; the server calls this once."""
        allow = (context.model_config or {}).get("allow_targets", ())
        self.classifier = ZeroShotClassifier.load(context.artifacts["pipeline"], allow=allow)

    # MLflow reads the annotation of model_input: without one it warns, and from another it makes a second signature.
    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> Any:
        """Return a list of ``{"label": name, "scores": {name: score}}``, one for each row."""
        params = params or {}
        try:
            added = json.loads(params.get("new_classes") or "{}")
        except json.JSONDecodeError as error:
            raise UserError(f'new_classes is no JSON ({error}); write {{"NAME": [attribute, ...]}}.') from None
        if not isinstance(added, dict):
            raise UserError('new_classes is no JSON object; write {"NAME": [attribute, ...]}.')
        found = rank(self.classifier, np.asarray(model_input), params.get("classes", "unseen"), added)
        return [{"label": best[0][0], "scores": dict(best)} for best in found.best(int(params.get("top", 0)) or None)]


set_model(ServedClassifier())
