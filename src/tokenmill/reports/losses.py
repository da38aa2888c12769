"""Losses that a trainer logged, and the steps where they jump."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import FloatArray
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


@dataclass(slots=True)
class Losses:
    """The losses in a log, by step of the loader, counted from 0."""

    by_step: dict[int, float]
    """NaN and infinity if they were logged."""
    outside: int = 0
    """Logged steps that are not among those of the run."""
    without: int = 0
    """Lines without a step and a loss, such as those of an evaluation."""
    repeated: int = 0
    """Steps that were logged again, as after a restart; the last loss counts."""
    bad: list[str] = field(default_factory=list)
    """What is wrong with lines that cannot be read, with their numbers."""


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


def read_losses(path: str | Path, first_step: int, num_steps: int) -> Losses:
    """Read a log as JSON Lines, or as CSV that W&B or TensorBoard exported.

    Args:
        path: the log.
        first_step: the number that it gives to the first step.
        num_steps: number of steps of the run.

    Raises:
        UserError: there is no such file, it has no losses of the run, or those of several runs.
        StorageError: it cannot be read.
    """
    place = local_path(path, "the losses")
    if not place.is_file():
        raise UserError("cannot find the losses", where=str(place), why="no such file")
    found = Losses({})
    with storage_errors("read the losses", place), place.open(errors="replace", newline="") as file:
        for number, values in _records(file, str(place)):
            step, loss = (_first(values, names) for names in (STEPS, LOSSES))
            if "problem" in values:
                found.bad.append(f"line {number}: {values['problem']}")
            elif step in ("", None) or loss in ("", None):
                found.without += 1
            elif (pair := _numbers(step, loss)) is None:
                found.bad.append(f"line {number}: step {step!r} and loss {loss!r}")
            elif not 0 <= pair[0] - first_step < num_steps:
                found.outside += 1
            else:
                found.repeated += pair[0] - first_step in found.by_step
                found.by_step[pair[0] - first_step] = pair[1]
    if not found.by_step:
        names = f"steps are named {', '.join(STEPS)}; losses {', '.join(LOSSES)}"
        why = f"{found.outside} of other steps, {found.without} lines without a step and a loss"
        why = "; ".join([why, *found.bad[:1]])
        raise UserError("the log has no losses of the run", where=str(place), why=why, hint=names)
    found.by_step = dict(sorted(found.by_step.items()))
    return found


def _records(file: Iterable[str], where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line, and its values by name, or its `problem`."""
    lines = iter(file)
    first = next(lines, "").lstrip("\ufeff")
    if first.lstrip().startswith("{"):
        for number, line in enumerate(chain([first], lines), 1):
            if line.strip():
                yield number, _parsed(line)
        return
    names = [name.rpartition(" - ")[2].strip().lower() for name in next(csv.reader([first]), [])]
    if any(names.count(name) > 1 for name in LOSSES):
        hint = "export one run only"
        raise UserError("the CSV has several runs", where=where, why=first.strip(), hint=hint)
    rows = csv.reader(lines)
    try:
        for row in rows:
            problem = {"problem": f"{len(row)} cells, and the header has {len(names)}"}
            values = dict(zip(names, row, strict=False))
            yield rows.line_num + 1, values if len(row) in (0, len(names)) else problem
    except csv.Error as error:
        raise UserError("the CSV cannot be read", where=where, why=str(error)) from error


def _parsed(line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"problem": f"no JSON: {error}"}
    if not isinstance(values, dict):
        return {"problem": "no object"}
    return {name.lower(): value for name, value in values.items()}


def _first(values: dict[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if name in values), None)


def _numbers(step: Any, loss: Any) -> tuple[int, float] | None:
    """Return a step and a loss as numbers; None if they are none."""
    try:
        return (int(float(step)), float(loss)) if float(step).is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None


def find_spikes(found: Losses) -> list[Spike]:
    """Return the spikes by the rule `RULE`, the largest first; a loss that is no number is one.

    Logged losses in a row that are that far above are one spike.
    """
    steps, losses = [*found.by_step], np.array([*found.by_step.values()])
    scores, medians = np.full((2, len(losses)), np.inf)
    finite = np.isfinite(losses)
    scores[finite], medians[finite] = _scores(losses[finite])
    edges = np.flatnonzero(np.diff(scores >= LEAST_SCORE, prepend=False, append=False))
    spikes = []
    for first, stop in edges.reshape(-1, 2).tolist():
        top = first + int(np.argmax(scores[first:stop]))
        begin = steps[first - 1] + 1 if first else steps[0]
        spikes.append(
            Spike(
                step=steps[top],
                loss=float(losses[top]),
                steps=range(begin, steps[stop - 1] + 1),
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
