"""Tables and figures: which records fill which cell, what is missing, and the four formats."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.config import compose, options
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.report import __main__ as command
from zsl.report import cells, document, figures, here, matching, numbers, printed, running, variants
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
    lambda k: k["evaluation"].update(generalized=True),
    lambda k: k["model"].update(seed=7),
    lambda k: k["model"].pop("coupling"),
    lambda k: k["model"].update(setting_of_another_version=1),
])  # fmt: skip
def test_other_settings_do_not_fill_a_cell(folder, change):
    records = read(folder)
    for record in records:
        change(record["key"])
    ours = [r for r in printed.table0(records, EXTRA).rows if r[0].text == "digits"]
    assert {r[5].text for r in ours} == {"missing"}


def test_records_of_other_data_are_left_out_and_said(folder):
    records = read(folder)
    for record in records[:2]:
        record["key"]["dataset"]["content"] = "other"
    one = next(c for c in printed.cells("table0", EXTRA) if c.data == "digits")
    matching.fill([one], records)
    assert one.records == records[2:]
    table = printed.table0(records, EXTRA)
    assert "digits: 2 records of other data under the same name were left out." in table.notes
    # All of one content, and yet not that of the data here.
    records[2]["key"]["dataset"]["content"] = "other"
    ours = [r for r in printed.table0(records, EXTRA).rows if r[0].text == "digits"]
    assert {r[5].text for r in ours} == {"missing"}


def test_of_data_that_is_not_here_the_content_is_said_and_two_are_refused(folder, monkeypatch):
    monkeypatch.setattr(here, "data", lambda plain: here.Here("it is not here", None))
    records = read(folder)
    content = records[0]["key"]["dataset"]["content"]
    notes = printed.table0(records, EXTRA).notes
    assert any(f"not on this machine; the records are of data with content hash {content}" in n for n in notes)
    # Under the same division too, as of a copied folder: once the first that was found stood for both.
    other = deepcopy(records)
    for record in other:
        record["key"]["dataset"]["content"] = "other"
    for found in ([*records, *other], [other[0], *records[1:]]):
        with pytest.raises(UserError, match="2 different data sets called digits"):
            printed.table0(found, EXTRA)
    for record in records:
        record["key"]["dataset"]["provenance"] = {"simulated": True}
    ours = [r for r in printed.table0(records, EXTRA).rows if r[0].text == "digits"]
    assert {r[5].text for r in ours} == {"missing"}


def test_the_same_images_under_another_division_do_not_fill_a_cell(tmp_path):
    # The configuration's null stands for three unseen digits.
    run(compose([*DIGITS, "experiment=table0", "model.n_iter=2", "split.n_unseen=4", "split.seed=0"]), tmp_path / "run")
    one = next(c for c in printed.cells("table0", EXTRA) if c.data == "digits")
    matching.fill([one], read(tmp_path))
    assert not one.records
    assert not one.of_other_data


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
    one = cells.cell("table1", "digits", "ridge", ["feature=pixels", "model=ridge", "tune.n_folds=2"])
    records = read(tmp_path)
    matching.fill([one], records)
    assert len(one.records) == 1
    assert printed.selection([one]) == "selected on validation classes"
    # Another grid, search or folds is another experiment; a null grid is the model's own, as the trials tell.
    for change in (
        lambda r: r["trials"].pop(),
        lambda r: r.pop("trials"),
        lambda r: r["key"]["tune"].update(search="random"),
        lambda r: r["key"]["tune"].update(n_folds=5),
        lambda r: r["key"]["tune"].update(repeats=2),
        lambda r: r["key"]["tune"].update(n_trials=3),
        lambda r: r["key"]["tune"].update(seed=3),
        lambda r: r["key"]["tune"].pop("repeats"),
    ):
        changed = deepcopy(records)
        change(changed[0])
        matching.fill([one], changed)
        assert not one.records


def test_data_that_is_not_here_is_found_out_without_a_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZSL_DATA", str(tmp_path))
    here.forget()
    cells._composed.cache_clear()
    ran = []
    monkeypatch.setattr(running, "start", lambda arguments, **kwargs: ran.append(arguments) or 0)
    todo = [c for c in printed.cells("table0") if c.data in ("awa1", "digits")]
    assert running.run(todo) == []
    assert len(ran) == 1
    assert "dataset=digits" in ran[0]
    assert "left out  AwA1, vgg19: dataset=awa1 is not here" in capsys.readouterr().err
    here.forget()
    cells._composed.cache_clear()


@pytest.mark.parametrize("name", [e for e in command.EXPERIMENTS if not e.startswith("table")])
def test_every_cell_composes_into_settings_that_exist(name):
    found = variants.cells(name, ["data=digits"])
    texts = [json.dumps(matching._of_configuration(cells.configuration(c)), sort_keys=True) for c in found]
    # Two cells with the same settings share records: each curve passes through the default once, one row of the
    # ablation says "nearest" for what the first row is.
    assert len(set(texts)) >= len(texts) - max(len(cells.layout()[name].get("curves", ())) - 1, name == "ablation")
    assert all(c.repeats == ("split.seed=range(10)", "seed=0") for c in found)


def test_repetitions_are_those_of_the_data():
    extra = ["split.seed=range(2)"]
    lines = [" ".join(a) for a, _ in running.commands(printed.cells("table1", extra))]
    assert all(("split.seed=range(2)" in line) == ("split=random" in line) for line in lines)
    of_cub = {line.split("model=")[1].split()[0]: line for line in lines if "dataset=cub" in line}
    # Nothing is random in ESZSL: one run on each fold. The dictionaries have the experiment's ten seeds on each.
    assert of_cub["eszsl"].endswith("split.fold=range(4) seed=0")
    assert of_cub["coupled"].endswith("split.fold=range(4)")


@pytest.mark.parametrize("name", ["table0", "table1", "table3"])
def test_every_table_has_something_to_run_on_digits(name):
    here.forget()
    assert [c for c in printed.cells(name) if c.data == "digits" and running.absent(c)] == []


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
    ((arguments, members),) = running.commands(found)
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
        (["ablation", str(tmp_path), "modle.lam=1"], "did you mean model?"),
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


@pytest.mark.parametrize(("name", "content", "message"), [
    ("results.json", b"{", "cannot be read"),
    ("results.json", b"{}", "is no complete record"),
    ("results.json", None, "cannot be read"),
    ("predictions.npz", b"PK", "cannot be read"),
    ("predictions.npz", b"", "cannot be read"),
])  # fmt: skip
def test_the_panel_of_a_damaged_run_is_refused(tmp_path, capsys, name, content, message):
    np.savez(tmp_path / "predictions.npz", y=np.zeros(3))
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        command.main(["figure", str(tmp_path)])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert message in error
    assert name in error


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


# --- the user's words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "override", "message"), [
    # Each of these once filled the rows of other models, rules or data with its own numbers, or ended in a traceback.
    ("table1", "model=eszsl", "model is what table1 varies"),
    ("table1", "++model=eszsl", "model is what table1 varies"),
    ("table1", "inference=aag", "inference is what table1 varies"),
    ("table1", "tune=none", "tune is what table1 varies"),
    ("table1", "feature.name=vgg19", "feature.name is what table1 itself decides"),
    ("table0", "model=eszsl", "model is what table0 itself decides"),
    ("table0", "inference.labels=nearest", "inference.labels is what table0 itself decides"),
    ("table0", "tune=class_cv", "tune is what table0 itself decides"),
    ("table0", "feature=vgg19", "feature is what table0 varies"),
    ("table0", "dataset=xlsa17", "dataset is what data=NAME chooses"),
    ("table0", "split=random", "split is what data=NAME chooses"),
    ("ablation", "model=eszsl", "model is what ablation varies"),
    ("ablation", "inference.attributes=aware", "inference.attributes is what ablation varies"),
    ("ablation", "model.init=pca", "model.init is what ablation varies"),
    ("sensitivity", "inference.mu=1", "inference.mu is what sensitivity varies"),
    ("sensitivity", "model.lam=1", "model.lam overrules model.lam_relative"),
    ("learning_curve", "subset.images=3", "subset.images is what learning_curve varies"),
    ("imbalance", "inference.labels=csls", "inference.labels is what imbalance varies"),
    ("table0", "model.lam_relative=0.1,0.2", "has several values"),
    ("table0", "split.sed=range(2)", "has several values"),
    ("table0", "model.lmbda=3", "model.lmbda does not exist"),
    ("table1", "model.n_iter=3", "model.n_iter does not exist"),
    ("table1", "data=awa1_proposed", "data=awa1_proposed does not exist in table1"),
])  # fmt: skip
def test_only_settings_that_all_cells_share_may_be_set(name, override, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([name, str(tmp_path), override])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_settings_of_the_user_are_those_of_the_data_that_they_name():
    found = printed.cells("table1", ["data=cifar_awa", "feature.pca=64", "dataset.root=elsewhere"])
    mine = [c for c in found if c.data == "cifar_awa"]
    assert all(cells.configuration(c)["feature"]["pca"] == 64 for c in mine)
    assert all(cells.configuration(c)["dataset"]["root"] == "elsewhere" for c in mine)
    assert not any(c.given for c in found if c.data != "cifar_awa")
    # The note under the table says what was used, not what cells.yaml would have.
    (note,) = printed.used_settings(mine)
    assert "feature.pca=64" in note
    assert "feature.pca=256" not in note


@pytest.fixture(scope="module")
def methods_folder(tmp_path_factory):
    """Table 1 on digits: ESZSL on three splits, ridge-like SAE on two of them, both tuned; ours on three, as given."""
    folder = tmp_path_factory.mktemp("methods")
    for model, splits in (("eszsl", 3), ("sae", 2), ("coupled", 3)):
        more = ["inference=taaw", "tune=none"] if model == "coupled" else []
        for split in range(splits):
            words = ["experiment=table1", *DIGITS, "feature=pixels", f"model={model}", *more]
            run(compose([*words, f"split.seed={split}", "seed=0"]), folder / f"{model}-{split}")
    return folder


def test_a_table_of_methods_says_over_what_and_how_each_row_is(methods_folder):
    table = printed.methods("table1", read(methods_folder))
    column = table.columns.index("digits")
    rows = {row[0].text: row for row in table.rows}
    assert rows["repetitions of ours"][column].text == "2 splits; 1 seed"
    (note,) = (n for n in table.notes if "left out" in n)
    assert note == "digits: 1 of 3 class splits left out, because not all have them (fewer: Kodirov et al. 2017 (SAE))."
    says = {words: mark for mark, words in table.used_footnotes() if words.startswith("Settings of this row")}
    tuned, given = (
        says[f"Settings of this row: {r}."] for r in ("selected on validation classes", "settings as given")
    )
    assert tuned in rows["Romera-Paredes & Torr 2015 (ESZSL)"][0].marks
    assert given in rows["coupled dictionaries, TAAw"][0].marks
    assert not {tuned, given} & set(rows["Bucher et al. 2016"][0].marks)  # no run of it
    assert len(table.columns) == len(rows["repetitions of ours"])


# --- records, files and commands that fail --------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"key": {"dat', "{}", "[]", '{"key": {}, "metrics": {}, "per_class": []}', "\xff"])
def test_a_damaged_record_is_left_out_with_its_name(folder, tmp_path, caplog, capsys, text):
    shutil.copytree(folder / "0-0", tmp_path / "runs" / "good")
    bad = tmp_path / "runs" / "bad" / "results.json"
    bad.parent.mkdir()
    bad.write_bytes(text.encode("latin-1"))
    assert len(read(tmp_path / "runs")) == 1
    assert str(bad) in caplog.text
    command.main(["dashboard", str(tmp_path / "runs")])
    command.main(["diff", str(tmp_path / "runs"), str(tmp_path / "runs")])
    command.main(["table0", str(tmp_path / "runs"), *EXTRA])
    shutil.rmtree(tmp_path / "runs" / "good")
    with pytest.raises(SystemExit) as ended:
        command.main(["dashboard", str(tmp_path / "runs"), "--out", str(tmp_path / "d.html")])
    assert ended.value.code == 1
    assert "holds no results.json that can be read" in capsys.readouterr().err


def test_an_empty_table_never_replaces_a_full_one(folder, tmp_path, capsys):
    command.main(["table0", str(folder), "--out", str(tmp_path), *EXTRA])
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    capsys.readouterr()
    command.main(["table0", str(folder), "--out", str(tmp_path), "model.n_iter=3"])
    said = capsys.readouterr()
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert "no record fits any cell" in said.err
    assert "written" not in said.out
    # With fewer numbers, but some, it is written and said.
    fewer = tmp_path / "fewer"
    shutil.copytree(folder / "0-0", fewer / "0-0")
    record = json.loads((fewer / "0-0" / "results.json").read_text())
    record["metrics"] = {k: v for k, v in record["metrics"].items() if "hit_1" not in k}
    (fewer / "0-0" / "results.json").write_text(json.dumps(record))
    command.main(["table0", str(fewer), "--out", str(tmp_path), *EXTRA])
    assert re.search(r"had \d+ numbers and now has \d+", capsys.readouterr().err)


def test_numbers_are_counted_in_cells_only():
    text = "## A table of 3\n| a 1 | b |\n| --- | ---: |\n| x[k] | 1.5 ± 0.2[a] |\n| -3 | missing |\n\n12 notes"
    assert document.numbers_in(text) == 2


def test_commands_that_fail_are_counted_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "start", lambda arguments, **kwargs: 1)
    with pytest.raises(SystemExit) as ended:
        command.main(["table0", "--run", "data=digits", f"output_dir={tmp_path}"])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "written: " in said.out
    assert "1 of the commands failed" in said.err
    assert said.err.count("python -m zsl.main experiment=table0 dataset=digits") == 2


def test_a_typed_folder_must_exist_and_is_where_runs_go(tmp_path, monkeypatch, capsys):
    typed = tmp_path / "multirunn"
    with pytest.raises(SystemExit) as ended:
        command.main(["table1", str(typed)])
    assert ended.value.code == 1
    assert "multirunn does not exist" in capsys.readouterr().err
    assert not typed.exists()
    ran = []
    monkeypatch.setattr(running, "start", lambda arguments, **kwargs: ran.append(arguments) or 0)
    command.main(["table0", str(typed), "--run", "data=digits"])
    assert f"output_dir={typed}" in ran[0]
    with pytest.raises(SystemExit):
        command.main(["table0", str(typed), "--run", f"output_dir={tmp_path}"])
    assert "said twice" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["table0"], ["dashboard"], ["diff", "again"]])
def test_a_place_that_cannot_be_written_is_said(folder, capsys, arguments):
    words = [str(folder) if w == "again" else w for w in arguments]
    with pytest.raises(SystemExit) as ended:
        command.main([words[0], str(folder), *words[1:], "--out", "/proc/nowhere/x"])
    assert ended.value.code == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_a_seed_that_t_sne_does_not_take_is_said(tmp_path, capsys, seed):
    with pytest.raises(SystemExit) as ended:
        command.main(["figure", str(tmp_path), "--seed", seed])
    assert ended.value.code == 1
    assert f"--seed {seed} is out of range" in capsys.readouterr().err


def test_ctrl_c_ends_in_one_line(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "zsl.report", "table1", "--run", "data=digits", f"output_dir={tmp_path}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Where the tests run in the background of a script, Ctrl-C is ignored, and so it would be here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("status.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the run as well as the report
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.count("zsl: interrupted") == 1
    # The run had the time to say how it ended.
    assert {json.loads(p.read_text())["status"] for p in tmp_path.rglob("status.json")} <= {"KILLED", "FINISHED"}


# --- what is shown ------------------------------------------------------------------------------------------


def test_rules_that_a_model_refuses_are_no_variants():
    found = {c.variant for c in variants.cells("ablation", ["data=digits"])}
    assert "coupled, agnostic: code_eszsl" in found
    rules = {n.partition(": ")[2] for n in found if n.startswith("coupled, agnostic: ")}
    for model in ("ridge", "ESZSL"):
        mine = {n.partition(": ")[2] for n in found if n.startswith(f"{model}: ")}
        assert rules - mine == {"code_eszsl"}  # its codes are those of dictionaries


def summary(mean, std, splits, seeds=1):
    return numbers.Summary(mean, std if splits > 1 else float("nan"), std, splits, seeds)


def test_a_figure_of_many_lines_holds_its_legend_and_says_what_bars_are():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"a rule of a long name {i}" for i in range(7)]
    lines = [("ratio", n, v, summary(0.95 - i / 20, 0.3, 10)) for i, n in enumerate(names) for v in (1.0, 2.0)]
    # The last line has no point in the first panel.
    lines += [("other", "only here", 1.0, summary(0.5, 0.1, 1, 4))]
    figure = figures.panels(lines, {"ratio": True, "other": False}, "data", chance=0.2, selection="as given")
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [*names, "only here", "chance"]
    box, page = legend.get_window_extent(), figure.bbox
    assert box.x0 >= page.x0
    assert box.x1 <= page.x1
    assert box.y0 >= page.y0
    title = figure.get_suptitle()
    assert "one standard error over 10 class splits or 4 seeds on one class split" in " ".join(title.split())
    assert "cut off at 0 and 100 %" in " ".join(title.split())
    for axes in figure.axes:
        for bars in axes.collections:
            for segment in bars.get_segments():
                assert segment[:, 1].min() >= 0
                assert segment[:, 1].max() <= 100
    # The first line's bar below: 30 / sqrt(10) points.
    below = figure.axes[0].collections[0].get_segments()[0][:, 1]
    assert_allclose(below, [95 - 30 / np.sqrt(10), 100])


def test_what_varies_is_not_every_models_own_settings(methods_folder):
    from zsl.report.dashboard import content
    from zsl.report.sweeps import grouped, names

    records = read(methods_folder)
    found = content(records, "t")
    assert "model.name" in found["varied"]
    assert not [k for k in found["varied"] if k.endswith("_target_")]
    # coupled's n_iter, atoms, ... are its own; what tuning chose differs between the runs of one model.
    assert not [k for k in found["varied"] if k.startswith("model.n_") or k == "model.atoms"]
    assert found["own"]["coupled"]["model.atoms"] == "unit_ball"
    assert "model.atoms" not in found["constant"]
    words = set(names(grouped([r for r in records if r["key"]["model"]["name"] != "coupled"])).values())
    assert words == {"eszsl", "sae"}
    # A setting that one model was run with twice tells its runs apart, and is not said of the others.
    again = deepcopy([r for r in records if r["key"]["model"]["name"] == "coupled"])
    for record in again:
        record["key"]["model"]["n_iter"] = 3
    called = list(names(grouped([*records, *again])).values())
    assert len(set(called)) == 4
    assert sum("model.n_iter=" in c for c in called) == 2


def test_latex_fits_a_page(folder):
    table = printed.table0(read(folder), EXTRA)
    tex = document.latex(table)
    assert r"\usepackage{longtable}" in tex
    parts = tex.split(r"\begin{longtable}")[1:]
    assert len(parts) == tex.count(r"\end{longtable}") == 4
    assert tex.count(r"\endhead") == 4
    for i, part in enumerate(parts):
        rows = [line for line in part.splitlines() if line.endswith(r"\\") and " & " in line]
        assert {line.count(" & ") + 1 for line in rows} == {len(part.split("{")[1].split("}")[0])}
        assert rf"\label{{tab:table0-{i + 1}}}" in part
        # Every K stands whole beside the words that say which row it is.
        head = next(line for line in rows if line.startswith("data & feature & split & rule & "))
        assert head.count("hit@") == (2 if i < 3 else 0)
        assert max(len(re.sub(r"\$|\\pm|\^|\{|\}", "", line)) for line in rows) < 120
    assert tex.count("{") == tex.count("}")
    short = document.Table("t", "A", "as given", ["name", "a"], rows=[[document.text("x"), document.number(1.0)]])
    assert "longtable" not in document.latex(short)


def test_wide_tables_keep_the_names_of_rows_in_sight():
    page = document.fragment(printed.table0([]))
    assert '<table class="wide">' in page
    assert page.count('<td class="w first">') == len(printed.table0([]).rows)
    assert "position:sticky" in document.STYLE
