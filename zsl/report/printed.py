"""Tables beside the paper's: ``table0``, ``table1``, ``table3``. The paper's numbers are ``paper.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zsl.report.cells import (
    Cell,
    cell,
    check_given,
    key_of,
    layout,
    read_yaml,
    share_splits,
)
from zsl.report.document import Cell as Place
from zsl.report.document import Table, missing, number, text
from zsl.report.matching import doubts, fill
from zsl.report.numbers import summarise
from zsl.report.running import commands, shown

# Rows of the paper's tables and the model that runs here; the others' objectives are not published in full.
METHODS = {
    "romera_paredes_torr_2015_eszsl": ("Romera-Paredes & Torr 2015 (ESZSL)", "eszsl"),
    "norouzi_2013_conse": ("Norouzi et al. 2013 (ConSE)", "conse"),
    "mensink_2014_costa": ("Mensink et al. 2014 (COSTA)", "costa"),
    "akata_2015_sje": ("Akata et al. 2015 (SJE)", "sje"),
    "lampert_2014_dap": ("Lampert et al. 2014 (DAP)", "dap"),
    "changpinyo_2016_sync": ("Changpinyo et al. 2016 (SynC)", "sync"),
    "bucher_2016_metric": ("Bucher et al. 2016", "bucher_metric"),
    "xian_2016_latem": ("Xian et al. 2016 (LatEm)", "latem"),
    "zhang_saligrama_2015_sse": ("Zhang & Saligrama 2015 (SSE)", "sse"),
    "wang_chen_2017_bidilel": ("Wang & Chen 2017 (BiDiLEL)", "bidilel"),
    "kodirov_2017_sae": ("Kodirov et al. 2017 (SAE)", "sae"),
    "zhang_saligrama_2016_jlse": ("Zhang & Saligrama 2016 (JLSE)", None),
    "xu_2017_mfmr": ("Xu et al. 2017 (MFMR)", None),
    "long_2018_uvds": ("Long et al. 2018 (UVDS)", None),
    "lu_2018_attribute_synthesis": ("Lu et al. 2018", None),
    "ye_guo_2017_dsrl": ("Ye & Guo 2017 (DSRL)", None),
    "ding_2017_lesd": ("Ding et al. 2017 (LESD)", None),
    "ding_2018_generative_lesd": ("Ding et al. 2018", None),
    "bucher_2017_generative": ("Bucher et al. 2017", None),
    "long_2018b": ("Long et al. 2018b", None),
    "ours_aag": ("coupled dictionaries, AAg", "aag"),
    "ours_aaw": ("coupled dictionaries, AAw", "aaw"),
    "ours_taaw": ("coupled dictionaries, TAAw", "taaw"),
}
RULES = {"aag": "AAg", "aaw": "AAw", "taaw": "TAAw"}

FOOTNOTES = {
    "a": "The paper does not name its split. AAg with VGG19 is 77.30 on AwA1 and 41.68 on AwA2, which have the same "
    "classes: most likely the standard split there and the proposed one here. Both are beside the paper's number.",
    "b": "The paper does not say whether CUB is one split or several; here the mean over four folds of the classes.",
    "c": "Which ten classes are unseen is not published; the number depends on them.",
    "d": "The paper's TAAw is below its AAw here.",
    "e": "The paper's AAw equals its AAg here.",
    "f": "Printed under AwA2, but equal to a number published for AwA1 (SynC, CVPR 2016, Table 4).",
    "g": "Equal to a number published in Table 4 of SynC (CVPR 2016).",
    "h": "Printed under AwA2, but an AwA1 number, with VGG19 where the heading says Inception (Table 1's, rounded).",
    "i": "Printed under AwA2, but an AwA1 number.",
    "j": "GoogLeNet features, per image, where the heading says VGG19.",
    "k": "Transductive: uses the unlabelled test images.",
    "l": "The paper's split of 645 and 72 classes is most likely the standard one; ours is the proposed one, which can "
    "be downloaded (split.source=standard for the other).",
}
# By data, or by the first word of its name.
_MARKS = {"awa1": ["a"], "awa2": ["a"], "cub": ["b"], "sun_707_10": ["c"], "sun_645_72": ["l"]}
# As published; of ours the last.
_TRANSDUCTIVE = ("ye_guo_2017_dsrl", "ours_taaw")
# Of footnotes that say how a row's settings were chosen, where rows differ.
_RULE_MARKS = "vwxyz"
_SYNC_ROWS = ("norouzi_2013_conse", "mensink_2014_costa", "lampert_2014_dap", "changpinyo_2016_sync")


def cells(name: str, extra: Sequence[str] = ()) -> list[Cell]:
    """What the table consists of."""
    node = layout()[name]
    out = []
    if name == "table0":
        for row in node["rows"]:
            for feature in row.get("features", [None]):
                chosen = [] if feature is None else [f"feature={feature}"]
                one = cell(name, row["data"], feature or "", chosen, extra)
                one.group = row.get("paper", "")
                out.append(one)
        check_given(out, extra)
        return out
    paper = read_yaml("paper.yaml")[name]
    for column in node["columns"]:
        chosen = [f"feature={column['feature']}"] if "feature" in column else []
        for method, (_, model) in METHODS.items():
            if method not in paper or model is None or method in ("ours_aag", "ours_aaw"):
                continue
            # The paper's method gives no grid; the baselines' settings are chosen on validation classes.
            how = ["model=coupled", "inference=taaw", "tune=none"] if model in RULES else [f"model={model}"]
            out.append(cell(name, column["data"], method, [*chosen, *how], extra))
    check_given(out, extra)
    return out


def table0(records: Iterable[Any], extra: Sequence[str] = ()) -> Table:
    """Coupled dictionaries by data, feature, split and rule, ours beside the paper's, in percent."""
    found = cells("table0", extra)
    fill(found, records)
    paper = read_yaml("paper.yaml")["table0"]
    columns = ["data", "feature", "split", "rule"]
    for k in (1, 3, 5):
        columns += [f"hit@{k} paper", f"hit@{k} ours", "difference"]
    out = Table("table0", "Table 0: coupled dictionaries, flat hit@K per image in percent", selection(found),
                [*columns, "acc_class", "repetitions"], left=4, footnotes=FOOTNOTES)  # fmt: skip
    for one in found:
        printed = paper.get(one.group, {}).get(one.variant)
        split = next(o.partition("=")[2] for o in one.overrides if o.startswith("split="))
        marks = {"cub": ["b"], "sun_707_10": ["c"], "sun_645_72": ["l"]}.get(
            one.data, ["a"] if one.data.startswith("awa") else []
        )
        for stage, rule in RULES.items():
            line = [text(one.title, *marks), text(one.variant or _feature(one)), text(split),
                    text(rule, *(["k"] if stage == "taaw" else []))]  # fmt: skip
            for k in (1, 3, 5):
                theirs = dict(zip(paper["columns"], printed)) if printed else {}
                value = theirs.get(f"{stage}_hit{k}")
                note = _odd(theirs, stage, k)
                mine = summarise(one.records, f"{stage}/hit_{k}")
                line += _beside(value, mine, note, bool(one.records))
            accuracy = summarise(one.records, f"{stage}/acc_class")
            line.append(number(100 * accuracy.mean, 1, 100 * accuracy.std) if accuracy else missing())
            line.append(text(accuracy.repetitions if accuracy else ""))
            out.rows.append(line)
    out.notes = [
        "Mean ± standard deviation over class splits, over dictionary seeds where there is one split. The paper prints "
        "no deviations. hit@K needs more than K unseen classes. acc_class: mean accuracy of the unseen classes.",
        *used_settings(found),
        *doubts(found),
    ]
    out.commands = commands_of(found)
    out.n_records = sum(len(one.records) for one in found)
    # Printed page by page: each K with its three columns.
    out.together = [range(4, 7), range(7, 10), range(10, 13), range(13, 15)]
    return out


