"""Signals end a run as an exception does, whatever compiled code makes of exceptions."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest

from zsl.errors import interruptible, interruption, raise_if_interrupted
from zsl.models import CoupledDictionaries
from zsl.runs.folder import run_folder
from zsl.runs.status import read

SIGNALS = [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]


@pytest.fixture(autouse=True)
def _standard_handlers():
    """Whoever starts the tests may have them ignore SIGINT."""
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_a_signal_is_an_exception_inside_alone(number, error):
    before = signal.getsignal(number)

    def interrupted():
        with interruptible() as handled:
            assert handled
            os.kill(os.getpid(), number)
            time.sleep(10)

    with pytest.raises(error) as caught:
        interrupted()
    assert signal.getsignal(number) == before
    assert interruption() is None
    if error is SystemExit:
        assert caught.value.code == 143


def swallowed(number):
    """A signal whose exception falls into a callback of compiled code, which ignores it."""

    @ctypes.CFUNCTYPE(None)
    def callback():
        os.kill(os.getpid(), number)
        sum(range(1000))

    callback()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_an_exception_that_compiled_code_swallows_is_raised_by_the_next_loop(number, error):
    def interrupted():
        with interruptible():
            swallowed(number)
            assert isinstance(interruption(), error)
            raise_if_interrupted()
            pytest.fail("the loop went on")

    with pytest.raises(error):
        interrupted()
    raise_if_interrupted()  # and no more afterwards


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_learning_looks_at_the_flag(rng):
    X, y = rng.standard_normal((40, 8)), np.repeat(np.arange(4), 10)
    Z = rng.standard_normal((4, 3))

    def interrupted():
        with interruptible():
            swallowed(signal.SIGINT)
            CoupledDictionaries(n_atoms=10).fit(X, y, Z[y], Z[:2])

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_any_exception_after_a_signal_is_due_to_the_signal(tmp_path):
    """As numba's `no compiled object yet`, where a signal has interrupted the compilation."""

    def interrupted():
        with interruptible(), run_folder(tmp_path) as out:
            out._begin("a run", "digest")
            swallowed(signal.SIGINT)
            raise RuntimeError("no compiled object yet")

    with pytest.raises(RuntimeError):
        interrupted()
    assert read(tmp_path / "status.json")["status"] == "KILLED"


def test_handlers_of_somebody_else_stay_and_threads_have_none():
    def theirs(*_):
        pass

    signal.signal(signal.SIGTERM, theirs)
    with interruptible() as handled:
        assert not handled
        assert signal.getsignal(signal.SIGTERM) is theirs
    found = []
    thread = threading.Thread(target=lambda: found.append(interruptible().__enter__()))
    thread.start()
    thread.join()
    assert found == [False]


class OfSubmitit:
    """What submitit sets in its jobs: SIGTERM is passed over, and SIGUSR2 may put the job back into the queue."""

    def __init__(self, outcome):
        self.outcome, self.called = outcome, 0

    def bypass(self, number, frame):
        pass

    def checkpoint_and_try_requeue(self, number, frame):
        self.called += 1
        os.kill(os.getpid(), signal.SIGTERM)  # as Slurm does with a job that is put back
        raise self.outcome


OfSubmitit.__module__ = "submitit.core.job_environment"


@pytest.fixture
def submitit():
    def under(outcome):
        handler = OfSubmitit(outcome)
        signal.signal(signal.SIGTERM, handler.bypass)
        signal.signal(signal.SIGUSR2, handler.checkpoint_and_try_requeue)
        return handler

    before = signal.getsignal(signal.SIGUSR2)
    yield under
    signal.signal(signal.SIGUSR2, before)


def test_a_job_of_submitit_that_is_cancelled_says_so(submitit, tmp_path):
    handler = submitit(SystemExit(-1))

    def cancelled():
        with interruptible() as handled, run_folder(tmp_path) as out:
            assert handled
            out._begin("a run", "digest")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

    with pytest.raises(SystemExit):
        cancelled()
    record = read(tmp_path / "status.json")
    assert (record["status"], record["error"]) == ("KILLED", "stopped by SIGTERM")
    assert signal.getsignal(signal.SIGTERM) == handler.bypass


def test_a_job_that_is_put_back_into_the_queue_ends_once(submitit, tmp_path):
    handler = submitit(SystemExit(-1))

    def put_back():
        with interruptible(), run_folder(tmp_path) as out:
            out._begin("a run", "digest")
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(10)

    with pytest.raises(SystemExit) as caught:
        put_back()
    assert handler.called == 1
    assert caught.value.code == 128 + signal.SIGUSR2
    record = read(tmp_path / "status.json")
    assert (record["status"], record["error"]) == ("KILLED", "stopped by SIGUSR2")


def test_a_job_that_is_not_put_back_uses_the_time_that_is_left(submitit, caplog):
    submitit(RuntimeError("Job not requeued because: timed-out too many times."))
    with interruptible():
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.01)
    assert (
        "Slurm will end this job soon, because the job was not put back into the queue (Job not requeued" in caplog.text
    )
