"""The page of a sweep: what is in it, what it averages over, and that a browser draws it without an error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from report_records import frame, record, stored
from zsl.errors import UserError
from zsl.report import dashboard as module
from zsl.report import records
from zsl.report.dashboard import content, dashboard
from zsl.report.records import varying
from zsl.runs import status

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="no browser: chromium or google-chrome is not on PATH")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028"


def sweep(lams=(None, 0.1, 1.0), atoms=(40, 80), seeds=(0, 1, 2), **more):
    """Records of a sweep, whose accuracies tell their settings."""
    return [
        record("abc", seed, round(0.3 + 0.1 * i + 0.02 * j + 0.01 * seed, 4),
               model={"name": "coupled", "lam": lam, "n_atoms": n, "seed": seed}, **more)
        for i, lam in enumerate(lams) for j, n in enumerate(atoms) for seed in seeds
    ]  # fmt: skip


def drawn(page, path, script="", size="1280,900", wrapped=None):
    """The page's text and elements after its code ran in a browser; fails with what the browser's console says."""
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    if wrapped:  # windows of a browser are never as narrow as a phone, but a frame is
        frame_of = path.with_name("frame.html")
        frame_of.write_text(f'<iframe src="{path.as_uri()}" width="{wrapped}" height="900"></iframe>')
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--window-size={size}",
             "--virtual-time-budget=8000", "--dump-dom", (frame_of if wrapped else path).as_uri()]  # fmt: skip
    out = subprocess.run([BROWSER, *words], capture_output=True, text=True, timeout=120, check=True)
    said = [line for line in out.stderr.splitlines() if "CONSOLE" in line]
    assert not [line for line in said if "report:" not in line]
    reports = [json.loads(unescape(re.search(r'report:(.*)", source:', line)[1])) for line in said]
    return out.stdout, reports[0] if reports else None


def told(expression):
    """A script that tells the value of an expression through the console."""
    return (
        f"addEventListener('load', () => setTimeout(() => console.log('report:' + JSON.stringify({expression})), 500))"
    )


def cells(html, part="tbody"):
    body = html.split('id="runs"')[1].split(f"<{part}>")[1].split(f"</{part}>")[0]
    return [[re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in
            body.split("</tr>")[:-1]]  # fmt: skip


def test_what_varies_is_not_every_models_own_settings():
    a = {"_target_": "A", "name": "a", "atoms": 3, "n_iter": 1}
    found = [record(s, model=m) for s in ("abc", "abd") for m in (a, {"_target_": "B", "name": "b"})]
    shown = content(frame(found))
    assert [key["name"] for key in shown["keys"]] == ["model.name", "unseen classes"]
    assert [key["repetition"] for key in shown["keys"]] == [False, True]
    assert dict(shown["own"]["a"]) == {"model._target_": "A", "model.atoms": "3", "model.n_iter": "1"}


def test_values_stand_in_their_order_and_nothing_has_a_name():
    shown = content(frame(sweep(lams=(10, None, 2, 1.0))))
    lam = next(key for key in shown["keys"] if key["name"] == "model.lam")
    assert lam["values"] == ["not set", "1", "2", "10"]
    assert lam["numbers"] == [None, 1, 2, 10]
    # Every run names the value that it has.
    for run, one in zip(shown["runs"], sweep(lams=(10, None, 2, 1.0))):
        assert lam["numbers"][run["values"][shown["keys"].index(lam)]] == one["key"]["model"]["lam"]
    titles = [key["name"] for key in shown["keys"]] + [metric["name"] for metric in shown["metrics"]]
    assert len(titles) == len(set(titles))


def test_a_number_among_settings_that_a_model_lacks_is_no_value():
    found = [record("abc", model={"name": "a", "lam": lam}) for lam in (0.1, 1.0)] + [
        record("abc", model={"name": "b"})
    ]
    shown = content(frame(found))
    place = [key["name"] for key in shown["keys"]].index("model.lam")
    assert [run["values"][place] for run in shown["runs"]] == [0, 1, -1]


def test_what_tuning_chose_is_no_setting():
    tuned = [record("abc", seed, tried=[{}], chosen={"model.lam": lam}, selection="selected on validation classes",
                    model={"name": "m", "lam": lam}) for seed, lam in enumerate((0.1, 1.0))]  # fmt: skip
    for one in tuned:
        one["key"]["tune"]["search"] = "grid"
    shown = content(frame([*tuned, record("abc", model={"name": "m", "lam": 0.5})]))
    lam = next(key for key in shown["keys"] if key["name"] == "model.lam")
    assert (lam["values"], lam["numbers"]) == (["tuned", "0.5"], [None, 0.5])
    assert "model.lam=0.1" in shown["runs"][0]["how"]
    # Runs that differ in nothing but their seed and their tuned value are repetitions of each other.
    place = [k for k, key in enumerate(shown["keys"]) if not key["repetition"]]
    first, second = ([run["values"][k] for k in place] for run in shown["runs"][:2])
    assert first == second


def test_settings_of_a_rule_follow_from_its_name_unless_they_were_swept(tmp_path):
    rules = [
        {"attributes": "own", "labels": "spread", "spread": {"mu": 0.1}},
        {"attributes": "own", "labels": "nearest"},
    ]
    table = frame([record("abc", inference=rule) for rule in rules])
    shown = content(table)
    assert [key["name"] for key in shown["keys"]] == ["inference.labels"]
    assert shown["runs"][0]["more"] == [["inference.spread.mu", "0.1"]]
    for i in range(2):
        folder = tmp_path / str(i)
        folder.mkdir()
        table.loc[i, "folder"] = str(folder)
        known = {"status": "FINISHED", "process": {}, "started": 1, "tracking": None}
        status.write(folder / "status.json", {**known, "overrides": [f"inference.spread.mu={i}"]})
    shown = content(table)
    assert [key["name"] for key in shown["keys"]] == ["inference.spread.mu", "inference.labels"]


def test_the_metric_is_the_generalised_one_where_all_runs_are():
    general = [record(acc=a, metrics={"gzsl_h": a / 2}) for a in (0.2, 0.4)]
    shown = content(frame(general))
    assert shown["metrics"][shown["metric"]]["name"] == "gzsl_h"
    shown = content(frame([*general, record(acc=0.3)]))
    assert shown["metrics"][shown["metric"]]["name"] == "acc_class"


def test_metrics_are_explained_or_left_out():
    one = record(metrics={"hit_5": 0.5, "shift_relative": 0.1, "aag/ece": 0.2, "hubness_skew": 1.0})
    found = {metric["name"]: metric for metric in content(frame([one]))["metrics"]}
    assert set(found) == {"acc_class", "hit_1", "hit_5", "time_fit_s", "aag/ece", "hubness_skew"}
    assert "first 5 choices" in found["hit_5"]["about"]
    assert found["aag/ece"]["about"].endswith("Here it is that of the stage aag of inference.")
    assert {name for name, metric in found.items() if metric["lower"]} == {"time_fit_s", "aag/ece", "hubness_skew"}


def test_the_page_asks_nobody_and_survives_hostile_names(report_runs):
    found = records.read_records(report_runs)
    found["record"].iloc[0]["per_class"][0]["class"] = HOSTILE
    found["key"].iloc[0]["inference"]["labels"] = HOSTILE
    page = dashboard(found, "a <title>")
    assert "a &lt;title&gt;" in page
    assert page.count("</script>") == 3
    assert "\u2028" not in page
    assert "default-src 'none'" in page
    # The library has addresses in it, such as those of maps that nobody asks for; nothing around it has.
    library = max(re.findall(r"<script>(.*?)</script>", page, re.DOTALL), key=len)
    rest = page.replace(library, "")
    assert len(library) > 1e6
    assert not any(word in rest for word in ("http:", "https:", "@import", "<script src", "<link", "url("))
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert HOSTILE in data["classes"][data["runs"][0]["classes"]]
    assert [key["name"] for key in data["keys"]] == ["inference.labels", "split.seed", "seed"]
    assert ["unseen classes" in dict(run["more"]) for run in data["runs"]] == [True] * len(data["runs"])


def test_links_go_to_the_folder_and_to_mlflow_without_a_login(tmp_path):
    runs = tmp_path / "a b" / "0"

    def links(uri, run="ab12"):
        return module._links(str(runs), tmp_path, {"tracking": {"uri": uri, "run_id": run}})

    assert links(None)["folder"] == "a%20b/0/"
    assert links(None)["page"] == "http://127.0.0.1:5000/#/runs/ab12"
    assert links("sqlite:////tmp/x.db")["page"] == "http://127.0.0.1:5000/#/runs/ab12"
    assert links("https://me:secret@host:8/base/")["page"] == "https://host:8/base/#/runs/ab12"
    assert links("https://host", run=None)["page"] is None
    assert links("https://host", run='"><b>')["page"] is None


def test_the_confusion_comes_from_the_record_or_the_predictions(tmp_path):
    one = record("ab")
    table = frame([one])
    table["folder"] = str(tmp_path)
    assert content(table)["runs"][0]["confusion"] is None
    (tmp_path / "predictions.csv").write_text("row,predicted,true\n1,a,a\n2,a,b\n3,a,b\n4,b,\n")
    assert sorted(content(table)["runs"][0]["confusion"]) == [(0, 0, 1), (1, 0, 2)]
    one["confusion"] = {"b": {"b": 7}}
    assert content(table)["runs"][0]["confusion"] == [(1, 1, 7)]


def test_the_best_runs_have_their_confusion_where_not_all_can(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CELLS", 2)
    found = [record("ab", acc=acc) for acc in (0.2, 0.9, 0.5)]
    for one in found:
        one["confusion"] = {"a": {"a": 1}}
    shown = content(frame(found))["runs"]
    assert [run["confusion"] is not None for run in shown] == [False, True, True]


def test_too_many_runs_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_RUNS", 1)
    with pytest.raises(UserError, match="2 runs are too many for one page"):
        dashboard(frame([record("ab"), record("ac")]), "t")


@pytest.mark.slow
def test_the_module_runs_from_a_shell(report_runs, tmp_path):
    words = ["dashboard", report_runs, "--out", tmp_path / "x" / "d.html"]
    out = subprocess.run([sys.executable, "-m", "zsl.report", *words], capture_output=True, text=True, check=True)
    page = Path(out.stdout.split()[-1])
    data = json.loads(page.read_text().split('type="application/json">')[1].split("</script>")[0])
    assert all((page.parent / run["folder"] / "results.json").is_file() for run in data["runs"])


@browser
def test_the_page_in_a_browser(report_runs, tmp_path):
    out, _ = drawn(dashboard(records.read_records(report_runs), "sweep"), tmp_path / "d.html")
    assert 'data-ready="yes"' in out
    # The metric is the first column, and the best run the first row, before anybody clicks.
    assert cells(out, "thead")[0][0] == "acc_class ▼"
    found = sorted((one["metrics"]["acc_class"] for one in stored(report_runs)), reverse=True)
    assert_allclose([float(row[0]) for row in cells(out)], found, atol=6e-4)
    for plot in ("effect", "parallel", "confusion", "bars"):
        part = out.split(f'id="{plot}"')[1].split("</section>")[0]
        assert "main-svg" in part, plot


@browser
def test_the_heat_map_is_the_mean_over_seeds_at_one_value_of_all_else(tmp_path):
    rules = [sweep(inference={"attributes": "own", "labels": rule}) for rule in ("spread", "own")]
    for one in rules[1]:
        one["metrics"]["acc_class"] /= 2
    both = [one for rule in rules for one in rule]
    out, data = drawn(
        dashboard(frame(both), "t"), tmp_path / "d.html", told("document.getElementById('effect').data[0]")
    )
    # Two swept numeric keys are chosen beforehand, that with more values across; spread is the better rule.
    assert "not set" in out
    assert re.search(r'<select data-key="\d+">.*?selected="">spread', out)
    for j in range(2):
        for i in range(3):
            assert_allclose(data["z"][j][i], np.mean([0.3 + 0.1 * i + 0.02 * j + 0.01 * s for s in range(3)]))
    assert "Only the runs with inference.labels = spread are drawn" in out
    assert "mean of 3 runs that differ in seed" in out


@browser
def test_lines_have_the_standard_error_between_splits(tmp_path):
    # Two splits of two seeds each: the means of the splits are 0.3 and 0.5, whatever their seeds.
    values = {("abc", 0): 0.2, ("abc", 1): 0.4, ("abd", 0): 0.5, ("abd", 1): 0.5}
    found = [record(s, seed, acc * f, model={"name": "m", "lam": lam}) for (s, seed), acc in values.items()
             for lam, f in ((0.1, 1), (1.0, 0.5))]  # fmt: skip
    script = told("document.getElementById('effect').data.slice(-1)[0]")
    _, line = drawn(dashboard(frame(found), "t"), tmp_path / "d.html", script)
    assert line["x"] == [0.1, 1]
    assert_allclose(line["y"], [0.4, 0.2])
    assert_allclose(line["error_y"]["array"], np.array([1, 0.5]) * np.std([0.3, 0.5], ddof=1) / np.sqrt(2))


@browser
def test_the_metric_axis_is_in_view_and_no_axis_has_the_title_of_another(tmp_path):
    more = [sweep(feature={"name": name}, inference={"attributes": a, "labels": "a rule with a long name"})
            for name in ("pixels", "lite0") for a in ("own", "bidirectional")]  # fmt: skip
    script = told(
        "[...document.querySelectorAll('#parallel .annotation')]"
        ".map(e => [e.textContent, e.getBoundingClientRect().right])"
    )
    _, words = drawn(dashboard(frame([one for part in more for one in part]), "t"), tmp_path / "d.html", script)
    titles = [word for word, _ in words if word in ("acc_class", "feature.name", "model.lam", "model.n_atoms")]
    assert sorted(titles) == ["acc_class", "feature.name", "model.lam", "model.n_atoms"]
    assert max(right for _, right in words) < 1280
    assert "not set" in [word for word, _ in words]


@browser
def test_a_phone_has_no_page_wider_than_itself(tmp_path):
    path = tmp_path / "d.html"
    script = told("[innerWidth, document.documentElement.scrollWidth, document.getElementById('parallel').clientWidth]")
    _, (inner, page, plot) = drawn(dashboard(frame(sweep()), "t"), path, script, wrapped=390)
    assert inner == 390
    assert page <= inner
    assert plot <= inner


@browser
def test_filter_average_csv_and_choice(tmp_path):
    script = """
    const text = []; URL.createObjectURL = blob => { blob.text().then(t => text.push(t)); return "blob:none"; };
    HTMLAnchorElement.prototype.click = () => {};
    const filter = document.getElementById("filter");
    filter.value = "lam=0.1 n_atoms=80";
    filter.oninput({target: filter});
    document.getElementById("csv").onclick();
    """ + told("[text[0], document.querySelector('#count').textContent]")  # fmt: skip
    found = sweep()
    found[0]["key"]["dataset"]["name"] = found[-1]["key"]["dataset"]["name"] = "=2+2"
    out, (text, count) = drawn(dashboard(frame(found), "t"), tmp_path / "d.html", script)
    assert count.startswith("3 of 18 runs")
    lines = text.lstrip("\ufeff").splitlines()
    assert lines[0].split(",")[:3] == ["acc_class", "dataset", "model.lam"]
    assert [float(line.split(",")[0]) for line in lines[1:]] == [0.44, 0.43, 0.42]
    assert [line.split(",")[2] for line in lines[1:]] == ["0.1"] * 3
    # Nothing filtered: the dangerous name is a text.
    script = script.replace("lam=0.1 n_atoms=80", "")
    _, (text, _) = drawn(dashboard(frame(found), "t"), tmp_path / "d.html", script)
    assert sum(",'=2+2," in line for line in text.splitlines()) == 2
    script = "document.getElementById('average').checked = true; average.onchange({target: average});"
    out, _ = drawn(dashboard(frame(sweep()), "t"), tmp_path / "d.html", script)
    # Six settings, each the mean of three seeds.
    rows = cells(out)
    assert len(rows) == 6
    assert rows[0][0] == "0.530 ± 0.006"


@browser
def test_hostile_names_are_drawn_as_text(tmp_path):
    one = record([HOSTILE, "b"], confusion=None)
    one["confusion"] = {HOSTILE: {"b": 3, HOSTILE: 1}, "b": {"b": 2}}
    other = record([HOSTILE, "b"], model={"name": HOSTILE})
    script = told("[document.querySelectorAll('img').length, document.getElementById('confusion').textContent]")
    _, (images, text) = drawn(dashboard(frame([one, other]), HOSTILE), tmp_path / "d.html", script)
    assert images == 0
    assert "</script>" in text


@browser
@pytest.mark.parametrize("kind", ["one run", "no truth"])
def test_little_to_show_is_shown(kind, tmp_path):
    found = sweep(lams=(0.1,), atoms=(40,), seeds=(0,)) if kind == "one run" else sweep(seeds=(0,))
    if kind == "no truth":
        for one in found:
            one["metrics"] = {"time_fit_s": 1.0}
            for row in one["per_class"]:
                row["own/acc"] = None
    out, _ = drawn(dashboard(frame(found), "t"), tmp_path / "d.html")
    assert 'data-ready="yes"' in out
    assert ("Accuracy by class" if kind == "one run" else "Images given to each class") in out
    assert len(cells(out)) == len(found)


@browser
def test_a_page_of_two_thousand_runs_is_small_and_is_drawn(tmp_path):
    found = sweep(lams=tuple(np.geomspace(1e-3, 1e3, 20)), atoms=tuple(range(10)), seeds=tuple(range(10)))
    page = dashboard(frame(found), "t")
    assert len(page) < 7e6
    out, _ = drawn(page, tmp_path / "d.html")
    assert len(cells(out)) == 2000


def test_what_varies_tells_targets_only_without_names():
    assert varying([{"model._target_": "A"}, {"model._target_": "B"}]) == ["model._target_"]
    named = [{"model._target_": t, "model.name": t} for t in "AB"]
    assert varying(named) == ["model.name"]


@browser
def test_the_value_that_is_held_is_the_one_with_most_cells(tmp_path):
    # The best runs are of a rule that was run at one lam only, from which no map can be drawn.
    grid = sweep(inference={"attributes": "own", "labels": "spread"})
    for acc in (0.98, 0.99):
        grid.append(record("abc", acc=acc, model={"name": "coupled", "lam": 1.0, "n_atoms": 40, "seed": 0},
                           inference={"attributes": "own", "labels": "own"}))  # fmt: skip
    script = told("document.getElementById('effect').data[0].z")
    _, z = drawn(dashboard(frame(grid), "t"), tmp_path / "d.html", script)
    assert np.shape(z) == (2, 3)
