"""Sweeps: the run above the jobs, jobs that fail or are killed, what is skipped, stores that many write to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import start, wait_for, zsl
from zsl.experiment.sweep import Sweep, limit_threads, threads_for
from zsl.runs import status as records
from zsl.runs.folder import NoTracker
from zsl.runs.jobs import end_sweep, how_chosen, jobs_of
from zsl.tracking.__main__ import main as tracking

QUICK = ("dataset=synthetic", "model.n_iter=1", "inference=aag")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
MINE = ("dataset=synthetic", "model=ridge", "allow_targets=[mine]", "tracking=none")
needs_joblib = pytest.mark.skipif(find_spec("hydra_plugins.hydra_joblib_launcher") is None if find_spec(
    "hydra_plugins") else True, reason="no joblib launcher: pip install -e '.[parallel]'")  # fmt: skip
needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="no submitit: pip install -e '.[slurm]'")


def recorded(uri):
    """The parents, and the children by parent."""
    from mlflow import MlflowClient

    client = MlflowClient(uri if "://" in str(uri) else f"sqlite:///{uri}/multirun/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("zsl").experiment_id], max_results=1000)
    parents = [r for r in runs if r.data.tags["zsl.kind"] == "sweep"]
    children = {p.info.run_id: [] for p in parents}
    for r in runs:
        if r.data.tags["zsl.kind"] == "run":
            children.setdefault(r.data.tags.get("mlflow.parentRunId"), []).append(r)
    return parents, children


def words(runs):
    return sorted(r.info.status for r in runs)


def job_status(folder, n):
    path = next(folder.glob(f"multirun/2*/*/{n}/status.json"), None)
    return records.read(path) if path else {}


def begun(folder, n):
    return (job_status(folder, n).get("tracking") or {}).get("run_id")


@pytest.mark.slow
def test_a_sweep_with_a_bad_job_and_the_same_again(tmp_path):
    done = zsl(*QUICK, "-m", "model.lam=0.1,abc,0.2", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.out + done.err
    assert (done.out + done.err).count("model.lam='abc' is not accepted") == 1
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    metrics = parent.data.metrics
    counts = {"jobs": 3, "finished": 2, "failed": 1, "killed": 0, "skipped": 0, "running": 0}
    assert {k: metrics[k] for k in counts} == counts
    mine = children[parent.info.run_id]
    assert words(mine) == ["FAILED", "FINISHED", "FINISHED"]
    best = max((r for r in mine if r.info.status == "FINISHED"), key=lambda r: r.data.metrics["accuracy/acc_class"])
    assert metrics["best/acc_class"] == best.data.metrics["accuracy/acc_class"]
    assert parent.data.tags["zsl.best_run"] == best.info.run_id
    # The best run by its accuracy on the unseen classes is not a result.
    assert "oracle" in parent.data.tags["zsl.best_by"]
    assert "oracle" in done.err
    assert {r.data.tags["zsl.overrides"] for r in mine} == {"model.lam=0.1", "model.lam=abc", "model.lam=0.2"}
    (folder,) = (p.parent for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    assert "is not accepted" in (folder / "1" / "zsl.log").read_text()
    assert str(folder / "1" / "zsl.log") in done.err

    again = zsl(*QUICK, "-m", "model.lam=0.1,0.2", "skip_existing=true", cwd=tmp_path)
    assert again.returncode == 0, again.err
    parents, children = recorded(tmp_path)
    second = next(p for p in parents if p.info.run_id != parent.info.run_id)
    assert second.info.status == "FINISHED"
    assert second.data.metrics["skipped"] == 2
    assert second.data.metrics["best/acc_class"] == metrics["best/acc_class"]
    assert second.data.tags["zsl.best_overrides"] == best.data.tags["zsl.overrides"]
    assert children[second.info.run_id] == []


@pytest.mark.slow
def test_a_failing_job_has_its_traceback_in_its_own_log(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from zsl.models import Ridge\n"
        "class Broken(Ridge):\n"
        "    def fit(self, *data):\n"
        "        return [][7] if self.gamma == 2 else super().fit(*data)\n"
    )
    done = zsl(*MINE, "model._target_=mine.Broken", "-m", "model.gamma=1,2,3", cwd=tmp_path)
    monkeypatch.delitem(sys.modules, "mine")
    assert done.returncode == 1
    (folder,) = (p.parent for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    text = (folder / "1" / "zsl.log").read_text()
    assert "Traceback" in text
    assert "IndexError: list index out of range" in text
    assert [(folder / n / "results.json").is_file() for n in "012"] == [True, False, True]
    assert json.loads((folder / "sweep.json").read_text())["status"] == "FAILED"
    status = job_status(tmp_path, 1)
    assert (status["status"], status["error"]) == ("FAILED", "list index out of range")


@pytest.mark.slow
def test_mistakes_that_stop_a_sweep_are_one_line(tmp_path):
    done = zsl("-m", "modl.lam=3,4", cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert not list(tmp_path.glob("multirun/**/sweep.json"))
    assert not (tmp_path / "multirun" / "mlflow.db").exists()
    (tmp_path / "file").write_text("where the folder should be")
    done = zsl("dataset=synthetic", "-m", "seed=0,1", "output_dir=file", cwd=tmp_path)
    assert done.returncode == 1
    assert "output_dir=FOLDER" in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_wrong_settings_of_tracking_fail_each_job(tmp_path):
    done = zsl(*QUICK, "tracking.on_error=ignore", "-m", "seed=0,1", cwd=tmp_path)
    assert done.returncode == 1
    assert "2 failed" in done.err
    assert "tracking.on_error='ignore' is not accepted" in done.out


@pytest.mark.slow
def test_a_terminated_sweep_is_killed(tmp_path):
    """After SIGTERM the job that runs, and the sweep above it, say KILLED themselves."""
    job = start("-m", "model.n_iter=1000000,1", "tracking=none", cwd=tmp_path)
    try:
        wait_for(lambda: job_status(tmp_path, 0).get("status") == "RUNNING", job)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=300)  # kernels may be compiled first
    finally:
        job.kill()
    assert job.returncode == 143, err
    assert job_status(tmp_path, 0)["status"] == "KILLED"
    assert not job_status(tmp_path, 1)
    (about,) = (json.loads(p.read_text()) for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    assert about["status"] == "KILLED"
    assert "sweep of 2 jobs KILLED: 1 killed" in err


# --- how a sweep ends -------------------------------------------------------------------------------------------


def sweep(folder, jobs):
    return {
        "id": "s", "status": "RUNNING", "name": "sweep", "folder": str(folder), "jobs": jobs, "swept": ["a"],
        "launcher": {}, "started": 0, "ended": None, "process": records.this_process(), "best": "acc_class",
        "output_dir": str(folder), "tracking": None,
    }  # fmt: skip


def job(folder, name, status, sweep="s", value=None, **process):
    process = {**records.this_process(), **process}
    mine = {"status": status, "sweep": sweep, "tracking": None, "process": process, "overrides": [name]}
    records.write(folder / name / "status.json", mine)
    if value is not None:
        records.write(folder / name / "results.json", {"metrics": {"acc_class": value}})


@pytest.mark.parametrize(
    ("third", "planned", "killed", "expected"),
    [
        (None, 2, False, "FINISHED"),
        (None, None, False, "FINISHED"),
        (None, 3, False, "FAILED"),  # a job never began
        ("FAILED", 3, False, "FAILED"),
        ("KILLED", 3, False, "FAILED"),
        (None, 3, True, "KILLED"),
    ],
)
def test_a_sweep_ends_truthfully(tmp_path, third, planned, killed, expected):
    job(tmp_path, "1", "FINISHED", value=0.5)
    job(tmp_path, "2", "FINISHED", value=0.7)
    job(tmp_path, "old", "FAILED", sweep="another")
    if third:
        job(tmp_path, "3", third)
    mine = sweep(tmp_path, planned)
    text = end_sweep(mine, NoTracker(), killed=killed)
    assert mine["status"] == expected
    assert json.loads((tmp_path / "sweep.json").read_text())["status"] == expected
    assert "best by acc_class (oracle: selected on test classes): 2 with 0.700" in text


def test_jobs_whose_process_is_gone_are_killed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    job(tmp_path, "1", "RUNNING", pid=dead.pid)
    job(tmp_path, "2", "RUNNING")
    found = jobs_of(sweep(tmp_path, 2))
    assert {job.folder.name: job.status for job in found.found} == {"1": "KILLED", "2": "RUNNING"}


def test_validation_accuracy_is_no_oracle():
    assert "validation" in how_chosen("tune_acc_class")
    assert "oracle" in how_chosen("acc_class")


# --- threads ----------------------------------------------------------------------------------------------------


def test_threads_are_divided_among_jobs_that_run_at_once():
    joblib = {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"}
    assert [threads_for({**joblib, "n_jobs": n}, 8) for n in (-1, -2, 4, 16)] == [1, 1, 2, 1]
    submitit = {"_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher"}
    assert threads_for(submitit, 8) == 1
    assert threads_for({**submitit, "cpus_per_task": 6}, 8) == 6
    assert threads_for({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}, 8) == 8


def test_a_single_run_keeps_its_threads(monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    limit_threads(None, {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"})
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.long
@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"], marks=needs_joblib),
        pytest.param(["hydra/launcher=submitit_local"], marks=needs_submitit),
        pytest.param(["threads=1"]),
    ],
    ids=["joblib", "submitit", "threads=1"],
)
def test_parallel_jobs_do_not_oversubscribe(tmp_path, launcher):
    """What BLAS and numba use inside a job, with nothing in the environment that limits them."""
    (tmp_path / "mine.py").write_text(
        "from zsl.models import Ridge\n"
        "class Counting(Ridge):\n"
        "    def fit(self, *data):\n"
        "        import numba, threadpoolctl\n"
        "        blas = {p['num_threads'] for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas'}\n"
        "        assert (blas, numba.get_num_threads()) == ({1}, 1), (blas, numba.get_num_threads())\n"
        "        return super().fit(*data)\n"
    )
    free = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
    done = start(*MINE, "model._target_=mine.Counting", *launcher, "-m", "model.gamma=1,2", cwd=tmp_path, unset=free)
    out, err = done.communicate(timeout=300)
    assert done.returncode == 0, out + err


# --- many at once -----------------------------------------------------------------------------------------------


@pytest.mark.long
@needs_joblib
def test_two_sweeps_started_at_the_same_moment_on_a_fresh_store(tmp_path):
    both = [start(*QUICK, *JOBLIB, "-m", f"seed={s},{s + 1},{s + 2},{s + 3}", cwd=tmp_path) for s in (0, 4)]
    for one in both:
        _, err = one.communicate(timeout=300)
        assert one.returncode == 0, err
    parents, children = recorded(tmp_path)
    assert words(parents) == ["FINISHED"] * 2
    seeds = [sorted(r.data.params["seed"] for r in children[p.info.run_id]) for p in parents]
    assert sorted(seeds) == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    assert not any("tracking failed" in p.read_text() for p in tmp_path.glob("multirun/2*/*/*/zsl.log"))


@pytest.mark.long
@needs_joblib
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_stopped(tmp_path, number):
    """SIGKILL ends joblib's pool, and the folders tell what is left to do; after SIGTERM the other jobs are run."""
    iterations = "1,100000" if number == signal.SIGKILL else "1,100000,2"
    one = start("-m", f"model.n_iter={iterations}", *QUICK[::2], *JOBLIB, cwd=tmp_path)
    try:
        wait_for(lambda: (job_status(tmp_path, 0).get("tracking") or {}).get("complete"), one)
        wait_for(lambda: begun(tmp_path, 1), one)
        os.kill(job_status(tmp_path, 1)["process"]["pid"], number)
        out, err = one.communicate(timeout=120)
    finally:
        one.kill()
    assert one.returncode == 1
    assert "Traceback" not in out + err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    if number == signal.SIGTERM:
        assert words(children[parent.info.run_id]) == ["FINISHED", "FINISHED", "KILLED"]
        return
    assert words(children[parent.info.run_id]) == ["FINISHED", "KILLED"]
    assert "skip_existing=true goes on from here" in err
    again = start("-m", "model.n_iter=1,2", *QUICK[::2], *JOBLIB, "skip_existing=true", cwd=tmp_path)
    assert "1 finished, 1 skipped" in again.communicate(timeout=120)[0]


