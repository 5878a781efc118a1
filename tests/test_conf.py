"""Every file under conf/ composes, builds, and has no key that nothing reads."""

from __future__ import annotations

import inspect
import re

import pytest
from omegaconf import OmegaConf

from zsl import compose
from zsl.config import conf_dir, options, resolve, without_package
from zsl.config.objects import build, locate
from zsl.config.registry import DESCRIPTIVE
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.experiment.setup import checked

ALL = [
    (g, o)
    for g in ("dataset", "feature", "split", "model", "solver", "inference", "tune", "tracking")
    for o in options(g)
]
# Read by zsl.experiment.setup rather than passed to the target.
FRAMEWORK = {"name", "semantics", "shuffle_attributes", "grid"}


@pytest.mark.parametrize(("group", "option"), ALL)
def test_option_composes_and_has_no_unused_key(group, option):
    node = resolve_option(group, option)[group]
    if "_target_" in node:
        parameters = inspect.signature(locate(node["_target_"], group, ())).parameters
        unused = set(node) - set(parameters) - set(DESCRIPTIVE) - FRAMEWORK
        assert not unused, f"conf/{group}/{option}.yaml: nothing reads {unused}"


def test_every_option_starts_with_a_comment_that_says_what_it_is():
    for group, option in ALL:
        first = (conf_dir() / group / f"{option}.yaml").read_text().splitlines()[0]
        assert first.startswith("# "), f"conf/{group}/{option}.yaml"


@pytest.mark.parametrize("solver", options("solver"))
@pytest.mark.slow
def test_solver_runs_the_pipeline(solver):
    if solver in without_package("solver"):
        pytest.skip("torch is not installed: pip install -e '.[torch]'")
    result = run(compose(["dataset=synthetic", f"solver={solver}", "model.n_iter=2", "inference=aag"]))
    assert result.metrics["acc_class"] > 0.5


@pytest.mark.parametrize("inference", [o for o in options("inference") if o != "own"])
def test_inference_runs_the_pipeline(inference):
    result = run(compose(["dataset=synthetic", f"inference={inference}", "model.n_iter=2"]))
    assert result.metrics[f"{result.prediction.chosen.name}/acc_class"] == result.metrics["acc_class"] > 0.5


@pytest.mark.parametrize("experiment", options("experiment"))
def test_experiment_composes(experiment):
    assert compose([f"experiment={experiment}"]).dataset.name


def test_smoke_names_every_solver():
    sweep = OmegaConf.load(conf_dir() / "experiment" / "smoke.yaml").hydra.sweeper.params
    # The experiment runs with the packages that every installation has.
    assert [*sweep.solver.split(","), "torch"] == options("solver")


def resolve_option(group, option):
    needs = {("dataset", "xlsa17"): ["dataset.root=here"]}
    return resolve(compose([f"{group}={option}", *needs.get((group, option), [])]))


def test_targets_outside_zsl_are_not_run():
    node = {"_target_": "os.system", "command": "true"}
    with pytest.raises(UserError, match=r"model._target_=os.system is outside zsl.*allow_targets=\[os\]"):
        build(node, "model")
    # zslx is not zsl.
    with pytest.raises(UserError, match="outside zsl"):
        build({"_target_": "zslx.y"}, "model")
    assert (
        build({"_target_": "fractions.Fraction", "numerator": 1, "denominator": 2}, "x", allow_targets=["fractions"])
        == 0.5
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("subset=3", "subset=3 is not accepted: it should be a group of settings"),
        ("evaluation=1", "evaluation=1 is not accepted: it should be a group of settings"),
        ("evaluation=null", "evaluation=None is not accepted: it should be a group of settings"),
        ("inference.spread=3", "inference.spread=3 is not accepted: it should be a group of settings"),
        ("~evaluation.calibrate", "evaluation.calibrate is missing; leave out ~evaluation.calibrate"),
        ("~tune", "tune is missing; choose one with tune=NAME"),
        ("allow_targets=1", "allow_targets=1 is not accepted: it should be a list, such as [a,b]"),
        ("output_dir=null", "output_dir=None is not accepted: it should be the path of a folder"),
        ("model.solver=3", "model.solver=3 is not accepted: it should be a function; choose with solver=NAME"),
    ],
)
def test_a_value_of_another_kind_than_the_default_is_refused(override, message):
    with pytest.raises(UserError, match=re.escape(message)):
        checked(compose(["dataset=synthetic", override]))


def test_build_says_which_key():
    target = "zsl.models.CoupledDictionaries"
    with pytest.raises(UserError, match=r"model.foo is not known to .*; it takes: n_atoms, lam,"):
        build({"_target_": target, "foo": 1}, "model")
    with pytest.raises(UserError, match=r"model.atoms='ball' is not accepted: it should be 'unit_ball' or 'ridge'"):
        build({"_target_": target, "atoms": "ball"}, "model")
    with pytest.raises(UserError, match=r"split\.path is needed"):
        build({"_target_": "zsl.data.splits.from_file"}, "split", table=None)
    with pytest.raises(UserError, match=r"cannot be imported"):
        build({"_target_": "fractions.Nothing"}, "model", allow_targets=["fractions"])
