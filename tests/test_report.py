"""Tables and figures: which records fill which cell, what is missing, and the four formats."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.config import compose, options
from zsl.errors import UserError
from zsl.experiment import run
from zsl.report import __main__ as command
from zsl.report import cells, document, printed, variants
from zsl.report.compare import read
from zsl.report.dashboard import dashboard
from zsl.report.sweeps import diff

DIGITS = ["dataset=digits", "split=random"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits under three rules on two class splits, twice on the first."""
    folder = tmp_path_factory.mktemp("report")
    for split, seed in ((0, 0), (0, 1), (1, 0)):
        overrides = [*DIGITS, f"split.seed={split}", f"seed={seed}", "experiment=table0", "model.n_iter=2"]
        run(compose(overrides), folder / f"{split}-{seed}")
    return folder


EXTRA = ["model.n_iter=2"]


def test_the_paper_is_typed_in_whole():
    paper = cells.read_yaml("paper.yaml")
    rows = [r for nets in (v for k, v in paper["table0"].items() if k != "columns") for r in nets.values()]
    assert len(rows) == 17
    assert all(len(r) == 9 for r in rows)
    assert paper["table0"]["awa1"]["vgg19"][0] == 77.30
    assert paper["table1"]["ours_taaw"] == [91.00, 48.41, 89.35]
    assert paper["table3"]["changpinyo_2016_sync"] == [62.7, 54.5, 72.9]
    # Every row of its tables is a row of ours.
    for name in ("table1", "table3"):
        assert set(paper[name]) - {"columns", "note"} <= set(printed.METHODS)


def test_table0_has_ours_beside_the_papers(folder):
    table = printed.table0(read(folder), EXTRA)
    rows = {(r[0].text, r[1].text, r[2].text, r[3].text): r for r in table.rows}
    ours = rows["digits", "pixels", "random", "AAg"]
    values = {}
    for path in folder.glob("*/results.json"):
        record = json.loads(path.read_text())
        values.setdefault(record["key"]["split"]["seed"], []).append(record["metrics"]["aag/hit_1"])
    means = [np.mean(v) for v in values.values()]
    assert_allclose(ours[5].number, 100 * np.mean(means))
    assert f"± {100 * np.std(means, ddof=1):.1f}" in ours[5].text
    assert ours[-1].text == "2 splits x 2 seeds"
    assert ours[4].text == "-"
    # hit@3 among three classes is no metric, and is not called missing.
    assert ours[8].text == "-"
    paper = rows["AwA1", "vgg19", "standard", "TAAw"]
    assert paper[4].text == "89.35"
    assert paper[5].text == "missing"
    assert "d" in paper[10].marks  # TAAw below AAw at hit@5
    assert table.selection == "settings as given"


def test_a_missing_cell_names_a_command_that_composes(folder):
    table = printed.table0(read(folder), EXTRA)
    assert not any("digits" in c for c in table.commands)
    assert len(table.commands) == len(printed.cells("table0")) - 1
    for line in table.commands:
        arguments = shlex.split(line.removeprefix("python -m zsl.main "))
        assert compose([a for a in arguments if "range(" not in a]).dataset.name
    cub = next(c for c in table.commands if "cub" in c)
    assert "'split.fold=range(4)'" in cub
    assert "seed" not in cub  # the ten dictionary seeds are the experiment's own


@pytest.mark.parametrize("change", [
    lambda k: k["model"].update(lam_relative=0.3),
    lambda k: k["model"].update(coupling="joint"),
    lambda k: k["inference"].update(rho=2.0),
    lambda k: k["feature"].update(l2=False),
    lambda k: k["split"].update(subset={"images": 5, "seed": 0}),
    lambda k: k["dataset"].update(shuffle_attributes=3),
    lambda k: k.update(tune={"name": "class_cv", "chosen": {}}),
    lambda k: k["dataset"].update(name="awa2"),
])  # fmt: skip
def test_other_settings_do_not_fill_a_cell(folder, change):
    records = read(folder)
    for record in records:
        change(record["key"])
    ours = [r for r in printed.table0(records, EXTRA).rows if r[0].text == "digits"]
    assert {r[5].text for r in ours} == {"missing"}


