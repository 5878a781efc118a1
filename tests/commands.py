"""The command ``zsl run`` in this process, and in one of its own where a test needs a process."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from conftest import ROOT


def zsl(*arguments: str, cwd: Path) -> SimpleNamespace:
    """Run ``zsl run`` in a folder, in this process; returns ``returncode``, ``out`` and ``err``."""
    from zsl.main import main

    root, out, err, code = logging.getLogger(), io.StringIO(), io.StringIO(), 0
    handlers, level = root.handlers[:], root.level
    # Hydra sets up logging for a process, and main() an environment variable.
    with (
        patch.dict(os.environ, {"COLUMNS": "200"}), patch.object(sys, "argv", ["zsl", *arguments]), chdir(cwd),
        redirect_stdout(out), redirect_stderr(err),
    ):  # fmt: skip
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return SimpleNamespace(returncode=code, out=out.getvalue(), err=err.getvalue())


def start(*arguments: str, cwd: Path, unset: tuple[str, ...] = (), **environment: str) -> subprocess.Popen:
    """Start ``zsl run`` in a process of its own."""
    env = {k: v for k, v in os.environ.items() if k not in unset}
    env |= {"PYTHONPATH": f"{ROOT}:{cwd}", "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "zsl.main", *arguments], cwd=cwd, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(condition, *jobs: subprocess.Popen, seconds: float = 120) -> None:
    """Wait until a condition is true, while all jobs run."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        for job in jobs:
            assert job.poll() is None, job.communicate()[1]
        time.sleep(0.1)
