"""The state of a loader: a step, and what must be the same for its batches to be the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tokenmill.errors import UserError
from tokenmill.load.rows.reader import RowReader

STATE_VERSION = 1


class SourceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What identifies the data of a source."""

    dataset: str
    plan: str
    tokenizer: str


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where training goes on, and with what."""

    version: int = STATE_VERSION
    step: int
    seed: int
    global_batch: dict[str, int | None]
    """Its rows or its tokens."""
    sources: list[SourceState]
    order: dict[str, Any]
    """What the order depends on, beside the data."""
    labels: dict[str, Any]
    """Which tokens are labels, and where they stand."""
    progress: dict[str, Any]
    """How far the order has come, where the step alone does not say it."""


def describe_source(reader: RowReader) -> SourceState:
    """What identifies the data that a reader reads."""
    return SourceState(
        dataset=reader.dataset.manifest.dataset_id,
        plan=reader.plan.manifest.plan_id,
        tokenizer=reader.dataset.manifest.tokenizer.sha256,
    )


def check_state(values: dict[str, Any], own: LoaderState) -> LoaderState:
    """The state that `values` hold, if training can go on with it here.

    Raises:
        UserError: it cannot; the message says what differs.
    """
    if not isinstance(values, dict):
        raise UserError("not the state of a loader", why=f"it is a {type(values).__name__}")
    if values.get("version", STATE_VERSION) != STATE_VERSION:
        why = f"its version is {values['version']}; this version reads {STATE_VERSION}"
        raise UserError("the state was saved by another version of tokenmill", why=why)
    try:
        found = msgspec.convert(values, LoaderState)
    except msgspec.ValidationError as error:
        raise UserError("not the state of a loader", why=str(error)) from error
    differences = list(_differences(found, own))
    if differences:
        raise UserError(
            "the state belongs to another loader",
            why="\n       ".join(differences),
            hint="open the dataset and the plan that it was saved with, in the same order and with "
            "the same global_batch_size; ranks and workers may differ",
        )
    return found


def _differences(found: LoaderState, own: LoaderState) -> Iterator[str]:
    if found.step < 0:
        yield f"step: it is {found.step}"
    yield from _difference("seed", found.seed, own.seed)
    for name in ("rows", "tokens"):
        sizes = found.global_batch.get(name), own.global_batch.get(name)
        yield from _difference(f"{name} of a global batch", *sizes)
    if len(found.sources) != len(own.sources):
        yield f"sources: there are {len(found.sources)} there, {len(own.sources)} here"
    for number, (theirs, ours) in enumerate(zip(found.sources, own.sources, strict=False)):
        of = f" of source {number}" if len(own.sources) > 1 else ""
        for name in ("dataset", "tokenizer", "plan"):
            yield from _difference(f"{name}{of}", getattr(theirs, name), getattr(ours, name))
    for section in ("order", "labels"):
        there, here = getattr(found, section), getattr(own, section)
        for name in sorted({*there, *here}):
            yield from _difference(name, there.get(name), here.get(name))


def _difference(name: str, there: Any, here: Any) -> Iterator[str]:
    if there != here:
        yield f"{name}: {there} there, {here} here"
