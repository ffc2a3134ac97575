#!/usr/bin/env python3
"""The tables of docs/performance.md as a picture: each row of ours relative to the best of the others.
Standard library only. `--check` writes nothing and fails where the picture is not that of the tables.

usage: plot.py [--check]
"""

import html
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "performance.md", DOCS / "peers.svg"
HEADING = "## The index beside those of other routers"

LEFT, WIDTH, ROW, TOP = 400, 440, 20, 64
LOW, HIGH = 0.01, 10.0
AHEAD, BEHIND = "#2f855a", "#b7791f"


def tables(text):
    """The ratios of each table of the section, as lists of (row, ratio)."""
    section = text.split(HEADING, 1)[1].split("\n## ", 1)[0]
    column, rows = None, []
    for line in section.splitlines() + [""]:
        if not line.startswith("|"):
            if rows:
                yield rows
            column, rows = None, []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if "ratio" in cells:
            column = cells.index("ratio")
        elif column is not None:
            try:
                rows.append((cells[0].replace("`", ""), float(cells[column])))
            except ValueError:
                continue  # a line of dashes, or a row of two figures


def place(ratio):
    part = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + part * WIDTH


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def svg(named):
    lines, y = [], TOP
    one = place(1.0)
    for name, rows in named:
        lines.append(text(10, y, name, more=' font-weight="bold"'))
        y += ROW
        for row, ratio in rows:
            at, colour = place(ratio), AHEAD if ratio >= 1 else BEHIND
            lines.append(text(LEFT - 8, y, row, "end"))
            box = f'x="{min(at, one):.1f}" y="{y - 11}" width="{max(abs(at - one), 1):.1f}" height="13"'
            lines.append(f'<rect {box} fill="{colour}"/>')
            side = (at + 5, "start") if ratio >= 1 else (at - 5, "end")
            lines.append(text(side[0], y, f"{ratio:.2f}", side[1]))
            y += ROW
        y += ROW // 2
    for ratio in (0.01, 0.1, 1.0, 10.0):
        x = place(ratio)
        stroke = ' stroke="#333"' if ratio == 1 else ' stroke="#ccc"'
        lines.insert(0, f'<line x1="{x:.1f}" y1="{TOP - 20}" x2="{x:.1f}" y2="{y - ROW}"{stroke}/>')
        lines.append(text(x, TOP - 26, f"{ratio:g}", "middle"))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{y}" '
            'font-family="sans-serif" font-size="12">')
    title = text(10, 20, "How many times as good as the best of the others; right of 1 is ahead",
                 more=' font-size="14"')
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', title, *lines, "</svg>"]) + "\n"


def main():
    found = list(tables(PAGE.read_text()))
    if len(found) < 2:
        sys.exit(f"plot: {PAGE} has not the two tables with a ratio")
    drawn = svg(zip(("Synthetic trace, 64 replicas", "Conversations of Mooncake, 16 replicas"), found))
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit(f"plot: {PICTURE} is not that of the tables: run `just plot`")


if __name__ == "__main__":
    main()
