"""Ask about a few test images of a finished run, and predict again with the answers: ``zsl ask RUN``.

Test images fall into clusters, and the class of one image names its cluster. ``zsl ask RUN`` writes the images that are
worth asking about into ``RUN/ask/questions.csv``, and a contact sheet of them. Fill in the column ``answer``, and
``zsl ask RUN --answers RUN/ask/questions.csv`` predicts again. ``--prompt`` asks in the terminal instead.
"""

from __future__ import annotations

import argparse
import csv
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zsl.ask.images import ImageFiles, TestImages, image_places, read_images
from zsl.ask.session import Session
from zsl.classifier import ZeroShotClassifier
from zsl.data.labelled import is_no_class, place_of, read_answers, shared_names
from zsl.data.readers.columns import read_csv
from zsl.errors import Parser, UserError, atomic, exit_status, writing
from zsl.evaluation import evaluate
from zsl.extract.choice import add_flags, parse
from zsl.inference.asking import WORTH_ASKING, Question
from zsl.predict.__main__ import model_of
from zsl.runs.files import PREDICTIONS, write_predictions
from zsl.text import as_cell

log = logging.getLogger(__name__)

QUESTIONS, SHEET, ANSWERS = "questions.csv", "questions.png", "answers.csv"
_COLUMNS = ("question", "image", "cluster_size", "guess", "certainty", "expected_gain", "answer")
# Rows of the contact sheet, and images in a row.
_ROWS, _PER_ROW = 24, 8


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl ask", description=(__doc__ or "").partition(":")[0] + ".")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder or id, or its model.skops")
    parser.add_argument("input", metavar="INPUT", type=Path, nargs="?",
                        help="raw features or a folder of images (default: the run's own test images)")  # fmt: skip
    parser.add_argument("--answers", type=Path, metavar="FILE.csv", help="predict again with these answers")
    parser.add_argument("--prompt", action="store_true", help="ask in the terminal, one image after another")
    parser.add_argument(
        "--truth", action="store_true", help="answer with the true classes and print the accuracy after each answer"
    )
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="where the image files are, for the contact sheet"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: the folder ask in the run's folder")
    add_flags(parser, "the one that made training's features")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                        help="a package outside zsl whose model the run used")  # fmt: skip
    parser.set_defaults(words=list(sys.argv[1:] if argv is None else argv))
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    smaller = "free some, or ask about fewer images"
    return exit_status("zsl ask", lambda: _work(parse(parser, argv)), smaller=smaller)


def _work(arguments: argparse.Namespace) -> None:
    chosen = [f"--{name}" for name in ("answers", "prompt", "truth") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} each say where answers come from; give one of them.")
    model = model_of(arguments.run)
    to = (arguments.to or model.parent / "ask").expanduser()
    classifier = ZeroShotClassifier.load(model, allow=arguments.allow)
    images = read_images(model.parent, classifier, arguments)
    session = Session.of(classifier, images.X)
    seen = [str(name) for name in classifier.class_attributes("seen").index]
    if arguments.truth:
        _print_truth(session, images)
        return
    if arguments.answers:
        session.answers = _read(arguments.answers.expanduser(), images, session, seen)
    else:
        files = ImageFiles(image_places(model.parent, arguments), shared_names(images.names))
        if arguments.prompt:
            _go_on(session, images, to, seen)
        questions = [q for q in _questions(session, images, files) if session.worth_asking(q)]
        if not arguments.prompt:
            _write_questions(questions, session, images, to)
            drawn = _draw(questions, session, images, files, to)
            _say_what_next(questions, session, arguments, to, drawn)
            return
        if not (to / QUESTIONS).is_file():  # whose sheet stays
            _draw(questions, session, images, files, to)
        try:
            _ask(session, images, files, seen, to)
        except KeyboardInterrupt:
            if session.answers:
                print(f"\nThe answers are in {to / ANSWERS}; the same command goes on from them.", file=sys.stderr)
            raise
    _write_answered(session, images, to)


def _read(path: Path, images: TestImages, session: Session, seen: Sequence[str]) -> dict[int, int]:
    return read_answers(path, images.names, images.rows, session.names, seen, images.taken)


