"""The command ``zsl ask``."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from test_labelled import RUN, as_read, csv_of, labels_of_digits
from zsl.ask.__main__ import main
from zsl.ask.images import ImageFiles, read_images
from zsl.data.labelled import set_aside, without
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.predict.evaluation import places_of


@pytest.fixture
def labels(tmp_path):
    return labels_of_digits(tmp_path)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_of_digits(tmp_path_factory):
    """A finished run on digits that another rule than ``asked`` answered."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    zsl.run(zsl.compose([*RUN, "inference=transductive"]), folder)
    return folder


def ask(capsys, *arguments, status=0):
    assert main([str(a) for a in arguments]) == status
    out = capsys.readouterr()
    return out.err if status else out.out


def answered_with_truth(file, to):
    """The questions of a file, answered from the labels of digits."""
    data = as_read()
    truth = {str(row): data.unseen_names[y] for row, y in zip(data.rows_unseen, data.y_unseen)}
    table = pd.read_csv(file, dtype=str)
    table["answer"] = [truth[row] for row in table["image"]]
    table.to_csv(to, index=False)
    return table


@pytest.mark.slow
def test_questions_answers_and_new_predictions(run_of_digits, tmp_path, capsys):
    said = ask(capsys, run_of_digits, "--to", tmp_path / "a")
    file = tmp_path / "a" / "questions.csv"
    assert f"{file} asks about 3 images, the most useful first (no image file was found; give their folder by" in said
    assert f"zsl ask {run_of_digits} --to {tmp_path / 'a'} --answers {file}" in said
    table = pd.read_csv(file)
    assert list(table) == ["question", "image", "cluster_size", "guess", "certainty", "expected_gain", "answer"]
    assert table["cluster_size"].sum() == 539
    assert_allclose(table["expected_gain"], table["cluster_size"] * (1 - table["certainty"]), atol=3)
    assert table["expected_gain"].is_monotonic_decreasing
    assert table["answer"].isna().all()
    assert not (tmp_path / "a" / "questions.png").exists()
    filled = tmp_path / "filled.csv"
    answered_with_truth(file, filled)
    said = ask(capsys, run_of_digits, "--answers", filled, "--to", tmp_path / "a")
    assert "has the predictions with 3 answers" in said
    found = pd.read_csv(tmp_path / "a" / "predictions.csv", dtype=str)
    assert list(found["row"]) == [str(row) for row in as_read().rows_unseen]
    assert (found["predicted"] == found["true"]).mean() > 0.95
    # The same answers in an experiment: those images are labelled and the others have the same classes.
    result = zsl.run(zsl.compose([*RUN, f"inference.labelled={filled}"]))
    others = ~found["row"].isin(pd.read_csv(filled, dtype=str)["image"]).to_numpy()
    names = np.array(as_read().unseen_names)[result.prediction.scores.argmax(axis=1)]
    assert (names == found["predicted"][others]).mean() > 0.99


def test_answers_decide_what_clusters_are_called(run_of_digits, tmp_path, capsys):
    ask(capsys, run_of_digits, "--to", tmp_path)
    table = answered_with_truth(tmp_path / "questions.csv", tmp_path / "wrong.csv")
    other = {"two": "six", "six": "four", "four": "two"}
    table.assign(answer=table["answer"].map(other)).to_csv(tmp_path / "wrong.csv", index=False)
    ask(capsys, run_of_digits, "--answers", tmp_path / "wrong.csv", "--to", tmp_path)
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert (found["predicted"] == found["true"].map(other)).mean() > 0.95


def test_true_classes_may_differ_in_blanks_and_capitals(tmp_path):
    """As in ``zsl predict --evaluate``; images of such a class counted as of unknown class without a word."""
    X = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "x.npz", features=X, labels=np.array(["Polar_Bear", "cat", "cow", "?"]))
    classifier = SimpleNamespace(classes_=["polar bear", "cat"], about_={}, n_features_in_=3, labelled_=None)
    images = read_images(tmp_path, classifier, Namespace(input=tmp_path / "x.npz", truth=True))
    assert images.y.tolist() == [0, 1, -1, -1]
    # zsl extract gives the image a/abbey/1.jpg the class a_abbey.
    assert places_of(["a/abbey"], ["a_abbey", "b_abbey"], tmp_path).tolist() == [0]


