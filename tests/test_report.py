"""Tables and figures: which records fill which cell, what is missing, the formats, the commands."""

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

import numpy as np
import pytest
from numpy.testing import assert_allclose

from conftest import ROOT
from report_records import CELL, EXTRA, fails, frame, record, refused, stored
from zsl import inference
from zsl.config import compose, options
from zsl.errors import UserError
from zsl.experiment.run import run
from zsl.report import __main__ as command
from zsl.report import cells, experiments, formats, records, tables

# --- cells --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", command.EXPERIMENTS)
@pytest.mark.slow
def test_cells_have_names_of_their_own_and_commands_that_compose(name):
    found = cells.cells(name)
    ids = [one.id for one in found]
    assert len(set(ids)) == len(ids)
    digits = [one for one in found if one.data == ("own" if name == "clip_or_not" else "digits")]
    assert digits
    # One cell per model and rule suffices: composing takes a tenth of a second.
    for one in {re.sub(r"[\d.]+", "", " ".join(c.overrides)): c for c in digits[:: max(len(digits) // 6, 1)]}.values():
        assert one.repeats == ("split.seed=range(10)", "seed=range(2)" if name == "table1" else "seed=0")
        words = shlex.split(cells.command_of(one).removeprefix("zsl run "))
        cfg = compose([w for w in words if not w.startswith((one.key or " ", "seed=", "split.seed="))])
        assert (cfg.experiment, cfg.cell) == (name, one.id)


@pytest.mark.slow
def test_every_experiment_says_its_name():
    assert {*command.EXPERIMENTS, "figure", "smoke"} <= set(options("experiment"))
    assert {name: compose([f"experiment={name}"]).experiment for name in options("experiment")} == {
        name: name for name in options("experiment")
    }


def test_rules_of_the_experiments_exist():
    found = [one for name in ("ablation", "imbalance") for one in cells.cells(name, ["data=digits"])]
    rules = {cells.value_of(one.overrides, "inference.labels") for one in found} - {None}
    assert len(rules) > 5
    assert all(callable(getattr(inference, rule, None)) for rule in rules)


def test_repetitions_are_those_of_the_data():
    found = {one.id: one for one in cells.cells("table2", ["split.seed=range(2)"])}
    assert found["digits/eszsl"].repeats == ("seed=0", "split.seed=range(2)")
    # Nothing is random in ESZSL: one run on each fold. The dictionaries have the experiment's ten seeds on each.
    assert found["cub/eszsl"].repeats == ("split.fold=range(4)", "seed=0")
    assert found["cub/coupled"].repeats == ("split.fold=range(4)",)


def test_dictionaries_on_vgg19_have_more_atoms_than_it_has_numbers():
    for name in ("table1", "table2"):
        found = [one for one in cells.cells(name) if cells.value_of(one.overrides, "feature") == "vgg19"]
        assert len(found) > 5
        for one in found:
            coupled = cells.value_of(one.overrides, "model") in (None, "coupled_paper")
            assert (int(cells.value_of(one.overrides, "model.n_atoms") or 0) > 4096) == coupled
    # The user's own number stands.
    few = next(one for one in cells.cells("table1", ["model.n_atoms=64"]) if one.variant == "vgg19")
    assert [o for o in few.overrides if "n_atoms" in o] == ["model.n_atoms=64"]


@pytest.mark.slow
def test_settings_of_the_user_are_part_of_the_name_and_for_the_data_that_they_name():
    extra = ["data=cifar_awa", "feature.pca=64", "dataset.features_dir=elsewhere", "threads=1", "seed=3"]
    found = cells.cells("table2", extra)
    mine = [one for one in found if one.data == "cifar_awa"]
    assert {one.id for one in mine} >= {"cifar_awa/eszsl/dataset.features_dir-elsewhere/feature.pca-64"}
    assert all("feature.pca=64" in one.settings for one in mine)
    assert not any(one.given for one in found if one.data != "cifar_awa")


@pytest.mark.parametrize(("name", "override", "message"), [
    ("table2", "++model=eszsl", "would change what table2 compares"),
    ("table2", "tune=none", "would change what table2 compares"),
    ("table2", "feature.name=vgg19", "would change what table2 compares"),
    ("table1", "inference.labels=nearest", "would change what table1 compares"),
    ("table1", "split=random", "data=NAME chooses the data"),
    ("ablation", "model.init=pca", "would change what ablation compares"),
    ("sensitivity", "model.lam_relative=1", "would change what sensitivity compares"),
    ("sensitivity", "model.lam=1", "would change what sensitivity compares"),
    ("table1", "model.lam_relative=0.1,0.2", "has several values"),
    ("table2", "model.n_iter=3", "model.n_iter does not exist"),
    ("table2", "data=awa1_proposed", "data=awa1_proposed does not exist in table2"),
    ("ablation", "modle.lam=1", "did you mean model?"),
])  # fmt: skip
def test_only_settings_that_all_cells_share_may_be_set(name, override, message, tmp_path):
    assert message in refused(name, tmp_path, override)
    assert not list(tmp_path.iterdir())


# --- records and cells --------------------------------------------------------------------------------------


def of_digits(found, extra=EXTRA):
    one = next(c for c in cells.cells("table1", extra) if c.data == "digits")
    return records.of_cells([one], records.as_frame([records.row(r, str(i)) for i, r in enumerate(found)]))


@pytest.mark.slow
def test_records_fill_the_cell_that_they_name(report_runs):
    found = stored(report_runs)
    assert len(of_digits(found)) == 3
    assert of_digits(found, []).empty  # with one override less it is another cell
    again = deepcopy(found)
    again[0]["metrics"]["aag/hit_1"] = 0.25
    assert of_digits([*found, *again])["aag/hit_1"].iloc[0] == 0.25  # of a repetition the newest counts
    for one in found:
        one["key"]["dataset"]["provenance"] = {"simulated": True}
    assert of_digits(found).empty


@pytest.mark.parametrize(("change", "message"), [
    (lambda k: k["model"].update(lam_relative=0.3), "model.lam_relative: 0.1 in 0, 0.3 in 1"),
    (lambda k: k["model"].pop("coupling"), "model.coupling"),
    (lambda k: k["inference"].update(labels="cosine"), "inference.labels"),
    (lambda k: k["feature"].update(l2=False), "feature.l2"),
    (lambda k: k["evaluation"].update(generalized=True), "evaluation.generalized"),
    (lambda k: k["split"].update(subset={"images": 5, "seed": 0}), "subset.images"),
    (lambda k: k["split"].update(n_unseen=4), "split.n_unseen"),
    (lambda k: k["dataset"].update(shuffle_attributes=3), "control"),
    (lambda k: k["dataset"]["semantics"].update(l2=False), "dataset.semantics.l2"),
    (lambda k: k.update(tune={"name": "class_cv", "search": "grid", "chosen": {}}), "tune.search"),
    (lambda k: k["dataset"].update(content="other"), "different data"),
])  # fmt: skip
@pytest.mark.slow
def test_records_of_other_settings_or_data_in_one_cell_are_refused(report_runs, change, message):
    found = stored(report_runs)
    change(found[1]["key"])
    with pytest.raises(UserError, match=re.escape(message)):
        of_digits(found)


def test_a_skipped_job_fills_its_own_cell(report_runs, tmp_path):
    shutil.copytree(report_runs / "0-0", tmp_path / "0-0")
    words = ["dataset=digits", "split=random", "split.seed=0", "seed=0", *EXTRA, f"output_dir={tmp_path}"]
    run(compose(["experiment=table1", *words, "cell=digits"]), tmp_path / "again")
    assert (tmp_path / "again" / "skipped.json").is_file()
    found = records.read_records(tmp_path)
    assert sorted(found["cell"]) == ["digits", CELL]
    assert found["acc_class"].nunique() == 1


@pytest.mark.parametrize("text", ['{"key": {"dat', "{}", "[]", '{"key": {}, "metrics": {}, "per_class": []}', "\xff"])
def test_a_damaged_record_is_left_out_with_its_name(report_runs, tmp_path, caplog, text):
    shutil.copytree(report_runs / "0-0", tmp_path / "runs" / "good")
    bad = tmp_path / "runs" / "bad" / "results.json"
    bad.parent.mkdir()
    bad.write_bytes(text.encode("latin-1"))
    assert len(records.read_records(tmp_path / "runs")) == 1
    assert str(bad) in caplog.text
    shutil.rmtree(tmp_path / "runs" / "good")
    assert "holds no result that can be read" in fails("dashboard", tmp_path / "runs")


# --- tables -------------------------------------------------------------------------------------------------


def test_the_paper_is_typed_in_whole():
    paper = cells.layout("paper.yaml")
    rows = [row for nets in (v for k, v in paper["table1"].items() if k != "columns") for row in nets.values()]
    assert [len(row) for row in rows] == [9] * 17
    assert paper["table1"]["awa1"]["vgg19"][0] == 77.30
    assert paper["table2"]["ours_taaw"] == ["91.00 c", 48.41, 89.35]
    assert paper["table3"]["changpinyo_2016_sync"] == ["62.7 g", "54.5 g", "72.9 f"]
    for name in ("table2", "table3"):
        assert set(paper[name]) - {"columns", "quoted"} <= set(paper["methods"])


@pytest.mark.parametrize("name", ["table2", "table3"])
def test_rows_are_in_the_papers_order_with_its_daggers(name):
    paper = ROOT.parent / "shared" / "paper" / "coupled_dictionary_zsl.tex"
    if not paper.is_file():
        pytest.skip("the paper's source is not here: ../shared/paper")
    label = {"table2": "tab:table1", "table3": "tab:table3"}[name]
    body = paper.read_text(encoding="utf-8").partition(rf"\label{{{label}}}")[0].rpartition(r"\begin{table}")[2]
    lines = [line for line in body.splitlines() if re.search(r"\\cite\{[^}]*\}", line) and "&" in line]
    ours = [str(row[0]) for row in tables.methods(name, frame([])).rows][:-3]
    assert len(lines) == len(ours) > 10
    assert ["dagger" in line for line in lines] == ["†" in title for title in ours]
    for line, title in zip(lines, ours):
        assert re.search(r"[A-Z]\w+", line.replace("multicolumn", ""))[0] == re.match(r"\w+", title)[0]


def test_errata_stand_beside_their_numbers():
    for name, marks in (("table2", "abcjknpqrs"), ("table3", "abfghiklmopqtu")):
        table = tables.methods(name, frame([]))
        assert "".join(note[1] for note in table.below() if note.startswith("[")) == "".join(sorted(marks))
    below = tables.table1(frame([])).below()
    assert "".join(note[1] for note in below if note.startswith("[")) == "abcdeklnop"


def test_table1_has_ours_beside_the_papers(report_runs):
    table = tables.table1(records.read_records(report_runs), EXTRA)
    rows = {tuple(map(str, row[:4])): dict(zip(table.columns, row)) for row in table.rows}
    ours = rows["digits", "pixels", "random", "AAg"]
    values = {}
    for one in stored(report_runs):
        values.setdefault(one["key"]["split"]["seed"], []).append(one["metrics"]["aag/hit_1"])
    means = [np.mean(v) for v in values.values()]
    assert_allclose(float(ours["hit@1 ours"]), 100 * np.mean(means))
    assert f"± {100 * np.std(means, ddof=1):.1f}" in str(ours["hit@1 ours"])
    assert ours["repetitions"] == "2 splits x 2 seeds"
    # hit@3 among three classes is no metric, and is not called missing.
    assert ours["hit@3 ours"] == ours["hit@1 paper"] == "-"
    paper = rows["AwA1 [a]", "vgg19 [n]", "standard", "TAAw [k]"]
    assert str(paper["hit@1 paper"]) == "89.35"
    assert paper["hit@1 ours"] == "missing"
    assert str(paper["hit@5 paper"]) == "98.51 [d]"  # TAAw below AAw
    assert table.selection == "not tuned"
    assert len(table.commands) == len(cells.cells("table1")) - 1
    assert not any("digits" in line for line in table.commands)


def made_up(experiment, one, split="abc", **more):
    return record(split, experiment=experiment, cell=one, **more)


def test_a_table_of_methods_says_over_what_and_how_each_row_is():
    found = [made_up("table2", "digits/coupled", s, metrics={"taaw/hit_1": 0.4}) for s in ("abc", "abd", "abe")]
    tuned = {"selection": "selected on validation classes"}
    found += [made_up("table2", "digits/eszsl", s, acc=0.2, **tuned) for s in ("abc", "abd", "abe")]
    found += [made_up("table2", "digits/sae", s, acc=0.3, **tuned) for s in ("abc", "abd")]
    table = tables.methods("table2", frame(found))
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    assert any("means over 2 splits. 1 of 3 class splits left out" in note for note in table.notes)
    assert str(rows["Kodirov et al. 2017 (SAE) † [w]"]["digits"]) == "30.0 ± 0.0"
    assert str(rows["coupled dictionaries, TAAw [k][n][v]"]["digits"]) == "40.0 ± 0.0"
    assert rows["Ding et al. 2018 † [s]"]["digits"] == "not run"
    assert rows["Xu et al. 2017 (MFMR) † [k][q][r]"]["digits"] == "missing"
    assert rows["Bucher et al. 2016 †"]["digits"] == "missing"  # no run: no mark of how its settings were chosen
    assert any("[w] Settings of this row: selected on validation classes." in note for note in table.below())


def test_the_ablation_is_compared_with_its_first_row():
    found = []
    for split, base, gain in (("abc", 0.5, 0.09), ("abd", 0.3, 0.11), ("abe", 0.4, 0.1)):
        found.append(made_up("ablation", "digits/as-given-AAg", split, acc=base))
        found.append(made_up("ablation", "digits/joint", split, acc=base + gain))
        found.append(made_up("ablation", "digits/images", split, acc=base + 0.1))
    (table,) = experiments.variants("ablation", frame(found), ["data=digits"])
    rows = {row[1]: row for row in table.rows}
    mean, gain, interval, p, count = map(str, rows["joint"][2:])
    assert (mean, gain, count) == ("50.0 ± 9.0", "+10.0", "3 splits")
    low, high = map(float, interval.split(" to "))
    assert 6 < low < 10 < high < 14
    assert 0 < float(p) < 0.05
    # Equal gains on few splits say nothing of their error.
    assert [str(v) for v in rows["images"][3:6]] == ["+10.0", "-", "-"]
    assert rows["as given (AAg)"][3] == "-"
    assert rows["random"][2] == "missing"
    assert len(table.commands) == len(table.rows) - 3


def test_a_curve_from_records():
    found = []
    for value, seed in ((1.0, 0), (1.0, 1), (2.0, 0), (7.0, 0)):  # 7 is no point of the curve
        one = made_up("imbalance", "digits/nearest-inductive/subset.imbalance", seed=seed)
        one["key"]["split"]["subset"] = {"imbalance": value}
        found.append(one)
    (table,), drawn = experiments.curves("imbalance", frame(found), ["data=digits"])
    column = table.columns.index("nearest (inductive)")
    assert [str(row[column]) for row in table.rows] == ["50.0", "50.0", "missing", "missing"]
    assert "imbalance=1.0,2.0,5.0,10.0" in table.commands[0]
    assert any("1 of 2 repetitions left out" in note for note in table.notes)
    assert list(drawn) == ["imbalance_digits"]


# --- formats ------------------------------------------------------------------------------------------------


def test_the_formats_agree_and_escape():
    table = formats.Table("t", "A & B_1", "as given", ["name", "x|y"], footnotes={"a": "50 % of <it>", "b": "unused"})
    table.rows = [["a_b|c [a]", formats.number(1 / 3, 1, 0.05)], ["<b>", formats.MISSING]]
    md, tex, text, page = (
        f(table) for f in (formats.markdown, formats.latex, formats.comma_separated, formats.fragment)
    )
    assert all("as given" in out and "unused" not in out for out in (md, tex, text, page))
    assert r"| a_b\|c [a] | 0.3 ± 0.1 |" in md
    assert r"a\_b$|$c [a] & 0.3 $\pm$ 0.1 \\" in tex
    assert r"\toprule" in tex
    rows = list(csv.DictReader(io.StringIO(text)))
    assert float(rows[0]["x|y"]) == 1 / 3
    assert rows[1]["x|y"] == "missing"
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.slow
def test_the_command_writes_every_format_and_nothing_over_something(report_runs, tmp_path, capsys):
    command.main(["table1", str(report_runs), "--out", str(tmp_path), *EXTRA])
    assert "Settings: not tuned" in capsys.readouterr().out
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(before) == {"table1.md", "table1.tex", "table1.csv", "table1.html"}
    assert all("89.35" in text for text in before.values())
    command.main(["table1", str(report_runs), "--out", str(tmp_path), "model.n_iter=3"])  # a cell without records
    said = capsys.readouterr()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    assert "no record belongs to any cell" in said.err
    assert "written" not in said.out


# --- running: see test_report_filling.py ---------------------------------------------------------------------


@pytest.mark.long
def test_ctrl_c_ends_the_run_and_the_report(tmp_path):
    words = ["table2", "--run", "data=digits", f"output_dir={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "zsl.report", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("status.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the run as well as the report
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    # The run had the time to record how it ended.
    assert {json.loads(p.read_text())["status"] for p in tmp_path.rglob("status.json")} <= {"KILLED", "FINISHED"}


def test_mistakes_end_in_a_sentence(report_runs, tmp_path):
    for words, message in (
        (["sensitivity", "data=cats"], "data=cats does not exist"),
        (["figure", tmp_path], "holds no predictions.npz"),
        (["figure", "model.lam=1"], "add --run"),
        (["figure", tmp_path, "--seed", "-1"], "--seed -1 is out of range"),
        (["compare", tmp_path], "holds no result that can be read"),
        (["table1", "a", "b"], "one folder of records is needed"),
        (["table1", "a", "output_dir=b", "--run"], "one folder of records is needed"),
        (["table1", tmp_path / "multirunn"], "does not exist"),
        (["dashboard", report_runs, "--out", "/proc/nowhere/x"], "cannot be written"),
    ):
        assert message in refused(*words)


def test_written_tables_begin_with_the_rows_that_have_results():
    from zsl.report.formats import MISSING, Table, latex, markdown, number

    table = Table("t", "a title", "not tuned", ["data", "ours"], ours={"ours": []})
    table.rows = [["AwA1", MISSING], ["digits", number(0.5, 3)], ["CUB", MISSING]]
    lines = [line for line in markdown(table).splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[0] for line in lines] == ["| digits", "| AwA1", "| CUB"]
    printed = latex(table)  # a paper keeps the order of its rows
    assert printed.index("AwA1") < printed.index("digits") < printed.index("CUB")