def test_two_data_sets_in_one_cell_are_refused(folder):
    records = read(folder)
    records[0]["key"]["dataset"]["content"] = "other"
    with pytest.raises(UserError, match="2 different data sets called digits"):
        printed.table0(records, EXTRA)


def test_a_result_found_twice_counts_once(folder):
    records = read(folder)
    again = printed.table0([*records, *deepcopy(records)], EXTRA)
    assert again.rows[-4][-1].text == printed.table0(records, EXTRA).rows[-4][-1].text


def test_what_tuning_chose_does_not_keep_a_run_from_its_cell(tmp_path):
    overrides = [
        "experiment=table1",
        *DIGITS,
        "feature=pixels",
        "model=ridge",
        "tune.n_folds=2",
        "split.seed=0",
        "seed=0",
    ]
    result = run(compose(overrides), tmp_path / "run")
    assert result.key["selection"] == "selected on validation classes"
    one = cells.cell("table1", "digits", "ridge", ["feature=pixels", "model=ridge"])
    cells.fill([one], read(tmp_path))
    assert len(one.records) == 1
    assert printed.selection([one]) == "selected on validation classes"


def test_data_that_is_not_here_is_found_out_without_a_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZSL_DATA", str(tmp_path))
    cells._absent.clear()
    cells._composed.cache_clear()
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **kwargs: ran.append(command))
    todo = [c for c in printed.cells("table0") if c.data in ("awa1", "digits")]
    cells.run(todo)
    assert len(ran) == 1
    assert "dataset=digits" in ran[0]
    assert "left out  AwA1, vgg19: dataset=awa1 is not here" in capsys.readouterr().err
    cells._absent.clear()
    cells._composed.cache_clear()


@pytest.mark.parametrize("name", [e for e in command.EXPERIMENTS if not e.startswith("table")])
def test_every_cell_composes_into_settings_that_exist(name):
    found = variants.cells(name, ["data=digits"])
    texts = [json.dumps(cells._of_configuration(c), sort_keys=True, default=str) for c in found]
    # Two cells with the same settings share records: each curve passes through the default once, one row of the
    # ablation says "nearest" for what the first row is.
    assert len(set(texts)) >= len(texts) - max(len(cells.layout()[name].get("curves", ())) - 1, name == "ablation")
    assert all(c.repeats == ("split.seed=range(10)", "seed=0") for c in found)


def test_repetitions_are_those_of_the_data():
    extra = ["split.seed=range(2)"]
    lines = [" ".join(a) for a, _ in cells.commands(printed.cells("table1", extra))]
    assert all(("split.seed=range(2)" in line) == ("split=random" in line) for line in lines)
    of_cub = {line.split("model=")[1].split()[0]: line for line in lines if "dataset=cub" in line}
    # Nothing is random in ESZSL: one run on each fold. The dictionaries have the experiment's ten seeds on each.
    assert of_cub["eszsl"].endswith("split.fold=range(4) seed=0")
    assert of_cub["coupled"].endswith("split.fold=range(4)")


@pytest.mark.parametrize("name", ["table0", "table1", "table3"])
def test_every_table_has_something_to_run_on_digits(name):
    cells._absent.clear()
    assert [c for c in printed.cells(name) if c.data == "digits" and cells.absent(c)] == []


def test_baselines_keep_their_own_scores():
    found = variants.cells("learning_curve", ["data=digits"])
    rules = {c.variant: cells.configuration(c)["inference"]["labels"] for c in found}
    assert rules == {"coupled (AAg)": "nearest", "ESZSL": "own", "CMT (neural)": "own"}
    for name in ("table1", "table3", "learning_curve", "ablation"):
        assert compose([f"experiment={name}", "model=eszsl"]).inference.labels == "own"


def test_every_experiment_that_is_reported_has_its_file():
    assert {*command.EXPERIMENTS, "figure", "smoke"} <= set(options("experiment"))


