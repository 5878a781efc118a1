"""The constants of this machine, measured once in minutes and kept in a file."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from zsl.errors import UserError
from zsl.system import machine_memory, usable_cores

_SIDE, _BYTES = 1024, 2**26
# The number of the model whose coefficients a file has; files of another one are not read.
_MODEL = 2


@dataclass(frozen=True)
class Machine:
    """Rates of this machine, and the coefficients that :mod:`zsl.costs.calibration` fitted on it."""

    product: float
    """Multiplications per second of a product in double precision, all threads"""
    product32: float
    """The same in single precision"""
    disk: float
    """Bytes per second that are read from a file that is not in memory"""
    loading: float
    """Bytes per second of features that are read from the disk, checked, hashed, and divided by a split"""
    base: float
    """Bytes that the process holds before it has data"""
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Coefficients of the terms of :mod:`zsl.costs.work`, by part"""
    growth: dict[str, float] = field(default_factory=dict)
    """How the number of non-zeros changes while atoms are learned"""
    about: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Keep the constants as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Machine:
        """The constants in a file.

        Raises
        ------
        UserError
            If the file holds something else.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{f.name: found[f.name] for f in fields(cls)})
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} does not hold the constants of a machine; delete it to measure again.") from None


def place() -> Path:
    """Where the constants of this machine lie: in the user's cache, by the number of cores that may be used."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "zsl" / f"machine-{_MODEL}-{platform.node() or 'here'}-{usable_cores()}.json"


def memory_limit() -> float:
    """Bytes that this process may use: the least of the machine's memory, its control group's and SLURM's limit.

    0 on systems that tell none of them.
    """
    limits = [float(machine_memory())]
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            limits.append(float(path.read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    limits += [_megabytes("SLURM_MEM_PER_NODE"), _megabytes("SLURM_MEM_PER_CPU") * usable_cores()]
    return min((limit for limit in limits if limit > 0), default=0.0)


def _megabytes(variable: str) -> float:
    """Bytes that a variable of Slurm says: megabytes, or another unit after the number; 0 without a limit."""
    found = re.fullmatch(r"(\d+)([KMGT]?)", os.environ.get(variable, ""))
    return float(found[1]) * 2.0 ** {"K": 10, "": 20, "M": 20, "G": 30, "T": 40}[found[2]] if found else 0.0


def raw_rates() -> dict[str, float]:
    """The rates of products and of the disk of this machine, in a few seconds."""
    from zsl.sparse.kernels.products import product

    rng = np.random.default_rng(0)
    A = rng.standard_normal((_SIDE, _SIDE))
    B = A.astype(np.float32)
    return {
        "product": _SIDE**3 / best(lambda: product(A, A.T)),
        "product32": _SIDE**3 / best(lambda: product(B, B.T)),
        "disk": _disk(np.ones(_BYTES // 8)),
    }


def _disk(X: np.ndarray) -> float:
    with tempfile.NamedTemporaryFile() as file:
        file.write(X.tobytes())
        file.flush()
        os.fsync(file.fileno())

        def read() -> None:
            forget(file.fileno())
            Path(file.name).read_bytes()

        return X.nbytes / best(read)


def forget(descriptor: int) -> None:
    """Ask the system to drop a file from memory, so that reading it reads the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def best(run: Callable[[], Any], rounds: int = 5) -> float:
    """The least seconds of a few rounds, after one that does not count."""
    run()
    return min(timeit.repeat(run, number=1, repeat=rounds))
