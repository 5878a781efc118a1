"""From a folder of photographs to a page of answers: ``zsl try PHOTOS CLASSES``.

PHOTOS has a folder of photographs for some kinds, and a folder ``unlabelled`` with the images to be recognised. CLASSES
describes these kinds and others in sentences or attributes, as for ``zsl describe``. The page ``index.html`` shows the
answers, how sure they are and what they are based on, and how often such answers are right on kinds that were held out.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import logging
import shlex
import shutil
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from zsl.classifier import ZeroShotClassifier
from zsl.data.readers.files import read_npz
from zsl.errors import Parser, UserError, atomic, did_you_mean, exit_status, writing
from zsl.runs.files import PREDICTIONS
from zsl.runs.model_file import MODEL

log = logging.getLogger(__name__)

_PAGE, _RUN = "index.html", "run"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    from zsl.extract.choice import add_flags, parse

    parser = Parser("zsl try", description="From a folder of photographs and class descriptions to a page of answers.")
    parser.add_argument("photos", metavar="PHOTOS", type=Path,
                        help="a folder per kind, and a folder 'unlabelled' of images to be recognised")  # fmt: skip
    parser.add_argument("classes", metavar="CLASSES", type=Path, help="descriptions of the kinds, .yaml or .csv")
    parser.add_argument("--encoder", metavar="NAME", help="what encodes the sentences, as for zsl describe (tfidf)")
    parser.add_argument("--encoder-weights", metavar="FILE|FOLDER", type=Path,
                        help="weights of the encoder, where it is not the network of the images")  # fmt: skip
    parser.add_argument("--to", metavar="FOLDER", type=Path, help="where everything is written (default: PHOTOS-try)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="draws the kinds that are held out (0)")
    add_flags(parser, "lite0")
    # Of the runs behind the page only progress is shown: what they decide stands on the page.
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    for name in ("tryout", "extract", "describe", "progress"):
        logging.getLogger(f"zsl.{name}").setLevel(logging.INFO)
    interrupted = "interrupted; the same command goes on where it stopped."
    return exit_status("zsl try", lambda: _work(parse(parser, argv)), interrupted=interrupted)


def _work(arguments: argparse.Namespace) -> None:
    from zsl.experiment.loading import load
    from zsl.experiment.run import run
    from zsl.experiment.setup import checked
    from zsl.tryout.choice import IN_ONE_SPACE, METHODS, choose_method, configuration
    from zsl.tryout.evidence import answers
    from zsl.tryout.page import Story, expectation, page

    photos, source, seed = arguments.photos.expanduser(), arguments.classes.expanduser(), arguments.seed
    target = (arguments.to or photos.with_name(f"{photos.name}-try")).expanduser()
    if photos.resolve() in (target.resolve(), *target.resolve().parents):
        raise UserError(f"--to {target} lies in {photos}, whose folders are kinds; choose a place outside.")
    if seed < 0:
        raise UserError(f"--seed must be 0 or more, not {seed}.")
    with writing(target, "choose another place with --to"):
        made = _prepare(arguments, photos, source, target)
    data = load(checked(configuration(made.features, made.classes, "model=eszsl")))
    if len(data.unseen) < 2:
        raise UserError(
            f"{source} describes {'only one kind' if len(data.unseen) else 'no kind'} without photographs in {photos}; "
            "describe two or more, or there is nothing to choose from."
        )
    joint = made.encoder == made.network and data.X.shape[1] == data.attributes.shape[1]
    methods = [*(IN_ONE_SPACE if joint else ()), *METHODS]
    chosen = choose_method(made.features, made.classes, methods, seed)
    method = methods[chosen.best]
    log.info("chosen%s: %s", " on held-out kinds" if chosen.n_held else ", with too few kinds to compare", method.title)
    folder, before = target / _RUN, target / ".run-before"
    if (folder / "ask").exists():
        folder.rename(next(place for n in count(1) if not (place := target / f"{_RUN}-{n}").exists()))
    elif folder.exists():
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)  # until the new run and its page are there
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = run(configuration(made.features, made.classes, *method.words, seed=seed), folder)
    except BaseException:
        if before.exists():
            shutil.rmtree(folder, ignore_errors=True)
            before.rename(folder)
        raise
    story = Story(
        photos=photos, data=data, classifier=ZeroShotClassifier.load(folder / MODEL),
        answers=answers(result.prediction.scores), chosen=chosen, texts=made.texts,
        network=made.network, encoder=made.encoder, run=folder, skipped=made.skipped, notices=made.notices,
        flags=f" --weights {shlex.quote(str(arguments.weights))}" if arguments.weights else "",
    )  # fmt: skip
    with writing(target, "choose another place with --to"), atomic(target / _PAGE) as part:
        part.write_text(page(story), encoding="utf-8")
    shutil.rmtree(before, ignore_errors=True)
    print(f"{expectation(chosen)}\nOpen {target / _PAGE} in a browser; all answers are in {folder / PREDICTIONS}.")


class Made(NamedTuple):
    """What was made of photographs and descriptions."""

    features: Path
    classes: Path
    network: str
    encoder: str
    """Empty where there are named attributes alone"""
    skipped: list[str]
    """Images that cannot be read"""
    texts: dict[str, str]
    """The description of each class"""
    notices: list[str]
    """What is odd about the descriptions, a sentence each"""


def _prepare(arguments: argparse.Namespace, photos: Path, source: Path, target: Path) -> Made:
    """Describe the kinds, and extract features unless that is done.

    Raises
    ------
    UserError
        If the folder holds anything by others, or photographs and descriptions do not fit each other.
    """
    from zsl.describe.__main__ import describe
    from zsl.describe.classes import read_descriptions
    from zsl.describe.rows import no_word_in_common, same_descriptions
    from zsl.extract.__main__ import extract, stamps
    from zsl.extract.choice import network_of
    from zsl.extract.images import find_images

    images = find_images(photos)
    if "" not in images.classes:
        raise UserError(
            f"{photos} has no folder 'unlabelled' with images to be recognised; put them there (zsl run measures "
            "accuracy where their kinds are known)."
        )
    network = arguments.network or "lite0"
    descriptions = read_descriptions(source)
    _check_names(set(images.classes) - {""}, descriptions.names, photos, source)
    encoder = arguments.encoder or ""
    if descriptions.has_text and not encoder:
        encoder = network if network.startswith(("open_clip/", "hf/")) else "tfidf"
    weights = arguments.weights and arguments.weights.expanduser()
    of_weights = sorted(weights.rglob("*")) if weights and weights.is_dir() else [weights] if weights else []
    written = stamps([*(images.root / f for f in images.files), *(f for f in of_weights if f.is_file())])
    # Each file is called by what it is made of: what was changed is made anew, and an earlier run keeps its own.
    features = target / f"features-{_digest([images.files, images.classes, written, network])}.npz"
    classes = target / f"classes-{_digest([source.read_text(encoding='utf-8', errors='replace'), encoder])}.npz"
    if target.is_dir() and any(target.iterdir()) and not any(target.glob("classes-*.npz")):
        raise UserError(f"{target} is not empty and not by zsl try; choose another place with --to.")
    target.mkdir(parents=True, exist_ok=True)
    described = target / ".classes.npz"  # takes its name once it is complete
    described.unlink(missing_ok=True)
    own = arguments.encoder_weights and arguments.encoder_weights.expanduser()
    rows = describe(source, described, encoder or None, weights=own or (weights if encoder == network else None),
                    pickled=arguments.pickled, device=arguments.device)  # fmt: skip
    described.replace(classes)
    if not features.exists():
        log.info("reading %d images with %s", len(images.files), network)
        extract(images, network_of(arguments, "lite0"), features, workers=arguments.workers,
                progress=sys.stderr.isatty())  # fmt: skip
    skipped = read_npz(features, ["skipped"])["skipped"].tolist()
    texts = {name: "\n".join(own) for name, own in zip(rows.class_names, rows.texts)}
    notices = [*same_descriptions(rows), *no_word_in_common(rows)]
    return Made(features, classes, network, encoder, skipped, texts, notices)


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _check_names(folders: set[str], described: Sequence[str], photos: Path, source: Path) -> None:
    for name in sorted(folders - set(described)):
        raise UserError(
            f"{source} does not describe {name!r}, of which {photos} has photographs{did_you_mean(name, described)}; "
            "give the folder and its description one name."
        )
    if len(folders) < 2:
        raise UserError(
            f"{photos} has photographs of {'only one kind' if folders else 'no kind'}; two are needed, five to know "
            "how good the answers are, and ten or more are better."
        )


if __name__ == "__main__":
    sys.exit(main())
