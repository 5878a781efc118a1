"""Sweeps: the run above the jobs, jobs that fail or are killed, what is skipped, stores that many write to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import ROOT
from zsl.experiment.sweep import limit_threads, threads_for
from zsl.runs import jobs as sweep
from zsl.runs import status as records
from zsl.runs.folder import NoTracker

QUICK = ("dataset=synthetic", "model.n_iter=1", "inference=aag")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
needs_joblib = pytest.mark.skipif(find_spec("hydra_plugins.hydra_joblib_launcher") is None if find_spec(
    "hydra_plugins") else True, reason="no joblib launcher: pip install 'zsl-cdl[parallel]'")  # fmt: skip
needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="no submitit: pip install 'zsl-cdl[slurm]'")


def start(*arguments, cwd, unset=(), **environment):
    env = {k: v for k, v in os.environ.items() if k not in unset}
    env |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "zsl.main", *arguments], cwd=cwd, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def zsl(*arguments, cwd, **environment):
    job = start(*arguments, cwd=cwd, **environment)
    job.out, job.err = job.communicate(timeout=300)
    return job


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


def statuses(runs):
    return sorted(r.info.status for r in runs)


@pytest.mark.slow
def test_a_sweep_with_a_bad_job(tmp_path):
    """Parent and children, in folders and in the store; the bad value is said once; then the sweep goes on."""
    done = zsl(*QUICK, "-m", "model.lam=0.1,abc,0.2", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.out + done.err
    assert (done.out + done.err).count("model.lam='abc' is not accepted") == 1
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    metrics = parent.data.metrics
    assert {k: metrics[k] for k in ("jobs", "finished", "failed", "killed", "skipped")} == {
        "jobs": 3, "finished": 2, "failed": 1, "killed": 0, "skipped": 0
    }  # fmt: skip
    mine = children[parent.info.run_id]
    assert statuses(mine) == ["FAILED", "FINISHED", "FINISHED"]
    best = max((r for r in mine if r.info.status == "FINISHED"), key=lambda r: r.data.metrics["acc_class"])
    assert metrics["best/acc_class"] == best.data.metrics["acc_class"]
    # Choosing among runs by their accuracy on the unseen classes has a name.
    assert parent.data.tags["zsl.best_by"] == "acc_class (oracle: selected on test classes)"
    assert "oracle" in done.err
    assert {r.data.tags["zsl.overrides"] for r in mine} == {"model.lam=0.1", "model.lam=abc", "model.lam=0.2"}
    (folder,) = (p.parent for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    assert "is not accepted" in (folder / "1" / "zsl.log").read_text()
    assert f"why is in {folder / '1' / 'zsl.log'}" in done.err

    # The same again: nothing that is finished is repeated, and the parent of the second sweep says so.
    again = zsl(*QUICK, "-m", "model.lam=0.1,0.2", "skip_existing=true", cwd=tmp_path)
    assert again.returncode == 0, again.err
    assert again.out.count("skipped: ") == 2
    parents, children = recorded(tmp_path)
    second = next(p for p in parents if p.info.run_id != parent.info.run_id)
    assert second.info.status == "FINISHED"
    assert second.data.metrics["skipped"] == 2
    assert second.data.metrics["best/acc_class"] == metrics["best/acc_class"]
    assert children[second.info.run_id] == []


def test_a_failing_job_has_its_traceback_in_its_own_log(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from zsl.models import Ridge\n"
        "class Broken(Ridge):\n"
        "    def fit(self, *data):\n"
        "        return [][7] if self.gamma == 2 else super().fit(*data)\n"
    )
    done = zsl(
        "dataset=synthetic", "model=ridge", "model._target_=mine.Broken", "allow_targets=[mine]", "tracking=none",
        "-m", "model.gamma=1,2,3", cwd=tmp_path, PYTHONPATH=f"{ROOT}:{tmp_path}",
    )  # fmt: skip
    assert done.returncode == 1
    (folder,) = (p.parent for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    text = (folder / "1" / "zsl.log").read_text()
    assert "Traceback" in text
    assert "IndexError: list index out of range" in text
    assert [(folder / n / "results.json").is_file() for n in "012"] == [True, False, True]
    assert json.loads((folder / "sweep.json").read_text())["status"] == "FAILED"
    status = json.loads((folder / "1" / "status.json").read_text())
    assert status["status"] == "FAILED"
    assert status["error"] == "list index out of range"


def test_a_mistyped_sweep_leaves_no_parent(tmp_path):
    done = zsl("-m", "modl.lam=3,4", cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert not list(tmp_path.glob("multirun/**/sweep.json"))
    assert not (tmp_path / "multirun" / "mlflow.db").exists()


def test_a_terminated_sweep_is_killed(tmp_path):
    """SIGTERM: the job that runs, and the sweep above it, say KILLED themselves."""
    job = start("-m", "model.n_iter=1000000,1", "tracking=none", cwd=tmp_path)
    try:
        wait_for(lambda: running(tmp_path), job)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 143, err
    (status,) = (json.loads(p.read_text()) for p in tmp_path.glob("multirun/2*/*/*/status.json"))
    assert status["status"] == "KILLED"
    (about,) = (json.loads(p.read_text()) for p in tmp_path.glob("multirun/2*/*/sweep.json"))
    assert about["status"] == "KILLED"
    assert "sweep of 2 jobs KILLED: 1 killed" in err


def running(folder):
    return [p for p in folder.glob("multirun/2*/*/*/status.json") if json.loads(p.read_text())["status"] == "RUNNING"]


def wait_for(condition, *jobs, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        for job in jobs:
            assert job.poll() is None, job.communicate()[1]
        time.sleep(0.1)


# --- what the command does with what it knows --------------------------------------------------------------------


def test_threads_are_divided_among_jobs_that_run_at_once():
    joblib = {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"}
    assert threads_for({**joblib, "n_jobs": -1}, 8) == 1
    assert threads_for({**joblib, "n_jobs": -2}, 8) == 1
    assert threads_for({**joblib, "n_jobs": 4}, 8) == 2
    assert threads_for({**joblib, "n_jobs": 16}, 8) == 1
    submitit = {"_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher"}
    assert threads_for(submitit, 8) == 1
    assert threads_for({**submitit, "cpus_per_task": 6}, 8) == 6
    assert threads_for({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}, 8) == 8


def test_libraries_use_the_threads_they_are_given():
    code = (
        "import os, sys\n"
        "for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'NUMBA_NUM_THREADS'): os.environ.pop(name, None)\n"
        "os.environ['NUMBA_NUM_THREADS'] = '2'\n"
        "if sys.argv[1] == 'loaded':\n    import numpy, numba\n"
        "from zsl.experiment.sweep import limit_threads\n"
        "limit_threads(1, {})\n"
        "import numpy, numba\n"
        "from threadpoolctl import threadpool_info\n"
        "print({p['num_threads'] for p in threadpool_info() if p['user_api'] == 'blas'}, numba.get_num_threads())\n"
    )
    for when in ("loaded", "later"):
        out = subprocess.run([sys.executable, "-c", code, when], cwd=ROOT, capture_output=True, text=True, check=True)
        assert out.stdout.strip() == "{1} 1", (when, out.stdout)


def test_a_single_run_keeps_its_threads(monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    limit_threads(None, {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"})
    assert "MKL_NUM_THREADS" not in os.environ


def about(folder, jobs):
    return {
        "id": "s", "status": "RUNNING", "name": "sweep", "folder": str(folder), "jobs": jobs, "swept": ["a"],
        "launcher": {}, "started": 0, "ended": None, "process": records.this_process(), "run_id": None,
        "settings": {"name": "none"}, "output_dir": str(folder), "complete": True,
    }  # fmt: skip


def job(folder, name, status, sweep="s", value=None):
    mine = {"status": status, "sweep": sweep, "tracking": None, "process": records.this_process(), "overrides": [name]}
    records.write(folder / name / "status.json", mine)
    if value is not None:
        records.write(folder / name / "results.json", {"metrics": {"acc_class": value}})


@pytest.mark.parametrize(
    ("others", "killed", "expected"),
    [
        ([], False, "FINISHED"),
        ([("3", "FAILED")], False, "FAILED"),
        ([("3", "KILLED")], False, "FAILED"),
        ([], True, "KILLED"),
    ],
)
def test_a_sweep_ends_truthfully(tmp_path, others, killed, expected):
    job(tmp_path, "1", "FINISHED", value=0.5)
    job(tmp_path, "2", "FINISHED", value=0.7)
    job(tmp_path, "old", "FAILED", sweep="another")
    for name, status in others:
        job(tmp_path, name, status)
    mine = about(tmp_path, 2 + len(others))
    text = sweep.end_sweep(mine, NoTracker(), killed=killed)
    assert mine["status"] == expected
    assert json.loads((tmp_path / "sweep.json").read_text())["status"] == expected
    assert "best by acc_class (oracle: selected on test classes): 2 with 0.700" in text


def test_a_sweep_without_all_its_jobs_is_not_finished(tmp_path):
    job(tmp_path, "1", "FINISHED", value=0.5)
    mine = about(tmp_path, 2)
    sweep.end_sweep(mine, NoTracker())
    assert mine["status"] == "FAILED"


def test_jobs_whose_process_is_gone_are_killed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    job(tmp_path, "1", "RUNNING")
    status = json.loads((tmp_path / "1" / "status.json").read_text())
    records.write(tmp_path / "1" / "status.json", {**status, "process": {**status["process"], "pid": dead.pid}})
    job(tmp_path, "2", "RUNNING")
    found = sweep.jobs_of(about(tmp_path, 2))
    assert {k: [p.name for p in v] for k, v in found.by_status.items()} == {"KILLED": ["1"], "RUNNING": ["2"]}


def test_validation_accuracy_is_no_oracle(tmp_path):
    assert sweep.how_chosen("tune_acc_class") == "selected on validation classes"
    assert sweep.how_chosen("acc_class").startswith("oracle")


# --- many at once, and servers -----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_joblib
def test_eight_jobs_at_once_on_a_fresh_store(tmp_path):
    done = zsl(*QUICK, "hydra/launcher=joblib", "hydra.launcher.n_jobs=8", "-m", "seed=range(8)", cwd=tmp_path)
    assert done.returncode == 0, done.err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["finished"] == 8
    assert statuses(children[parent.info.run_id]) == ["FINISHED"] * 8
    assert not any("tracking failed" in p.read_text() for p in tmp_path.glob("multirun/2*/*/*/zsl.log"))


@pytest.mark.slow
@needs_joblib
def test_two_sweeps_started_at_the_same_moment(tmp_path):
    both = [start(*QUICK, *JOBLIB, "-m", f"seed={s},{s + 1},{s + 2},{s + 3}", cwd=tmp_path) for s in (0, 4)]
    for one in both:
        _, err = one.communicate(timeout=300)
        assert one.returncode == 0, err
    parents, children = recorded(tmp_path)
    assert statuses(parents) == ["FINISHED"] * 2
    assert [statuses(children[p.info.run_id]) for p in parents] == [["FINISHED"] * 4] * 2
    seeds = [sorted(r.data.params["seed"] for r in children[p.info.run_id]) for p in parents]
    assert sorted(seeds) == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]


@pytest.mark.slow
@needs_joblib
def test_a_killed_worker_and_going_on_where_the_sweep_stopped(tmp_path):
    """SIGKILL of one worker ends joblib's pool; the folders tell what is left to do."""
    sweep_ = ("-m", "model.n_iter=1,100000", "dataset=synthetic", "inference=aag")
    one = start(*sweep_, *JOBLIB, cwd=tmp_path)
    try:

        def stands(n):
            path = next(tmp_path.glob(f"multirun/2*/*/{n}/status.json"), None)
            return records.read(path) if path else {}

        wait_for(lambda: (stands(0).get("tracking") or {}).get("complete"), one)
        wait_for(lambda: (stands(1).get("tracking") or {}).get("run_id"), one)
        os.kill(stands(1)["process"]["pid"], signal.SIGKILL)
        _, err = one.communicate(timeout=120)
    finally:
        one.kill()
    assert one.returncode == 1
    assert "skip_existing=true goes on from here" in err
    assert "Traceback" not in err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    assert statuses(children[parent.info.run_id]) == ["FINISHED", "KILLED"]
    again = zsl(
        "-m", "model.n_iter=1,2", "dataset=synthetic", "inference=aag", *JOBLIB, "skip_existing=true", cwd=tmp_path
    )
    assert again.returncode == 0, again.err
    assert "1 finished, 1 skipped" in again.out


