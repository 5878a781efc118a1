"""Running the cells of tables: which data is here, how many jobs, how long, what is refused before the first job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from threading import Barrier

import pytest

from report_records import fails, frame, record, refused
from zsl.config import n_values, without_package
from zsl.errors import UserError
from zsl.report import __main__ as command
from zsl.report import cells, filling
from zsl.report.filling import Progress, Task
from zsl.system import THREAD_VARIABLES


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The commands that would be started, on a machine without benchmarks."""
    monkeypatch.setenv("ZSL_DATA", str(tmp_path / "no"))
    ran = []
    monkeypatch.setattr(filling, "start", lambda arguments, **kwargs: ran.append(arguments) or 0)
    return ran


# --- what data is here --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_what_data_is_here_for_is_run(tmp_path, monkeypatch, started, capsys):
    read, load = [], filling.load_table
    monkeypatch.setattr(filling, "load_table", lambda *arguments: read.append(arguments) or load(*arguments))
    monkeypatch.setattr(command, "_make", lambda *_: None)
    command.main(["table2", str(tmp_path), "--run"])
    assert len(read) == 5  # each data once, whatever the number of methods
    assert {cells.value_of(words, "experiment") for words in started} == {"table2"}
    mine = [words for words in started if "dataset=digits" in words]
    assert len(mine) == 12
    assert all(f"output_dir={tmp_path}" in words for words in mine)
    said = capsys.readouterr().err.splitlines()
    assert sum("AwA1" in line for line in said) == 1  # one line for all methods
    assert "left out  AwA1: 12 cells without data: zsl data download awa1" in "\n".join(said)


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_what_comes_with_the_package_is_in_every_table(name):
    found = [one for one in cells.cells(name) if one.data in ("digits", "cifar_awa")]
    assert {one.data for one in found} == {"digits", "cifar_awa"}
    assert filling.lacking_data(found) == {}


@pytest.mark.parametrize("words", [["data=awa1"], ["data=awa1,digits"]])
def test_data_that_is_named_and_missing_is_refused_before_the_first_job(tmp_path, started, words):
    error = refused("table2", tmp_path, "--run", *words)
    assert not started
    assert "nothing is run, because data is missing. AwA1: 12 cells without data" in error


def test_compare_is_refused_before_the_first_job(tmp_path, started):
    error = refused("compare", tmp_path, "--run", "dataset=awa2", "feature=resnet101")
    assert not started
    assert "compare is not run, because its data is missing: dataset=awa2 is not here" in error


@pytest.mark.slow
def test_one_line_per_dataset_what_is_here_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ZSL_DATA", str(tmp_path))
    (tmp_path / "SUN").mkdir()
    found = [one for one in cells.cells("table1") if one.data != "cifar_awa"]
    lines = filling.advice("table1", found, filling.lacking_data(found))
    assert [line.partition(":")[0] for line in lines] == [
        "digits", "SUN 645/72, SUN 645/72 (standard), SUN 707/10", "AwA1", "AwA2", "CUB",
    ]  # fmt: skip
    assert lines[0] == "digits: 1 cell to run: zsl report table1 --run data=digits"
    # xlsa17.zip has one feature; the line does not promise the others from it.
    awa1, awa2 = lines[2:4]
    assert "ResNet101 features; 880 MB) from https://" in awa2
    assert "feature=vgg19 is made by zsl extract IMAGES --to FOLDER/vgg19.npz --network vgg19, likewise" in awa2
    assert "zsl data download awa1 --form vgg19 says where" in awa1
    assert "zsl.extract" not in awa1  # its images are not distributed any more


def test_the_screen_shows_what_there_is_and_the_files_everything(tmp_path, capsys):
    found = [record("abc", s, experiment="table2", cell="digits/eszsl") for s in (0, 1)]
    from zsl.report import formats, tables

    table = tables.methods("table2", frame(found))
    formats.show(table, ["CUB: here is how"])
    screen = capsys.readouterr().out
    assert "ESZSL" in screen
    assert "digits" in screen
    assert not any(word in screen for word in ("missing", "SAE", "CUB paper", "[c]", "Missing cells"))
    assert screen.endswith("CUB: here is how\n")
    text = formats.markdown(table)
    assert all(word in text for word in ("missing", "SAE", "CUB paper [b]", "[c] Which ten", "Missing cells"))
    formats.show(tables.methods("table2", frame([])))
    assert capsys.readouterr().out.count("\n") == 1


