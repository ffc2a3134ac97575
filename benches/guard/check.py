#!/usr/bin/env python3
"""Counts the instructions of each hot path by callgrind and compares them with bounds.json.

A path that takes over a twentieth more than its figure fails; so does one that takes over a
twentieth less, until its figure says so. `--write` writes the figures that were found.
"""

import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BOUNDS = HERE / "bounds.json"
BLOCKS = 64
TIMES = 256
OFF_BY = 0.05


def counted(program: str, path: str, times: int) -> int:
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, path, str(times)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"{path}: {run.stderr[-2000:]}")
    return int(found[1])


def main() -> None:
    program, *rest = sys.argv[1:]
    bounds = json.loads(BOUNDS.read_text())
    found, wrong = {}, []
    for path, bound in bounds.items():
        more = counted(program, path, 2 * TIMES) - counted(program, path, TIMES)
        found[path] = round(more / TIMES / BLOCKS, 1)
        off = found[path] / bound - 1 if bound else 0
        print(f"{path:20} {found[path]:8} instructions a block, bound {bound} ({off:+.1%})")
        if abs(off) > OFF_BY:
            wrong.append(path)
    if rest == ["--write"]:
        BOUNDS.write_text(json.dumps(found, indent=2) + "\n")
    elif wrong:
        sys.exit(f"not what {BOUNDS.name} says: {', '.join(wrong)}; check.py --write, with the reason in the commit")


main()