def test_truth_as_the_answers(run_of_digits, tmp_path, capsys):
    lines = ask(capsys, run_of_digits, "--truth").splitlines()
    accuracy = {int(line.split()[0]): float(line.split()[1]) for line in lines[1:] if line.split()[0].isdecimal()}
    assert list(accuracy) == [0, 1, 2, 3]
    assert accuracy[3] > 0.95
    assert not (run_of_digits / "ask").exists()  # nothing is written


@pytest.mark.slow
def test_asking_in_the_terminal(run_of_digits, tmp_path, capsys, monkeypatch):
    data = as_read()
    truth = {str(row): data.unseen_names[y] for row, y in zip(data.rows_unseen, data.y_unseen)}

    def typed(words):
        given = iter(words)

        def answer(prompt):
            shown = capsys.readouterr().out
            asked_about.append(next(line for line in shown.splitlines()[::-1] if line.isdecimal()))
            word = next(given, None)
            if word is None:
                raise EOFError
            return truth[asked_about[-1]].upper() if word == "right" else word

        monkeypatch.setattr("builtins.input", answer)
        asked_about = []
        return asked_about

    def answers():
        return pd.read_csv(tmp_path / "answers.csv", dtype=str).to_numpy().tolist()

    rows = typed(["right", "nonsense", "right", "right", "right"])
    said = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert len(set(rows)) == 3 == len(rows) - 1  # a word that is no class is asked for again
    assert answers() == [[row, truth[row]] for row in dict.fromkeys(rows)]
    assert "has the predictions with 3 answers" in said
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert (found["predicted"] == found["true"]).mean() > 0.95
    (tmp_path / "answers.csv").unlink()
    rows = typed(["", "none", "right", "q", "right"])
    ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert len(rows) == 3
    assert len(set(rows)) == 3
    assert answers() == [[rows[2], truth[rows[2]]]]
    (tmp_path / "answers.csv").write_text("image,answer\n")
    typed([])
    assert "has the predictions with 0 answers, which gave 0 of 539" in ask(
        capsys, run_of_digits, "--prompt", "--to", tmp_path
    )


def test_images_of_ones_own(run_of_digits, tmp_path, capsys):
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen]
    file = tmp_path / "more.npz"
    np.savez(file, features=data.X_unseen[:300], labels=names[:300], files=np.array([f"{i}.png" for i in range(300)]))
    to = tmp_path / "my answers"
    said = ask(capsys, run_of_digits, file, "--to", to)
    assert f"zsl ask {run_of_digits} {file} --to '{to}' --answers '{to / 'questions.csv'}'" in said
    table = pd.read_csv(to / "questions.csv", dtype=str)
    assert table["cluster_size"].astype(int).sum() == 300
    lines = ask(capsys, run_of_digits, file, "--truth").splitlines()
    assert float(lines[4].split()[1]) > 0.9
    table.assign(answer=[names[int(i.removesuffix(".png"))] for i in table["image"]]).to_csv(tmp_path / "f.csv")
    ask(capsys, run_of_digits / "model.skops", file, "--answers", tmp_path / "f.csv", "--to", tmp_path)
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert list(found["image"]) == [f"{i}.png" for i in range(300)]
    assert (found["predicted"] == names[:300]).mean() > 0.9