@pytest.mark.slow
@needs_joblib
def test_one_job_of_a_parallel_sweep_is_terminated(tmp_path):
    """`kill PID` of one worker: its job is KILLED by its own handler, and the jobs after it are run."""
    one = start("-m", "model.n_iter=1,100000,2", "dataset=synthetic", "inference=aag", *JOBLIB, cwd=tmp_path)

    def stands(n):
        path = next(tmp_path.glob(f"multirun/2*/*/{n}/status.json"), None)
        return records.read(path) if path else {}

    try:
        wait_for(lambda: (stands(1).get("tracking") or {}).get("run_id"), one)
        os.kill(stands(1)["process"]["pid"], signal.SIGTERM)
        out, err = one.communicate(timeout=120)
    finally:
        one.kill()
    assert one.returncode == 1
    assert "Traceback" not in out + err
    assert "2 finished, 1 killed" in err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    assert statuses(children[parent.info.run_id]) == ["FINISHED", "FINISHED", "KILLED"]


def test_a_sweep_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "multirun").write_text("a file where the folder should be")
    done = zsl("dataset=synthetic", "-m", "seed=0,1", cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.err.strip().splitlines()
    assert "output_dir=FOLDER" in line


@pytest.mark.slow
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
    mine = ("model=ridge", "model._target_=mine.Counting", "allow_targets=[mine]", "dataset=synthetic", "tracking=none")
    free = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
    job_ = start(*mine, *launcher, "-m", "model.gamma=1,2", cwd=tmp_path, unset=free, PYTHONPATH=f"{ROOT}:{tmp_path}")
    out, err = job_.communicate(timeout=300)
    assert job_.returncode == 0, out + err


@pytest.mark.slow
@needs_submitit
def test_submitit_runs_jobs_on_this_machine(tmp_path):
    done = zsl(*QUICK, "hydra/launcher=submitit_local", "-m", "model.lam=0.1,abc,0.2", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.err
    (parent,), children = recorded(tmp_path)
    assert parent.info.status == "FAILED"
    assert statuses(children[parent.info.run_id]) == ["FAILED", "FINISHED", "FINISHED"]
    log = next(tmp_path.glob("multirun/2*/*/1/zsl.log")).read_text()
    assert "model.lam='abc' is not accepted" in log


@pytest.fixture
def server(tmp_path_factory):
    """A real MLflow server on loopback: its address, and a function that kills it."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bin_ = str(Path(sys.executable).parent)
    env = {
        **os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip

    def begin():
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), process)
        return process

    started = [begin()]

    def stop():
        os.killpg(started[-1].pid, signal.SIGKILL)
        started[-1].wait()

    class Server:
        uri = f"http://127.0.0.1:{port}"
        kill = staticmethod(stop)

        @staticmethod
        def restart():
            started.append(begin())

    yield Server
    if started[-1].poll() is None:
        stop()


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=2).status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.slow
@needs_joblib
def test_a_server_records_a_parallel_sweep(tmp_path, server):
    done = zsl(*QUICK, *JOBLIB, f"tracking.uri={server.uri}", "-m", "seed=0,1,2,3", cwd=tmp_path)
    assert done.returncode == 0, done.err
    (parent,), children = recorded(server.uri)
    assert parent.info.status == "FINISHED"
    mine = children[parent.info.run_id]
    assert statuses(mine) == ["FINISHED"] * 4
    from mlflow import MlflowClient

    names = {f.path for f in MlflowClient(server.uri).list_artifacts(mine[0].info.run_id)}
    assert {"results.json", "config.yaml"} <= names
    assert not (tmp_path / "multirun" / "mlflow.db").exists()


@pytest.mark.slow
def test_a_server_that_is_down_costs_a_warning_and_an_upload(tmp_path, server):
    server.kill()
    start_ = time.monotonic()
    done = zsl(*QUICK, f"tracking.uri={server.uri}", "-m", "seed=0,1", cwd=tmp_path)
    assert time.monotonic() - start_ < 120
    assert done.returncode == 0, done.err
    assert "but tracking failed" in done.out
    assert "python -m zsl.tracking upload" in done.out
    folders = sorted(p.parent for p in tmp_path.glob("multirun/2*/*/*/results.json"))
    assert len(folders) == 2
    assert upload(tmp_path).returncode == 1  # still down: one sentence
    server.restart()
    assert upload(tmp_path).returncode == 0
    (parent,), children = recorded(server.uri)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["finished"] == 2
    assert statuses(children[parent.info.run_id]) == ["FINISHED"] * 2
    assert upload(tmp_path).stdout == "nothing to do\n"


@pytest.mark.slow
def test_a_server_that_dies_in_mid_run(tmp_path, server):
    one = start(
        "dataset=synthetic", "model.n_iter=3000", "inference=aag", f"tracking.uri={server.uri}", cwd=tmp_path
    )  # fmt: skip
    wait_for(lambda: [p for p in tmp_path.glob("multirun/2*/*/status.json")
                      if (json.loads(p.read_text())["tracking"] or {}).get("run_id")], one)  # fmt: skip
    server.kill()
    out, err = one.communicate(timeout=300)
    assert one.returncode == 0, err
    assert "but tracking failed" in out
    (folder,) = (p.parent for p in tmp_path.glob("multirun/2*/*/results.json"))
    assert {"results.json", "config.yaml", "per_class.csv", "dictionaries.npz", "model.skops"} <= {
        p.name for p in folder.iterdir()
    }
    server.restart()
    _, children = recorded(server.uri)
    assert statuses(children[None]) == ["RUNNING"]
    assert upload(tmp_path).returncode == 0
    _, children = recorded(server.uri)
    assert statuses(children[None]) == ["FINISHED"]
    assert "acc_class" in children[None][0].data.metrics


def upload(cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "zsl.tracking", "upload"], cwd=cwd, env=env, capture_output=True, text=True, timeout=120
    )
