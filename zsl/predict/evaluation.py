"""``zsl predict --evaluate``: how many of the answers are right, where the true classes are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.readers.features import class_places
from zsl.data.readers.tabular import UNKNOWN, read_labels
from zsl.errors import UserError
from zsl.predict.inputs import is_folder_of_images
from zsl.runs.summary import standard_error

Best = list[tuple[str, float]]


def true_classes(path: Path, rows: Sequence[str]) -> list[str]:
    """The true class of each image: of a folder's images the folder that each lies in, else the file's labels.

    Parameters
    ----------
    path : Path
        A file of features with labels, or a folder with one folder of images per class.
    rows : sequence of str
        The images, in the order of the answers.

    Raises
    ------
    UserError
        If no image has a class.
    """
    found = [Path(row).parent.as_posix() for row in rows] if is_folder_of_images(path) else read_labels(path)
    found = ["" if name == "." or name.strip().lower() in UNKNOWN else name for name in found]
    if not any(found):
        raise UserError(
            f"--evaluate needs true classes, and {path} has none; put images into a folder of their class, or add "
            "labels to the file (a column 'label')."
        )
    return found


def not_counted(n: int, path: Path) -> str:
    """The sentence on n images whose classes the run was given."""
    images, has, are = ("1 image", "has", "is") if n == 1 else (f"{n} images", "have", "are")
    return f"{images} of {path} {has} a label in the run itself and {are} not counted."


def places_of(truth: Sequence[str], class_names: Sequence[str], where: Path) -> Array:
    """The position (n,) in ``class_names`` of each true class, whatever its blanks and capitals; -1 without one."""
    names = sorted(set(truth) - {""})
    places = dict(zip(names, class_places(names, class_names, where)))
    return np.array([places.get(name, -1) for name in truth], dtype=np.int64)


class Evaluation:
    """Counts right answers while they pass by.

    Parameters
    ----------
    truth : sequence of str
        The true class of each image; empty where it is unknown.
    class_names : sequence of str
        The classes that were to choose from.
    where : Path
        What holds the true classes, for messages.

    Examples
    --------
    >>> counted = Evaluation(["cat", "dog", "cow"], ["cat", "dog"], Path("photos"))
    >>> answers = list(counted.watch([[("cat", 1.0)], [("cat", 2.0)], [("dog", 1.0)]]))
    >>> for line in counted.lines(): print(line)
    class accuracy 0.500 ± 0.000 (the mean over 2 classes), hit@1 0.500, over 2 images
    1 image is of no class that was to choose from and is not counted: cow
    """

    def __init__(self, truth: Sequence[str], class_names: Sequence[str], where: Path) -> None:
        self.truth = places_of(truth, class_names, where).tolist()
        self.others = [name for name, place in zip(truth, self.truth) if name and place < 0]
        self.class_names = list(class_names)
        self.right: dict[int, list[int]] = {}
        self.top = 0

    def watch(self, best: Iterable[Best]) -> Iterator[Best]:
        """Pass on the best classes of each image, and count at which place the true class stands."""
        for true, line in zip(self.truth, best, strict=True):
            if true >= 0:
                order = [name for name, _ in line]
                name, self.top = self.class_names[true], len(line)
                self.right.setdefault(true, []).append(order.index(name) + 1 if name in order else 0)
            yield line

    def lines(self) -> list[str]:
        """The accuracies in a sentence, and which images were not counted."""
        if not self.right:
            return ["no image is of a class that was to choose from, so nothing can be evaluated"]
        share = {c: np.mean([place == 1 for place in places]) for c, places in self.right.items()}
        every = [place for places in self.right.values() for place in places]
        hits = "".join(f", hit@{k} {np.mean([0 < place <= k for place in every]):.3f}" for k in sorted({1, self.top}))
        mean = np.mean(list(share.values()))
        error = standard_error([(float(p), len(self.right[c])) for c, p in share.items()])
        classes = f"{len(share)} class{'es' if len(share) > 1 else ''}"
        out = [f"class accuracy {mean:.3f} ± {error:.3f} (the mean over {classes}){hits}, over {len(every)} images"]
        if self.others:
            n, shown = len(self.others), ", ".join(sorted(set(self.others))[:5])
            out.append(
                f"{n} image{'s are' if n > 1 else ' is'} of no class that was to choose from and "
                f"{'are' if n > 1 else 'is'} not counted: {shown}"
            )
        return out
