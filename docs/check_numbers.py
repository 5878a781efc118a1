"""Run the commands behind the numbers of README and docs again, and say where text and result differ.

    python docs/check_numbers.py [--write] [FILE ...]

docs/numbers.yaml lists the numbers. Each is the mean of a metric ± its standard deviation over the jobs of a command,
and stands in a row of a table that begins with a given text. ``--write`` puts the results into the rows. The exit
status is 1 if a number differs.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[1]
_NUMBER = re.compile(r"^(-|\d\.\d+( ± \d\.\d+)?)$")


def measured(command: str, metrics: list[str]) -> list[str]:
    """Mean ± standard deviation of each metric over the jobs of a command; one job has no deviation."""
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command)
        assert words[:2] == ["zsl", "run"], command
        extra = [f"output_dir={folder}", "tracking=none", "save_model=false", "figures=false"]
        subprocess.run([sys.executable, "-m", "zsl.main", *words[2:], *extra], check=True, stdout=subprocess.DEVNULL)
        records = [json.loads(p.read_text())["metrics"] for p in sorted(Path(folder).rglob("results.json"))]
    return [described([record[metric] for record in records]) for metric in metrics]


def described(values: list[float]) -> str:
    """The text of values: their mean, and ± their standard deviation if there are several."""
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def compared(line: str, row: str, found: list[str]) -> tuple[list[str], str]:
    """The numbers after the first cells of a table's line, and the line with ``found`` in their place."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    places = [i for i, cell in enumerate(cells) if _NUMBER.match(cell)][: len(found)]
    assert len(places) == len(found), f"the row {row!r} has {len(places)} numbers, and {len(found)} were measured"
    written = [cells[i] for i in places]
    for i, text in zip(places, found, strict=True):
        cells[i] = text
    return written, f"| {' | '.join(cells)} |"


def main() -> int:
    """Compare all numbers, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="only the numbers of these files")
    parser.add_argument("--write", action="store_true", help="put the results into the files")
    arguments = parser.parse_args()
    entries = yaml.safe_load((ROOT / "docs" / "numbers.yaml").read_text(encoding="utf-8"))
    different = 0
    for entry in entries:
        if arguments.files and entry["file"] not in arguments.files:
            continue
        path = ROOT / entry["file"]
        lines = path.read_text(encoding="utf-8").splitlines()
        (at,) = [i for i, line in enumerate(lines) if entry["row"] in line]
        found = measured(entry["command"], entry["metrics"])
        written, line = compared(lines[at], entry["row"], found)
        for metric, old, new in zip(entry["metrics"], written, found, strict=True):
            different += old != new
            print(f"{'same' if old == new else 'DIFFERENT':9}  {entry['file']}: {entry['row']}: {metric}: "
                  f"text {old}, result {new}", flush=True)  # fmt: skip
        if arguments.write:
            path.write_text("\n".join([*lines[:at], line, *lines[at + 1 :]]) + "\n", encoding="utf-8")
    print(f"{different} numbers differ")
    return 1 if different and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
