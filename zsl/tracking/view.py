"""Which runs and which columns MLflow's page of runs shows at first."""

from __future__ import annotations

import json

KEY = "zsl"
TAG = f"mlflow.sharedViewState.{KEY}"
_METRICS = ("acc_class", "hit_1", "gzsl_h")
_SETTINGS = ("model.name", "inference.attributes", "inference.labels", "dataset.name", "feature.name", "split.name",
             "split.seed", "seed", "tune.name")  # fmt: skip


def experiment_tags() -> dict[str, str]:
    """Tags of an experiment that make MLflow show metrics and settings.

    No public call of MLflow sets the columns of its page, and without them the page has neither a metric nor a setting.
    MLflow keeps a view that a user shares in a tag of the experiment, and an address that ends in
    ``viewStateShareKey=zsl`` opens it; this function writes such a view.
    """
    columns = [*(f"metrics.`{name}`" for name in _METRICS), *(f"params.`{name}`" for name in _SETTINGS)]
    view = {
        "selectedColumns": columns,
        "columnOrder": ["attributes.`Run Name`", *columns],
        "columnWidths": {"attributes.`Run Name`": 300, **dict.fromkeys(columns, 100)},
        # The run of a sweep has neither settings nor metrics, and its row would hide those of its jobs.
        "searchFilter": "tags.`zsl.kind` = 'run'",
        "orderByKey": "params.`dataset.name`",
        "orderByAsc": True,
    }
    # The kind of experiment keeps MLflow from opening its page for language models first.
    return {"mlflow.experimentKind": "custom_model_development", TAG: json.dumps(view)}
