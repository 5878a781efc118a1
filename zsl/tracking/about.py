"""What the store says of a run besides its settings: a description, the dataset, the code, and groups of metrics."""

from __future__ import annotations

import json
import re
from typing import Any

from zsl.runs import summary
from zsl.runs.result import Result

# MLflow's limit on the digest of a dataset.
_MAX_DIGEST = 36
_GROUPS = {
    "acc_class": "accuracy", "hit_": "accuracy", "tune_acc_class": "accuracy", "imbalanced_": "accuracy",
    "gzsl_": "generalized", "changed": "accuracy",
    "hubness_": "hubness", "shift_": "hubness", "temperature": "calibration", "nll": "calibration",
    "ece": "calibration", "expected_": "calibration",
    "aurc": "calibration", "objective": "fit", "lasso_gap_max": "fit", "time_": "cost",
    "peak_rss_mb": "cost", "labelled_images": "cost",
}  # fmt: skip


def grouped(metric: str) -> str:
    """The name of a metric in the store, which has its group before it; ``results.json`` has the plain name.

    MLflow draws the metrics of a group under one heading. Metrics of a stage are grouped by their stage already.

    Examples
    --------
    >>> grouped("acc_class"), grouped("time_fit_s"), grouped("taaw/acc_class")
    ('accuracy/acc_class', 'cost/time_fit_s', 'taaw/acc_class')
    """
    group = next((g for start, g in _GROUPS.items() if metric.startswith(start)), None)
    return metric if group is None or "/" in metric else f"{group}/{metric}"


def rounded(value: float) -> float:
    """A number to four digits, as the page shows it whole; ``results.json`` has them all.

    Examples
    --------
    >>> rounded(0.43624999), rounded(123456.0), rounded(1.23456e-9)
    (0.4362, 123456.0, 1.235e-09)
    """
    return float(f"{value:.4g}") if abs(value) < 1e4 else round(value, 0)


def description(result: Result) -> str:
    """What was run, under which protocol, and where its numbers and figures are explained, as text for a person."""
    key, n, found = result.key, result.sizes, result.metrics.get("acc_class")
    if not n:
        return ""  # by a version that did not record them
    scored = "" if found is None else f" with a class accuracy of {found:.3f} (guessing: {1 / n['unseen_classes']:.3f})"
    commit = result.versions.get("zsl-commit", "")
    code = (
        f" The code was commit {commit.rstrip('+')}{' with changes since' if '+' in commit else ''}." if commit else ""
    )
    return (
        f"The model {key['model']['name']} was trained on the dataset {key['dataset']['name']} (features "
        f"{key['feature']['name']}, split {key['split']['name']}, seed {key['seed']}): {summary.training(result)}. It "
        f"classified {n['test_images']} images of {n['unseen_classes']} unseen classes{scored}. "
        f"Protocol: {summary.protocol(key['information_used'])}. Settings: {summary.settings(key)}.\n\n"
        f"The metrics are explained in docs/metrics.md; figures are under Artifacts.{code}"
    )


def code_tags(commit: str) -> dict[str, str]:
    """MLflow's own tags for the program and its commit, which ends in ``+`` if files were changed since."""
    tags = {"mlflow.source.name": "zsl run", "mlflow.source.type": "LOCAL"}
    if commit:
        tags |= {"mlflow.source.git.commit": commit.rstrip("+"), "mlflow.source.git.dirty": str("+" in commit).lower()}
    return tags


def dataset(result: Result) -> Any:
    """The training data as MLflow's dataset: its name, digest, origin, shapes and counts, without the data."""
    import numpy as np
    from mlflow.data.schema import TensorDatasetSchema
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.types import Schema, TensorSpec

    of, n = result.key["dataset"], result.sizes
    schema = TensorDatasetSchema(
        Schema([TensorSpec(np.dtype(np.float64), (-1, n.get("features", -1)), "features"),
                TensorSpec(np.dtype(np.float64), (-1, n.get("attributes", -1)), "attributes of the class")]),
        Schema([TensorSpec(np.dtype(np.int64), (-1,), "class")]),
    )  # fmt: skip
    found = Dataset(
        name=re.sub(r"\s+", " ", str(of["name"])),
        digest=str(of["content"] or "unknown")[:_MAX_DIGEST],
        source_type="local",
        source=json.dumps({"uri": of["name"], **of["provenance"]}, default=str),
        schema=json.dumps(schema.to_dict()),
        profile=json.dumps({"num_rows": n.get("training_images"), **n, "split": result.key["split"]["name"]}),
    )
    return DatasetInput(found, [InputTag("mlflow.data.context", "training")])