@pytest.mark.slow
def test_labels_of_the_run_count_as_answers(labels, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    said = ask(capsys, tmp_path / "run")
    assert "no question is worth asking: each is expected to rename fewer than 1% of the images" in said
    lines = ask(capsys, tmp_path / "run", "--truth").splitlines()
    assert lines[1].split()[0] == "0"
    assert float(lines[1].split()[1]) > 0.95
    assert len(lines) == 2


@pytest.mark.slow
def test_the_contact_sheet_shows_the_images_that_are_found(tmp_path, capsys):
    from PIL import Image

    from zsl.data.readers.cifar_awa import image_key

    folder = tmp_path / "run"
    overrides = ["dataset=cifar_awa", "model=eszsl", "inference=transductive", "tracking=none", "figures=false"]
    zsl.run(zsl.compose([*overrides, "inference.fallback=false"]), folder)
    data = load(checked(zsl.compose(overrides)))
    there = {}
    for i in range(0, len(data.names_unseen), 3):
        path = tmp_path / "images" / image_key(data.names_unseen[i], data.unseen_names[data.y_unseen[i]])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (i % 256, 0, 0)).save(path)
        there[data.names_unseen[i]] = path
    said = ask(capsys, folder, "--images", tmp_path / "images")
    table = pd.read_csv(folder / "ask" / "questions.csv")
    assert f"{folder / 'ask' / 'questions.png'} shows the images" in said
    assert set(table["image"]) <= set(there)  # an image that cannot be looked at is not asked about
    with Image.open(folder / "ask" / "questions.png") as sheet:
        assert sheet.width == pytest.approx(150 * 1.15 * 8, abs=2)
        assert sheet.height == pytest.approx(150 * 1.7 * len(table), abs=2)
    table["answer"] = "dolphin"
    table.to_csv(folder / "ask" / "questions.csv", index=False)
    said = ask(capsys, folder, status=1)
    assert "holds answers and is not overwritten; use --answers" in said
    # Two clusters and more may be one class.
    said = ask(capsys, folder, "--answers", folder / "ask" / "questions.csv")
    assert "No answer names horse, blue+whale, seal; rows of your own (image, answer) may be added" in said


def test_files_are_found_by_path_or_by_a_name_that_is_theirs_alone(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = ImageFiles([tmp_path / "nothing", tmp_path])
    assert files.find("b/2.png") == tmp_path / "b" / "2.png"
    assert files.find("c10:test/x/1.png") == tmp_path / "a" / "1.png"
    assert files.find("c10:test/x/2.png") is None
    assert files.find("3.png") is None
    assert files.find(1) is None
    assert ImageFiles([tmp_path / "nothing"]).find("a/1.png") is None


@pytest.mark.slow
def test_answers_in_the_terminal_are_never_lost(run_of_digits, tmp_path, capsys, monkeypatch):
    given = iter(["two", KeyboardInterrupt])

    def typed(prompt):
        word = next(given)
        if word is KeyboardInterrupt:
            raise KeyboardInterrupt
        return word

    monkeypatch.setattr("builtins.input", typed)
    (tmp_path / "questions.csv").write_text("question,image,answer\n1,3,\n")
    (tmp_path / "questions.png").write_bytes(b"a sheet")
    file = tmp_path / "answers.csv"
    assert main([str(run_of_digits), "--prompt", "--to", str(tmp_path)]) == 130
    assert f"The answers are in {file}; the same command goes on from them." in capsys.readouterr().err
    first = pd.read_csv(file).to_numpy().tolist()
    assert [answer for _, answer in first] == ["two"]
    given = iter(["four", "q"])
    said = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert f"Going on from the one answer in {file}." in said
    second = pd.read_csv(file).to_numpy().tolist()
    assert (second[0], second[1][1], len(second)) == (first[0], "four", 2)
    assert "has the predictions with 2 answers" in said
    assert (tmp_path / "questions.png").read_bytes() == b"a sheet"
    # Answers to other images are neither used nor overwritten.
    csv_of(file, [("what.png", "two")])
    before = file.read_bytes()
    (line,) = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path, status=1).strip().splitlines()
    assert "no test image what.png" in line
    assert "not overwritten, so correct or move it, or choose another --to." in line
    assert file.read_bytes() == before


def with_names(names):
    """A data set whose test images have these names."""
    from dataclasses import replace

    data = as_read()
    return replace(without(data, range(len(names), len(data.X_unseen))), names_unseen=tuple(names))


