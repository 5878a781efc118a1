"""The fitted classifier as MLflow's servers run it; :mod:`zsl.tracking.artifacts` hands this file to MLflow.

    mlflow models serve -m runs:/RUN/pipeline --env-manager local -p 5077

``zsl serve RUN`` (:mod:`zsl.predict.server`) gives the same answers, and also limits what a request may hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel  # type: ignore[attr-defined]

from zsl.classifier import ZeroShotClassifier
from zsl.errors import UserError
from zsl.predict.answers import answer


class ServedClassifier(PythonModel):
    """Answers rows of features (before pre-processing) with a label and the scores of the classes, best first."""

    def load_context(self, context: Any) -> None:
        """Read the stored classifier; the server calls this once."""
        allow = (context.model_config or {}).get("allow_targets", ())
        self.classifier = ZeroShotClassifier.load(context.artifacts["pipeline"], allow=allow)

    # MLflow reads the annotation of model_input: without one it warns, and from another it makes a second signature.
    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> Any:
        """Return a list of ``{"label": name, "scores": {name: score}}``, one for each row."""
        try:
            return answer(self.classifier, model_input, params)
        except UserError as error:
            # MLflow's server answers with status 400 and this sentence; any other exception becomes a traceback.
            raise MlflowException.invalid_parameter_value(str(error)) from None


set_model(ServedClassifier())
