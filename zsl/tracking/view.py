"""What MLflow's page of runs shows at first: its columns, and the sweeps whose jobs are listed below them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zsl.tracking.about import grouped

# The kind of experiment keeps MLflow from opening its page for language models first.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
_METRICS = ("acc_class", "gzsl_h")
_SETTINGS = ("model.name", "dataset.name", "split.name", "seed")
# Where the value of a group is among the settings, unless it is in the key "name".
_OF_A_GROUP = {"inference": ("inference.attributes", "inference.labels"), "solver": ("model.solver.solver",)}
# More columns than this would be out of sight.
_MOST = 6
# MLflow keeps the state of its page in the browser under this name, in version 3.17.
_STORED_AS = 'MLflowLocalStorage-1.1-ExperimentPage-["%s"]-ReactComponentState'

# What else the browser keeps, at the first visit: the menu for training models, and no assistant beside the table.
_OF_ALL_PAGES = {"mlflow.workflowType_v1": "machine_learning", "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True}

_SCRIPT = """<script>
for (const [key, given] of Object.entries(STATES)) try {
  const old = JSON.parse(localStorage.getItem(key) || "{}"), mark = key + "-zsl";
  const {runsExpanded, ...columns} = given, version = JSON.stringify(columns);
  const fresh = localStorage.getItem(mark) === version ? {} : columns;
  localStorage.setItem(key, JSON.stringify({...old, ...fresh, runsExpanded: {...runsExpanded, ...old.runsExpanded}}));
  localStorage.setItem(mark, version);
  for (const [name, value] of Object.entries(OTHERS))
    if (localStorage.getItem(name) === null) localStorage.setItem(name, value);
} catch (error) { console.warn("zsl could not set the columns", error); }
</script>"""


def state(swept: Sequence[str], params: Iterable[str], metrics: Iterable[str], sweeps: Iterable[str]) -> dict[str, Any]:
    """The state of the page: metrics first, then what sweeps vary, then what identifies a run; sweeps are unfolded.

    The page keeps MLflow's order, the latest run first, because in any other order it does not list jobs below their
    sweep; and who has just run something looks for that.

    Parameters
    ----------
    swept : sequence of str
        Keys that sweeps vary, the latest first; groups count.
    params, metrics : iterable of str
        The names that runs in the store have.
    sweeps : iterable of str
        The ids of the runs of sweeps.

    Examples
    --------
    >>> found = state(["model.lam", "model"], ["model.lam", "model.name", "seed"], ["accuracy/acc_class"], ["ab"])
    >>> found["selectedColumns"]
    ['metrics.`accuracy/acc_class`', 'params.`model.lam`', 'params.`model.name`', 'params.`seed`']
    """
    there, measured = set(params), set(metrics)
    varied = {k: None for key in swept for k in (key, f"{key}.name", *_OF_A_GROUP.get(key, ())) if k in there}
    settings = [k for k in (*list(varied)[:_MOST], *_SETTINGS) if k in there]
    columns = [f"metrics.`{name}`" for name in map(grouped, _METRICS) if name in measured]
    columns += [f"params.`{name}`" for name in dict.fromkeys(settings)]
    return {
        "selectedColumns": columns,
        "columnOrder": ["attributes.`Run Name`", *columns],
        "columnWidths": {"attributes.`Run Name`": 300, **{c: _width(c) for c in columns}},
        "runsExpanded": dict.fromkeys(sweeps, True),
    }


def _width(column: str) -> int:
    """The width in pixels at which the heading of a column, and a number of six digits, can be read."""
    return max(80, 7 * len(column.partition(".")[2]) + 20)


def script(states: Mapping[str, Mapping[str, Any]]) -> str:
    """A script for the head of MLflow's page that gives a browser the state of each experiment, by its id.

    MLflow's own way to set columns, a shared view, shows a banner about it and drops what the user changes. What the
    user changes stays here, until a sweep varies other keys.
    """
    about = {_STORED_AS % number: found for number, found in states.items()}
    pages = {name: json.dumps(value) for name, value in _OF_ALL_PAGES.items()}
    out = _SCRIPT
    for word, part in (("OTHERS", pages), ("STATES", about)):
        out = out.replace(word, json.dumps(part).replace("<", "\\u003c"))
    return out
