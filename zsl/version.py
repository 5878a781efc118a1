"""Which zsl computed a result: its version, and the commit where that is known."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_SECONDS = 5


@cache
def commit() -> str:
    """The git commit of zsl's code, followed by ``+`` where files were changed since; empty where it is unknown.

    It is known in a checkout, and after ``pip install git+...``.
    """
    root = Path(__file__).resolve().parents[1]
    if (root / ".git").exists():
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "zsl", "conf")
        return head + ("+" if head and changed else "")
    try:
        origin = json.loads(distribution("zsl-cdl").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    return str(origin.get("vcs_info", {}).get("commit_id", ""))[:12]


def _git(root: Path, *words: str) -> str:
    try:
        out = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""  # git is not installed, or the checkout belongs to another user
    return out.stdout.strip()
