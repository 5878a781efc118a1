"""Sweeps on a real Slurm, which tests/slurm_node.sh starts and stops: ``make test-cluster`` prints a table of cases.

    python tests/cluster.py                 # every case, some minutes; needs root and Debian's Slurm
    python tests/cluster.py time requeue    # cases whose name holds one of the words

Jobs run on two nodes whose host names differ from this machine's, and are tracked by an MLflow server over HTTP. A case
passes if Slurm's accounting, the run folders and the server say what they should.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NODE = ROOT / "tests" / "slurm_node.sh"
CASES: dict[str, Callable[[Sweep], None]] = {}
# A model whose fit takes gamma seconds, one that fills the memory, and one that minds its threads.
MINE = """
import time
from zsl.models import Ridge

class Slow(Ridge):
    def fit(self, *data):
        for _ in range(int(10 * self.gamma)):
            time.sleep(0.1)
        return super().fit(*data)

class Hungry(Ridge):
    def fit(self, *data):
        kept = []
        while self.gamma > 1:
            kept.append(b"x" * 50_000_000)
            time.sleep(0.05)
        return super().fit(*data)

class Counting(Ridge):
    def fit(self, *data):
        import numba
        assert numba.get_num_threads() == self.gamma, numba.get_num_threads()
        return super().fit(*data)
