"""Features as a ``dask.array``: chunks of rows that workers read from files of several kinds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array, Count, check_arguments
from zsl.data.readers.features import named_labels
from zsl.data.readers.files import reading
from zsl.errors import UserError

# Rows of a chunk where the file does not say how it is divided: 8 to 64 MB of usual features.
_ROWS = 8192
_H5 = {".h5", ".hdf5"}
_KINDS = "a folder .zarr, a file .h5, .hdf5, .npy or .parquet, or a folder of .npy or .parquet files"


def open_features(path: str | Path, *, dataset: str = "features", rows: Count = _ROWS) -> Any:
    """Open features (n, p) as a ``dask.array`` with chunks of rows; nothing but sizes is read.

    Workers read the chunks, so the path must mean the same on every machine of the cluster.

    Parameters
    ----------
    path : path
        A folder ``.zarr`` (as ``zsl extract --to NAME.zarr`` writes it), a file ``.h5`` or ``.hdf5``, a file ``.npy``,
        a folder of ``.npy`` files with the same number of columns (in the order of their names), or a ``.parquet`` file
        or folder of numeric columns.
    dataset : str
        Which array of a Zarr group or an HDF5 file to take.
    rows : int
        Rows of a chunk of ``.npy`` files and of HDF5 files; HDF5 chunks with more rows stay whole. Zarr and Parquet
        are divided as they are stored.

    Returns
    -------
    dask.array

    Raises
    ------
    UserError
        For another kind of file, a file that cannot be read, and an array that is no matrix.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "features.npy", np.eye(4))
    >>> open_features(folder / "features.npy", rows=3).chunks  # doctest: +SKIP
    ((3, 1), (4,))
    """
    check_arguments(open_features, {"rows": rows})
    path = Path(path).expanduser()
    if not path.exists():
        raise UserError(f"there is no file or folder {path}; give {_KINDS}.")
    with reading(path, f"array of features ({_KINDS})"):
        X = _open(path, dataset, rows)
    if X.ndim != 2:
        raise UserError(f"{path}: {dataset} has shape {X.shape}; a matrix with one image per row is needed.")
    return X


def read_names(path: str | Path) -> Array | None:
    """The class name (n,) of each row of a ``.zarr`` folder that ``zsl extract`` wrote; None where it has no labels.

    Raises
    ------
    UserError
        If ``path`` is no ``.zarr`` folder, because files of other kinds hold no class names, and for labels that do not
        count its class names from 1.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() != ".zarr":
        raise UserError(f"{path} is no .zarr folder, and only these have class names beside the features.")
    found = read_zarr(path)
    if "labels" not in found:
        return None
    labels = found["labels"]
    if labels.dtype.kind in "US":
        return labels
    return named_labels(labels, found["class_names"], path) if "class_names" in found else labels.astype(str)


def read_zarr(path: Path, *, features: bool = False) -> dict[str, Array]:
    """The arrays of a Zarr group in memory, ``features`` only if they are wanted."""
    import zarr

    with reading(path, "Zarr group"):
        group = zarr.open(path, mode="r")
        if not isinstance(group, zarr.Group):  # an array without a group has no labels beside it
            return {"features": np.asarray(group)} if features else {}
        return {name: np.asarray(array) for name, array in group.arrays() if features or name != "features"}


def _open(path: Path, dataset: str, rows: int) -> Any:
    import dask.array as da

    suffix = path.suffix.lower()
    if suffix == ".zarr":
        import zarr

        store = zarr.open(path, mode="r")
        if isinstance(store, zarr.Group):
            store = _array(path, store, dataset, [name for name, _ in store.arrays()])
        return da.from_zarr(store)
    if suffix in _H5:
        import h5py

        file = h5py.File(path, "r")
        array = _array(path, file, dataset, list(file))
        return da.from_array(array, chunks=(array.chunks and (max(array.chunks[0], rows), -1)) or (rows, -1))
    if suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        import dask.dataframe as dd

        return dd.read_parquet(path).select_dtypes("number").to_dask_array(lengths=True)
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path] if suffix == ".npy" else []
    if not files:
        raise UserError(f"{path} is none of the kinds that can be read in chunks; give {_KINDS}.")
    return da.concatenate([_npy(file, rows) for file in files])


def _array(path: Path, group: Any, dataset: str, names: list[str]) -> Any:
    """The array of a group; a name of an array within a group within it has a slash."""
    try:
        found = group[dataset]
    except (KeyError, TypeError, ValueError):
        found = None
    if not hasattr(found, "chunks"):
        raise UserError(f"{path} has no array {dataset!r}; it has: {', '.join(sorted(names)) or 'none'}.")
    return found


def _npy(path: Path, rows: int) -> Any:
    import dask.array as da
    from dask import delayed

    about = np.load(path, mmap_mode="r", allow_pickle=False)
    if about.ndim != 2:
        raise UserError(f"{path} has shape {about.shape}; a matrix with one image per row is needed.")
    (n, p), read = about.shape, delayed(partial(_npy_rows, str(path)), name="read_npy", pure=False)
    ends = [min(i + rows, n) for i in range(0, n, rows)]
    parts = [da.from_delayed(read(i, end), (end - i, p), about.dtype) for i, end in zip(range(0, n, rows), ends)]
    return da.concatenate(parts)


def _npy_rows(path: str, start: int, stop: int) -> Array:
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[start:stop])