def methods(name: str, records: Iterable[Any], extra: Sequence[str] = ()) -> Table:
    """``table1`` or ``table3``: methods by data, hit@1 in percent, re-run here beside the printed numbers."""
    found = cells(name, extra)
    fill(found, records)
    fill_in = commands_of(found)  # before splits are left out
    dropped = [
        share_splits((c for c in found if c.data == data), called=lambda c: METHODS[c.variant][0])
        for data in dict.fromkeys(c.data for c in found)
    ]
    paper, columns = read_yaml("paper.yaml")[name], layout()[name]["columns"]
    feature = columns[0]["feature"]
    title = f"Table {name[-1]}: methods, flat hit@1 per image in percent; paper's columns with {feature}"
    head = ["method"]
    titles = layout()["data"]
    for column in columns:
        if "paper" in column:
            head += [f"{titles[column['data']]['title']} paper", "ours", "difference"]
        else:
            head += [titles[column["data"]]["title"]]
    rules = list(dict.fromkeys(rule for one in found for rule in rules_of(one)))
    # Where rows differ in how their settings were chosen, each says which way was its own.
    marks = dict(zip(rules, _RULE_MARKS)) if len(rules) > 1 else {}
    says = {mark: f"Settings of this row: {rule}." for rule, mark in marks.items()}
    out = Table(name, title, selection(found), head, footnotes=FOOTNOTES | says)
    for method, (label, model) in METHODS.items():
        if method not in paper:
            continue
        own = [c for c in found if c.variant == _cell_of(method) and model is not None]
        how = sorted({marks[rule] for c in own for rule in rules_of(c) if rule in marks})
        line = [text(label, *(["k"] if method in _TRANSDUCTIVE else []), *how)]
        for column in columns:
            mine = [c for c in found if c.data == column["data"] and c.variant == _cell_of(method)]
            stage = f"{model}/" if model in RULES else ""
            value = summarise(mine[0].records, f"{stage}hit_1") if mine else None
            if "paper" in column:
                printed = paper[method][paper["columns"].index(column["paper"])]
                line += _beside(printed, value, _note(name, method, column["paper"]), bool(mine and mine[0].records),
                                never=model is None)  # fmt: skip
            elif model is None:
                line.append(text("not run"))
            else:
                line.append(number(100 * value.mean, 1, 100 * value.std) if value else missing())
        out.rows.append(line)
    out.rows.append([text("repetitions of ours"), *_repetitions(found, columns)])
    out.notes = [
        "Paper: as printed, of which the baselines' numbers were copied from other papers. Ours: every method run here "
        "on the same features, splits and metric; mean ± standard deviation over class splits, over seeds where there "
        "is one split; of each column the splits that all its methods have. The columns "
        "without a paper's number are other data: compare within a column only. not run: its objective is not "
        "published in enough detail to implement it under its name.",
        *filter(None, dropped),
        *used_settings(found),
        *doubts(found),
    ]
    out.commands = fill_in
    out.n_records = sum(len(one.records) for one in found)
    starts = [i for i, title in enumerate(head) if i and title not in ("ours", "difference")]
    out.together = [range(a, b) for a, b in zip(starts, [*starts[1:], len(head)])]
    return out