@pytest.mark.long
@needs_submitit
def test_submitit_runs_jobs_on_this_machine(tmp_path):
    done = start(*QUICK, "hydra/launcher=submitit_local", "-m", "model.lam=0.1,abc,0.2", cwd=tmp_path)
    _, err = done.communicate(timeout=300)
    assert done.returncode == 1
    assert "Traceback" not in err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    assert words(children[parent.info.run_id]) == ["FAILED", "FINISHED", "FINISHED"]


@pytest.fixture
def server(tmp_path_factory, no_store_is_remembered):
    """A real MLflow server on loopback: its address, and functions that kill and restart it."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip

    class Server:
        uri = f"http://127.0.0.1:{port}"

        def start(self):
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            wait_for(self.answers, self.process)

        def answers(self):
            try:
                return urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200
            except OSError:
                return False

        def kill(self):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    found = Server()
    found.start()
    yield found
    found.kill()


@pytest.mark.long
def test_a_server_that_is_down_costs_a_warning_and_an_upload(tmp_path, server, capsys):
    server.kill()
    begun_at = time.monotonic()
    done = zsl(*QUICK, f"tracking.uri={server.uri}", "-m", "seed=0,1", cwd=tmp_path)
    assert time.monotonic() - begun_at < 120
    assert done.returncode == 0, done.err
    assert "zsl tracking upload" in done.out
    folder = str(tmp_path / "multirun")
    assert tracking(["upload", folder]) == 1  # the server is still down
    server.start()
    assert tracking(["upload", folder]) == 0
    (parent,), children = recorded(server.uri)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["finished"] == 2
    assert words(children[parent.info.run_id]) == ["FINISHED"] * 2
    assert not (tmp_path / "multirun" / "mlflow.db").exists()
    capsys.readouterr()
    assert tracking(["upload", folder]) == 0
    assert capsys.readouterr().out == "nothing to do; --all sends runs made with tracking=none too\n"


@pytest.mark.long
def test_a_server_that_dies_in_mid_run(tmp_path, server):
    one = start(*QUICK[::2], "model.n_iter=3000", f"tracking.uri={server.uri}", "-m", "seed=0", cwd=tmp_path)
    wait_for(lambda: begun(tmp_path, 0), one)
    server.kill()
    out, err = one.communicate(timeout=300)
    assert one.returncode == 0, err
    assert "zsl tracking upload" in out
    assert list(tmp_path.glob("multirun/2*/*/0/results.json"))
    server.start()
    (parent,), children = recorded(server.uri)
    assert words(children[parent.info.run_id]) == ["RUNNING"]
    assert tracking(["upload", str(tmp_path / "multirun")]) == 0
    (parent,), children = recorded(server.uri)
    assert parent.info.status == "FINISHED"
    assert words(children[parent.info.run_id]) == ["FINISHED"]


@pytest.mark.slow
def test_a_sweep_in_the_folder_of_another_one_leaves_its_runs_alone(tmp_path):
    quick = ["-m", "dataset=synthetic", "figures=false", "tracking=none", "hydra.sweep.dir=multirun/sweep", "seed=0"]
    assert zsl(*quick, "model=ridge", cwd=tmp_path).returncode == 0
    before = (tmp_path / "multirun" / "sweep" / "0" / "status.json").read_text()
    for _ in range(2):
        refused = zsl(*quick, "model=eszsl", cwd=tmp_path)
        assert refused.returncode == 1
        assert (tmp_path / "multirun" / "sweep" / "0" / "status.json").read_text() == before
    done = zsl(*quick, "model=ridge", "skip_existing=true", cwd=tmp_path)
    assert "1 skipped" in done.out


@pytest.mark.parametrize(("launcher", "paced"), [("basic_launcher.BasicLauncher", True), ("JoblibLauncher", False)])
def test_the_time_left_is_said_where_jobs_run_one_after_the_other(launcher, paced, caplog):
    caplog.set_level("INFO")
    sweep = Sweep()
    sweep.sweep = {"jobs": 100, "started": records.now_ms() - 5000, "launcher": {"_target_": f"x.{launcher}"}}
    sweep._say(7, ["seed=7"])
    assert ("left" in caplog.text) == paced
