"""Losses that a trainer logged, and the steps where they jump."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import FloatArray, Int64Array
from tokenmill.store.files import storage_errors

STEPS = ("step", "global_step", "train/global_step", "trainer/global_step", "iteration", "_step")
LOSSES = ("loss", "train/loss", "train_loss", "train/train_loss", "training_loss", "value")
"""Names of steps and losses, in lower case. A CSV of W&B has "RUN - " before them, and one of
TensorBoard "Step" and "Value"."""
BEFORE, FEWEST = 100, 8
"""A loss is compared with the median of at most, and at least, this many logged before it."""
LEAST_SCORE = 6.0
LEAST_DEVIATION = 1e-3
"""Relative to the median, so that losses that hardly differ have no spikes."""
AT_ONCE = 1 << 14
DEVIATIONS = 1.4826
"""Median absolute deviations in a standard deviation of normal numbers."""
RULE = (
    f"above the median of the {BEFORE} losses before it by {LEAST_SCORE:g} standard deviations or "
    "more, as their median absolute deviation estimates them"
)


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses in a log, by step."""

    steps: Int64Array
    """Shape (n,), ascending, as the log counts them."""
    losses: FloatArray
    """Shape (n,); NaN and infinity if they were logged."""
    without: int
    """Lines without a step and a loss, such as those of an evaluation."""
    bad: list[str]
    """What is wrong with lines that cannot be read, with their numbers."""
    repeated: int
    """Steps that were logged again, as after a restart; the last loss counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """Losses in a row that are far above those before."""

    step: int
    """Step of the highest one."""
    loss: float
    steps: range
    """Steps from the one after the last usual loss to the last of these losses."""
    median: float
    """Of the losses before."""
    score: float
    """How many standard deviations the highest one is above the median."""


def read_losses(path: str | Path) -> Losses:
    """Read a log as JSON Lines, or as CSV that W&B or TensorBoard exported.

    Raises:
        UserError: there is no such file, or it has no losses.
        StorageError: it cannot be read.
    """
    place = local_path(path, "the losses")
    if not place.is_file():
        raise UserError("cannot find the losses", where=str(place), why="no such file")
    found: dict[int, float] = {}
    bad: list[str] = []
    num_without = num_repeated = 0
    with storage_errors("read the losses", place), place.open(errors="replace", newline="") as file:
        first = file.readline().lstrip("\ufeff")
        lines = chain([first], file)
        is_json = first.lstrip().startswith("{")
        records = _json_lines(lines) if is_json else _csv_lines(lines, str(place))
        for number, record in records:
            if isinstance(record, str):
                bad.append(f"line {number}: {record}")
                continue
            step, loss = record
            if step in ("", None) or loss in ("", None):
                num_without += 1
                continue
            try:
                at, value = float(step), float(loss)
                if at != int(at) or at < 0:
                    raise ValueError
            except (TypeError, ValueError, OverflowError):
                bad.append(f"line {number}: step {step!r} and loss {loss!r}")
                continue
            num_repeated += int(at) in found
            found[int(at)] = value
    if not found:
        names = f"steps are named {', '.join(STEPS)}; losses {', '.join(LOSSES)}"
        why = bad[0] if bad else f"{num_without} lines without a step and a loss"
        raise UserError("the log has no losses", where=str(place), why=why, hint=names)
    steps = sorted(found)
    losses = np.array([found[step] for step in steps])
    return Losses(np.array(steps, np.int64), losses, num_without, bad, num_repeated)


def _json_lines(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line, with its step and loss, or with what is wrong."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"no JSON: {error}"
            continue
        if not isinstance(values, dict):
            yield number, "no object"
            continue
        known = {name.lower(): value for name, value in values.items()}
        yield number, (_first(known, STEPS), _first(known, LOSSES))


def _csv_lines(lines: Iterable[str], where: str) -> Iterator[tuple[int, Any]]:
    """Yield the same of the lines of a CSV.

    Raises:
        UserError: it has no column of steps or losses, or several.
    """
    reader = csv.reader(lines)
    try:
        header = [name.rpartition(" - ")[2].strip().lower() for name in next(reader, [])]
        step, loss = (_column(header, names, where) for names in (STEPS, LOSSES))
        for row in reader:
            if len(row) != len(header):
                if row:
                    yield reader.line_num, f"{len(row)} cells, and the header has {len(header)}"
                continue
            yield reader.line_num, (row[step], row[loss])
    except csv.Error as error:
        raise UserError("the CSV cannot be read", where=where, why=str(error)) from error


def _column(header: Sequence[str], names: Sequence[str], where: str) -> int:
    """The only column with the first name that the header has."""
    name = next((name for name in names if name in header), None)
    if name is None:
        why = f"its columns are {', '.join(header)}"
        raise UserError(f"the CSV has no column {names[0]!r}", where=where, why=why)
    if header.count(name) > 1:
        why = f"{header.count(name)} columns are {name!r}"
        hint = "export one run only"
        raise UserError("the CSV has several runs", where=where, why=why, hint=hint)
    return header.index(name)


def _first(values: dict[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if name in values), None)


def find_spikes(found: Losses) -> list[Spike]:
    """Return the spikes by the rule `RULE`, the largest first; a loss that is no number is one.

    Logged losses in a row that are that far above are one spike.
    """
    steps, losses = found.steps, found.losses
    scores, medians = np.full((2, len(losses)), np.inf)
    finite = np.isfinite(losses)
    scores[finite], medians[finite] = _scores(losses[finite])
    edges = np.flatnonzero(np.diff(scores >= LEAST_SCORE, prepend=False, append=False))
    spikes = []
    for first, stop in edges.reshape(-1, 2).tolist():
        top = first + int(np.argmax(scores[first:stop]))
        begin = int(steps[first - 1]) + 1 if first else int(steps[0])
        spikes.append(
            Spike(
                step=int(steps[top]),
                loss=float(losses[top]),
                steps=range(begin, int(steps[stop - 1]) + 1),
                median=float(medians[top]),
                score=float(scores[top]),
            )
        )
    return sorted(spikes, key=lambda spike: -spike.score)


def _scores(losses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how many deviations losses are above those before, and the medians of these."""
    scores, medians = np.zeros((2, len(losses)))
    groups = [(at, losses[None, :at]) for at in range(FEWEST, min(BEFORE, len(losses)))]
    if len(losses) > BEFORE:
        windows = sliding_window_view(losses[:-1], BEFORE)
        firsts = range(0, len(windows), AT_ONCE)
        groups += [(BEFORE + first, windows[first : first + AT_ONCE]) for first in firsts]
    for at, before in groups:
        part = slice(at, at + len(before))
        middle = np.median(before, axis=1)
        deviation = np.median(np.abs(before - middle[:, None]), axis=1) * DEVIATIONS
        least = np.maximum(LEAST_DEVIATION * np.abs(middle), LEAST_DEVIATION**3)
        scores[part] = (losses[part] - middle) / np.maximum(deviation, least)
        medians[part] = middle
    return scores, medians