"""
OWN = ("dataset=synthetic", "model=ridge", "allow_targets=[mine]")
# Enough iterations that a fit lasts until it is stopped, in code that numba compiled.
LONG = ("dataset=synthetic", "inference=aag", "model.n_dictionaries=1")
KEPT = ("model.checkpoint=ck/fit", "model.checkpoint_minutes=0.02")


class Wrong(AssertionError):
    """What a case found."""


def need(fact: object, said: object = "") -> None:
    if not fact:
        raise Wrong(str(said))


class Sweep:
    """A folder with a sweep in it: the command, and what Slurm, the run folders and the MLflow server say of it."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri, self.at = folder, uri, folder / "multirun" / "sweep"
        (folder / "mine.py").write_text(MINE)
        self.said = ""

    def command(self, *words: str, **settings: object) -> subprocess.Popen:
        settings = {"partition": "main", "cpus_per_task": 1, "mem_gb": 1, "timeout_min": 10} | settings
        slurm = ["-m", "hydra/launcher=submitit_slurm", *(f"hydra.launcher.{k}={v}" for k, v in settings.items())]
        light = ["figures=false", "save_model=false", f"tracking.uri={self.uri}"]
        command = [sys.executable, "-m", "zsl.main", "hydra.sweep.dir=multirun/sweep", *words, *light, *slurm]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{self.folder}", "COLUMNS": "200"}
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)  # fmt: skip

    def ends(self, process: subprocess.Popen, code: int | None = None) -> str:
        self.said = process.communicate(timeout=300)[0]
        need("Traceback" not in self.said, self.said[-600:])
        need(code is None or process.returncode == code, f"exit status {process.returncode}: {self.said[-400:]}")
        return self.said

    def run(self, *words: str, code: int = 0, **settings: object) -> str:
        return self.ends(self.command(*words, **settings), code)

    def tool(self, *words: str) -> str:
        command = [sys.executable, "-m", "zsl", "tracking", *words, str(self.folder / "multirun")]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=self.folder, env=env, text=True, capture_output=True)
        need(done.returncode == 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def number(self, job: int | None = None) -> str:
        """Slurm's number of a job of the sweep, or of its array."""
        names = [p.name for p in self.at.glob(".submitit/*") if re.fullmatch(r"\d+(_\d+)?", p.name)]
        array = names[0].partition("_")[0]
        return f"{array}_{job}" if len(names) > 1 and job is not None else array

    def slurm(self) -> Counter[str]:
        """How many rows of sacct have which word; jobs of an array that never began are one row."""
        text = ask("sacct", "-n", "-X", "-P", "-o", "State", "-j", self.number())
        return Counter(line.split()[0] for line in text.splitlines() if line)

    def job(self, number: int) -> dict:
        path = self.at / str(number) / "status.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def jobs(self) -> Counter[str]:
        return Counter(json.loads(p.read_text())["status"] for p in self.at.glob("*/status.json"))

    def sweep(self) -> str:
        return str(json.loads((self.at / "sweep.json").read_text())["status"])

    def stored(self) -> tuple[list[str], Counter[str]]:
        """What the server says of the sweeps in this folder, and of their jobs."""
        from mlflow import MlflowClient

        client = MlflowClient(self.uri)
        runs = client.search_runs([client.get_experiment_by_name("zsl").experiment_id], max_results=1000)
        mine = [r for r in runs if r.data.tags["zsl.folder"].startswith(f"{self.folder}/")]
        parents = [r for r in mine if r.data.tags["zsl.kind"] == "sweep"]
        jobs = [r for r in mine if r not in parents]
        need({r.data.tags.get("mlflow.parentRunId") for r in jobs} <= {p.info.run_id for p in parents}, "a lone job")
        return sorted(p.info.status for p in parents), Counter(r.info.status for r in jobs)

    def log(self, number: int) -> str:
        return (self.at / str(number) / "zsl.log").read_text()

    def until(self, fact: Callable[[], object], *alive: subprocess.Popen, seconds: float = 150) -> None:
        end = time.monotonic() + seconds
        while not fact():
            need(time.monotonic() < end, "it did not come to the state that the case needs")
            for one in alive:
                need(one.poll() is None, one.communicate()[0] if one.poll() is not None else "")
            time.sleep(0.3)

    def runs(self, number: int) -> bool:
        """Whether a job has begun and is known to the server."""
        return bool((self.job(number).get("tracking") or {}).get("run_id"))

    def starts_again(self, number: int, *alive: subprocess.Popen) -> None:
        """Wait until Slurm has put a job back into the queue, and spare it the two minutes that Slurm lets it wait."""
        job = self.number(number)
        self.until(lambda: "JobState=PENDING" in ask("scontrol", "show", "job", job), *alive)
        ask("scontrol", "update", f"jobid={job}", "starttime=now")

    def expect(self, slurm: dict[str, int], jobs: dict[str, int], sweep: str) -> None:
        """Slurm's words for the jobs; the words of their folders and of the server; that of the sweep, likewise."""
        self.until(lambda: not set(self.slurm()) & {"RUNNING", "PENDING"}, seconds=40)  # the accounting lags behind
        need(self.slurm() == slurm, f"sacct: {dict(self.slurm())}")
        need(self.jobs() == jobs, f"folders: {dict(self.jobs())}")
        need(self.sweep() == sweep, f"sweep: {self.sweep()}")
        need(self.stored() == ([sweep], jobs), f"server: {self.stored()}")


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def case(work: Callable[[Sweep], None]) -> Callable[[Sweep], None]:
    CASES[work.__name__.replace("_", " ")] = work
    return work


@case
def the_documented_sweep_and_skip_existing(s: Sweep) -> None:
    said = s.run(*OWN, "model._target_=mine.Slow", "model.gamma=0.1", "seed=range(3)")
    need("3 finished" in said, said)
    s.expect({"COMPLETED": 3}, {"FINISHED": 3}, "FINISHED")
    hosts = {s.job(n)["process"]["host"] for n in range(3)}
    need(hosts <= {"alpha", "beta"}, hosts)
    again = s.run(*OWN, "model._target_=mine.Slow", "model.gamma=0.1", "seed=range(3)", "skip_existing=true",
                  "hydra.sweep.dir=multirun/again")  # fmt: skip
    need("3 skipped" in again, again)
    need(s.stored() == (["FINISHED", "FINISHED"], {"FINISHED": 3}), s.stored())


@case
def a_job_that_fails(s: Sweep) -> None:
    said = s.run("dataset=synthetic", "model=ridge", "model.gamma=1,-1", code=1)
    need("failed: 1" in said, said)
    s.expect({"COMPLETED": 2}, {"FINISHED": 1, "FAILED": 1}, "FAILED")


@case
def killed_for_time(s: Sweep) -> None:
    s.run(*LONG, "model.n_iter=1000000,1", timeout_min=1, signal_delay_s=5, code=1)
    s.expect({"TIMEOUT": 1, "COMPLETED": 1}, {"KILLED": 1, "FINISHED": 1}, "FAILED")
    need(s.job(0)["error"] == "stopped by SIGTERM", s.job(0)["error"])
    need("Slurm will end this job soon" in s.log(0), s.log(0))
    need("_0 TIMEOUT" in s.said, s.said)


@case
def killed_for_memory(s: Sweep) -> None:
    s.run(*OWN, "model._target_=mine.Hungry", "model.gamma=2,1", code=1)
    # Without cgroups, as here, Slurm 22.05 says FAILED (signal 9); with them it says OUT_OF_MEMORY.
    word = "OUT_OF_MEMORY" if s.slurm()["OUT_OF_MEMORY"] else "FAILED"
    s.expect({word: 1, "COMPLETED": 1}, {"KILLED": 1, "FINISHED": 1}, "FAILED")
    need(s.job(0)["error"] == f"its process was killed (Slurm: {word})", s.job(0)["error"])


@case
def scancel_of_the_array(s: Sweep) -> None:
    one = s.command(*OWN, "model._target_=mine.Slow", "model.gamma=500,501,502,503", array_parallelism=2)
    s.until(lambda: s.runs(0) and s.runs(1), one)
    ask("scancel", s.number())
    s.ends(one, 1)
    s.expect({"CANCELLED": 3}, {"KILLED": 2}, "KILLED")  # two that ran, and one row for the two that waited
    need({s.job(n)["error"] for n in (0, 1)} == {"stopped by SIGTERM"}, s.job(0))


@case
def signalled_before_the_end_of_its_time_and_requeued(s: Sweep) -> None:
    one = s.command(*LONG, *KEPT, "model.n_iter=5000", "seed=0", max_num_timeout=2)
    s.until(lambda: list(s.folder.glob("ck/fit-*.npz")), one)
    ask("scancel", "--signal=USR2", s.number(0))
    s.starts_again(0, one)
    s.ends(one, 0)
    s.expect({"COMPLETED": 1}, {"FINISHED": 1}, "FINISHED")
    need(s.log(0).count("going on from ck/fit-") == 1, s.log(0))
    need("restarts=1" in restarts(s.number(0)), restarts(s.number(0)))


@case
def requeued_by_Slurm(s: Sweep) -> None:
    """As for jobs that have to make room: SIGTERM, and another start; a job that had finished is not repeated."""
    one = s.command(*LONG, *KEPT, "model.n_iter=5000,1")
    s.until(lambda: list(s.folder.glob("ck/fit-*.npz")) and s.job(1).get("status") == "FINISHED", one)
    ask("scontrol", "requeue", s.number())
    for n in (0, 1):
        s.starts_again(n, one)
    s.ends(one, 0)
    need("had finished before it was started again" in s.log(1), s.log(1))
    s.expect({"COMPLETED": 2}, {"FINISHED": 2}, "FINISHED")
    need(s.log(0).count("going on from ck/fit-") == 1, s.log(0))


def restarts(number: str) -> str:
    found = re.search(r"Restarts=\d+", ask("scontrol", "show", "job", number))
    return found[0].lower() if found else ""


@case
def Ctrl_C_and_repair_while_jobs_go_on(s: Sweep) -> None:
    one = s.command(*OWN, "model._target_=mine.Slow", "model.gamma=45,0.1", array_parallelism=1)
    s.until(lambda: s.runs(0), one)
    one.send_signal(signal.SIGINT)
    need("go on; `scancel" in s.ends(one, 130), s.said)
    said = s.tool("repair")
    need("its jobs wait or run in Slurm" in said, said)
    need((s.sweep(), s.jobs()) == ("RUNNING", {"RUNNING": 1}), (s.sweep(), s.jobs()))
    need(s.stored() == (["RUNNING"], {"RUNNING": 1}), s.stored())
    s.until(lambda: s.jobs() == {"FINISHED": 2} and s.slurm() == {"COMPLETED": 2})
    need("sweep FINISHED" in s.tool("repair"), "the sweep is not over")
    s.expect({"COMPLETED": 2}, {"FINISHED": 2}, "FINISHED")


@case
def a_job_killed_after_its_sweep_was(s: Sweep) -> None:
    one = s.command(*OWN, "model._target_=mine.Slow", "model.gamma=500,501", array_parallelism=1)
    s.until(lambda: s.runs(0), one)
    one.kill()
    one.communicate()
    need("unchanged" in s.tool("repair"), "a job that runs elsewhere was judged")
    need(s.jobs() == {"RUNNING": 1}, s.jobs())
    ask("scancel", "--signal=KILL", s.number())
    s.until(lambda: not set(s.slurm()) & {"RUNNING", "PENDING"})
    s.tool("repair")
    need((s.jobs(), s.sweep()) == ({"KILLED": 1}, "KILLED"), (s.jobs(), s.sweep()))
    need(s.stored() == (["KILLED"], {"KILLED": 1}), s.stored())
    s.said = s.job(0)["error"]


@case
def cores_that_Slurm_grants(s: Sweep) -> None:
    s.run(*OWN, "model._target_=mine.Counting", "model.gamma=2", "seed=0", cpus_per_task=2)
    s.expect({"COMPLETED": 1}, {"FINISHED": 1}, "FINISHED")
    words = [sys.executable, "-m", "zsl.main", *OWN, "model._target_=mine.Counting", "model.gamma=1", "tracking=none"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{s.folder}"}
    done = subprocess.run(["srun", "--cpus-per-task=1", "--mem=1G", *words], cwd=s.folder, env=env, capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    need(done.returncode == 0, done.stdout + done.stderr)


def alone(work: Callable[[Sweep], None]) -> Callable[[Sweep], None]:
    """A case that other sweeps would suffer from."""
    ALONE.add(work)
    return case(work)


ALONE: set[Callable[[Sweep], None]] = set()


@alone
def a_node_that_goes_down(s: Sweep) -> None:
    """The job is started again on the other node, and one that may not be is marked."""
    one = s.command(*LONG, *KEPT, "model.n_iter=5000", "seed=0,1")
    s.until(lambda: s.job(0) and s.job(1), one)
    (s.folder / "fixed").mkdir()
    other = Sweep(s.folder / "fixed", s.uri)
    there = (f"+hydra.launcher.additional_parameters.{word}" for word in ("nodelist=beta", "no_requeue=true"))
    two = other.command(*OWN, "model._target_=mine.Slow", "model.gamma=500", "seed=0", *there)
    s.until(lambda: len(list(s.folder.glob("ck/fit-*.npz"))) == 2 and other.runs(0), one, two)
    lost = [n for n in (0, 1) if s.job(n)["process"]["host"] == "beta"]
    need(lost, "no job runs on beta")
    subprocess.run([NODE, "crash", NODE_FOLDER], check=True)
    ask("scontrol", "update", "nodename=beta", "state=down", "reason=test")
    for n in lost:
        s.starts_again(n, one)
    s.ends(one, 0)
    other.ends(two, 1)
    s.until(lambda: s.slurm() == {"COMPLETED": 2}, seconds=40)  # the accounting lags behind
    need(s.jobs() == {"FINISHED": 2}, s.jobs())
    need(all("going on from ck/fit-" in s.log(n) for n in lost), s.log(lost[0]))
    other.expect({"NODE_FAIL": 1}, {"KILLED": 1}, "FAILED")
    need(other.job(0)["error"].endswith("(Slurm: NODE_FAIL)"), other.job(0)["error"])


NODE_FOLDER = ""


def server(folder: Path) -> tuple[subprocess.Popen, str]:
    """An MLflow server on loopback, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
           "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}  # fmt: skip
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    for _ in range(300):
        time.sleep(0.3)
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).status == 200:
                return process, f"http://127.0.0.1:{port}"
        except OSError:
            need(process.poll() is None, (folder / "server.log").read_text())
    raise Wrong("the MLflow server did not start")


def attempt(name: str, folder: Path, uri: str) -> bool:
    """Work a case and print its row."""
    place = folder / re.sub(r"\W", "-", name)
    place.mkdir()
    s, wrong, begun = Sweep(place, uri), "", time.monotonic()
    try:
        CASES[name](s)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    said = []
    for found in (s.slurm, s.jobs):
        try:
            said.append(", ".join(f"{n} {word}" for word, n in sorted(found().items())))
        except Exception as error:
            said.append(type(error).__name__)
    try:
        sweeps, jobs = s.stored()
        said.append(f"{' '.join(sweeps)}: {', '.join(f'{n} {w}' for w, n in sorted(jobs.items()))}")
    except Exception as error:
        said.append(type(error).__name__)
    seconds = time.monotonic() - begun
    row = f"{name:50} {said[0]:24} {said[1]:22} {said[2]:36} {'FAILED' if wrong else 'passed'} {seconds:4.0f} s"
    print(row + (f"\n    {' '.join(wrong.split())[-900:]}" if wrong else ""), flush=True)
    return not wrong


def main() -> int:
    """Print the table; exit status 1 if a case did not pass."""
    global NODE_FOLDER
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only cases whose name holds one of these")
    parser.add_argument("--install", action="store_true", help="install slurm-wlm, slurmdbd, munge and MariaDB by apt")
    parser.add_argument("--keep", action="store_true", help="keep the folders, and leave Slurm and the server running")
    given = parser.parse_args()
    if given.install and subprocess.run([NODE, "install"]).returncode:
        return 1
    chosen = [n for n in CASES if not given.words or any(word in n for word in given.words)]
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="zsl-cluster-"))
    folder.chmod(0o755)  # munge and MariaDB run as users of their own
    NODE_FOLDER = str(folder / "slurm")
    # Every job starts with one thread of its own, whatever the environment of this process says.
    for name in [n for n in os.environ if n.endswith("_NUM_THREADS") or n.startswith("MLFLOW_TRACKING")]:
        del os.environ[name]
    passed, process = 0, None
    try:
        if subprocess.run([NODE, "start", NODE_FOLDER]).returncode:
            return 1
        os.environ["SLURM_CONF"] = f"{NODE_FOLDER}/slurm.conf"
        process, uri = server(folder)
        # The first fit after an installation compiles kernels, which takes longer than the time limits here.
        subprocess.run([sys.executable, "-m", "zsl.main", *LONG, "model.n_iter=1", "tracking=none"], cwd=folder,
                       env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)  # fmt: skip
        print(f"{'case':50} {'jobs, as sacct says':24} {'their folders':22} {'MLflow, sweep: jobs':36}")
        together = [n for n in chosen if CASES[n] not in ALONE]
        with ThreadPoolExecutor(3) as pool:
            passed += sum(pool.map(lambda name: attempt(name, folder, uri), together))
        passed += sum(attempt(name, folder, uri) for name in chosen if CASES[name] in ALONE)
    finally:
        if given.keep:
            print(f"kept: {folder}; stop Slurm by {NODE} stop {NODE_FOLDER}")
        else:
            if process:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
            subprocess.run([NODE, "stop", NODE_FOLDER], check=False)
    print(f"{passed} of {len(chosen)} cases passed in {(time.monotonic() - begun) / 60:.1f} min; the folders: {folder}")
    return int(passed < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
