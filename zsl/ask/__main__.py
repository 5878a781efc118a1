"""Ask about a few test images of a finished run, and predict again with the answers: ``zsl ask RUN``.

Test images fall into clusters, and the class of one image names its cluster. ``zsl ask RUN`` writes the images that are
worth asking about into ``RUN/ask/questions.csv``, and a contact sheet of them. Fill in the column ``answer``, and
``zsl ask RUN --answers RUN/ask/questions.csv`` predicts again. ``--prompt`` asks in the terminal instead.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zsl.ask.session import ImageFiles, Session, TestImages
from zsl.checks import as_matrix
from zsl.classifier import ZeroShotClassifier
from zsl.data.labelled import place_of, read_answers, set_aside
from zsl.data.readers.columns import read_csv
from zsl.errors import Parser, UserError, atomic, exit_status, writing
from zsl.evaluation import evaluate
from zsl.inference.asking import WORTH_ASKING, Question
from zsl.inference.statistics import seen_statistics
from zsl.predict.__main__ import model_of, read_input
from zsl.runs.files import CONFIG, PREDICTIONS, write_predictions
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
    parser.add_argument(
        "settings", metavar="KEY=VALUE", nargs="*", default=[], help="for images: feature=NAME, feature.weights=FILE"
    )
    parser.add_argument("--answers", type=Path, metavar="FILE.csv", help="predict again with these answers")
    parser.add_argument("--prompt", action="store_true", help="ask in the terminal, one image after another")
    parser.add_argument(
        "--truth", action="store_true", help="answer with the true classes and print the accuracy after each answer"
    )
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="where the image files are, for the contact sheet"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: the folder ask in the run's folder")
    parser.add_argument("--device", default="cpu", help="for images: cpu (default), or cuda")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                        help="a package outside zsl whose model the run used")  # fmt: skip
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    smaller = "free some, or ask about fewer images"
    return exit_status("zsl ask", lambda: _work(parser.parse_intermixed_args(argv)), smaller=smaller)


def _work(arguments: argparse.Namespace) -> None:
    chosen = [f"--{name}" for name in ("answers", "prompt", "truth") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} each say where answers come from; give one of them.")
    model = model_of(arguments.run)
    to = (arguments.to or model.parent / "ask").expanduser()
    classifier = ZeroShotClassifier.load(model, allow=arguments.allow)
    images = _test_images(model.parent, classifier, arguments)
    session = Session.of(classifier, images.X)
    seen = [str(name) for name in classifier.class_attributes("seen").index]
    if arguments.truth:
        _print_truth(session, images)
        return
    if arguments.answers:
        answers = arguments.answers.expanduser()
        session.answers = read_answers(answers, images.names, session.names, seen)
        if not session.answers:
            raise UserError(f"{answers} has no answer yet; write class names into its column answer.")
    else:
        files = ImageFiles(_places(model.parent, arguments))
        questions = [q for q in _questions(session, images, files) if session.worth_asking(q)]
        if not arguments.prompt:
            _write_questions(questions, session, images, to)
        drawn = _draw(questions, session, images, files, to)
        if not arguments.prompt:
            _say_what_next(questions, session, arguments, to, drawn)
            return
        _ask(session, images, files, seen)
        _write_answers(session, images, to)
    _write_answered(session, images, to)


def _test_images(folder: Path, classifier: ZeroShotClassifier, arguments: argparse.Namespace) -> TestImages:
    """The images of INPUT, or the test images of the run, read again as its configuration says."""
    classes = [str(name) for name in classifier.classes_]
    if arguments.input is not None:
        from zsl.extract.__main__ import read_settings
        from zsl.predict.evaluation import true_classes

        path = arguments.input.expanduser()
        X, names = read_input(path, classifier, read_settings(arguments.settings), arguments.device)
        y = np.full(len(X), -1)
        if arguments.truth:
            place = {name: m for m, name in enumerate(classes)}
            y = np.array([place.get(name, -1) for name in true_classes(path, names)])
        X = as_matrix(X, str(path), n_columns=classifier.n_features_in_)
        return TestImages(X, names, "image", y)
    from omegaconf import OmegaConf

    from zsl.config import compose
    from zsl.experiment.loading import load
    from zsl.experiment.setup import checked

    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} holds no {CONFIG}, so its test images are not known; give them: zsl ask RUN INPUT.")
    cfg = OmegaConf.create(OmegaConf.to_container(OmegaConf.load(folder / CONFIG)))
    # Nothing is tracked, and a file cannot allow any package.
    cfg.tracking, cfg.allow_targets = compose(["tracking=none"]).tracking, list(arguments.allow)
    setup = checked(cfg)  # type: ignore[arg-type]
    data = load(setup)
    if setup.labelled is not None:
        data, _ = set_aside(data, setup.labelled)
    if [str(name) for name in data.unseen_names] != classes:
        raise UserError(f"{folder}: the data have other unseen classes now than in the run; run it again.")
    if classifier.statistics_ is None:  # the run's own rule did not need them
        X, Z = classifier.preprocess_.transform(data.X), classifier.semantics_.transform(data.Z)
        classifier.statistics_ = seen_statistics(classifier.model_, X, data.y, Z)
    if data.names_unseen:
        return TestImages(data.X_unseen, data.names_unseen, "file", data.y_unseen)
    return TestImages(data.X_unseen, data.rows_unseen, "row", data.y_unseen)


def _places(folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """Folders that may hold the image files."""
    from zsl.report.figures.images import places

    if arguments.images is not None:
        if not arguments.images.expanduser().is_dir():
            raise UserError(f"--images {arguments.images} is not a folder; give the one that holds the image files.")
        return [arguments.images.expanduser()]
    if arguments.input is not None:
        path = arguments.input.expanduser()
        return [path] if path.is_dir() else [path.with_suffix(""), path.parent]
    return places(folder)


def _questions(session: Session, images: TestImages, files: ImageFiles) -> list[Question]:
    return session.questions(lambda i: files.find(images.names[i]) is not None)


def _write_questions(questions: Sequence[Question], session: Session, images: TestImages, to: Path) -> None:
    """Write ``questions.csv``; one that somebody has filled in is not overwritten."""
    path = to / QUESTIONS
    if path.is_file():
        answers = read_csv(path, lambda header, _: range(len(header))).texts.get("answer", [])
        if any(answer.strip() for answer in answers):
            raise UserError(f"{path} holds answers and is not overwritten; use --answers {path}, or another --to.")
    with (
        writing(to, "choose another --to"), atomic(path) as part, part.open("w", encoding="utf-8", newline="") as out
    ):  # fmt: skip
        table = csv.writer(out, lineterminator="\n")
        table.writerow(_COLUMNS)
        for number, q in enumerate(questions, start=1):
            image, guess = as_cell(str(images.names[q.image])), as_cell(session.names[q.guess])
            table.writerow([number, image, q.size, guess, f"{q.certainty:.2f}", round(q.gain), ""])


def _draw(questions: Sequence[Question], session: Session, images: TestImages, files: ImageFiles, to: Path) -> bool:
    """Write the contact sheet ``questions.png`` where image files are found; returns whether there is one."""
    rows = []
    for number, q in enumerate(questions[:_ROWS], start=1):
        near = [q.image, *(int(i) for i in q.images if i != q.image)]
        found = [(str(images.names[i]), file) for i in near if (file := files.find(images.names[i]))]
        title = (
            f"{number}  Which class is the framed image? It stands for {q.size} images, taken for "
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
    many = "one image" if len(questions) == 1 else f"{len(questions)} images"
    print(f"{to / QUESTIONS} asks about {many}, the most useful first{sheet}.")
    words = ["zsl ask", arguments.run, *([arguments.input] if arguments.input else []), "--answers", to / QUESTIONS]
    print(f"Write classes into its column answer ({', '.join(session.names)}; empty: no label), then: "
          + " ".join(map(str, words)))  # fmt: skip


def _ask(session: Session, images: TestImages, files: ImageFiles, seen: Sequence[str]) -> None:
    """Ask in the terminal until the user or the gain says stop; the answers are in ``session``."""
    print(f"Classes: {', '.join(session.names)}. Enter skips an image, q ends.")
    skipped: set[int] = set()
    while True:
        left = [q for q in _questions(session, images, files) if q.image not in skipped and session.worth_asking(q)]
        if not left:
            print(f"No other question is expected to rename {WORTH_ASKING:.0%} of the images.")
            return
        q = left[0]
        shown = files.find(images.names[q.image]) or images.names[q.image]
        print(f"{shown}\n  one of {q.size} alike, taken for {session.names[q.guess]} (probability {q.certainty:.2f})")
        try:
            word = input("  class: ").strip()
        except EOFError:
            return
        if word == "q" and word not in session.names:
            return
        try:
            if word:
                session.answers[q.image] = place_of(word, session.names, seen, Path("the answer"))
            else:
                skipped.add(q.image)
        except UserError as error:
            print(f"  {error}")


def _write_answers(session: Session, images: TestImages, to: Path) -> None:
    """Write ``answers.csv``, a file for ``--answers`` and ``inference.labelled``."""
    with writing(to, "choose another --to"), atomic(to / ANSWERS) as part, part.open("w", encoding="utf-8") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["image", "answer"])
        for i, m in session.answers.items():
            table.writerow([as_cell(str(images.names[i])), as_cell(session.names[m])])


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