def _go_on(session: Session, images: TestImages, to: Path, seen: Sequence[str]) -> None:
    """Take the answers that an earlier ``--prompt`` has written, so that they are not lost."""
    path = to / ANSWERS
    if not _has_answers(path):
        return
    try:
        session.answers = _read(path, images, session, seen)
    except UserError as error:
        raise UserError(
            f"{str(error).rstrip('.')}; the file is not overwritten, so correct or move it, or choose another --to."
        ) from None
    print(f"Going on from the {_many(len(session.answers), 'answer')} in {path}.")


def _has_answers(path: Path) -> bool:
    if not path.is_file():
        return False
    texts = read_csv(path, lambda header, _: range(len(header)), may_be_empty=True).texts
    return any(f.strip() for name, fields in texts.items() if name.lower() in ("class", "answer") for f in fields)


def _many(n: int, thing: str) -> str:
    return f"one {thing}" if n == 1 else f"{n} {thing}s"


def _questions(session: Session, images: TestImages, files: ImageFiles) -> list[Question]:
    return session.questions(lambda i: files.find(images.names[i]) is not None)


def _write_questions(questions: Sequence[Question], session: Session, images: TestImages, to: Path) -> None:
    """Write ``questions.csv``; one that somebody has filled in is not overwritten."""
    path, shared = to / QUESTIONS, shared_names(images.names)
    if _has_answers(path):
        raise UserError(f"{path} holds answers and is not overwritten; use --answers {path}, or another --to.")
    with (
        writing(to, "choose another --to"), atomic(path) as part, part.open("w", encoding="utf-8", newline="") as out
    ):  # fmt: skip
        table = csv.writer(out, lineterminator="\n")
        table.writerow([*_COLUMNS[:1], *(["row"] if shared else []), *_COLUMNS[1:]])
        for number, q in enumerate(questions, start=1):
            image, guess = as_cell(str(images.names[q.image])), as_cell(session.names[q.guess])
            row = [images.rows[q.image]] if shared else []
            table.writerow([number, *row, image, q.size, guess, f"{q.certainty:.2f}", round(q.gain), ""])


def _draw(questions: Sequence[Question], session: Session, images: TestImages, files: ImageFiles, to: Path) -> bool:
    """Write the contact sheet ``questions.png`` where image files are found; returns whether there is one."""
    rows = []
    for number, q in enumerate(questions[:_ROWS], start=1):
        near = [q.image, *(int(i) for i in q.images if i != q.image)]
        found = [(str(images.names[i]), file) for i in near if (file := files.find(images.names[i]))]
        title = (
            f"{number}  Which class is the framed image? It stands for {_many(q.size, 'image')}, taken for "
            f"{session.names[q.guess]} (probability {q.certainty:.2f})."
        )
        rows += [(title, found[:_PER_ROW])] if found else []
    with writing(to, "choose another --to"):
        (to / SHEET).unlink(missing_ok=True)
        if rows:
            from zsl.report.figures import contact_sheet

            with atomic(to / SHEET) as part:
                contact_sheet(rows, _PER_ROW).savefig(part, dpi=150)
    return bool(rows)


def _say_what_next(
    questions: Sequence[Question], session: Session, arguments: argparse.Namespace, to: Path, drawn: bool
) -> None:
    if not questions:
        print(f"no question is worth asking: each is expected to rename fewer than {WORTH_ASKING:.0%} of the images.")
        return
    sheet = (
        f"; {to / SHEET} shows the images"
        if drawn
        else " (no image file was found; give their folder by --images FOLDER)"
    )
    print(f"{to / QUESTIONS} asks about {_many(len(questions), 'image')}, the most useful first{sheet}.")
    words = shlex.join(["zsl", "ask", *arguments.words, "--answers", str(to / QUESTIONS)])
    print(f"Write classes into its column answer ({', '.join(session.names)}; empty: no label), then: {words}")


