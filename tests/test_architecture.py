"""Imports flow one way, heavy libraries stay behind their fences, and the command starts light."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from conftest import ROOT

PACKAGE = ROOT / "zsl"
# What each package or file of zsl may import of the others.
GROUND = {"errors", "text", "checks", "device", "linalg", "graph", "config", "progress", "version", "system"}
METHOD = {"sparse", "data", "models", "inference", "evaluation", "model_selection"}
MAY_IMPORT = {
    "errors": set(),
    "text": set(),
    "progress": set(),
    "version": set(),
    "system": {"errors"},
    "completion": {"errors", "config"},
    "checks": {"errors"},
    "device": {"checks", "errors"},
    "linalg": {"checks"},
    "graph": {"checks", "device", "linalg"},
    "config": {"errors", "text", "checks"},
    "runs": GROUND,
    "sparse": GROUND,
    "evaluation": GROUND,
    "data": GROUND | {"sparse"},
    "models": GROUND | {"sparse"},
    "inference": GROUND | {"sparse"},
    "model_selection": GROUND | {"data", "evaluation", "inference"},
    "classifier": GROUND | METHOD | {"runs"},
    "experiment": GROUND | METHOD | {"classifier", "runs", "report", "costs"},
    "tracking": {"errors", "checks", "config", "system", "runs", "version"},
    "extract": GROUND | {"data"},
    "describe": GROUND | {"data", "extract"},
    "predict": GROUND | {"data", "classifier", "runs", "extract"},
    "ask": GROUND | METHOD | {"classifier", "experiment", "extract", "predict", "report", "runs"},
    "tryout": GROUND | METHOD | {"classifier", "describe", "experiment", "extract", "runs"},
    "theory": GROUND | METHOD,
    "report": GROUND | METHOD | {"extract", "runs", "theory"},
    # What a run costs is ground for both: the command estimates with it, and the benchmark tests it.
    "costs": GROUND | METHOD,
    "bench": GROUND | METHOD | {"report", "costs"},
    "main": {"errors", "config", "experiment"},
    "__main__": {"errors", "completion", "version"},
    "__init__": {"classifier", "config", "data", "errors", "experiment", "models"},
}
# Third-party packages and the only places that may import them.
FENCES = {
    "mlflow": {"tracking", "predict"},
    "matplotlib": {"report"},
    "plotly": {"report"},
    "torch": {"extract", "models", "describe", "sparse", "device"},
    "onnxruntime": {"extract"},
    "torchvision": {"extract"},
    "timm": {"extract"},
    "open_clip": {"extract"},
    "transformers": {"extract", "describe"},
    "sentence_transformers": {"describe"},
    "huggingface_hub": {"extract"},
    "safetensors": {"extract"},
    "spams": {"bench"},
    "hydra": {"config", "main", "experiment"},
    "optuna": {"experiment"},
    "numba": {"sparse", "bench"},
    "h5py": {"data"},
    "pynndescent": {"graph"},
    "pooch": {"data"},
    "dask": {"sparse", "data", "experiment"},
    "distributed": {"sparse", "experiment"},
    "zarr": {"data", "extract"},
    "skops": {"runs"},
    "starlette": {"predict"},
    "uvicorn": {"predict", "tracking"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def place(path):
    """The first name under zsl: the package or the file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def dotted(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """Names imported anywhere in a file, except for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # "from zsl.data import splits" names a file as well as a package.
            yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names if node.module.split(".")[0] == "zsl")


def test_imports_flow_one_way():
    for path in MODULES:
        here = place(path)
        assert here in MAY_IMPORT, f"zsl/{here} is not in MAY_IMPORT yet: say there where it stands"
        for name in imports(path):
            top, _, rest = name.partition(".")
            there = rest.split(".")[0]
            if top == "zsl" and there in MAY_IMPORT:
                assert there == here or there in MAY_IMPORT[here], f"{dotted(path)} may not import {name}"
            assert here in FENCES.get(top, {here}), f"only {FENCES[top]} may import {top}, not {dotted(path)}"


def test_packages_can_be_put_in_an_order():
    left, placed = dict(MAY_IMPORT), set()
    while left:
        ready = {name for name, needs in left.items() if needs <= placed}
        assert ready, f"a circle among {sorted(left)}"
        placed |= ready
        left = {name: needs for name, needs in left.items() if name not in ready}


def test_no_circle_between_files():
    """Imports inside functions count too."""
    files = {dotted(p): p for p in MODULES}
    graph = {}
    for name, path in files.items():
        found = {f for f in imports(path) if f in files and f != name}
        # "from zsl.data import splits" means the file, not the package that holds it.
        graph[name] = {f for f in found if not any(g.startswith(f + ".") for g in found)} - {"zsl"}
    done, active = set(), []

    def visit(name):
        assert name not in active, f"a circle: {' -> '.join([*active[active.index(name) :], name])}"
        if name in done:
            return
        active.append(name)
        for other in sorted(graph[name]):
            visit(other)
        active.pop()
        done.add(name)

    for name in files:
        visit(name)


def test_files_are_short():
    lengths = {dotted(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: n for name, n in lengths.items() if n > 350} == {}


def test_only_the_agreed_top_level_names():
    import zsl

    assert set(zsl.__all__) == {
        "AveragedDictionaries", "CoupledDictionaries", "UserError", "ZeroShotClassifier", "ZeroShotData", "__version__",
        "compose", "load_dataset", "run",
    }  # fmt: skip
    for name in (*zsl.__all__, "sparse", "models", "inference", "data", "evaluation", "model_selection"):
        assert getattr(zsl, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        zsl.nonsense  # noqa: B018


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job"]])
def test_command_answers_without_heavy_imports(arguments, tmp_path):
    # A limit in seconds would fail on a busy machine; what takes the seconds is named instead.
    code = (
        "import sys, zsl.main\n"
        "sys.argv = ['zsl', *sys.argv[1:]]\n"
        "try:\n    zsl.main.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'mlflow', 'sklearn', 'pandas', 'numba', 'matplotlib', 'scipy', 'numpy', 'pydantic', 'rich'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert out.stdout.splitlines()[-1] == "heavy: []"
    assert "coupled" in out.stdout


def test_no_absolute_path_or_unpickling():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        for word in ("/root/", "/work/", "allow_pickle=True", "import pickle"):
            # numba's cache of compiled kernels and CIFAR's archives consist of pickles, see SECURITY.md.
            allowed = word == "import pickle" and dotted(path) in ("zsl.sparse.kernels.compiled", "zsl.data.cifar")
            assert allowed or word not in text, f"{dotted(path)} holds {word}"
