"""The state of a loader: a step, and everything that its batches depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.load.rows.reader import RowReader

STATE_VERSION = 1


class SourceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of a source's data."""

    dataset: str
    plan: str
    tokenizer: str


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step to resume at, and the identity of the data and its order."""

    version: int = STATE_VERSION
    step: int
    seed: int
    global_batch: dict[str, int | None]
    """Size in rows or in tokens."""
    sources: list[SourceState]
    order: dict[str, Any]
    """Settings that the order depends on."""
    labels: dict[str, Any]
    """Settings that decide the labels."""
    progress: dict[str, Any]
    """Progress that does not follow from the step alone."""


def describe_source(reader: RowReader) -> SourceState:
    """Return the identity of the data that a reader reads."""
    return SourceState(
        dataset=reader.dataset.manifest.dataset_id,
        plan=reader.plan.manifest.plan_id,
        tokenizer=reader.dataset.manifest.tokenizer.sha256,
    )


def check_state(values: dict[str, Any], own: LoaderState) -> LoaderState:
    """Return the state in `values`, if training can resume from it.

    Raises:
        UserError: it cannot. The message lists what differs.
    """
    if not isinstance(values, dict):
        raise UserError("not the state of a loader", why=f"got a {type(values).__name__}")
    if values.get("version", STATE_VERSION) != STATE_VERSION:
        why = f"its version is {values['version']}; this version of tokenmill reads {STATE_VERSION}"
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
            hint="open the same dataset and plan, with the same order and global_batch_size; ranks "
            "and workers may differ",
        )
    return found


def _differences(found: LoaderState, own: LoaderState) -> Iterator[str]:
    if found.step < 0:
        yield f"step: got {found.step}"
    yield from _difference("seed", found.seed, own.seed)
    for name in ("rows", "tokens"):
        sizes = found.global_batch.get(name), own.global_batch.get(name)
        yield from _difference(f"{name} of a global batch", *sizes)
    if len(found.sources) != len(own.sources):
        yield f"sources: {len(found.sources)} in the state, {len(own.sources)} here"
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
        yield f"{name}: {there} in the state, {here} here"
