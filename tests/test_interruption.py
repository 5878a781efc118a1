"""Signals end a run as an exception does, whatever compiled code makes of exceptions."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import pytest

from zsl.experiment.interruption import terminable

SIGNALS = [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]


@pytest.fixture(autouse=True)
def _standard_handlers():
    """Whoever starts the tests may have them ignore SIGINT."""
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_a_signal_is_an_exception_inside_alone(number, error):
    before = signal.getsignal(number)

    def interrupted():
        with terminable() as handled:
            assert handled
            os.kill(os.getpid(), number)
            time.sleep(10)

    with pytest.raises(error) as caught:
        interrupted()
    assert signal.getsignal(number) == before
    if error is SystemExit:
        assert caught.value.code == 143


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_an_exception_that_a_compiled_callback_swallows_comes_again(number, error):
    # As in numba's callbacks while it loads what it has compiled: "Exception ignored on calling ctypes callback".
    @ctypes.CFUNCTYPE(None)
    def callback():
        os.kill(os.getpid(), number)
        sum(range(1000))

    begun = time.monotonic()

    def interrupted():
        with terminable():
            callback()
            while time.monotonic() - begun < 20:
                time.sleep(0.01)

    with pytest.raises(error):
        interrupted()
    assert time.monotonic() - begun < 10
    time.sleep(0.7)  # and no more afterwards


def test_cleaning_up_is_not_interrupted():
    done = []

    def interrupted():
        with terminable():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(10)
            except BaseException:
                try:
                    raise ValueError("something else goes wrong meanwhile")
                except ValueError:
                    time.sleep(0.8)
                finally:
                    time.sleep(0.4)
                done.append("clean")
                raise

    with pytest.raises(SystemExit):
        interrupted()
    assert done == ["clean"]


def test_handlers_of_others_and_other_threads_are_left_alone():
    def theirs(*_):
        pass

    signal.signal(signal.SIGTERM, theirs)
    with terminable() as handled:
        assert not handled
        assert signal.getsignal(signal.SIGTERM) is theirs
    found = []
    thread = threading.Thread(target=lambda: found.append(terminable().__enter__()))
    thread.start()
    thread.join()
    assert found == [False]
