"""Where large products are computed: on the CPU by NumPy, or on a GPU by PyTorch.

A kernel asks :func:`current` for the device, puts its arrays there, computes with the functions of the array API
standard, whichever library the arrays belong to, and gets NumPy arrays back::

    here = current()
    a, b = here.put(A), here.put(B)
    C = here.get(here.xp.exp(a @ b))

On the CPU ``put`` and ``get`` return what they are given. Only sparse matrices are beyond the standard.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import array_api_compat
import array_api_compat.numpy as numpy_namespace
import numpy as np
import scipy.sparse as sp

from zsl.checks import Array, check_value
from zsl.errors import UserError

DeviceName = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Device:
    """A library of arrays that follows the array API standard, and the device on which it computes.

    Parameters
    ----------
    xp : module
        The library's namespace.
    place : optional
        The library's own name of the device.
    host : optional
        The library's name of the CPU, by way of which arrays come back.
    """

    xp: Any
    place: Any = None
    host: Any = None

    @property
    def is_cpu(self) -> bool:
        """Whether NumPy computes on the CPU."""
        return self.xp is numpy_namespace

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch computes, on whatever device."""
        return array_api_compat.is_torch_namespace(self.xp)

    def put(self, x: Array) -> Any:
        """The array on the device, in its own type; on the CPU it is the same array, so it must not be written to."""
        if self.is_cpu:
            return x
        if self.is_torch and not x.flags.writeable:
            x = x.copy()  # PyTorch warns if it gets a read-only array
        return self.xp.asarray(x, device=self.place)

    def get(self, x: Any) -> Array:
        """The array from the device as a NumPy array."""
        return x if self.is_cpu else np.asarray(array_api_compat.to_device(x, self.host))

    def smallest(self, D: Any, k: int) -> Any:
        """Columns (l, k) of the k smallest values of each row of D (l, n), in any order."""
        if self.is_torch:
            return D.topk(k, dim=1, largest=False, sorted=False).indices
        return self.xp.argsort(D, axis=1)[:, :k]

    def sparse(self, S: sp.csr_array) -> Any:
        """A sparse matrix on the device, for products ``sparse(S) @ P``; dense where the library has none."""
        if self.is_cpu:
            return S
        if not self.is_torch:
            return self.put(S.toarray())
        import torch

        parts = (torch.from_numpy(part) for part in (S.indptr, S.indices, S.data))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(*parts, size=S.shape, check_invariants=False).to(self.place)


CPU = Device(numpy_namespace)
_chosen: DeviceName | Device = "auto"


@contextmanager
def on_device(device: DeviceName | Device) -> Iterator[None]:
    """Choose where large products are computed while the context is open, for the whole process.

    Contexts of several threads must not overlap: each sets back the device that it found, which may be another
    thread's.

    Parameters
    ----------
    device : "auto", "cpu" or "cuda"
        ``cuda`` computes on a GPU, by PyTorch: the codes of ``solver="torch"``, large products of all solvers, sums
        over codes, updates of dictionaries, attribute-aware codes, the mixture and spreading. ``auto``, the default
        outside of a context, computes only the codes of ``solver="torch"`` on a GPU, where PyTorch finds one. ``cpu``
        uses no GPU. A :class:`Device` of another library does what ``cuda`` does, except for ``solver="torch"``.

    Raises
    ------
    UserError
        For ``cuda`` where PyTorch is not installed or finds no GPU.

    Examples
    --------
    >>> from zsl.device import on_device
    >>> with on_device("cpu"):
    ...     current().is_cpu
    True
    """
    global _chosen
    if not isinstance(device, Device):
        check_device(device)
    before, _chosen = _chosen, device
    try:
        yield
    finally:
        _chosen = before


def check_device(name: DeviceName) -> None:
    """Raise UserError for a name that does not exist, and for ``cuda`` without PyTorch or a GPU."""
    check_value(DeviceName, name, "device")
    if name == "cuda":
        torch_device("cuda")


def by_torch(place: Any) -> Device:
    """PyTorch on one of its devices; on its CPU device the kernels can be tried where there is no GPU."""
    import array_api_compat.torch as torch_namespace

    return Device(torch_namespace, place, "cpu")


def current() -> Device:
    """The device of kernels other than ``solver="torch"``."""
    if isinstance(_chosen, Device):
        return _chosen
    if _chosen != "cuda":
        return CPU
    return by_torch(torch_device("cuda"))


def torch_device(name: DeviceName | None = None) -> Any:
    """PyTorch's device for ``name``, or the chosen one, for ``solver="torch"``: ``auto`` is a GPU where there is one.

    Raises
    ------
    UserError
        If PyTorch is not installed, or finds no GPU for ``cuda``.
    """
    try:
        import torch
    except ImportError:
        what, other = ("device=cuda", "device=auto") if name == "cuda" else ("solver=torch", "solver=auto")
        raise UserError(f"{what} needs PyTorch; pip install -e '.[torch]', or take {other}.") from None
    if name is None:
        if isinstance(_chosen, Device):
            return torch.device(_chosen.place if _chosen.is_torch else "cpu")
        name = _chosen
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise UserError("device=cuda: PyTorch finds no GPU here; set device=auto, which does not need one.")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
