"""The table of docs/networks.md: ``python docs/measure_networks.py NAME...``, such as ``lite0`` or ``timm/NAME``.

Every network has random weights, which a first process writes into a file. A second one reads them as ``zsl extract``
does, and extracts 64 photographs (640 x 427, made of scikit-learn's) in batches of 32 with two threads.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

PHOTOGRAPHS, BATCH, THREADS = 64, 32, 2


def write_weights(name: str, file: Path) -> None:
    """Random weights for a network."""
    from safetensors.torch import save_file

    library, _, rest = name.partition("/")
    if library == "timm":
        import timm

        module = timm.create_model(rest)
    elif library == "torchvision":
        from torchvision.models import get_model

        module = get_model(rest.partition(":")[0], weights=None)
    else:
        import open_clip

        module = open_clip.create_model(rest.partition(":")[0])
    save_file({k: v.contiguous() for k, v in module.state_dict().items()}, file)


def measure(name: str, file: Path | None, size: int | None, folder: Path) -> tuple[int, int, float, float]:
    """Size, dimensions, images a second, and peak memory in MB."""
    import torch

    from zsl.bench.process import memory_mb
    from zsl.extract.__main__ import extract
    from zsl.extract.images import find_images
    from zsl.extract.networks import load_network

    torch.set_num_threads(THREADS)
    network = load_network(name, file, size=size)
    began = time.perf_counter()
    extract(find_images(folder / "photos"), network, folder / "x.npz", batch_size=BATCH, workers=THREADS)
    return network.shape[-1], network.dimensions, PHOTOGRAPHS / (time.perf_counter() - began), memory_mb("VmHWM")


def main(names: list[str]) -> None:
    """Print a row of the table for every network; ``NAME@SIZE`` is another input size than its own."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    from zsl.bench.process import in_a_process
    from zsl.extract.networks import ALIASES

    print(f"| network | input | dimensions | images a second | memory, MB |  ({os.cpu_count()} cores)")
    for word in names:
        name, _, size = word.partition("@")
        with tempfile.TemporaryDirectory() as scratch:
            photos, file = Path(scratch) / "photos" / "all", Path(scratch) / "random.safetensors"
            photos.mkdir(parents=True)
            for i in range(PHOTOGRAPHS):
                pixels = np.roll(load_sample_images().images[i % 2], i, axis=1)
                Image.fromarray(pixels).save(photos / f"{i}.jpg")
            if name != "lite0":
                in_a_process(write_weights, ALIASES.get(name, name), file)
            given = (name, file if name != "lite0" else None, int(size) if size else None, Path(scratch))
            pixels_wide, dimensions, speed, memory = in_a_process(measure, *given)
        print(f"| `{name}` | {pixels_wide} | {dimensions} | {speed:.1f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