def test_names_that_several_images_have(run_of_digits, tmp_path, capsys, monkeypatch):
    data = with_names(["a.png", "a.png", "b.png"])
    with pytest.raises(
        UserError, match=r"2 test images are called a.png; tell them apart by a column row \(theirs are 3, 5\)"
    ):
        set_aside(data, csv_of(tmp_path / "few.csv", [("a.png", "two")]))
    assert_array_equal(set_aside(data, csv_of(tmp_path / "b.csv", [("b.png", "two")]))[1][0], data.X_unseen[[2]])
    row = data.rows_unseen[1]
    found = [
        set_aside(data, csv_of(tmp_path / "few.csv", [pair], columns))
        for pair, columns in (((row, "a.png", "two"), "row,image,class"), ((row, "two"), "row,class"))
    ]
    for left, (X, _) in found:
        assert_array_equal(X, data.X_unseen[[1]])
        assert left.rows_unseen == (data.rows_unseen[0], data.rows_unseen[2])
    assert found[0][0].key == found[1][0].key
    other = set_aside(data, csv_of(tmp_path / "few.csv", [(data.rows_unseen[0], "two")], "row,class"))[0]
    assert other.key != found[0][0].key
    # The command gives the rows, and takes its own file back.
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen[:300]]
    file = tmp_path / "more.npz"
    np.savez(file, features=data.X_unseen[:300], labels=names, files=np.array([f"{i // 2}.png" for i in range(300)]))
    ask(capsys, run_of_digits, file, "--to", tmp_path)
    table = pd.read_csv(tmp_path / "questions.csv", dtype=str)
    assert list(table)[:3] == ["question", "row", "image"]
    table.assign(answer=[names[int(row) - 1] for row in table["row"]]).to_csv(tmp_path / "questions.csv", index=False)
    ask(capsys, run_of_digits, file, "--answers", tmp_path / "questions.csv", "--to", tmp_path)
    assert (pd.read_csv(tmp_path / "predictions.csv")["predicted"] == names).mean() > 0.9
    table[["image"]].assign(answer="two").to_csv(tmp_path / "f.csv", index=False)
    assert "2 test images are called" in ask(
        capsys, run_of_digits, file, "--answers", tmp_path / "f.csv", "--to", tmp_path, status=1
    )
    typed = iter(["two", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    assert "(row " in ask(capsys, run_of_digits, file, "--prompt", "--to", tmp_path)
    assert list(pd.read_csv(tmp_path / "answers.csv")) == ["row", "image", "answer"]


@pytest.mark.parametrize("change", ["gone", "other"])
@pytest.mark.slow
def test_a_run_keeps_its_labels_whatever_becomes_of_their_file(labels, change, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}", "save_precision=single"]), tmp_path / "run")
    capsys.readouterr()
    before = pd.read_csv(tmp_path / "run" / "predictions.csv", dtype=str)
    said = ask(capsys, tmp_path / "run", "--truth")
    image = labels.read_text().splitlines()[1].partition(",")[0]
    if change == "gone":
        labels.unlink()
    else:
        csv_of(labels, [(before["row"][0], "six")])
    assert ask(capsys, tmp_path / "run", "--truth") == said
    more = csv_of(tmp_path / "more.csv", [(before["row"][0], before["true"][0])])
    ask(capsys, tmp_path / "run", "--answers", more)
    after = pd.read_csv(tmp_path / "run" / "ask" / "predictions.csv", dtype=str)
    assert list(after["row"]) == list(before["row"])
    csv_of(more, [(image, "two")])
    assert f"the image {image} already has a label in this run" in ask(
        capsys, tmp_path / "run", "--answers", more, status=1
    )


def test_a_run_whose_labelled_images_are_not_in_its_data_any_more_says_so(labels, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    model = tmp_path / "run" / "model.skops"
    classifier = zsl.ZeroShotClassifier.load(model)
    X, names = classifier.labelled_
    classifier.keep_labelled((X + np.array([[1], [1], [0], [0], [0], [0]]), names)).save(model)
    (line,) = ask(capsys, tmp_path / "run", status=1).strip().splitlines()
    assert "2 of its 6 labelled images are not among them); give the images to ask about: zsl ask RUN INPUT." in line


def test_labelled_images_of_the_input_are_not_counted(labels, tmp_path, capsys):
    from zsl.predict.__main__ import main as predict

    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen]
    file = tmp_path / "all.npz"
    np.savez(file, features=data.X_unseen, labels=names)
    assert predict([str(tmp_path / "run"), str(file), "--evaluate", "--to", str(tmp_path / "p.csv")]) == 0
    said = capsys.readouterr().err
    assert f"over {len(names) - 6} images" in said
    assert "have a label in the run itself and are not counted" in said
    assert pd.read_csv(tmp_path / "p.csv").shape[0] == len(names)
    assert "have a label in the run itself and are not counted" in ask(capsys, tmp_path / "run", file, "--truth")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--answers", "nothing.csv"], "nothing.csv does not exist; give a CSV with columns image and class"),
        (["--answers", "."], "is a folder; give a CSV with columns image and class"),
        (["--prompt", "--truth"], "--prompt and --truth each say where answers come from; give one of them."),
        (["--images", "nothing"], "--images nothing is not a folder"),
        (["nothing.npz"], "nothing.npz"),
        (["--answer"], "--answer"),
    ],
)
def test_wrong_use_ends_in_one_sentence(run_of_digits, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = ask(capsys, run_of_digits, *arguments, status=1).strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(1, "")], "has no answer yet; write class names into its column answer"),
        ([(530, "two")], "there is no test image 530 in this run; name images as predictions.csv does"),
        ([(3, "none")], "gives no label, since none of its answers is a class"),
        ([(3, "tow")], "did you mean two"),
        ([(3, "two"), (3, "four")], "calls the image 3 both 'two' and 'four'"),
    ],
)
def test_wrong_answers_end_in_one_sentence(run_of_digits, answers, message, capsys, tmp_path):
    file = csv_of(tmp_path / "answers.csv", answers, "image,answer")
    (line,) = ask(capsys, run_of_digits, "--answers", file, "--to", tmp_path / "o", status=1).strip().splitlines()
    assert message in line
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_runs_that_cannot_be_asked_say_why(tmp_path, capsys, run_of_digits):
    zsl.run(zsl.compose([*RUN, "inference=own"]), tmp_path / "own")
    np.save(tmp_path / "more.npy", as_read().X_unseen[:50])
    assert "this run stored no statistics of the seen classes, which naming clusters of other images needs; run" in ask(
        capsys, tmp_path / "own", tmp_path / "more.npy", status=1
    )
    # With the data of the run at hand, statistics are computed; the answers are those of a run that has them.
    assert ask(capsys, tmp_path / "own", "--truth") == ask(capsys, run_of_digits, "--truth")
    assert "RUN=nowhere does not exist" in ask(capsys, "nowhere", status=1)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "model.skops").write_bytes((run_of_digits / "model.skops").read_bytes())
    assert "its test images are not known; give them: zsl ask RUN INPUT" in ask(capsys, alone, status=1)
    # The configuration of a folder cannot allow a package.
    text = (run_of_digits / "config.yaml").read_text().replace("zsl.data.readers.digits.load", "os.getcwd")
    (alone / "config.yaml").write_text(text.replace("allow_targets: []", "allow_targets: [os]"))
    assert "os.getcwd" in ask(capsys, alone, status=1)


def test_synthetic_data_with_the_truth(tmp_path, capsys):
    zsl.run(zsl.compose(["dataset=synthetic", *RUN[1:]]), tmp_path / "run")
    lines = ask(capsys, tmp_path / "run", "--truth").splitlines()
    accuracy = [float(line.split()[1]) for line in lines[1:] if line.split()[0].isdecimal()]
    assert accuracy[-1] >= accuracy[0] - 0.02
    assert accuracy[-1] > 0.8
