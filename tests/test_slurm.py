"""What zsl makes of Slurm's answers, given by commands of these tests; `make test-cluster` runs the real ones."""

from __future__ import annotations

import os

import pytest
from omegaconf import OmegaConf

from zsl import compose, run
from zsl.errors import UserError
from zsl.experiment import cluster
from zsl.experiment.sweep import limit_threads, threads_for
from zsl.runs import slurm
from zsl.runs import status as records
from zsl.runs.folder import NoTracker, belongs_to
from zsl.runs.jobs import end_sweep
from zsl.tracking.maintain import repair
from zsl.tracking.store import open_store
from zsl.tracking.tracker import MLflowTracker

BASIC = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
SLURM = {"_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher"}
SACCT = """7_0|COMPLETED
7_1|CANCELLED by 0
7_[2-3,5%2]|CANCELLED by 0
8|NODE_FAIL
9|RUNNING
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Slurm's commands on a cluster named here, whose queue holds 7_1 and 7_2."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "sacct.txt").write_text(SACCT)
    for name, text in (
        ("scontrol", "echo 'ClusterName             = here'"),
        ("squeue", "case \"$*\" in *' 7 '*) echo '7_1 RUNNING'; echo '7_2 PENDING';; "
                   "*' 6 '*) echo no controller >&2; exit 1;; *) echo Invalid job id specified >&2; exit 1;; esac"),
        ("sacct", f"cat {place}/sacct.txt"),
    ):  # fmt: skip
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    for name in [n for n in os.environ if n.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    slurm.cluster.cache_clear()
    slurm._asked.clear()
    yield
    slurm.cluster.cache_clear()
    slurm._asked.clear()


def process(number="7_1", cluster="here", user=None, host="another"):
    job = {"cluster": cluster, "job": number, "user": user or slurm._user()}
    return {**records.this_process(), "host": host, "slurm": job}


@pytest.mark.usefixtures("commands")
def test_whether_a_job_of_another_machine_goes_on(monkeypatch):
    monkeypatch.setattr(slurm, "_user", lambda: "somebody")
    assert records.alive(process("7_1")) is True
    assert records.alive(process("7_2")) is True  # it waits
    assert records.alive(process("7_0")) is False
    assert records.alive(process("12")) is False  # Slurm has forgotten it
    assert records.alive(process("6")) is None  # Slurm does not answer
    assert records.alive(process("7_0", cluster="there")) is None
    assert records.alive(process("7_0", user="else")) is None  # whose jobs Slurm may hide
    assert records.alive({**process("7_1"), "slurm": None}) is None


@pytest.mark.usefixtures("commands")
def test_a_job_that_is_to_start_again_is_not_gone_where_it_ran():
    mine = {**records.this_process(), "pid": 2**22 + 1}
    assert records.alive(mine) is False
    assert records.alive({**mine, "slurm": process("7_2")["slurm"]}) is True
    os.environ |= {"SLURM_JOB_ID": "70", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    try:  # another process of the same job sees that it is gone
        assert records.alive({**mine, "slurm": process("7_2")["slurm"]}) is False
        assert records.this_process()["slurm"]["job"] == "7_2"
    finally:
        for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
            del os.environ[name]


@pytest.mark.usefixtures("commands")
def test_how_jobs_ended():
    known = {"7_0": "COMPLETED", "7_1": "CANCELLED", "7_2": "CANCELLED", "7_3": "CANCELLED", "7_5": "CANCELLED",
             "8": "NODE_FAIL"}  # fmt: skip
    assert slurm.ends([*known, "7_4", "9"]) == known
    assert slurm.ends([]) == {}


def test_a_process_is_read_back_from_its_tag():
    for one in (process(), {k: v for k, v in process().items() if k != "slurm"}):
        assert records.of_tag(records.as_tag(one)) == one
    assert records.of_tag("") == {"host": "", "pid": None, "started": ""}


def begun(folder, name, number, sweep="s"):
    job = {"status": "RUNNING", "sweep": sweep, "tracking": None, "process": process(number), "overrides": [name],
           "digest": None, "started": 0, "name": name, "output_dir": str(folder)}  # fmt: skip
    records.write(folder / name / "status.json", job)


def sweep_of(folder, jobs, *numbers, **more):
    for number in ("7", *numbers):
        (folder / ".submitit" / number).mkdir(parents=True)
    return {
        "id": "s", "status": "RUNNING", "name": "sweep", "folder": str(folder), "jobs": jobs, "swept": ["a"],
        "started": 0, "ended": None, "best": "acc_class",
        "launcher": {**SLURM, "submitit_folder": str(folder / ".submitit")},
        "process": {**records.this_process(), "pid": 2**22 + 1}, "output_dir": str(folder), "tracking": None, **more,
    }  # fmt: skip


@pytest.mark.usefixtures("commands")
def test_repair_leaves_alone_what_waits_or_runs_in_Slurm(tmp_path):
    folder = tmp_path / "runs"
    for name, number in (("0", "7_0"), ("1", "7_1"), ("2", "8")):
        begun(folder, name, number)
    records.write(folder / "sweep.json", sweep_of(folder, 3, "7_0", "7_1", "7_2"))
    lines = repair([folder])
    assert [records.read(folder / n / "status.json")["status"] for n in "012"] == ["KILLED", "RUNNING", "KILLED"]
    assert records.read(folder / "2" / "status.json")["error"] == "its process was killed (Slurm: NODE_FAIL)"
    assert records.read(folder / "sweep.json")["status"] == "RUNNING"
    assert any(line.endswith("unchanged, since its jobs wait or run in Slurm") for line in lines)


@pytest.mark.usefixtures("commands")
def test_a_sweep_whose_jobs_were_cancelled_is_killed_and_one_that_is_interrupted_goes_on(tmp_path, monkeypatch):
    mine = sweep_of(tmp_path / "a", 4, "7_1", "7_2")
    said, cancelled, left = cluster.wait(mine, interrupted=True)
    assert (said, cancelled) == ("", False)
    assert left.startswith("2 jobs of the sweep stay in Slurm's queue and go on; `scancel 7` stops them.")
    monkeypatch.setattr(slurm, "queue", lambda numbers: {})
    said, cancelled, left = cluster.wait(mine, interrupted=False)
    assert said.startswith("Slurm says: 7_1 CANCELLED, 7_2 CANCELLED; their output is in ")
    assert (cancelled, left) == (True, "")


@pytest.mark.parametrize(("planned", "expected"), [(1, "FINISHED"), (2, "KILLED"), (None, "KILLED")])
def test_a_sweep_that_lost_its_own_process_after_the_last_job_is_finished(tmp_path, planned, expected):
    begun(tmp_path, "0", "8")
    job = records.read(tmp_path / "0" / "status.json")
    records.write(tmp_path / "0" / "status.json", {**job, "status": "FINISHED"})
    mine = sweep_of(tmp_path, planned)
    end_sweep(mine, NoTracker(), killed=True)
    assert mine["status"] == expected


@pytest.fixture
def threads_are_put_back(monkeypatch):
    """Limits of threads, and variables that set them, hold for a test alone."""
    import numba
    from threadpoolctl import threadpool_info, threadpool_limits

    monkeypatch.setattr(os, "environ", dict(os.environ))
    n, pools = numba.get_num_threads(), {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()}
    yield
    numba.set_num_threads(n)
    threadpool_limits(pools)


def test_threads_follow_what_Slurm_grants(monkeypatch, threads_are_put_back):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
                 "NUMBA_NUM_THREADS", "SLURM_CPUS_PER_TASK"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert threads_for({**SLURM, "cpus_per_task": 2}, 8) == 4
    assert limit_threads(None, BASIC) == 4  # not all the cores of the machine
    assert os.environ["MKL_NUM_THREADS"] == "4"
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert limit_threads(None, BASIC) == limit_threads(None, SLURM) == 2


def test_a_job_that_is_bound_to_fewer_cores_than_granted_is_told(monkeypatch, caplog, threads_are_put_back):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(1), raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert limit_threads(None, SLURM) == 1
    assert "SRUN_CPUS_PER_TASK=4" in caplog.text


def test_settings_under_which_every_job_would_be_signalled_at_once_are_refused(caplog):
    def config(uri, minutes=60, delay=120):
        launcher = {"timeout_min": minutes, "signal_delay_s": delay}
        tracking = {"_target_": "zsl.tracking.MLflowTracker", "uri": uri}
        return OmegaConf.create({"hydra": {"launcher": launcher}, "tracking": tracking})

    with pytest.raises(UserError, match=r"set hydra\.launcher\.signal_delay_s=30\."):
        cluster.check(config("http://there", minutes=1))
    cluster.check(config("http://there"))
    assert not caplog.text
    cluster.check(config(None))
    assert "network file system" in caplog.text


class Stopped(BaseException):
    pass


def test_a_job_that_a_cluster_starts_again_is_one_run(store, monkeypatch, caplog):
    """Stopped, started again, and started again after its end: one run in the store, and one result."""
    monkeypatch.chdir(store)
    settings = compose(["dataset=synthetic", "model=ridge", "figures=false", "save_model=false", f"output_dir={store}"])
    tracker = MLflowTracker(output_dir=str(store))
    mine = {"id": "s", "overrides": ["seed=0"], "tracking": None}
    belongs_to(mine, tracker)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("zsl.models.Ridge.fit", lambda *_: (_ for _ in ()).throw(Stopped))
            with pytest.raises(Stopped):
                run(settings, store / "0")
        first = records.read(store / "0" / "status.json")
        assert first["status"] == "KILLED"
        run(settings, store / "0")
        second = records.read(store / "0" / "status.json")
        assert second["status"] == "FINISHED"
        monkeypatch.setattr("zsl.models.Ridge.fit", lambda *_: pytest.fail("it is fitted again"))
        with caplog.at_level("INFO"):
            again = run(settings, store / "0")
    finally:
        belongs_to({})
    assert "had finished before it was started again" in caplog.text
    assert again.metrics == records.read(store / "0" / "results.json")["metrics"]
    (stored,) = open_store({"uri": None, "experiment": "zsl"}, store).find("zsl.kind", "run")
    assert (stored.info.run_id, stored.info.status) == (first["tracking"]["run_id"], "FINISHED")
    assert not stored.data.tags.get("zsl.error")


def test_jobs_of_earlier_sweeps_in_the_same_folder_are_not_counted(tmp_path):
    for i, (name, record) in enumerate([
        (records.STATUS, {"status": "FINISHED", "sweep": "a"}), (records.STATUS, {"status": "FAILED", "sweep": "b"}),
        (records.SKIPPED, {"record": "x", "metrics": {}, "sweep": "a"}),
        (records.SKIPPED, {"record": "x", "metrics": {}, "sweep": "b"}),
    ]):  # fmt: skip
        (tmp_path / str(i)).mkdir()
        records.write(tmp_path / str(i) / name, record)
    assert cluster.counts({"id": "a", "folder": str(tmp_path)}) == {"FINISHED": 1, "SKIPPED": 1}