def _ask(session: Session, images: TestImages, files: ImageFiles, seen: Sequence[str], to: Path) -> None:
    """Ask in the terminal until the user or the gain says stop; each answer is written at once."""
    print(f"Classes: {', '.join(session.names)}. Enter skips an image, q ends.")
    skipped: set[int] = set()
    while True:
        left = [q for q in _questions(session, images, files) if q.image not in skipped and session.worth_asking(q)]
        if not left:
            print(f"No other question is expected to rename {WORTH_ASKING:.0%} of the images.")
            return
        q = left[0]
        shown = files.find(images.names[q.image]) or images.names[q.image]
        if str(shown) in files.shared:
            shown = f"{shown} (row {images.rows[q.image]})"
        alike = f"one of {q.size} alike" if q.size > 1 else "alone"
        print(f"{shown}\n  {alike}, taken for {session.names[q.guess]} (probability {q.certainty:.2f})")
        try:
            word = input("  class: ").strip()
        except EOFError:
            return
        if word == "q" and word not in session.names:
            return
        try:
            if is_no_class(word, [*session.names, *seen]):
                skipped.add(q.image)
            else:
                session.answers[q.image] = place_of(word, session.names, seen, "the answer")
                _write_answers(session, images, to)
        except UserError as error:
            print(f"  {error}")


def _write_answers(session: Session, images: TestImages, to: Path) -> None:
    """Write ``answers.csv``, a file for ``--answers`` and ``inference.labelled``."""
    with writing(to, "choose another --to"), atomic(to / ANSWERS) as part, part.open("w", encoding="utf-8") as out:
        table = csv.writer(out, lineterminator="\n")
        shared = shared_names(images.names)
        table.writerow([*(["row"] if shared else []), "image", "answer"])
        for i, m in session.answers.items():
            row = [images.rows[i]] if shared else []
            table.writerow([*row, as_cell(str(images.names[i])), as_cell(session.names[m])])


def _write_answered(session: Session, images: TestImages, to: Path) -> None:
    """Write ``predictions.csv``, and say what the answers have changed."""
    scores = session.scores()
    before = Session(session.clusters, session.names, session.known, session.n_images).scores()
    with writing(to, "choose another --to"):
        write_predictions(images.names, session.names, scores, images.y, to, column=images.column)
    n = len(session.answers)
    changed = int((scores.argmax(axis=1) != before.argmax(axis=1)).sum())
    print(f"{to / PREDICTIONS} has the predictions with {n} answer{'s' if n != 1 else ''}, which gave {changed} of "
          f"{len(scores)} images another class.")  # fmt: skip
    without = sorted(set(range(len(session.names))) - {*session.answers.values(), *session.known.tolist()})
    if n and without:
        names = ", ".join(session.names[m] for m in without)
        print(f"No answer names {names}; rows of your own (image, answer) may be added to the file of answers.")
    accuracy = _accuracy(scores, images.y, list(session.answers))
    if accuracy is not None:
        print(f"Class accuracy on the other images: {accuracy:.3f} (without answers "
              f"{_accuracy(before, images.y, list(session.answers)):.3f}).")  # fmt: skip


def _accuracy(scores: np.ndarray, y: np.ndarray, asked: Sequence[int]) -> float | None:
    """Mean accuracy per class on the images with a known class that were not asked about."""
    counted = y >= 0
    counted[list(asked)] = False
    return float(evaluate(scores[counted], y[counted])["acc_class"]) if counted.any() else None


def _print_truth(session: Session, images: TestImages) -> None:
    """Answer with the true classes, and print the accuracy after each answer on the images that are never asked."""
    if not (images.y >= 0).any():
        raise UserError("--truth needs the classes of test images, and the data have none; ask with --prompt instead.")
    found, words = [session.scores()], [""]
    while True:
        known = [q for q in session.questions(lambda i: images.y[i] >= 0) if images.y[q.image] >= 0]
        if not known or not session.worth_asking(known[0]):
            break
        q = known[0]
        session.answers[q.image] = int(images.y[q.image])
        found.append(session.scores())
        words.append(f"{images.names[q.image]} is {session.names[session.answers[q.image]]}, was taken for "
                     f"{session.names[q.guess]}")  # fmt: skip
    print("answers  class accuracy on the images that were not asked")
    for n, (scores, word) in enumerate(zip(found, words)):
        accuracy = _accuracy(scores, images.y, list(session.answers))
        print(f"{n:7}  {'' if accuracy is None else f'{accuracy:.3f}'}  {word}".rstrip())
    if known:
        print(f"The next answer is expected to rename fewer than {WORTH_ASKING:.0%} of the images.")


if __name__ == "__main__":
    sys.exit(main())