# --- jobs and their time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("override", "n"), [
    ("seed=range(10)", 10), ("seed=3", 1), ("model.lam=0.1,0.2", 2), ("split=glob(6*)", 1),
    ("model=choice(eszsl,sae)", 2), ("split.seed=range(1)", 1),
])  # fmt: skip
def test_values_are_counted(override, n):
    assert n_values(override) == n


def test_jobs_are_counted_as_hydra_makes_them():
    found = {(one.experiment, one.id): one for name in ("table1", "table2", "sensitivity") for one in cells.cells(name)}
    n = lambda *name: cells.n_jobs(cells.arguments_of(found[name]))  # noqa: E731
    assert n("table1", "digits") == 20
    assert n("table1", "awa1/vgg19") == 10  # the seeds of the experiment's file
    assert n("table1", "cub/vgg19") == n("table2", "cub/coupled") == 40  # ten on each of four folds
    assert n("table2", "cub/eszsl") == 4
    assert n("sensitivity", "digits/coupled/inference.aware.rho") == 50


A, B, C = Task("a", (), 10, "x"), Task("b", (), 4, "x"), Task("c", (), 2, "y")


def test_no_time_is_named_before_one_was_measured():
    assert Progress([A, B]).left() == ""
    assert str(Progress([A, B])) == "job 1 of 14"


def test_the_time_left_is_what_jobs_of_the_same_kind_took():
    progress = Progress([A, B, C], {A: 3}, measured={A: [60.0, 120.0, 120.0]})
    # 7 of A and 4 of B, on the same data, and 2 of C, of which nothing is known: all at 100 s.
    assert str(progress) == "job 4 of 16, about 22 minutes left if the other jobs are like those so far"
    progress = Progress([A, replace(B, seconds=600.0)], {A: 3}, measured={A: [60.0, 120.0, 120.0]})
    assert progress.left() == "about 52 minutes left"  # 7 at 100 s and 4 at 600 s, all measured
    assert replace(progress, at_once=2).left() == "about 26 minutes left"
    # C is on other data than A; B's time is nearer to its own kind's than the mean of all.
    progress = Progress([A, B, replace(C, seconds=1.0)], {A: 10}, measured={A: [300.0]})
    assert progress.seconds(B) == (300.0, False)


def test_a_task_that_ends_leaves_no_time():
    assert Progress([A], {A: 10}, measured={A: [500.0]}).left() == "about 1 second left"


def test_jobs_that_have_a_result_take_no_time():
    progress = Progress([replace(A, n_done=10), replace(B, seconds=600.0, n_done=1)])
    assert progress.left() == "about 30 minutes left"
    assert Progress([replace(A, n_done=10)]).left() == "about 1 second left"


def test_times_of_earlier_records_are_used():
    found = [one for one in cells.cells("table2") if one.data == "digits"]
    slow = {"time_fit_s": 50.0, "time_tune_s": 100.0, "time_infer_s": None}
    earlier = frame([record(seed=s, experiment="table2", cell="digits/sae", metrics=slow) for s in (0, 1)])
    known = {task.title: task.seconds for task in filling.tasks_of(found, earlier)}
    assert known["table2 digits/sae"] == 150.0
    assert known["table2 digits/eszsl"] is None
    assert {task.n_done for task in filling.tasks_of(found, earlier)} == {0, 2}


@pytest.mark.slow
def test_progress_is_read_from_the_sweep(tmp_path, capsys):
    words = ("dataset=synthetic", "model=eszsl", "tracking=none", "save_model=false", "hydra.mode=MULTIRUN",
             f"hydra.sweep.dir={tmp_path}/sweep", "seed=range(3)", f"output_dir={tmp_path}")  # fmt: skip
    task = Task("a", words, 3, "x")
    progress = Progress([task])
    assert filling.start(words, quiet=True, progress=progress, task=task, folder=tmp_path) == 0
    assert progress.ended[task] == 3
    assert len(progress.measured[task]) == 3
    assert not list(tmp_path.rglob("model.skops"))


def test_kinds_run_at_the_same_time_and_tasks_of_one_kind_in_turn(tmp_path, monkeypatch):
    both, order = Barrier(2, timeout=30), []

    def started(arguments, **kwargs):
        order.append(arguments[0])
        if arguments[0] in ("x1", "y1"):
            both.wait()  # passes only if the first tasks of both kinds run together
        return int(arguments[0] == "y2")

    monkeypatch.setattr(filling, "start", started)
    tasks = [Task(name, (name,), 1, name[0]) for name in ("x1", "x2", "y1", "y2")]
    assert filling.fill(tasks, tmp_path, at_once=2) == ["zsl run y2"]
    assert [name for name in order if name[0] == "x"] == ["x1", "x2"]
    assert [name for name in order if name[0] == "y"] == ["y1", "y2"]


