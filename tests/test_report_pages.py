"""Pages and pictures of reports: the difference of two sweeps, the dashboard, the figures."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from report_records import fails, frame, record
from zsl.config import compose
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.report import __main__ as command
from zsl.report import figures, records
from zsl.report.diff import diff, names_of
from zsl.report.figures import scatter


def test_difference_of_two_sweeps():
    before = [record(s, acc=v) for s, v in (("abc", 0.2), ("abd", 0.4))]
    after = [record(s, acc=v + 0.1) for s, v in (("abc", 0.2), ("abd", 0.4), ("abe", 0.9))]
    after.append(record("abc", model={"name": "m", "lam_relative": 3, "seed": 0}))
    table = diff(frame(before), frame(after))
    assert [row[0] for row in table.rows] == ["model.lam_relative=0.1", "model.lam_relative=3"]
    assert_allclose(float(table.rows[0][3]), 10)
    assert table.rows[1][1] == table.rows[1][3] == "-"
    # One model before and after a change of its settings is one row.
    (row,) = diff(frame(before[:1]), frame(after[-1:])).rows
    assert row[0] == "model.lam_relative: 0.1 -> 3"
    with pytest.raises(UserError, match="no settings in common"):
        diff(frame(before), frame([after[-1], record(model={"name": "other"})]))


def test_runs_of_one_model_are_named_by_what_tells_them_apart():
    a = {"_target_": "A", "name": "a", "atoms": 3, "n_iter": 1}
    found = [record(s, model=m) for s in ("abc", "abd") for m in (a, {"_target_": "B", "name": "b"})]
    # A setting that one model was run with twice tells its runs apart, and is not said of the others.
    found.append(record("abc", model={**a, "n_iter": 2}))
    assert set(names_of(records.groups(frame(found)["key"])).values()) == {
        "a, model.n_iter=1",
        "a, model.n_iter=2",
        "b",
    }


@pytest.mark.slow
def test_the_panel_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scatter, "plane", lambda V, seed: V[:, :2])  # t-SNE takes seconds
    run(compose(["experiment=figure", "dataset=digits", "model.n_iter=2"]), tmp_path / "run")
    command.main(["figure", str(tmp_path)])
    svg = (tmp_path / "run" / "figure.svg").read_text()
    assert svg.count("labels spread") == 2
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
    assert "539 of 539 test images" in capsys.readouterr().out
    # The accuracy in the title is that of the record.
    accuracy = json.loads((tmp_path / "run" / "results.json").read_text())["metrics"]["aag/acc_class"]
    assert f"nearest class, {accuracy:.1%} right" in svg


@pytest.mark.parametrize(("name", "text"), [
    ("results.json", b"{"), ("results.json", b"{}"), ("results.json", None), ("predictions.npz", b"PK"),
])  # fmt: skip
def test_the_panel_of_a_damaged_run_is_refused(tmp_path, name, text):
    np.savez(tmp_path / "predictions.npz", y=np.zeros(3), Z_unseen=np.eye(3), classes=list("abc"))
    (tmp_path / "results.json").write_text(json.dumps(record("abc")))
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_bytes(text)
    error = fails("figure", tmp_path)
    assert "cannot be read" in error or "holds no results.json" in error
    assert name in error


def test_a_figure_of_many_lines_holds_its_legend_and_says_what_bars_are():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"a rule of a long name {i}" for i in range(7)]
    rows = [("ratio", n, v, 0.95 - i / 20, 0.3 / np.sqrt(10), 10, 1) for i, n in enumerate(names) for v in (1.0, 2.0)]
    rows.append(("other", "only here", 1.0, 0.5, 0.05, 1, 4))  # no point in the first panel
    points = pd.DataFrame(rows, columns=["setting", "line", "value", "mean", "error", "n_splits", "n_seeds"])
    figure = figures.panels(points, {"ratio": True, "other": False}, "data; as given", chance=0.2)
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [*names, "only here", "chance"]
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1
    assert "one standard error over 10 class splits or 4 seeds on one class" in " ".join(figure.get_suptitle().split())
    segments = [s for ax in figure.axes for bars in ax.collections for s in bars.get_segments()]
    assert min(s[:, 1].min() for s in segments) >= 0
    assert max(s[:, 1].max() for s in segments) <= 100
    assert_allclose(segments[0][:, 1], [95 - 30 / np.sqrt(10), 100])