def test_the_points_of_a_curve_are_one_command():
    found = [c for c in variants.cells("sensitivity", ["data=digits"]) if c.group == "mu"]
    ((arguments, members),) = cells.commands(found)
    assert len(members) == 5
    assert "inference.mu=0.001,0.01,0.1,1.0,10.0" in arguments


def test_only_splits_that_all_have_are_compared(folder):
    records = read(folder)
    a, b, empty = (cells.Cell("", "", "", "", (), (), records=r) for r in (records, records[:2], []))
    cells.share_splits([a, b, empty])
    splits = {tuple(r["key"]["split"]["unseen"]) for r in records[:2]}
    assert {tuple(r["key"]["split"]["unseen"]) for r in a.records} == splits
    assert len(a.records) == 2
    first, second = (cells.Cell("", "", "", "", (), (), records=r) for r in (records, [records[0], records[2]]))
    cells.share_splits([first, second], seeds=True)
    assert first.records == second.records


def test_a_curve_from_runs(tmp_path):
    for ratio in (1.0, 2.0):
        for seed in range(2):
            run(compose(["experiment=imbalance", *DIGITS, "inference.attributes=agnostic", "inference.labels=nearest",
                         f"split.seed={seed}", "seed=0", f"subset.imbalance={ratio}", "model.n_iter=1"]),
                tmp_path / f"{ratio}-{seed}")  # fmt: skip
    (table,), figures = variants.curves("imbalance", read(tmp_path), ["data=digits", "model.n_iter=1"])
    column = table.columns.index("nearest (inductive)")
    filled = [row[column].number is not None for row in table.rows]
    assert filled == [True, True, False, False]
    assert len(table.commands) == len(variants.variants(cells.layout()["imbalance"]["models"]))
    assert "subset.imbalance=5.0,10.0" in table.commands[0]
    assert list(figures) == ["imbalance_digits"]


def test_the_formats_agree_and_escape():
    table = document.Table("t", "A & B_1", "selected on validation classes", ["name", "x|y"],
                           footnotes={"a": "50 % of <it>", "b": "unused"})  # fmt: skip
    table.rows = [
        [document.text("a_b|c", "a"), document.number(1 / 3, 1, 0.05)],
        [document.text("<b>"), document.missing()],
    ]
    md, tex, text, page = (
        f(table) for f in (document.markdown, document.latex, document.comma_separated, document.fragment)
    )
    for out in (md, tex, text, page):
        assert "selected on validation classes" in out
        assert "unused" not in out
    assert r"| a_b\|c[a] | 0.3 ± 0.1 |" in md
    assert r"a\_b$|$c$^{a}$ & 0.3 $\pm$ 0.1 \\" in tex
    assert r"\toprule" in tex
    assert tex.count("{") == tex.count("}")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert float(rows[0]["x|y"]) == 1 / 3
    assert rows[1]["x|y"] == "missing"
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_the_command_writes_every_format(folder, tmp_path, capsys):
    command.main(["table0", str(folder), "--out", str(tmp_path), *EXTRA])
    out = capsys.readouterr().out
    assert "Settings: settings as given" in out
    for kind in ("md", "tex", "csv", "html"):
        text = (tmp_path / f"table0.{kind}").read_text()
        assert "89.35" in text or kind == "csv"
        assert "settings as given" in text


