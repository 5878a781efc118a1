"""Pages and pictures of reports: the difference of two sweeps, the dashboard, the figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from report_records import fails, frame, record, stored
from zsl.config import compose
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.report import __main__ as command
from zsl.report import figures, panel, records
from zsl.report.dashboard import content, dashboard
from zsl.report.diff import diff, names_of


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


def test_what_varies_is_not_every_models_own_settings():
    a = {"_target_": "A", "name": "a", "atoms": 3, "n_iter": 1}
    found = [record(s, model=m) for s in ("abc", "abd") for m in (a, {"_target_": "B", "name": "b"})]
    shown = content(frame(found), "t")
    assert shown["varied"] == ["model.name", "unseen classes"]
    assert shown["own"]["a"] == {"model._target_": "A", "model.atoms": 3, "model.n_iter": 1}
    # A setting that one model was run with twice tells its runs apart, and is not said of the others.
    found.append(record("abc", model={**a, "n_iter": 2}))
    assert set(names_of(records.groups(frame(found)["key"])).values()) == {
        "a, model.n_iter=1",
        "a, model.n_iter=2",
        "b",
    }


def test_the_page_asks_nobody_and_survives_hostile_names(report_runs):
    found = records.read_records(report_runs)
    found["record"].iloc[0]["per_class"][0]["class"] = "</script><script>alert(1)</script>"
    page = dashboard(found, "a <title>")
    assert "a &lt;title&gt;" in page
    assert page.count("</script>") == 2
    assert not any(word in page for word in ("http:", "https:", "@import", "src=", "url("))
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert data["runs"][0]["per_class"][0]["class"] == "</script><script>alert(1)</script>"
    assert data["varied"] == ["split.seed", "unseen classes", "seed"]


@pytest.mark.slow
def test_the_page_in_a_browser(report_runs, tmp_path):
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if path is None:
        pytest.skip("no browser: chromium or google-chrome is not on PATH")
    page = tmp_path / "d.html"
    # Sorted once by a click, so that the page's own code is seen to run.
    click = "<script>document.querySelector('#runs thead button[data-c=acc_class]').click()</script></body>"
    page.write_text(dashboard(records.read_records(report_runs), "sweep").replace("</body>", click))
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    out = subprocess.run([path, *words], capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-ready="yes"' in out
    body = out.split('id="runs"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in body.split("</tr>")[:-1]]
    columns = re.findall(r'data-c="([^"]+)"', out.split('id="runs"')[1].split("</thead>")[0])
    found = sorted((one["metrics"]["acc_class"] for one in stored(report_runs)), reverse=True)
    assert_allclose([float(row[columns.index("acc_class")]) for row in rows], found, atol=6e-4)


def test_the_module_runs_from_a_shell(report_runs, tmp_path):
    words = ["dashboard", report_runs, "--out", tmp_path / "x" / "d.html"]
    out = subprocess.run([sys.executable, "-m", "zsl.report", *words], capture_output=True, text=True, check=True)
    assert Path(out.stdout.split()[-1]).stat().st_size > 10_000


def test_the_panel_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(panel, "tsne", lambda V, seed: V[:, :2])  # t-SNE takes seconds
    run(compose(["experiment=figure", "dataset=digits", "model.n_iter=2"]), tmp_path / "run")
    command.main(["figure", str(tmp_path)])
    svg = (tmp_path / "run" / "figure.svg").read_text()
    assert svg.count("labels spread") == 2
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
    assert "539 of 539 test images" in capsys.readouterr().out
    # The accuracy in the title is that of the record.
    accuracy = json.loads((tmp_path / "run" / "results.json").read_text())["metrics"]["aag/acc_class"]
    assert f"AAg: nearest class, {accuracy:.1%}" in svg


@pytest.mark.parametrize(("name", "text"), [
    ("results.json", b"{"), ("results.json", b"{}"), ("results.json", None), ("predictions.npz", b"PK"),
])  # fmt: skip
def test_the_panel_of_a_damaged_run_is_refused(tmp_path, capsys, name, text):
    np.savez(tmp_path / "predictions.npz", y=np.zeros(3))
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_bytes(text)
    fails("figure", tmp_path)
    error = capsys.readouterr().err
    assert "cannot be read" in error
    assert name in error


@pytest.mark.slow
def test_an_embedding_is_drawn():
    rng = np.random.default_rng(0)
    figure = figures.embedding(rng.normal(size=(40, 5)), rng.normal(size=(3, 5)), {"truth": np.arange(40) % 3}, "abc")
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["a", "b", "c"]


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
