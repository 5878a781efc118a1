"""What of a run folder a store gets: files, of which folder and store share one copy, and the classifier as a model.

``zsl/predict/serving.py`` answers for that model.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from zsl.runs import model_file
from zsl.runs import status as records
from zsl.runs.files import FIGURES
from zsl.runs.model_file import MODEL
from zsl.runs.result import NOT_INSTALLED

_LIGHT = frozenset({".json", ".yaml", ".csv", ".png", ".log"})
LEVELS = {"none": frozenset[str](), "light": _LIGHT, "all": _LIGHT | {".npz"}}
"""``tracking.artifacts`` -> suffixes of the files that become artifacts; with "all" the classifier becomes a model"""
# The status goes on changing, and the fitted classifier becomes a model instead.
_NEVER = {records.STATUS, MODEL}


def level(tracking: Mapping[str, Any]) -> str:
    """``tracking.artifacts`` as a record has it; those of earlier versions say whether the model is sent."""
    if "artifacts" not in tracking:
        return "all" if tracking["model"] else "light"
    known: str = tracking["artifacts"]
    if known not in LEVELS:
        raise ValueError(f"its artifacts={known!r} is none of {', '.join(LEVELS)}")
    return known


def log_files(client: Any, run: str, folder: Path, which: str) -> None:
    """Send the files of a run folder that belong to a level of :data:`LEVELS`."""
    place = client.get_run(run).info.artifact_uri
    for path in sorted([*folder.iterdir(), *folder.glob(f"{FIGURES}/*.png")]):
        wanted = path.suffix in LEVELS[which] and path.name not in _NEVER and not path.name.startswith(".")
        if not (wanted and path.is_file()):
            continue
        below = FIGURES if path.suffix == ".png" else None
        # A log goes on growing; every other file is replaced and never changed, so that a link to it stays what it was.
        if path.suffix == ".log" or not linked(path, place, below, path.name):
            client.expect(path.stat().st_size)
            client.log_artifact(run, str(path), below)


def linked(path: Path, place: str, *below: str | None) -> bool:
    """Replace the file under the address ``place`` by a hard link to ``path``; return whether that worked.

    It works where the store keeps its files in a folder of the same file system. Otherwise the caller makes or keeps a
    copy.
    """
    address = urlsplit(place)
    if address.scheme != "file":
        return False
    target = Path(url2pathname(address.path)).joinpath(*filter(None, below))
    part = target.with_name(f".{target.name}.{os.getpid()}.link")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, part)
        part.replace(target)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            part.unlink()  # also where both names were links to the file already: replacing does nothing then
    return True


def log_model(client: Any, run: str, folder: Path, *, register: str | None = None, allow: tuple[str, ...] = ()) -> None:
    """Log the classifier of a run folder as the model ``pipeline`` of a run in a store; nothing is pickled.

    Parameters
    ----------
    client : zsl.tracking.opening.Client
        Of the store.
    run : str
        The id of the run in it.
    folder : Path
        The run folder.
    register : str, optional
        The model becomes a new version of this name in MLflow's registry.
    allow : tuple of str
        Packages outside ``zsl`` whose classes the file of the classifier may name, here and when it is served.
    """
    from mlflow import pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    fitted = model_file.read(folder / MODEL, allow)
    about = fitted["about_"]
    version = about["versions"]["zsl-cdl"]
    experiment = client.get_run(run).info.experiment_id
    model = client.create_logged_model(experiment, name="pipeline", source_run_id=run, model_type="zero-shot")
    with tempfile.TemporaryDirectory() as scratch:
        pyfunc.save_model(
            path=Path(scratch) / "model",
            mlflow_model=Model(run_id=run, model_id=model.model_id, model_uuid=model.model_id),
            python_model=str(Path(__file__).parents[1] / "predict" / "serving.py"),
            artifacts={"pipeline": (folder / MODEL).resolve().as_uri()},
            signature=signature(fitted["n_features_in_"]),
            input_example=fitted["example_"].astype(np.float64),
            pip_requirements=["zsl-cdl" if version == NOT_INSTALLED else f"zsl-cdl=={version}"],
            model_config={"allow_targets": list(allow)},
            metadata={k: about[k] for k in ("dataset", "feature", "split", "digest")},
        )
        client.log_model_artifacts(model.model_id, str(Path(scratch) / "model"))
    linked(folder / MODEL, model.artifact_location, "artifacts", MODEL)
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(model.model_id, step=0)])
    if register is not None:
        with suppress(MlflowException):  # the registry has the name already
            client.create_registered_model(register)
        client.create_model_version(register, model.artifact_location, run, model_id=model.model_id)


def signature(n_features: int) -> Any:
    """Features before pre-processing come in, a label and the scores of all classes go out for each row."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import Map

    return ModelSignature(
        inputs=Schema([TensorSpec(np.dtype(np.float64), (-1, n_features))]),
        outputs=Schema([ColSpec(DataType.string, "label"), ColSpec(Map(DataType.double), "scores")]),
        params=ParamSchema(
            [ParamSpec("classes", DataType.string, "unseen"), ParamSpec("new_classes", DataType.string, "{}"),
             ParamSpec("top", DataType.integer, 0)]
        ),
    )  # fmt: skip
