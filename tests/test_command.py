"""The command line: what Hydra cannot read is put right, and mistakes end in one sentence."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from hydra.errors import ConfigCompositionException, MissingConfigException
from hypothesis import given
from hypothesis import strategies as st

from commands import start, wait_for, zsl
from conftest import ROOT
from zsl import compose
from zsl.config import check_flags, explain, groups, normalise_argv, options, quote_options
from zsl.errors import UserError

# --- what Hydra cannot read ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dataset=sun|split=645_72|-m|model.lam=0.01,0.1", "-m|dataset=sun|split='645_72'|model.lam=0.01,0.1"),
        ("a=1|--cfg|job|b=2", "--cfg|job|a=1|b=2"),
        ("a=1|--config-dir|conf dir|b=2|--multirun", "--config-dir|conf dir|--multirun|a=1|b=2"),
        ("--info|a=1", "--info|a=1"),
        ("--info|plugins|a=1", "--info|plugins|a=1"),
        ("-m|--|split=1_0", "-m|split='1_0'"),
        ("split=645_72,707_10", "split='645_72','707_10'"),
        ("split=choice(645_72, random)", "split='645_72',random"),
        ("split=glob(6*)", "split='645_72'"),
        ("split='645_72'", "split='645_72'"),
        ("experiment=null|~tune|model.n_atoms=64|seed=0,1", "experiment=null|~tune|model.n_atoms=64|seed=0,1"),
        ("split@x.split=645_72|+split=1", "split@x.split='645_72'|+split='1'"),
        ("feature.name='a=b,c'", "feature.name='a=b,c'"),
        ("model=mine|model.width=1,2|-m", "-m|model=mine|++model.width=1,2"),
        ("model=coupled,mine|model.width=1|inference.a.b=1", "model=coupled,mine|++model.width=1|inference.a.b=1"),
        (
            "inference=mine|inference.mine.power=2|inference.fallback=true",
            "inference=mine|++inference.mine.power=2|inference.fallback=true",
        ),
        ("inference.labels=my.rule|inference.rule.power=2", "inference.labels=my.rule|++inference.rule.power=2"),
        (
            "solver=admm|solver.n=1|model=choice(eszsl,sae)|model.lam=1",
            "solver=admm|solver.n=1|model=eszsl,sae|model.lam=1",
        ),
    ],
)
def test_argv(words, expected):
    assert normalise_argv(words.split("|")) == expected.split("|")


FLAGS = [["-m"], ["--cfg", "job"], ["--cfg"], ["--config-dir", "a=b"]]
OVERRIDES = ["split=645_72", "split=645_72,x", "split=choice(1_0,2)", "model.lam=0.1", "seed=1", "~tune"]


@given(st.lists(st.sampled_from([*FLAGS, *([o] for o in OVERRIDES)]), max_size=6))
def test_argv_is_idempotent_and_keeps_the_order_of_overrides(parts):
    argv = [token for part in parts for token in part]
    once = normalise_argv(argv)
    assert normalise_argv(once) == once
    assert len(once) == len(argv)
    # The order decides which of two overrides wins.
    kept = [quote_options(part[0]) for part in parts if part not in FLAGS]
    assert once[len(once) - len(kept) :] == kept


def test_glob_that_matches_nothing():
    with pytest.raises(UserError, match=r"split=glob\(q\*\) matches nothing; split has: 150_50"):
        normalise_argv(["split=glob(q*)"])


def test_each_dataset_names_its_defaults_and_the_command_wins():
    assert compose(["dataset=sun"]).split.name == "645_72"
    assert compose(["dataset=awa2"]).feature.name == "resnet101"
    cfg = compose(["dataset=sun", "split=707_10", "feature=vgg19", "model.lam=0.01"])
    assert (cfg.split.name, cfg.feature.name, cfg.model.lam) == ("707_10", "vgg19", 0.01)
    assert compose(["seed=3", "split=random"]).split.seed == 3


def test_registry_is_the_folder():
    assert {"dataset", "feature", "split", "model", "solver", "inference", "tune", "tracking", "experiment"} == set(
        groups()
    )
    assert "645_72" in options("split")


# --- mistakes ---------------------------------------------------------------------------------------------------


MISTAKES = [
    (["model.lamb=3"], r"model.lamb does not exist \(did you mean lam\?\); model has: .*lam_relative"),
    (["modl.lam=3"], r"modl does not exist \(did you mean model\?\)"),
    (["modl=coupled"], r"modl does not exist \(did you mean model\?\)"),
    (["model=copled"], r"model=copled does not exist \(did you mean coupled\?\); model has: .*coupled"),
    (["feature=lite9"], r"feature=lite9 does not exist.*feature has: .*resnet101.*feature\.name=NAME"),
    (["feature=null"], r"feature=null chooses nothing; feature has: .*resnet101"),
    (["dataset.root"], r"cannot read the override 'dataset.root'; write KEY=VALUE"),
]


@pytest.mark.parametrize(("overrides", "message"), MISTAKES)
def test_mistakes_in_the_configuration(overrides, message):
    with pytest.raises(UserError, match=message) as caught:
        compose(overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.lamb=3"], "did you mean lam?"),
        (["model.lam=abc"], "model.lam='abc' is not accepted"),
        (["-m", "modl.lam=3,4"], "did you mean model?"),
        (["--multirnu", "model.lam=1,2"], "did you mean --multirun?"),
        (["dataset=synthetic", "output_dir=file"], "set output_dir=FOLDER to another"),
        (["dataset=synthetic", "tracking=none", "inference=aag", f"model.n_atoms={10**12}"], "not enough memory"),
        (["dataset=synthetic", "tracking=none", "inference=aag", f"model.n_atoms={10**30}"], "not enough memory"),
    ],
)
def test_a_mistake_ends_in_one_sentence(tmp_path, arguments, words):
    (tmp_path / "file").write_text("a file where a folder should be")
    done = zsl(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.err.strip().splitlines()
    assert words in line
    assert "Traceback" not in done.out
    assert (tmp_path / "file").read_text() == "a file where a folder should be"


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_job_that_no_memory_holds(tmp_path):
    quick = ("dataset=synthetic", "tracking=none", "inference=aag", "model.n_iter=1")
    done = zsl(*quick, "-m", f"model.n_atoms={10**12},20", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 finished, 1 failed" in done.err
    assert "make model.n_atoms or model.batch_size smaller" in done.out


@pytest.mark.slow
def test_traceback_on_request_and_one_line_after_ctrl_c(tmp_path):
    """Both need a process of their own."""
    bad = start("model.lam=abc", cwd=tmp_path, HYDRA_FULL_ERROR="1")
    command = [sys.executable, "-m", "zsl.main", "model.n_iter=100000", "tracking=none"]
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that starts the tests in the background has them ignore the signal, and their children with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        _, errors = bad.communicate(timeout=60)
        assert bad.returncode == 1
        assert "Traceback" in errors
        assert "UserError: model.lam='abc'" in errors
        # Modules may lose an interruption while they are imported; it fits once there is a status.
        wait_for(lambda: list(tmp_path.glob("multirun/2*/*/status.json")), run)
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130, errors
    assert errors.strip().splitlines() == ["zsl: interrupted; finished runs are complete in their folders."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--multrun"], "there is no flag --multrun (did you mean --multirun?); --help shows what there is."),
        (["dataset=digits", "-x"], "there is no flag -x"),
        (["--multi"], "did you mean --multirun?"),
        (["--cfg", "jobs"], "--cfg jobs does not exist (did you mean job?); it may be: job, hydra, all."),
        (["--cfg=jobs"], "--cfg jobs does not exist"),
        (["--cfg"], "--cfg needs a value; it may be: job, hydra, all."),
        (["-c", "dataset=digits"], "-c needs a value"),
        (["--config-dir", "-m"], "--config-dir needs a value."),
        (["--multirun=yes"], "--multirun takes no value"),
        (["--info", "plugin"], "--info plugin does not exist (did you mean plugins?)"),
    ],
)
def test_a_mistyped_flag_ends_in_one_sentence(arguments, message):
    with pytest.raises(UserError) as caught:
        check_flags(arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "a=-1", "--", "--not-a-flag"], ["--cfg", "job", "--resolve"], ["--cfg=all"], ["--info"], ["-i", "a=1"],
        ["--info", "config"], ["--config-dir", "a=b", "-h"], ["--experimental-rerun", "x.pickle"], ["a=1", "~tune"],
    ],
)  # fmt: skip
def test_flags_that_hydra_knows_pass(arguments):
    check_flags(arguments)


def test_known_flags_are_those_of_hydra():
    from hydra._internal.utils import get_args_parser

    from zsl.config.argv import _FLAGS, _WORDS, VALUE_FLAGS

    actions = [a for a in get_args_parser()._actions if a.option_strings]
    assert {name for a in actions for name in a.option_strings} | {"--estimate"} == _FLAGS  # one flag is zsl's own
    assert {name for a in actions for name in a.option_strings if a.nargs != 0} == VALUE_FLAGS
    assert {name: tuple(a.choices) for a in actions for name in a.option_strings if a.choices} == _WORDS


def test_a_key_that_one_option_of_a_sweep_lacks():
    error = ConfigCompositionException("Could not override 'model.n_iter'.")
    sentence = explain(error, ["-m", "model=coupled,eszsl", "model.n_iter=1"])
    assert sentence.startswith("model.n_iter does not exist; model=eszsl has: gamma, lam, name, y_negative")


def test_a_launcher_that_is_not_installed_is_named():
    for name, extra in (("joblib", "parallel"), ("submitit_slurm", "slurm")):
        error = MissingConfigException("no", missing_cfg_file=f"hydra/launcher/{name}", options=["basic"])
        assert f"pip install -e '.[{extra}]'" in explain(error, [])


@pytest.mark.parametrize("value", ["smoke,digits_splits", "glob(*)", "choice(smoke,digits_splits)"])
def test_a_swept_experiment_is_refused_with_the_reason(value):
    with pytest.raises(UserError, match="run one experiment at a time"):
        normalise_argv(["-m", f"experiment={value}"])


# --- the documented line and the other commands ------------------------------------------------------------------


@pytest.mark.slow
def test_the_sweep_line_on_a_folder_in_the_shape_of_sun(tmp_path, shared):
    """`zsl run dataset=sun split=645_72 -m model.lam=0.01,0.1`, as documented, with SUN's own table."""
    from scipy.io import loadmat, savemat

    root = tmp_path / "data" / "SUN"
    root.mkdir(parents=True)
    shutil.copy(shared / "xlsa17" / "SUN" / "att_splits.mat", root)
    table = loadmat(root / "att_splits.mat")
    # Locations say how many images there are, not which class they show: 20 each, and whole classes are unseen.
    unseen_rows = table["test_unseen_loc"].ravel().astype(int) - 1
    labels = np.empty(14340, dtype=int)
    seen_rows = np.setdiff1d(np.arange(14340), unseen_rows)
    labels[unseen_rows] = np.arange(len(unseen_rows)) % 72
    labels[seen_rows] = 72 + np.arange(len(seen_rows)) % 645
    features = np.random.default_rng(0).random((12, 14340), dtype=np.float32)
    savemat(root / "res101.mat", {"features": features, "labels": (labels + 1)[:, None].astype(float)})

    out = zsl("dataset=sun", "split=645_72", "-m", "model.lam=0.01,0.1", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    records = [json.loads(p.read_text()) for p in sorted(tmp_path.glob("multirun/2*/*/*/results.json"))]
    assert [r["key"]["model"]["lam"] for r in records] == [0.01, 0.1]
    assert all(r["key"]["split"]["name"] == "645_72" and len(r["per_class"]) == 72 for r in records)
    with sqlite3.connect(tmp_path / "multirun" / "mlflow.db") as db:
        rows = db.execute("select e.name, r.status from runs r join experiments e using (experiment_id)").fetchall()
    assert rows == [("zsl", "FINISHED")] * 3  # both, and the sweep above them


# Where each command does its work, and arguments that lead there.
COMMANDS = {
    "zsl.predict.__main__": ("zsl.predict.__main__.ZeroShotClassifier.load", [__file__, "images"]),
    "zsl.tracking.__main__": ("zsl.tracking.maintain.repair", ["repair", "."]),
    "zsl.extract.__main__": ("zsl.extract.__main__.find_images", ["."]),
    "zsl.data.__main__": ("zsl.data.__main__._list", ["list"]),
    "zsl.describe.__main__": ("zsl.describe.__main__._work", ["classes.yaml"]),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 9. TiB"), PermissionError(13, "denied", "a.npz")])
def test_every_command_says_what_the_machine_refuses(command, error, monkeypatch, capsys, tmp_path):
    def refuses(*_, **__):
        raise error

    monkeypatch.chdir(tmp_path)
    name, arguments = COMMANDS[command]
    main = importlib.import_module(command).main
    monkeypatch.setattr(name, refuses)
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ("not enough memory (Unable to allocate 9. TiB)" if isinstance(error, MemoryError) else "a.npz") in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["uplod"], "invalid choice: 'uplod'"),
        (["repair", "nowhere"], "nowhere is not a folder"),
        (["upload", "--every"], "unrecognized arguments: --every"),
    ],
)
def test_mistakes_of_the_tracking_command_end_in_one_sentence(arguments, message, capsys):
    assert importlib.import_module("zsl.tracking.__main__").main(arguments) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_zsl_passes_its_arguments_on(monkeypatch, capsys):
    from zsl import __main__, __version__

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["zsl", *arguments])
        try:
            __main__.main()
        except SystemExit as ended:
            return ended.code
        return 0

    assert call("--version") == 0
    assert __version__ in capsys.readouterr().out
    assert call("--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in __main__.COMMANDS)
    assert call("traking") == 1
    assert "did you mean tracking?" in capsys.readouterr().err
    assert call("tracking", "repair", "nowhere") == 1
    assert "nowhere is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "sentence"), [
    ("model=eszls", "model=eszls does not exist (did you mean eszsl?); model has: "),
    ("experiment=table0", "experiment=table0 is now experiment=table1, because"),
    ("tracking.model=false", "tracking.model is now tracking.artifacts=all, light or none;"),
])  # fmt: skip
def test_an_option_that_does_not_exist_is_no_file_that_cannot_be_used(word, sentence, tmp_path):
    out = zsl(word, cwd=tmp_path)
    assert out.returncode == 1
    assert out.err.startswith(f"zsl: {sentence}")
    assert out.err.count("\n") == 1


@pytest.mark.parametrize("words", ["run --help", "run --cfg job", "data list", "data check digits"])
@pytest.mark.slow
def test_a_reader_of_a_pipe_may_stop_early(words, tmp_path):
    command = f"set -o pipefail; {sys.executable} -m zsl {words} | head -1"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (out.stderr, out.returncode) == ("", 0)
    assert len(out.stdout.splitlines()) == 1


def test_a_sweep_without_its_data_ends_before_the_first_job(tmp_path):
    done = zsl("experiment=table1", cwd=tmp_path)
    # SystemExit with a sentence, which the interpreter prints, and status 1.
    assert done.returncode.startswith("zsl: dataset=awa2 is not here")
    assert not list(tmp_path.rglob("status.json"))
