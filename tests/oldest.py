"""Print the oldest version that pyproject.toml allows of every dependency, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

if __name__ == "__main__":
    for line in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        found = re.match(r"([\w.-]+)>=([\d.]+)", line)
        assert found, f"{line} has no least version"
        print(f"{found[1]}=={found[2]}")
