"""The fitted classifier of a run folder as an MLflow model, which ``zsl/predict/serving.py`` answers for."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from zsl.runs import model_file
from zsl.runs.model_file import MODEL


def log_model(uri: str, run: str, folder: Path, *, register: str | None = None, allow: tuple[str, ...] = ()) -> None:
    """Log the classifier of a run folder as the model ``pipeline`` of a run in the store ``uri``.

    Nothing is pickled. With ``register`` the model becomes a new version of that name in the registry. ``allow`` names
    packages outside ``zsl`` whose classes the file may name.
    """
    from mlflow import MlflowClient, pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    spec = find_spec("zsl.predict.serving")
    fitted = model_file.read(folder / MODEL, allow)
    assert spec is not None
    assert spec.origin is not None
    about, example = fitted["about_"], fitted["example_"]
    client = MlflowClient(uri)
    experiment = client.get_run(run).info.experiment_id
    model = client.create_logged_model(experiment, name="pipeline", source_run_id=run, model_type="zero-shot")
    with tempfile.TemporaryDirectory() as scratch:
        pyfunc.save_model(
            path=Path(scratch) / "model",
            mlflow_model=Model(run_id=run, model_id=model.model_id, model_uuid=model.model_id),
            python_model=spec.origin,
            artifacts={"pipeline": str(folder / MODEL)},
            signature=signature(fitted["n_features_in_"]),
            input_example=example.astype(np.float64),
            pip_requirements=[f"zsl-cdl=={_version()}"],
            model_config={"allow_targets": about["allow_targets"]},
            metadata={k: about[k] for k in ("dataset", "feature", "split", "digest")},
        )
        client.log_model_artifacts(model.model_id, str(Path(scratch) / "model"))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(model.model_id, step=0)])
    if register is not None:
        with suppress(MlflowException):  # it is there already
            client.create_registered_model(register)
        client.create_model_version(register, model.artifact_location, run, model_id=model.model_id)


def signature(n_features: int) -> Any:
    """Rows of raw features in; of each row the label and the scores of all classes out; new classes as parameters."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import Map

    return ModelSignature(
        inputs=Schema([TensorSpec(np.dtype(np.float64), (-1, n_features))]),
        outputs=Schema([ColSpec(DataType.string, "label"), ColSpec(Map(DataType.double), "scores")]),
        params=ParamSchema(
            [
                ParamSpec("classes", DataType.string, "unseen"),
                ParamSpec("new_classes", DataType.string, "{}"),
                ParamSpec("top", DataType.integer, 0),
            ]
        ),
    )


def _version() -> str:
    try:
        return version("zsl-cdl")
    except PackageNotFoundError:
        return "0"
