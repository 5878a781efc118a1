"""Damage to every format that zsl reads, at random: ``make fuzz`` (ARGS="--seed 3 --count 2000 --only mat").

Each damaged file must be read (as it was, or with other values where a format has no checksum) or refused in a
sentence. Files are read in child processes, so that a crash of compiled code or a hang is counted and the work goes on.
The exit status is 1 after a crash, a hang or a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fuzz_formats import FORMATS, SHARE, Load

OUTCOMES = ("sentence", "same", "changed", "crash", "hang", "traceback")
# Seconds for one file, for Python code to be interrupted and for compiled code to be killed.
_SLOW, _HUNG = 10, 40
# Texts that parsers stumble over.
_NASTY = [b"", b'"', b"'", b",", b";", b"\n", b"\0", b"[" * 3000, b"{" * 3000, b"null", b"NaN", b"-1", b"1e999",
          b"9" * 400, b"${a}", b"*a", b"&a [*a]", b"!!python/name:os.system", b"\xff\xfe", b"\xe9", b"1.200", b"1,5",
          b"_", b"#", b"\r", b"\\ud800", b"=1+1"]  # fmt: skip
_NUMBERS = [0, 1, 7, 14, 15, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 8]


def mutated(good: bytes, chance: random.Random) -> bytes:
    """A damaged copy: flipped bits, a cut, bytes put in, taken out or overwritten, sizes changed, pieces moved."""
    bad, n = bytearray(good), len(good)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        # Headers and directories lie at the ends of a file.
        near = min(400, len(bad))
        place = chance.choice(
            (chance.randrange(len(bad) or 1), chance.randrange(near or 1), -1 - chance.randrange(near or 1))
        )
        place %= len(bad) or 1
        length = chance.randrange(1, 1 + chance.choice((4, 64, max(n // 4, 1))))
        kind = chance.randrange(8)
        if kind <= 1 and bad:
            bad[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            bad = bad[:place]
        elif kind == 3:
            bad[place : place + length] = chance.randbytes(length)
        elif kind == 4:
            bad[place : chance.choice((place, place + length))] = chance.choice(_NASTY)
        elif kind == 5:
            del bad[place : place + length]
        elif kind == 6:
            place -= place % 4
            size = chance.choice(_NUMBERS).to_bytes(4, chance.choice(("little", "big")))
            bad[place : place + 4] = size
        else:
            other = chance.randrange(len(bad) or 1)
            bad[other:other] = bad[place : place + length]
    return bytes(bad)


def outcome(load: Load, reference: Any) -> tuple[str, str]:
    """What reading a damaged file comes to, and where a traceback ends."""
    from zsl.errors import UserError, too_large

    try:
        return ("same" if fingerprint(load()) == reference else "changed"), ""
    except UserError:
        return "sentence", ""
    except Exception as error:
        if too_large(error):  # commands end it in a sentence
            return "sentence", ""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(error.__traceback__) if "/zsl/" in f.filename] or [frame]
        return (
            "traceback",
            f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}: {str(error)[:90]!r}",
        )


def fingerprint(value: Any) -> Any:
    """Something that is equal for equal content."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "__dataclass_fields__"):
        names = ("features", "labels", "class_names", "attributes", "image_names", "attribute_names")
        return [fingerprint(getattr(value, name)) for name in names], [
            fingerprint(s.rows) for s in value.splits.values()
        ]
    if isinstance(value, dict):
        return {k: fingerprint(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [fingerprint(v) for v in value]
    return repr(value)


def child(name: str, first: int, last: int, seed: str) -> None:
    """Read mutations ``first`` to ``last``; one line before each and one after it."""

    def slow(*_: object) -> None:
        raise TimeoutError

    import resource

    # What libraries and zsl print is no answer to the parent.
    answers, sys.stdout = sys.stdout, Path(os.devnull).open("w")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    signal.signal(signal.SIGALRM, slow)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        path, load = FORMATS[name](Path(folder))
        good, reference = path.read_bytes(), fingerprint(load())
        for i in range(first, last):
            print(i, file=answers, flush=True)
            path.write_bytes(mutated(good, random.Random(f"{seed}/{name}/{i}")))
            signal.setitimer(signal.ITIMER_REAL, _SLOW)
            start = time.monotonic()
            what, where = outcome(load, reference)
            signal.setitimer(signal.ITIMER_REAL, 0)
            what = "hang" if time.monotonic() - start >= _SLOW else what
            print(what, where.replace("\n", " "), file=answers, flush=True)


def start(words: list[str]) -> tuple[subprocess.Popen[str], queue.Queue[str]]:
    """A child process, and the lines that it prints; an empty one says that it has ended."""
    words = [sys.executable, *words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines: queue.Queue[str] = queue.Queue()

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=follow, daemon=True).start()
    return process, lines


def fuzz(name: str, count: int, seed: str, until: float) -> tuple[Counter[str], dict[str, int]]:
    """The outcomes of a format's mutations, and the first mutation that came to each crash, hang or traceback."""
    found, bad, i = Counter[str](), dict[str, int](), 0
    while i < count and time.monotonic() < until:
        process, lines = start([__file__, "--child", name, "--first", str(i), "--count", str(count), "--seed", seed])
        started = hung = False
        while time.monotonic() < until:
            try:
                line = lines.get(timeout=_HUNG)
            except queue.Empty:
                hung = True
                break
            if not line:
                break
            if line[0].isdigit():
                i, started = int(line), True
                continue
            what, _, where = line.strip().partition(" ")
            found[what] += 1
            i, started = i + 1, False
            if what in ("hang", "traceback"):
                bad.setdefault(f"{what} {where}", i - 1)
        process.kill()
        status = process.wait()
        if time.monotonic() >= until:
            break
        if started:
            found["hang" if hung else "crash"] += 1
            bad.setdefault("hang of compiled code" if hung else f"crash by signal {-status}", i)
            i += 1
        elif i < count:  # it ended before its first file
            found["traceback"] += 1
            bad.setdefault("the good file cannot be read", i)
            break
    return found, bad


def main(argv: list[str] | None = None) -> int:
    """Print a table of outcomes; 1 if a file crashed, hung or raised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", help="repeats a run; printed (default: a new one)")
    parser.add_argument("--count", type=int, default=650, help="mutations of each format (default 650)")
    parser.add_argument("--minutes", type=float, default=30, help="stop after so long (default 30)")
    parser.add_argument("--only", default="", metavar="WORD", help="formats whose name has the word")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.child:
        child(chosen.child, chosen.first, chosen.count, chosen.seed)
        return 0
    seed, until = chosen.seed or str(random.SystemRandom().randrange(10**6)), time.monotonic() + 60 * chosen.minutes
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    print(f"seed {seed}")
    print(f"{'format':22}" + "".join(f"{word:>11}" for word in ("mutations", *OUTCOMES)), flush=True)
    total, faults = Counter[str](), []
    names = [name for name in FORMATS if chosen.only in name]
    with ThreadPoolExecutor(2) as pool:
        work = {n: pool.submit(fuzz, n, max(1, round(chosen.count * SHARE.get(n, 1))), seed, until) for n in names}
        for name, job in work.items():
            found, bad = job.result()
            total += found
            print(f"{name:22}{found.total():11}" + "".join(f"{found[word]:11}" for word in OUTCOMES), flush=True)
            faults += [f"{name}, mutation {i}: {what}" for what, i in bad.items()]
    print(f"{'all':22}{total.total():11}" + "".join(f"{total[word]:11}" for word in OUTCOMES))
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
