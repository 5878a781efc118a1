"""The formats that zsl reads: each function writes a good file, and returns it with what reads it."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Load = Callable[[], Any]
Maker = Callable[[Path], tuple[Path, Load]]


def _xlsa17(file: str, *, compressed: bool = False, version: str = "5") -> Maker:
    def make(folder: Path) -> tuple[Path, Load]:
        import h5py
        from scipy.io import savemat

        import archives
        from zsl.data.readers import xlsa17

        archives.write_xlsa17(folder)
        table = archives.small()
        X, labels = archives.features_for(table["labels"]), table.pop("labels") + 1.0
        mats = {"res101.mat": {"features": X.T, "labels": labels[:, None]}, "att_splits.mat": table}
        if version == "7.3":
            with h5py.File(folder / file, "w") as f:
                f.create_dataset("features", data=X, compression="gzip" if compressed else None)
                f["labels"] = labels[None, :]
        else:
            savemat(folder / file, mats[file], do_compression=compressed, format=version)
        return folder / file, lambda: xlsa17.load(str(folder), cache="off")

    return make


def _tabular(file: str) -> Maker:
    def make(folder: Path) -> tuple[Path, Load]:
        import pandas as pd

        import archives
        from zsl.data.readers import tabular

        labels = np.arange(24) % 4
        X, names = archives.features_for(labels, 5).astype(np.float64), np.array(["cat", "dog", "fox", "owl"])
        frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(5)]).assign(label=names[labels])
        frame.assign(file=[f"{i}.jpg" for i in range(24)]).to_csv(folder / "f.csv", index=False)
        frame.to_csv(folder / "comma.csv", index=False, sep=";", decimal=",")
        frame.to_csv(folder / "utf16.csv", index=False, sep="\t", encoding="utf-16")
        frame.to_parquet(folder / "f.parquet")
        np.savez(folder / "f.npz", features=X, labels=labels + 1, class_names=names)
        np.savez_compressed(folder / "packed.npz", features=X, labels=names[labels])
        np.save(folder / "f.npy", X)
        (folder / "labels.txt").write_text("\n".join(names[labels]) + "\n")
        (folder / "unseen.txt").write_text("# never seen\nfox\nowl\n")
        (folder / "classes.csv").write_text(
            "class,a,b,c\n" + "".join(f"{n},{i},0.5,{-i}\n" for n, i in zip(names, (3, 1, 2, 9)))
        )
        beside = file in ("classes.csv", "unseen.txt")
        features = "f.csv" if beside else "f.npy" if file == "labels.txt" else file
        more = {"labels": "labels.txt"} if features == "f.npy" else {}
        return folder / file, lambda: tabular.load(
            features, attributes="classes.csv", unseen="unseen.txt", root=str(folder), cache="off", **more
        )

    return make


def _text_table(file: str) -> Maker:
    def make(folder: Path) -> tuple[Path, Load]:
        from zsl.data.cache import Folder
        from zsl.data.readers.files import read_table
        from zsl.data.readers.tables import named_semantics

        (folder / "numbers.txt").write_text("".join(f"{i} {i / 7:.4f} -{i}\n" for i in range(9)))
        (folder / "wordvec.txt").write_text("".join(f"{c} {i / 7:.4f} -{i}\n" for i, c in enumerate("abcdefghi")))
        if file == "numbers.txt":
            return folder / file, lambda: read_table(folder / file)
        return folder / file, lambda: named_semantics(Folder(folder), "wordvec", tuple("abcdefghi"), 3, ())

    return make


def _image(suffix: str, mode: str = "RGB", **options: Any) -> Maker:
    def make(folder: Path) -> tuple[Path, Load]:
        from PIL import Image

        from zsl.errors import UserError
        from zsl.extract.__main__ import _prepared
        from zsl.extract.images import Images
        from zsl.extract.lite0 import Settings
        from zsl.extract.networks import Network
        from zsl.extract.pixels import open_image

        (folder / "fox").mkdir()
        ramp = np.add.outer(np.arange(24), np.arange(32)) * 4
        pixels = (ramp * 257).astype(np.uint16) if mode == "I;16" else np.stack([ramp] * 3, axis=2).astype(np.uint8)
        image = Image.fromarray(pixels)
        file = f"fox/a.{suffix}"
        (image if mode == "I;16" else image.convert(mode)).save(folder / file, **options)

        def load() -> Any:
            network = Network(lambda path: Settings()(open_image(path)), len, {}, 1, (3, 224, 224))
            ((_, found),) = _prepared(Images(folder, (file,), ("fox",)), [range(1)], network, 1)
            if not len(found):
                raise UserError("left out")
            return found[0]

        return folder / file, load

    return make


def _run(file: str) -> Maker:
    """A file of a run's folder, read by what reads such files."""

    def make(folder: Path) -> tuple[Path, Load]:
        from zsl.classifier import ZeroShotClassifier
        from zsl.config import compose
        from zsl.experiment.run import run
        from zsl.report.records import read_records
        from zsl.runs.status import find, read
        from zsl.tracking.maintain import repair

        place = folder / "runs" / "1"
        run(compose(["dataset=digits", "model=ridge", "inference=aag", "tracking=none"]), place)
        digest = read(place / "results.json")["digest"]

        def load() -> Any:
            if file == "model.skops":
                model = ZeroShotClassifier.load(place / file)
                return model.predict(np.eye(64)).tolist()
            if file == "status.json":
                return repair([folder / "runs"]), read(place / file).get("status")
            return find(folder / "runs", digest), read_records(folder / "runs").to_json()

        return place / file, load

    return make


