"""Figures for papers: what is drawn, against calculations of the same numbers by other means."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

from report_records import frame, record
from zsl.errors import UserError
from zsl.evaluation import ausuc, ece, gzsl, probabilities
from zsl.report import figures
from zsl.report.figures.style import COLUMN_IN, style


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def recorded(folder, one, **points):
    """A run folder with a record, and predictions.npz where arrays are given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(one))
    if points:
        np.savez(folder / "predictions.npz", **points)
    return folder


def swept(lams=(0.1, 1.0), seeds=(0, 1, 2), **more):
    """Records whose accuracy is known from their settings."""
    return [
        record("abc", seed, 0.3 + 0.2 * i + 0.05 * seed, model={"name": "coupled", "lam": lam, "seed": seed}, **more)
        for i, lam in enumerate(lams) for seed in seeds
    ]  # fmt: skip


# --- what all share ------------------------------------------------------------------------------------------


def drawings():
    """One call of each function."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=80)
    scores = rng.normal(size=(80, 4)) + 2 * np.eye(4)[y]
    arrays = {"a": (np.array([1.0, 10, 100]), rng.random((3, 4)))}
    return {
        "attribute_errors": lambda ax: figures.attribute_errors(scores, np.eye(4), y, ax=ax),
        "confusion": lambda ax: figures.confusion(np.eye(4), ax=ax),
        "embedding": lambda ax: figures.embedding(scores, np.eye(4), y, scores.argmax(axis=1), method="pca", ax=ax),
        "learning_curve": lambda ax: figures.learning_curve(arrays, ax=ax),
        "objective": lambda ax: figures.objective({"objective": [3.0, 2.0, 1.5]}, ax=ax),
        "per_class": lambda ax: figures.per_class(pd.DataFrame([[0.1, 0.2], [0.9, 0.8]], index=["a", "b"]), ax=ax),
        "rank_diagram": lambda ax: figures.rank_diagram({"a": 1.2, "b": 2.9, "long name": 1.9}, 8, "mean rank", ax=ax),
        "relative_times": lambda ax: figures.relative_times(pd.DataFrame({"a": [1.0], "b": [2.0]}, index=["p"]), ax=ax),
        "reliability": lambda ax: figures.reliability(probabilities(scores, 1.0), y, ax=ax),
        "seen_unseen": lambda ax: figures.seen_unseen(scores, y, np.array([True, True, False, False]), ax=ax),
        "sensitivity": lambda ax: figures.sensitivity(arrays, "lam", ax=ax),
    }  # fmt: skip


@pytest.mark.parametrize("name", drawings())
def test_every_figure_takes_axes_or_makes_a_column_of_a_paper(name):
    draw = drawings()[name]
    first, second = Figure(figsize=(7, 3)).subplots(1, 2)
    assert draw(second) is second
    assert not first.has_data()
    assert second.has_data()
    ax = draw(None)
    assert ax.figure.get_figwidth() == (7 if name == "relative_times" else COLUMN_IN)
    # Nothing is cut: whatever is written lies within the figure.
    FigureCanvasAgg(ax.figure).draw()
    box = ax.figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= ax.figure.get_figwidth() + 0.01
    assert box.y1 <= ax.figure.get_figheight() + 0.01


def test_every_public_figure_is_checked_above():
    makers = set(figures.__all__) - {
        "COLOURS",
        "contact_sheet",
        "figure_of",
        "most_certain",
        "of_run",
        "panels",
        "save_figure",
    }
    assert set(drawings()) == makers


def test_sixty_four_classes_have_looks_of_their_own():
    assert len({tuple(style(i).values()) for i in range(64)}) == 64


# --- embedding -----------------------------------------------------------------------------------------------


def test_an_embedding_of_two_columns_is_where_they_say_with_errors_hollow():
    rng = np.random.default_rng(0)
    points, Z, y = rng.normal(size=(30, 2)), rng.normal(size=(3, 2)), np.arange(30) % 3
    guess = np.where(np.arange(30) < 6, (y + 1) % 3, y)
    ax = figures.embedding(points, Z, y, guess, ["cat", "dog", "fox"])
    drawn = {"right": {}, "wrong": {}, "prototype": {}}
    for dots in ax.collections:
        at = np.asarray(dots.get_offsets())
        if not len(at) or to_hex(dots.get_edgecolor()[0] if len(dots.get_edgecolor()) else "w") == "#ffffff":
            continue  # the ring around a prototype
        if not len(dots.get_facecolor()):
            drawn["wrong"][to_hex(dots.get_edgecolor()[0])] = at
        else:
            kind = "prototype" if dots.get_sizes()[0] > 50 else "right"
            drawn[kind][to_hex(dots.get_facecolor()[0])] = at
    for m in range(3):
        colour = to_hex(style(m)["color"])
        assert_allclose(drawn["right"][colour], points[(y == m) & (guess == y)])
        assert_allclose(drawn["wrong"][colour], points[(y == m) & (guess != y)])
        assert_allclose(drawn["prototype"][colour], Z[m : m + 1])
    assert labels(ax) == ["cat", "dog", "fox", "attributes of a class", "wrong class"]
    # By the predicted class, the same points change their colours.
    ax = figures.embedding(points, Z, y, guess, colour="predicted")
    wrong = {to_hex(d.get_edgecolor()[0]): d.get_offsets() for d in ax.collections if not len(d.get_facecolor())}
    assert_allclose(wrong[to_hex(style(1)["color"])], points[(guess == 1) & (guess != y)])


def test_the_axes_of_an_embedding_by_pca_are_those_of_the_singular_vectors():
    rng = np.random.default_rng(1)
    V, Z, y = rng.normal(size=(20, 5)) * [5, 2, 1, 1, 1], rng.normal(size=(2, 5)), np.arange(20) % 2
    both = np.vstack([Z, V])
    both /= np.linalg.norm(both, axis=1, keepdims=True)
    u, s, _ = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)
    expected = (u * s)[:, :2]
    ax = figures.embedding(V, Z, y, method="pca")
    dots = np.vstack([d.get_offsets() for d in ax.collections if d.get_sizes()[0] == 10])
    order = np.r_[2 + np.flatnonzero(y == 0), 2 + np.flatnonzero(y == 1)]
    assert_allclose(np.abs(dots), np.abs(expected[order]), atol=1e-9)


@pytest.mark.long
def test_tsne_keeps_clusters_apart():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    ax = figures.embedding(np.eye(4)[y] + 0.05 * rng.normal(size=(60, 4)), np.eye(4)[:2], y)
    first, second = (np.asarray(d.get_offsets()) for d in ax.collections if d.get_sizes()[0] == 10)
    within = np.linalg.norm(first - first.mean(axis=0), axis=1).max()
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > within


def test_an_embedding_of_a_run_is_that_of_its_last_stage(tmp_path):
    Z_hat, y = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]), np.array([0, 1, -1])
    points = {"classes": list("ab"), "Z_unseen": np.eye(2), "y": y, "aag/Z_hat": 9 * Z_hat, "taaw/Z_hat": Z_hat,
              "aag/scores": Z_hat, "taaw/scores": Z_hat}  # fmt: skip
    ax = figures.embedding(recorded(tmp_path, record("ab"), **points))
    shown = np.vstack([d.get_offsets() for d in ax.collections if d.get_sizes()[0] in (9, 10)])
    assert_allclose(np.sort(shown, axis=0), np.sort(Z_hat, axis=0))
    assert labels(ax) == ["a", "b", "attributes of a class", "wrong class", "class unknown"]
    with pytest.raises(UserError, match="no predicted attributes of a stage xyz"):
        figures.embedding(tmp_path, stage="xyz")


@pytest.mark.parametrize(("change", "message"), [
    ({"Z": np.eye(4)}, "both need rows of q attributes"), ({"y": None}, "as many labels"),
    ({"y": np.zeros(2, int)}, "as many labels"), ({"method": "umap"}, "choose one of tsne, pca"),
    ({"colour": "red"}, "choose true or predicted"),
])  # fmt: skip
def test_an_embedding_that_cannot_be_is_refused(change, message):
    given = {"Z": np.eye(3), "y": np.zeros(5, int), **change}
    with pytest.raises(UserError, match=message):
        figures.embedding(np.ones((5, 3)), **given)


# --- classes -------------------------------------------------------------------------------------------------


def test_a_confusion_matrix_is_shares_with_counts_in_it(tmp_path):
    one = record("abc")
    one["confusion"] = {"a": {"a": 3, "c": 1}, "b": {"b": 2}}
    expected = [[0.75, 0, 0.25], [0, 1, 0], [0, 0, 0]]
    for source in (one, recorded(tmp_path / "run", one)):
        ax = figures.confusion(source)
        assert_allclose(ax.images[0].get_array(), expected)
        written = {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts}
        assert written == {(0, 0): "3", (0, 2): "1", (1, 1): "2"}
        for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
            assert [tick.get_text() for tick in ticks] == ["a", "b", "c"]
    # Of a record without it, the images are counted in predictions.csv.
    (tmp_path / "old" / "x").mkdir(parents=True)
    old = recorded(tmp_path / "old", record("abc"))
    (old / "predictions.csv").write_text("row,predicted,true\n1,a,a\n2,a,a\n3,a,a\n4,c,a\n5,b,b\n6,b,b\n7,a,\n")
    assert_allclose(figures.confusion(old).images[0].get_array(), expected)
    (old / "predictions.csv").write_text("row,predicted,true\n1,a,\n")
    for unknown in (old, record("abc")):
        with pytest.raises(UserError, match="true classes of this run's test images are not known"):
            figures.confusion(unknown)
    with pytest.raises(UserError, match=r"shape \(2, 3\)"):
        figures.confusion(np.ones((2, 3)))


def test_bars_of_classes_are_means_with_standard_errors_of_the_runs_that_have_them():
    runs = [
        record("ab", 0, per_class=[0.2, 0.9]),
        record("ab", 1, per_class=[0.6, 0.9]),
        record("bc", per_class=[0.3, 0.1]),
    ]
    ax = figures.per_class(runs)
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["c", "a", "b"]  # the best on top
    assert_allclose([bar.get_width() for bar in ax.patches], [10, 40, 70])
    (segments,) = (c.get_segments() for c in ax.collections)
    half = [(s[1, 0] - s[0, 0]) / 2 for s in segments]
    expected = 100 * np.array(
        [0, np.std([0.2, 0.6], ddof=1) / np.sqrt(2), np.std([0.9, 0.9, 0.3], ddof=1) / np.sqrt(3)]
    )
    assert_allclose(half, expected, atol=1e-9)
    assert ax.get_xlabel() == "accuracy (%); bars: standard error, 1 to 3 runs"
    assert ax.get_title(loc="right") == "mean of the classes 40.0 %"
    # One run has no errors, and a stage may be named.
    one = record("ab", per_class=[0.2, 0.9])
    for row in one["per_class"]:
        row["taaw/acc"] = 0.5
    assert not figures.per_class(one).collections
    assert [bar.get_width() for bar in figures.per_class(one).patches] == [50, 50]
    assert_allclose([bar.get_width() for bar in figures.per_class(one, stage="own").patches], [20, 90])
    with pytest.raises(UserError, match="no stage xyz"):
        figures.per_class(one, stage="xyz")


def test_errors_of_attributes_are_root_mean_squares_of_known_images(tmp_path):
    rng = np.random.default_rng(0)
    Z, y, Z_hat = rng.normal(size=(3, 30)), np.array([0, 1, 2, -1, 1]), rng.normal(size=(5, 30))
    squares = [[(Z_hat[i, k] - Z[y[i], k]) ** 2 for i in (0, 1, 2, 4)] for k in range(30)]
    expected = np.sqrt([sum(of) / 4 for of in squares])
    points = {"classes": list("abc"), "Z_unseen": Z, "y": y, "aag/Z_hat": Z_hat, "aag/scores": Z_hat[:, :3]}
    for source in ((Z_hat, Z, y), (recorded(tmp_path, record("abc"), **points),)):
        ax = figures.attribute_errors(*source)
        assert_allclose([bar.get_width() for bar in ax.patches], np.sort(expected)[-20:])
        last = ax.get_yticklabels()[-1].get_text()
        assert last == f"attribute {expected.argmax()}"
    named = recorded(tmp_path / "named", record("abc"), **points, attributes=[f"a{k}" for k in range(30)])
    assert figures.attribute_errors(named).get_yticklabels()[-1].get_text() == f"a{expected.argmax()}"
    with pytest.raises(UserError, match="need the attributes Z"):
        figures.attribute_errors(Z_hat, Z, np.full(5, -1))


# --- curves --------------------------------------------------------------------------------------------------


def test_a_sensitivity_is_means_and_standard_errors_over_seeds():
    ax = figures.sensitivity(swept(), "model.lam")
    mean = [np.mean([30 + 20 * i + 5 * s for s in range(3)]) for i in range(2)]
    error = np.std([0, 5, 10], ddof=1) / np.sqrt(3)
    assert_allclose(ax.lines[0].get_xydata(), [[0.1, mean[0]], [1, mean[1]]])
    (band,) = (c.get_paths()[0].vertices for c in ax.collections)
    at = band[np.isclose(band[:, 0], 1)][:, 1]
    assert_allclose([at.min(), at.max()], [mean[1] - error, mean[1] + error])
    assert ax.get_title(loc="right") == "bands: one standard error, 3 repetitions"
    assert ax.get_legend() is None


def test_repetitions_are_seeds_within_splits():
    found = [record(s, seed, acc, model={"name": "m", "lam": lam})
             for lam in (1, 2) for (s, seed, acc) in (("abc", 0, 0.2), ("abc", 1, 0.4), ("abd", 0, 0.5))]  # fmt: skip
    ax = figures.sensitivity(frame(found), "model.lam")
    assert_allclose(ax.lines[0].get_ydata(), [40, 40])  # of 30 and 50
    assert "2 repetitions" in ax.get_title(loc="right")


def test_nothing_is_averaged_over_silently():
    rules = [swept(inference={"attributes": "own", "labels": rule}) for rule in ("own", "spread")]
    both = [one for rule in rules for one in rule]
    with pytest.raises(UserError, match=r"differ in inference\.labels too \(own, spread\)"):
        figures.sensitivity(both, "model.lam")
    ax = figures.sensitivity(both, "model.lam", by="inference.labels")
    assert labels(ax) == ["inference.labels = own", "inference.labels = spread"]
    ax = figures.sensitivity(both, "model.lam", where={"inference.labels": "spread"})
    assert len(ax.lines) == 1
    with pytest.raises(UserError, match=r"no run has the number model\.nothing"):
        figures.sensitivity(both, "model.nothing")
    with pytest.raises(UserError, match=r"no run has the number model\.lam and the metric nothing"):
        figures.sensitivity(both, "model.lam", "nothing")


def test_a_sensitivity_takes_a_folder_and_leaves_out_models_without_the_setting(tmp_path):
    for i, one in enumerate([*swept(), record("abc", model={"name": "other"})]):
        recorded(tmp_path / str(i), one)
    ax = figures.sensitivity(tmp_path, "model.lam", "time_fit_s")
    assert_allclose(ax.lines[0].get_ydata(), [1, 1])  # seconds and no percent
    assert ax.get_ylabel() == "time_fit_s"


def test_many_lines_have_bars_instead_of_bands_within_what_accuracies_can_be():
    x = np.array([1.0, 2.0])
    ax = figures.sensitivity({f"line {i}": (x, np.array([[0.0, 1.0], [0.5, 0.7]])) for i in range(5)}, "k")
    segments = [s for bars in ax.collections for s in bars.get_segments()]
    assert len(segments) == 10
    assert ax.get_title(loc="right").startswith("bars")
    assert_allclose(segments[0][:, 1], [0, 100])
    with pytest.raises(UserError, match="a row for each is needed"):
        figures.sensitivity({"a": (x, np.ones((3, 2)))}, "k")


def test_a_learning_curve_has_a_line_for_each_model():
    found = []
    for i, n in enumerate((5, 10, 20)):
        for j, name in enumerate(("eszsl", "coupled")):
            for seed in (0, 1):
                found.append(record("abc", seed, 0.1 * i + 0.2 * j, model={"name": name}))
                found[-1]["key"]["split"]["subset"] = {"images": n, "seed": seed}
    ax = figures.learning_curve(found)
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert_allclose(lines["eszsl"], [[5, 0], [10, 10], [20, 20]], atol=1e-9)
    assert_allclose(lines["coupled"], [[5, 20], [10, 30], [20, 40]])
    assert ax.get_xlabel() == "training images of each seen class"


def test_an_objective_is_that_of_the_record():
    one = record("abc")
    one["curves"] = {"objective_x": [4.0, 2.0], "objective_z": [8.0, None]}
    ax = figures.objective(one)
    assert_allclose([line.get_ydata() for line in ax.lines], [[1, 0.5], [1, np.nan]])
    with pytest.raises(UserError, match="no objective by iteration"):
        figures.objective(record("abc"))


# --- the generalised setting and probabilities -----------------------------------------------------------------


def test_the_seen_unseen_curve_passes_through_every_offset_and_marks_the_best():
    rng = np.random.default_rng(3)
    y, is_seen = rng.integers(6, size=200), np.arange(6) < 4
    scores = rng.normal(size=(200, 6)) + 1.5 * np.eye(6)[y] + is_seen
    ax = figures.seen_unseen(scores, y, is_seen)
    curve, best, zero = (line.get_xydata() for line in ax.lines)
    offsets = np.linspace(-4, 4, 400)
    found = [gzsl(scores, y, is_seen, float(o)) for o in offsets]
    for one in found:
        point = [100 * one["gzsl_unseen"], 100 * one["gzsl_seen"]]
        assert np.abs(curve - point).sum(axis=1).min() < 1e-9
    h = max(one["gzsl_h"] for one in found)
    assert 2 * best[0].prod() / best[0].sum() >= 100 * h - 1e-9
    assert labels(ax)[0] == f"all offsets, area {ausuc(scores, y, is_seen):.3f}"
    given = gzsl(scores, y, is_seen)
    assert_allclose(zero[0], [100 * given["gzsl_unseen"], 100 * given["gzsl_seen"]])


def test_the_lines_of_a_reliability_diagram_are_the_calibration_error(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    scores = rng.normal(size=(150, 3)) + np.eye(3)[y]
    P = probabilities(scores, 0.7)
    ax = figures.reliability(P, y, n_bins=15)
    points = ax.lines[1].get_xydata()
    # The bins by another way: 150 different confidences in order, ten to a bin.
    order = np.argsort(P.max(axis=1)).reshape(15, 10)
    assert_allclose(points[:, 0], 100 * P.max(axis=1)[order].mean(axis=1))
    assert_allclose(points[:, 1], 100 * (P.argmax(axis=1) == y)[order].mean(axis=1))
    assert_allclose(np.abs(points[:, 0] - points[:, 1]).mean() / 100, ece(P, y, 15))
    assert ax.get_title(loc="right") == f"ECE {ece(P, y, 15):.3f}, 150 images"
    # A run has its temperature, and images of unknown class do not count.
    stored = {
        "classes": list("abc"),
        "Z_unseen": np.eye(3),
        "y": np.r_[y, -1],
        "own/scores": np.vstack([scores, scores[:1]]),
    }
    run = recorded(tmp_path / "a", record("abc", metrics={"temperature": 0.7}), **stored)
    assert_allclose(figures.reliability(run).lines[1].get_xydata(), points)
    with pytest.raises(UserError, match="has no temperature"):
        figures.reliability(recorded(tmp_path / "b", record("abc"), **stored))
    with pytest.raises(UserError, match=r"holds no predictions\.npz; run it again with save_predictions=true"):
        figures.reliability(recorded(tmp_path / "c", record("abc", metrics={"temperature": 0.7})))


def test_relative_times_say_what_was_not_timed_and_what_one_is():
    ratios = pd.DataFrame({"zsl": [1.0, 1.0], "b": [4.0, np.nan], "c": [np.nan, 0.5]}, index=["one", "many"])
    ax = figures.relative_times(ratios, [0.002, 0.0305])
    drawn = {line.get_label(): line.get_xdata().tolist() for line in ax.lines if not line.get_label().startswith("_")}
    assert drawn == {"zsl": [1, 1], "b": [4], "c": [0.5]}
    assert [text.get_text() for text in ax.texts] == ["not timed: c", "not timed: b"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one\n1 = 2 ms a row", "many\n1 = 30.5 ms a row"]
    assert ax.get_xscale() == "log"
    # Every mark lies within the row of its problem.
    for line in ax.lines[:3]:
        assert np.abs(line.get_ydata() - np.round(line.get_ydata())).max() < 0.3


# --- the figures of a run --------------------------------------------------------------------------------------


def test_a_run_has_the_figures_that_its_files_allow(tmp_path):
    one = record("ab", per_class=[0.5, 1.0])
    run = recorded(tmp_path / "a", one)
    assert list(figures.of_run(run)) == ["per_class"]
    one |= {"confusion": {"a": {"b": 2}}, "curves": {"objective": [2.0, 1.0]}}
    Z_hat = np.ones((2, 3))
    points = {"classes": list("ab"), "Z_unseen": np.eye(2, 3), "y": np.array([0, 1]), "aag/Z_hat": Z_hat,
              "aag/scores": Z_hat[:, :2]}  # fmt: skip
    found = figures.of_run(recorded(tmp_path / "b", one, **points))
    assert list(found) == ["confusion", "per_class", "objective", "attribute_errors"]
    assert_allclose(found["confusion"].axes[0].images[0].get_array(), [[0, 1], [0, 0]])
    for name, figure in found.items():
        for path in figures.save_figure(figure, tmp_path / "out", name):
            assert path.stat().st_size > 3000
    with pytest.raises(UserError, match=r"holds no results\.json"):
        figures.of_run(tmp_path)


def test_contact_sheets_show_images_as_networks_see_them(tmp_path):
    from PIL import Image

    from zsl.report.figures import contact_sheet

    Image.fromarray(np.full((4, 4), 257 * 100, np.uint16)).save(tmp_path / "deep.png")
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    half.putpixel((0, 0), (9, 9, 9, 255))
    half.save(tmp_path / "half.png")
    (tmp_path / "damaged.png").write_bytes(b"no image")
    names = ("deep.png", "half.png", "clear.png", "damaged.png")
    axes = contact_sheet([("title", [(name, tmp_path / name) for name in names])], 4).axes
    assert np.unique(axes[0].images[0].get_array()) == 100  # not cut at 255
    assert_array_equal(axes[1].images[0].get_array()[3, 3], [255, 255, 255])  # the background is white, and not black
    assert [[text.get_text() for text in ax.texts] for ax in axes[2:]] == [["cannot be read"]] * 2


def test_the_most_certain_images_of_an_unlabelled_run(tmp_path, monkeypatch):
    from PIL import Image

    from zsl import compose, run
    from zsl.report.figures import most_certain, of_run

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels, files = [], []
    for name, n in (("red", 8), ("green", 8), ("unlabelled", 6)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(n):
            Image.new("RGB", (30, 20), "red" if i % 2 else "blue").save(tmp_path / "photos" / name / f"{i}.png")
            labels.append(name)
            files.append(f"{name}/{i}.png")
    np.savez("photos.npz", features=rng.normal(size=(22, 5)), labels=np.array(labels), files=np.array(files))
    (tmp_path / "classes.csv").write_text("class,a,b\nred,1,0\ngreen,0,1\nx,1,1\ny,0,0\n")
    overrides = ["dataset=tabular", "dataset.features=photos.npz", "dataset.attributes=classes.csv", "model=ridge"]
    run(compose([*overrides, "tracking=none"]), tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "predictions.csv")
    figure = of_run(tmp_path / "run")["most_certain"]
    shown = [ax for ax in figure.axes if ax.images]
    assert len(shown) == 6
    order = table.sort_values("margin", ascending=False)
    first = order[order["predicted"] == table["predicted"].value_counts().index[0]]["file"].iloc[0]
    expected = np.asarray(Image.open(tmp_path / "photos" / first).convert("RGB"))
    np.testing.assert_array_equal(np.asarray(shown[0].images[0].get_array()), expected)
    with pytest.raises(UserError, match="is not in elsewhere; give the folder"):
        most_certain(tmp_path / "run", "elsewhere")
