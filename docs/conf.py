"""The documentation as a site: ``make docs``. It builds offline, and every warning is an error."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import zsl  # noqa: E402
from zsl.config import options  # noqa: E402
from zsl.config.manual import Key, group_titles, keys_of, title  # noqa: E402
from zsl.config.registry import conf_dir  # noqa: E402

project, author = "zsl", "the zsl team"
copyright = "2026, the zsl team"
version = release = zsl.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "furo"
html_title = f"zsl {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
templates_path = ["_templates"]
# Notebooks are shown with the outputs that they were saved with; a slow test executes them.
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def table(keys: tuple[Key, ...]) -> list[str]:
    """A Markdown table of keys."""
    lines = ["| key and default | meaning |", "| --- | --- |"]
    for key in keys:
        kind = f" *{cell(key.kind)}*" if key.kind else ""
        lines.append(f"| `{key.name}={cell(key.default)}` | {cell(key.meaning).replace('_', chr(92) + '_')}{kind} |")
    return [*lines, ""]


def write_keys() -> None:
    """The page of every configuration key, from the same source as ``zsl run --help``."""
    lines = [
        "# Every setting",
        "",
        "`zsl run --help` prints this page; `zsl run --help model=coupled` one section of it.",
        "",
    ]
    lines += ["## Outside the groups", "", *table(keys_of("", "config"))]
    for group, (default, what) in group_titles().items():
        lines += [f"## `{group}`", "", f"{what[:1].upper()}{what[1:]}.", ""]
        for option in options(group):
            mark = " (the default)" if option == default else ""
            lines += [f"### `{group}={option}`{mark}", "", title(conf_dir() / group / f"{option}.yaml"), ""]
            keys = keys_of(group, option)
            if group == "inference":
                # The settings of the rules are the same for every option.
                keys = tuple(k for k in keys if k.name.count(".") == 1)
            if group == "feature":
                keys = tuple(k for k in keys if k.name == "feature.name")
            if keys and group != "experiment":
                lines += table(keys)
        if group == "inference":
            lines += ["### Settings of the rules", ""]
            lines += table(tuple(k for k in keys_of(group, "auto") if k.name.count(".") == 2))
        if group == "feature":
            lines += ["### Pre-processing, the same for every feature", ""]
            lines += table(tuple(k for k in keys_of(group, "own") if k.name != "feature.name"))
    path = HERE / "_generated" / "settings.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_api() -> None:
    """The list of public functions and classes: what the packages export, so that none is missing."""
    packages = {
        "Estimators and data": ("zsl", ["ZeroShotClassifier", "load_dataset", "compose", "run"]),
        "Data": ("zsl.data", ["dataset.ZeroShotData", "table.ImageTable", "table.Split", "preprocess.Preprocess"]),
        "Choosing settings": ("zsl.model_selection", None),
        "Models": ("zsl.models", None),
        "Sparse coding": ("zsl.sparse", None),
        "Inference": ("zsl.inference", None),
        "Evaluation": ("zsl.evaluation", None),
        "Figures": ("zsl.report.figures", None),
    }
    lines = [
        "# Python reference",
        "",
        "Everything that is meant to be used from Python. Samples and atoms are rows: `X` (n, p) features,",
    ]
    lines += ["`y` labels, `Z` (n, q) attributes, `Dx` (r, p) and `Dz` (r, q) dictionaries.", "", "```{eval-rst}", ""]
    for heading, (package, names) in packages.items():
        module = importlib.import_module(package)
        names = names or sorted(getattr(module, "__all__", []), key=str.lower)
        lines += [heading, "-" * len(heading), "", f".. currentmodule:: {package}", ""]
        lines += [".. autosummary::", "   :toctree: api", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in names] + [""]
    (HERE / "_generated" / "api.md").write_text("\n".join([*lines, "```", ""]), encoding="utf-8")


write_keys()
write_api()


def skip(app: object, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip)  # type: ignore[attr-defined]