def _checkpoint(folder: Path) -> tuple[Path, Load]:
    from zsl.sparse.checkpoint import Checkpoint

    kept = Checkpoint(folder / "c", "ab" * 16, 5)
    kept.save({"D": np.arange(30.0).reshape(5, 6), "i": np.array(3)})
    return kept.path, kept.load


def _cache(folder: Path) -> tuple[Path, Load]:
    from zsl.data import cache
    from zsl.data.readers.files import read_table

    cache._WORTH_CACHING = 0
    (folder / "a.txt").write_text("1 2\n3 4\n")

    def load() -> Any:
        return dict(cache.Folder(folder).cached("a", [folder / "a.txt"], lambda: {"a": read_table(folder / "a.txt")}))

    load()
    return next((folder / ".zsl-cache").iterdir()), load


def _yaml(folder: Path) -> tuple[Path, Load]:
    import hydra
    from omegaconf import OmegaConf

    from zsl.config import check_own_files, compose, conf_dir, resolve

    path = folder / "experiment" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(
        "# @package _global_\ndefaults:\n  - override /model: ridge\nseed: 3\nthreads: ${seed}\nsubset: {images: 3}\n"
    )
    base = resolve(compose(["model=ridge"]))

    def load() -> Any:
        arguments = ["--config-dir", str(folder)]
        check_own_files(arguments)
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            found = compose([f"hydra.searchpath=[{folder}]", "experiment=mine"])
            return {k: v for k, v in resolve(found).items() if base.get(k) != v}, OmegaConf.to_yaml(found)[:0]

    return path, load


def _archive(kind: str) -> Maker:
    def make(folder: Path) -> tuple[Path, Load]:
        from zsl.data.download import unpack

        (folder / "a.txt").write_text("some text\n" * 30)
        path = folder / f"archive.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
                z.write(folder / "a.txt", "AWA/a.txt")
        else:
            with tarfile.open(path, "w:gz") as t:
                t.add(folder / "a.txt", "AWA/a.txt")

        def load() -> Any:
            with tempfile.TemporaryDirectory(dir=folder) as target:
                unpack(path, Path(target))
                return [(p.name, p.read_bytes()) for p in sorted(Path(target).rglob("*")) if p.is_file()]

        return path, load

    return make


FORMATS: dict[str, Maker] = {
    "mat 5 features": _xlsa17("res101.mat"), "mat 5 splits": _xlsa17("att_splits.mat"),
    "mat 5 packed features": _xlsa17("res101.mat", compressed=True),
    "mat 5 packed splits": _xlsa17("att_splits.mat", compressed=True),
    "mat 4 features": _xlsa17("res101.mat", version="4"), "mat 7.3 features": _xlsa17("res101.mat", version="7.3"),
    "mat 7.3 packed": _xlsa17("res101.mat", version="7.3", compressed=True),
    **{file: _tabular(file) for file in ("f.npz", "packed.npz", "f.npy", "f.csv", "comma.csv", "utf16.csv", "f.parquet",
                                         "labels.txt", "unseen.txt", "classes.csv")},
    **{file: _text_table(file) for file in ("numbers.txt", "wordvec.txt")},
    "checkpoint": _checkpoint, "cache": _cache, "zip": _archive("zip"), "tar.gz": _archive("tar.gz"),
    "yaml": _yaml, **{file: _run(file) for file in ("results.json", "status.json", "model.skops")},
    "png": _image("png"), "png of 16 bits": _image("png", "I;16"), "png with holes": _image("png", "RGBA"),
    "jpeg": _image("jpg"), "gif": _image("gif"), "bmp": _image("bmp"), "webp": _image("webp"), "tiff": _image("tif"),
    "tiff packed": _image("tif", compression="tiff_lzw"), "pgm": _image("pgm", "L"),
}  # fmt: skip
# Compiled readers that are not ours; a crash of one would end the test suite.
FOREIGN = {"mat 7.3 features", "mat 7.3 packed", "f.parquet", "png", "png of 16 bits", "png with holes", "jpeg",
           "gif", "bmp", "webp", "tiff", "tiff packed", "pgm"}  # fmt: skip
# Formats of which one file takes long get a share of the mutations.
SHARE = {"yaml": 0.2, "model.skops": 0.4}
