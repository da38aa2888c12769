"""Keep dated ratios in `history.csv`, to see whether a change made something slower.

A line is added by hand, or by a benchmark with `--history`, and compared with the last lines of the
same name. Add only ratios from a single run (ours / bound, peer / ours), because seconds of two
machines cannot be compared. If a name ends in "speed-up", higher is better; otherwise, lower is
better.

    python bench/history.py                                    # the last line of each name
    python bench/history.py add "start of 1 MB / its engine" 2.1 --note "GPT-2, 2 quiet cores"

Both exit with 1 if a ratio is worse by more than 10 %.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

HISTORY = Path(__file__).with_name("history.csv")
WORSE = "WORSE"
LAST = 5
"""How many earlier lines a new one is compared with."""
TOLERANCE = 1.10
"""Worse than their median by more than this is called out: repeated runs differ by some percent."""


@dataclass(frozen=True)
class Line:
    """One ratio, measured on one day."""

    date: str
    name: str
    ratio: float
    note: str
    """Corpus and machine, in a few words."""


def lines() -> list[Line]:
    with HISTORY.open(newline="") as file:
        return [
            Line(row["date"], row["name"], float(row["ratio"]), row["note"])
            for row in csv.DictReader(file)
        ]


def add(name: str, ratio: float, note: str) -> str:
    """Append a line; returns how it compares with the last ones, in words."""
    earlier = [line.ratio for line in lines() if line.name == name][-LAST:]
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    with HISTORY.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow((today, name, f"{ratio:.3g}", note))
    return compared(name, ratio, earlier)


def compared(name: str, ratio: float, earlier: list[float]) -> str:
    if not earlier:
        return f"{name}: {ratio:.3g}, the first line"
    usual = statistics.median(earlier)
    worse = usual / ratio if name.endswith("speed-up") else ratio / usual
    verdict = "as before"
    if worse > TOLERANCE:
        verdict = f"{WORSE} by {worse - 1:.0%}"
    elif worse < 1 / TOLERANCE:
        verdict = f"better by {1 / worse - 1:.0%}"
    return f"{name}: {ratio:.3g}, {verdict} (median of the last {len(earlier)}: {usual:.3g})"


def last_lines() -> list[str]:
    """The last line of each name, compared with those before it, in words."""
    verdicts = []
    for name in dict.fromkeys(line.name for line in lines()):
        *earlier, last = [line for line in lines() if line.name == name]
        ratios = [line.ratio for line in earlier][-LAST:]
        verdicts.append(f"{last.date}  {compared(name, last.ratio, ratios)}")
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command")
    adding = commands.add_parser("add", help="append a line and compare it with the last ones")
    adding.add_argument("name")
    adding.add_argument("ratio", type=float)
    adding.add_argument("--note", default="", help="corpus and machine, in a few words")
    options = parser.parse_args()
    if options.command == "add":
        verdicts = [add(options.name, options.ratio, options.note)]
    else:
        verdicts = last_lines()
    print("\n".join(verdicts) or "no lines yet")
    sys.exit(any(f", {WORSE} by " in verdict for verdict in verdicts))


if __name__ == "__main__":
    main()