def test_wrong_words_end_in_a_sentence(tmp_path, capsys):
    for arguments, message in (
        (["sensitivity", "data=cats"], "data=cats does not exist"),
        (["ablation", str(tmp_path), "modle.lam=1"], "there is no modle.lam"),
        (["figure", str(tmp_path)], "holds no predictions.npz"),
        (["figure", "model.lam=1"], "model.lam=1 is for a run; add --run"),
        (["dashboard", str(tmp_path)], "holds no results.json"),
        (["table0", "a", "b"], "one folder of records is needed"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(arguments)
        assert ended.value.code == 1
        assert message in capsys.readouterr().err


def test_difference_of_two_sweeps(folder):
    before = read(folder)
    after = deepcopy(before)
    for record in after:
        record["metrics"]["acc_class"] += 0.1
    table = diff(before, after)
    assert len(table.rows) == 1
    assert_allclose(table.rows[0][3].number, 10)
    changed = deepcopy(after)
    for record in changed:
        record["key"]["model"]["lam_relative"] = 0.7
    single = diff(before, changed)
    assert "model.lam_relative: 0.1 -> 0.7" in single.rows[0][0].text
    assert_allclose(single.rows[0][3].number, 10)


def test_the_panel_from_a_run(tmp_path, capsys):
    run(compose(["experiment=figure", "model.n_iter=2"]), tmp_path / "run")
    command.main(["figure", str(tmp_path)])
    assert (tmp_path / "run" / "figure.svg").read_text().count("labels spread") >= 2
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
    out = capsys.readouterr().out
    assert "539 of 539 test images" in out
    # The accuracy in the title is that of the record.
    accuracy = json.loads((tmp_path / "run" / "results.json").read_text())["metrics"]["aag/acc_class"]
    assert f"AAg: nearest class, {accuracy:.1%}" in (tmp_path / "run" / "figure.svg").read_text()


def test_the_panel_of_a_run_made_for_it(tmp_path, capfd):
    # `make figure ARGS=output_dir=...` once drew the newest run of another folder.
    command.main(["figure", "--run", "model.n_iter=1", f"output_dir={tmp_path}/elsewhere"])
    assert len(list((tmp_path / "elsewhere" / "figure").glob("*/figure.svg"))) == 1
    with pytest.raises(SystemExit) as ended:
        command.main(["figure", "--run", "modle.lam=1", f"output_dir={tmp_path}"])
    assert ended.value.code == 1
    assert "did you mean model?" in capfd.readouterr().err


# --- the dashboard ------------------------------------------------------------------------------------------


def test_the_page_asks_nobody_and_survives_hostile_names(folder):
    records = read(folder)
    records[0]["per_class"][0]["class"] = "</script><script>alert(1)</script>"
    page = dashboard(records, "a <title>")
    assert "a &lt;title&gt;" in page
    assert page.count("</script>") == 2
    for word in ("http:", "https:", "@import", "src=", "url("):
        assert word not in page
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert data["runs"][0]["per_class"][0]["class"] == "</script><script>alert(1)</script>"
    assert data["varied"] == ["split.seed", "unseen classes", "seed"]


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    return None


@pytest.mark.slow
def test_the_page_in_a_browser(folder, tmp_path):
    path = browser()
    if path is None:
        pytest.skip("no browser: chromium or google-chrome is not on PATH")
    page = tmp_path / "d.html"
    # Sorted once by a click, so that the page's own code is seen to run.
    click = "<script>document.querySelector('#runs thead button[data-c=acc_class]').click()</script></body>"
    page.write_text(dashboard(read(folder), "sweep").replace("</body>", click))
    out = subprocess.run(
        [path, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert 'data-ready="yes"' in out
    body = out.split('id="runs"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in body.split("</tr>")[:-1]]
    columns = re.findall(r'data-c="([^"]+)"', out.split('id="runs"')[1].split("</thead>")[0])
    shown = [float(row[columns.index("acc_class")]) for row in rows]
    found = sorted((r["metrics"]["acc_class"] for r in read(folder)), reverse=True)
    assert_allclose(shown, found, atol=6e-4)
    for part in ("parallel", "map", "classes", "confusion", "hubs"):
        assert ("<svg" if part != "map" else "<table") in out.split(f'id="{part}"')[1].split("</div></div>")[0]


def test_the_module_runs_from_a_shell(folder, tmp_path):
    out = subprocess.run(
        [sys.executable, "-m", "zsl.report", "dashboard", str(folder), "--out", str(tmp_path / "x" / "d.html")],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert Path(out.stdout.split()[-1]).stat().st_size > 10_000


def test_errata_stand_beside_the_numbers_they_are_about(tmp_path):
    table = printed.table0([])
    assert all("l" in row[0].marks for row in table.rows if row[0].text == "SUN 645/72")
    methods = printed.methods("table1", [])
    assert {row[0].text.split(" (")[-1].rstrip(")") for row in methods.rows if "k" in row[0].marks} == {
        "DSRL",
        "coupled dictionaries, TAAw",
    }