def _repetitions(found: Sequence[Cell], columns: Sequence[Any]) -> list[Place]:
    """Under each column of ours how many class splits, and dictionary seeds on each, its means are over."""
    out = []
    for column in columns:
        sums = [summarise(c.records, "hit_1") for c in found if c.data == column["data"]]
        splits, seeds = ([getattr(s, n) for s in sums if s] for n in ("n_splits", "n_seeds"))
        words = "; ".join(_range(n, what) for n, what in ((splits, "split"), (seeds, "seed")) if n)
        out += [text(""), text(words), text("")] if "paper" in column else [text(words)]
    return out


def _range(numbers: Sequence[int], what: str) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low} {what}{'s' * (low > 1)}" if low == high else f"{low} to {high} {what}s"


def used_settings(found: Iterable[Cell]) -> list[str]:
    """Of each dataset what its cells were asked to be beyond the dataset itself: the block's words and the user's."""
    out: dict[str, list[str]] = {}
    for one in found:
        words = [o for o in one.shared if key_of(o) != "dataset"]
        if one.given or any("." in key_of(o) for o in words):
            out.setdefault(one.title, words)
    return [f"{title}: {' '.join(words)}." for title, words in out.items() if words]


def _cell_of(method: str) -> str:
    return "ours_taaw" if method.startswith("ours_") else method


def _beside(printed: float | None, mine: Any, note: list[str], ran: bool, *, never: bool = False) -> list[Place]:
    """Printed, ours, difference."""
    theirs = number(printed, 2, marks=note)
    if never:
        return [theirs, text("not run"), number(None)]
    if mine is None:
        # A run without the metric, such as hit@3 among three classes, is not missing.
        return [theirs, number(None) if ran else missing(), number(None)]
    value = 100 * mine.mean
    return [
        theirs,
        number(value, 1, 100 * mine.std),
        number(None if printed is None else value - printed, 1, sign=True),
    ]


def _odd(theirs: dict[str, float], stage: str, k: int) -> list[str]:
    if not theirs:
        return []
    aag, aaw, taaw = (theirs[f"{s}_hit{k}"] for s in RULES)
    return ["d"] if stage == "taaw" and taaw < aaw else ["e"] if stage == "aaw" and aaw == aag else []


def _note(name: str, method: str, column: str) -> list[str]:
    """Errata on one printed number."""
    if name == "table1":
        return (
            ["j"]
            if method == "kodirov_2017_sae"
            else ["c"]
            if column == "sun_707_10" and method.startswith("ours")
            else []
        )
    if method in ("zhang_saligrama_2015_sse", "bucher_2016_metric") and column == "awa2":
        return ["h"]
    if method == "xian_2016_latem" and column == "awa2":
        return ["i"]
    if method in _SYNC_ROWS or (method == "romera_paredes_torr_2015_eszsl" and column != "cub"):
        return ["f"] if column == "awa2" else ["g"]
    return ["g"] if method == "akata_2015_sje" and column == "sun_645_72" else []


def _feature(one: Cell) -> str:
    names = [o.partition("=")[2] for o in one.overrides if o.startswith(("feature.name=", "feature="))]
    return names[-1] if names else "pixels"


def rules_of(one: Cell) -> list[str]:
    """How the settings of a cell's runs were chosen."""
    return list(dict.fromkeys(record["key"]["selection"].removeprefix("none: ") for record in one.records))


def selection(found: Iterable[Cell]) -> str:
    """How the settings behind a table were chosen."""
    return "; ".join(dict.fromkeys(rule for one in found for rule in rules_of(one))) or "no runs yet"


def commands_of(found: Iterable[Cell]) -> list[str]:
    """What fills the cells without records."""
    return [f"python -m zsl.main {shown(a)}" for a, _ in commands(c for c in found if not c.records)]
