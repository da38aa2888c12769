"""The state of a loader: a step, and everything that its batches depend on."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.load.rows.reader import RowReader

STATE_VERSION = 1
T = TypeVar("T")


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step to resume at, and the identity of the data and its order."""

    version: int = STATE_VERSION
    step: Annotated[int, Meta(ge=0)]
    seed: int
    global_batch: dict[str, int | None]
    """Size in rows or in tokens."""
    sources: list[dict[str, str]]
    """The ids of each source's dataset and plan, and the digest of its tokenizer."""
    order: dict[str, Any]
    """Settings that the order depends on."""
    labels: dict[str, Any]
    """Settings that decide the labels."""
    progress: dict[str, Any]
    """Progress that does not follow from the step alone."""


def describe_source(reader: RowReader) -> dict[str, str]:
    """Return the identity of the data that a reader reads."""
    return {
        "dataset": reader.dataset.manifest.dataset_id,
        "tokenizer": reader.dataset.manifest.tokenizer.sha256,
        "plan": reader.plan.manifest.plan_id,
    }


def check_state(values: dict[str, Any], own: LoaderState) -> LoaderState:
    """Return the state in `values`, if training can resume from it.

    Raises:
        UserError: it cannot. The message lists what differs.
    """
    found = decoded(values, LoaderState, "a loader")
    hint = (
        "open the same dataset and plan, with the same order and global_batch_size; ranks and "
        "workers may differ"
    )
    refuse_another("loader", _settings(found), _settings(own), hint)
    return found


def _settings(state: LoaderState) -> dict[str, Any]:
    """Return everything that must not change, by the names that messages use."""
    settings: dict[str, Any] = {"version": state.version, "seed": state.seed}
    settings |= {f"{name} of a global batch": size for name, size in state.global_batch.items()}
    settings["sources"] = len(state.sources)
    for number, source in enumerate(state.sources):
        of = f" of source {number}" if len(state.sources) > 1 else ""
        settings |= {f"{name}{of}": source.get(name) for name in ("dataset", "tokenizer", "plan")}
    return settings | dict(sorted(state.order.items())) | dict(sorted(state.labels.items()))


def decoded(values: dict[str, Any], kind: type[T], of: str) -> T:
    """Return a state as a struct.

    Raises:
        UserError: it is not one.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"not the state of {of}", why=str(error)) from error


def refuse_another(owner: str, there: dict[str, Any], here: dict[str, Any], hint: str = "") -> None:
    """Raise a UserError that lists how the settings of a state differ from its owner's, if so."""
    pairs = ((name, there.get(name), here.get(name)) for name in dict.fromkeys([*here, *there]))
    lines = [f"{name}: {old} in the state, {new} here" for name, old, new in pairs if old != new]
    if lines:
        why = "\n       ".join(lines)
        raise UserError(f"the state belongs to another {owner}", why=why, hint=hint)
