"""How MLflow's page of runs looks at first sight: which runs and which columns it has.

MLflow keeps a view that somebody shared in a tag of the experiment; an address that ends in ``viewStateShareKey=KEY``
opens it. The table without it has the columns created, data set, duration and source, and neither a metric nor a
setting.
"""

from __future__ import annotations

import json

KEY = "zsl"
TAG = f"mlflow.sharedViewState.{KEY}"
_METRICS = ("acc_class", "hit_1", "gzsl_h")
_SETTINGS = {
    "model.name": 110, "inference.attributes": 110, "inference.labels": 110, "dataset.name": 100, "feature.name": 110,
    "split.name": 90, "split.seed": 70, "seed": 60, "tune.name": 90,
}  # fmt: skip


def experiment_tags() -> dict[str, str]:
    """Tags of an experiment: not the page for language models first, and the view above."""
    widths = {
        "attributes.`Run Name`": 300,
        **{f"metrics.`{name}`": 85 for name in _METRICS},
        **{f"params.`{name}`": width for name, width in _SETTINGS.items()},
    }
    state = {
        "selectedColumns": list(widths)[1:],
        "columnOrder": list(widths),
        "columnWidths": widths,
        # Runs alone, for a sweep's own row has neither settings nor metrics and hides its jobs'; MLflow puts jobs below
        # it unless the table is sorted by something else than time. Of equals the newest comes first.
        "searchFilter": "tags.`zsl.kind` = 'run'",
        "orderByKey": "params.`dataset.name`",
        "orderByAsc": True,
    }
    return {
        "mlflow.experimentKind": "custom_model_development",
        TAG: json.dumps(state),
    }
