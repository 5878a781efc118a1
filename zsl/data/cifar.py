"""``zsl data build cifar_awa``: the images of ``cifar_awa``, from the archives of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.download import unpack
from zsl.data.readers.cifar_awa import image_key, packaged
from zsl.errors import UserError, reason, writing

# The archives of https://www.cs.toronto.edu/~kriz/cifar.html: the folder that each unpacks to, and its files by part.
_ARCHIVES = {
    "c10": ("cifar-10-python.tar.gz", "cifar-10-batches-py",
            {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}),
    "c100": ("cifar-100-python.tar.gz", "cifar-100-python", {"train": ["train"], "test": ["test"]}),
}  # fmt: skip


def build(images: Path, target: Path) -> Path:
    """Write the 4904 images of ``cifar_awa`` as PNG files below ``target``, and their Lite0 features beside them.

    Parameters
    ----------
    images : Path
        A folder that holds both archives of CIFAR (``cifar-10-python.tar.gz``, ``cifar-100-python.tar.gz``), or the
        folders that they unpack to.
    target : Path
        Receives ``images/CLASS/NAME.png``, unpacked archives, and ``lite0_1280.npz``. An interrupted build goes on.

    Returns
    -------
    Path
        The feature file, which ``dataset=cifar_awa feature.name=lite0_1280`` reads.

    Raises
    ------
    UserError
        If an archive or an image is missing or damaged, Pillow or torch is missing, or the features exist already.
    """
    try:
        from PIL import Image
    except ImportError:
        raise UserError("building cifar_awa needs Pillow and torch; pip install -e '.[extract-lite0]'.") from None
    features = target / "lite0_1280.npz"
    if features.exists():
        raise UserError(f"{features} exists already and is not overwritten; remove it or choose another --to FOLDER.")
    own = packaged()
    names, classes = own["files"].tolist(), own["class_names"][own["labels"]].tolist()
    with writing(target, "choose another place with --to"):
        for archive in _ARCHIVES:
            pixels = _read(archive, images, target)
            for name, class_name in zip(names, classes, strict=True):
                part, _, rest = name.partition("/")
                if not part.startswith(f"{archive}:"):
                    continue
                found = pixels.get((part.partition(":")[2], rest.rpartition("/")[2]))
                if found is None:
                    raise UserError(f"{images}: {_ARCHIVES[archive][0]} lacks the image {name}; download it again.")
                path = target / "images" / image_key(name, class_name)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(found).save(path)
    # Another process, because zsl.extract stands above zsl.data and loads torch.
    command = [sys.executable, "-m", "zsl.extract", str(target / "images"), "--to", str(features)]
    if subprocess.run(command, check=False).returncode:
        raise UserError(
            f"the images are in {target / 'images'}, but their features could not be extracted; see the line above."
        )
    return features


def _read(archive: str, images: Path, target: Path) -> dict[tuple[str, str], Array]:
    """The pixels (32, 32, 3) of every image of one archive, by part and file name."""
    packed, unpacked, parts = _ARCHIVES[archive]
    folder = next((base / unpacked for base in (images, target) if (base / unpacked).is_dir()), None)
    if folder is None:
        if not (images / packed).is_file():
            raise UserError(
                f"{images} holds neither {packed} nor the folder {unpacked}; download the archive from the page of "
                f"CIFAR (zsl data download cifar_awa --form cifar{archive[1:]}), and give its folder with "
                "--images."
            )
        unpack(images / packed, target)
        folder = target / unpacked
    found: dict[tuple[str, str], Array] = {}
    for part, batches in parts.items():
        for batch in batches:
            path = folder / batch
            try:
                with path.open("rb") as file:
                    stored = _Plain(file, encoding="bytes").load()
                pixels = stored[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                names = [name.decode() for name in stored[b"filenames"]]
                found |= {(part, name): image for name, image in zip(names, pixels, strict=True)}
            except Exception as error:  # pickle raises anything for what is no pickle
                raise UserError(f"{path} cannot be read ({reason(error)}); unpack {packed} again.") from None
    return found


class _Plain(pickle.Unpickler):
    """Reads arrays, lists and bytes; any other object, which could run code, is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no array")