@pytest.mark.parametrize(("at_once", "threads"), [(1, "4"), (2, "2"), (3, "1")])
def test_processes_at_the_same_time_share_the_cores(tmp_path, monkeypatch, at_once, threads):
    given = []

    class Process:
        pid, returncode = 0, 0

        def __init__(self, command, *, env, **kwargs):
            given.append({name: env[name] for name in THREAD_VARIABLES})

        def wait(self, timeout=None):
            return 0

        kill = wait

    monkeypatch.setattr(filling, "usable_cores", lambda: 4)
    monkeypatch.setattr(filling.subprocess, "Popen", Process)
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert filling.fill([Task(k, (k,), 1, k) for k in "xyz"], tmp_path, at_once=at_once) == []
    assert given == [dict.fromkeys(THREAD_VARIABLES, threads)] * 3


@pytest.mark.slow
def test_sigterm_ends_the_runs_too(tmp_path):
    words = ["compare", "--run", "stage=quick", "data=cifar_awa", "model=cmt", f"output_dir={tmp_path}"]
    report = subprocess.Popen([sys.executable, "-m", "zsl.report", *words], stderr=subprocess.DEVNULL)
    while not (sweeps := [*tmp_path.rglob("sweep.json")]) or "pid" not in json.loads(sweeps[0].read_text())["process"]:
        assert report.poll() is None
        time.sleep(0.1)
    pid = json.loads(sweeps[0].read_text())["process"]["pid"]
    report.send_signal(signal.SIGTERM)
    assert report.wait(timeout=60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_after_an_interruption_no_other_task_starts(tmp_path, monkeypatch):
    order = []

    def started(arguments, **kwargs):
        order.append(arguments[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(filling, "start", started)
    with pytest.raises(KeyboardInterrupt):
        filling.fill([Task(name, (name,), 1, name[0]) for name in ("x1", "x2", "y1", "y2")], tmp_path, at_once=2)
    assert sorted(order) in (["x1"], ["x1", "y1"])


def test_how_many_jobs_is_said_before_the_first(tmp_path, started, monkeypatch, capsys):
    monkeypatch.setattr(command, "_make", lambda *_: None)
    command.main(["table1", "--run", "data=digits", f"output_dir={tmp_path}"])
    said = capsys.readouterr().err
    assert said.startswith("20 jobs; how long they take is said after the first of them.")


def test_tables_runs_all_of_them_and_compare(tmp_path, started, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(command, "_make", lambda name, *_: made.append(name))
    command.main(["tables", "--run", "data=digits", f"output_dir={tmp_path}"])
    assert list(dict.fromkeys(cells.value_of(words, "experiment") for words in started)) == [
        "table1", "table2", "table3", "compare",
    ]  # fmt: skip
    assert made == ["table1", "table2", "table3"]
    # Of compare the stage quick; coupled dictionaries, the paper's and averaged, have no grid to tune over.
    assert all("dataset=cifar_awa" in words for words in started if "experiment=compare" in words)
    assert started[-3][-4:-1] == ("model=coupled_paper", "inference=aag,taaw", "tune=none")
    assert started[-2][-4:-1] == ("model=coupled", "inference=inductive,taaw", "tune=none")


@pytest.fixture
def nothing_shown(monkeypatch):
    monkeypatch.setattr(command, "_show_compared", lambda *_: None)


def test_compare_runs_one_model_where_one_is_named(tmp_path, started, nothing_shown, capsys):
    command.main(["compare", str(tmp_path), "--run", "stage=quick", "model=eszsl", "split.seed=range(2)"])
    (words,) = started
    assert words[:-1] == (
        "experiment=compare", "dataset=cifar_awa", "feature=lite0_pca128", "split=random", "split.n_unseen=5",
        "model=eszsl", "split.seed=range(2)",
    )  # fmt: skip
    assert "2 jobs" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_runs_what_data_is_here_and_names_what_is_not(tmp_path, started, nothing_shown, capsys):
    command.main(["compare", str(tmp_path), "--run", f"data_dir={tmp_path}"])
    splits = {(next(w for w in words if w.startswith("dataset=")), word)
              for words in started for word in words if word.startswith("split=")}  # fmt: skip
    assert splits == {(f"dataset={d}", f"split={s}") for d in ("cifar_awa", "digits") for s in ("random", "alike")}
    said = capsys.readouterr().err
    # Letters and vowel, and models whose package is not installed.
    assert said.count("left out  ") == 2 + len(without_package("model"))
    assert f"left out  letters: dataset=letters is not here: the folder {tmp_path}/letters does not exist" in said
    # Every model that has a grid is tuned but for the slow ones; those with dictionaries run with two rules each.
    of_digits = [words for words in started if "dataset=digits" in words and "split=random" in words]
    assert [("tune=none" in words) for words in of_digits] == [False, True, True, True, True]
    assert "inference=aag,taaw" in of_digits[2]
    assert "inference=inductive,taaw" in of_digits[3]


def test_a_model_that_is_named_runs_as_in_its_stage(tmp_path, started, nothing_shown):
    command.main(["compare", str(tmp_path), "--run", "stage=quick", "model=coupled,jlse_style,eszsl"])
    assert [words[5:-1] for words in started] == [
        ("model=eszsl",), ("model=jlse_style", "tune=none"), ("model=coupled", "inference=inductive,taaw", "tune=none"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "sentence"),
    [("stage=all", "stage=all does not exist; there is: quick, standard, full"),
     ("model=", "model= names no model; name some"),
     ("data=awa9", "data=awa9 does not exist in stage standard of compare; there is: cifar_awa, vowel")],
)  # fmt: skip
def test_stages_and_data_that_do_not_exist_are_named(tmp_path, started, word, sentence):
    assert sentence in fails("compare", tmp_path, "--run", word)
    assert started == []


@pytest.mark.slow
def test_a_command_that_fails_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(filling, "start", lambda arguments, **kwargs: 1)
    error = fails("table1", "--run", "data=digits", f"output_dir={tmp_path}")
    assert "written: " in capsys.readouterr().out
    assert error.count("zsl run experiment=table1 dataset=digits") == 1


def test_interruption_is_one_line(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(filling, "start", interrupted)
    with pytest.raises(SystemExit) as ended:
        command.main(["table1", "--run", "data=digits", f"output_dir={tmp_path}"])
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("zsl: interrupted")


# --- earlier names ------------------------------------------------------------------------------------------


def test_table0_says_what_it_is_called_now():
    error = refused("table0", "--run")
    assert "table0 is now table1" in error
    assert "table1 is now table2" in error


def test_records_of_the_earlier_names_are_in_no_table(caplog):
    from zsl.report import tables
    from zsl.report.records import warn_of_old_names

    stages = {f"{stage}/hit_1": 0.5 for stage in tables.RULES}
    old = frame([
        record("abc", 0, experiment="table0", cell="digits", metrics=stages),
        record("abd", 0, experiment="table1", cell="digits/coupled", metrics=stages),
        record("abd", 0, experiment="table1", cell="digits/eszsl"),
        record("abd", 0, experiment="table1", cell="cub/eszsl/model.lam-1"),
    ])  # fmt: skip
    for table in (tables.table1(old), tables.methods("table2", old), tables.methods("table3", old)):
        assert table.n_records == 0
    warn_of_old_names(old)
    assert "4 records are of the time when table1 was called table0" in caplog.text
    caplog.clear()
    warn_of_old_names(frame([record("abc", experiment="table1", cell="digits/model.n_iter-2")]))
    assert not caplog.text


@pytest.mark.parametrize("words", [["data=awa2"], ["model.n_iter=2"]])
def test_what_is_for_runs_is_refused_without_them(words):
    assert "add --run" in fails("compare", *words)


def test_cannot_read_returns_the_sentence(tmp_path):
    assert filling.cannot_read(["dataset=digits"]) == ""
    assert "does not exist" in filling.cannot_read(["dataset=xlsa17", f"dataset.root={tmp_path}/no"])
    with pytest.raises(UserError, match="did you mean"):
        filling.cannot_read(["datset=digits"])


def test_sweeps_of_other_processes_are_not_looked_at(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({
        "id": "a", "status": "RUNNING", "process": {"pid": 1}, "started": 1, "folder": str(tmp_path),
    }))  # fmt: skip
    assert filling._sweep_of(2, tmp_path, 1) is None
    assert filling._sweep_of(1, tmp_path, 1)["id"] == "a"
    # An earlier process of the same number, as in a container.
    assert filling._sweep_of(1, tmp_path, 2) is None
