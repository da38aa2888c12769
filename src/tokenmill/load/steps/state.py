"""The state of a loader: a step, and everything that its batches depend on.

A run is a list of legs. A leg begins at a step, and has its own sources, shares and batch size.
Each source goes on in a leg where it was before. A run that was never amended has one leg, which
the state describes; otherwise, `legs` has all of them, and the state describes the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.paths import local_path, output_path, read_bounded
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.schedule import Count, Given, OrderIdentity
from tokenmill.store.dataset import Dataset
from tokenmill.store.files import write_atomically
from tokenmill.store.plan import Plan

STATE_VERSION = 1
MOST_BYTES = 64 << 20
"""Most bytes of a state that is read from a file."""
T = TypeVar("T")


class SourceState(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The identity of a source, and where it was last."""

    dataset: str
    """Id of the dataset or view."""
    tokenizer: str
    """SHA-256 of its tokenizer."""
    plan: str
    """Id of the plan."""
    name: str = ""
    """Name in a mixture."""
    location: str = ""
    """Folder or bucket of the dataset."""
    plan_name: str = ""
    """Name of the plan in its dataset, or its folder."""
    row_length: int = 0
    """Tokens in a row; 0 if rows have several lengths."""


class Leg(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of a run with the same sources, shares and batch size."""

    first_step: Count
    sources: Annotated[list[Count], Meta(min_length=1)]
    """Numbers among the sources of the run."""
    global_batch: BatchSize
    order: OrderIdentity
    epochs: list[Annotated[int, Meta(ge=1)] | None]
    """Epochs after which each source ends; None: never."""
    ranks: Annotated[int, Meta(ge=1)] = 1
    """Ranks that shared a global batch when the leg ended. They do not change its rows."""
    set_shares: bool = False
    """Whether the trainer set the shares. Then they need not be passed to resume."""
    given: list[Given] = []
    """What each source of the run gave before, by number; of the last leg only, because it
    follows from the legs before."""


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step to resume at, and the identity of the data and its order."""

    version: int = STATE_VERSION
    step: Count
    seed: int
    global_batch: BatchSize
    sources: Annotated[list[SourceState], Meta(min_length=1)]
    """All sources of the run, in the order in which legs name them first."""
    order: OrderIdentity
    labels: dict[str, Any]
    """Settings that decide the labels."""
    progress: dict[str, Any]
    """Progress that does not follow from the step alone."""
    epochs: list[int | None] = []
    """Epochs after which each source ends."""
    ranks: int = 1
    """Ranks that shared a global batch."""
    legs: list[Leg] = []
    """All legs of an amended run; else empty."""

    @property
    def all_legs(self) -> list[Leg]:
        """All legs; a run that was never amended has one."""
        only = Leg(
            first_step=0,
            sources=[*range(len(self.sources))],
            epochs=self.epochs or [1] * len(self.sources),
            global_batch=self.global_batch,
            order=self.order,
            ranks=self.ranks,
        )
        return self.legs or [only]

    @property
    def last(self) -> Leg:
        """The leg that the run is in."""
        return self.all_legs[-1]

    @property
    def present(self) -> list[SourceState]:
        """The sources of the last leg."""
        return [self.sources[number] for number in self.last.sources]


def describe_plan(dataset: Dataset, plan: Plan, name: str = "") -> SourceState:
    """Return the identity of a plan and its dataset."""
    location, plan_name = dataset.location, plan.folder.name
    if dataset.origin is None:
        location = str(Path(location).absolute())
    if plan.folder.parent != dataset.folder / "plans":
        plan_name = str(plan.folder.absolute())
    return SourceState(
        dataset=dataset.manifest.dataset_id,
        tokenizer=dataset.manifest.tokenizer.sha256,
        plan=plan.manifest.plan_id,
        name=name,
        location=location,
        plan_name=plan_name,
        row_length=plan.rows.row_lengths[0] if len(plan.rows.row_lengths) == 1 else 0,
    )


def checked_state(values: Any) -> LoaderState:
    """Return a state as a struct, if its legs fit together.

    Raises:
        UserError: it is not the state of a loader.
    """
    found = decoded(values, LoaderState, "a loader")
    steps = [leg.first_step for leg in found.legs]
    numbers = [number for leg in found.legs for number in leg.sources]
    lists = [
        len(each.sources) in {len(each.order.shares), 1}
        and len(each.epochs) == len(each.sources)
        and len(each.order.tokens) in {0, len(each.sources)}
        for each in found.legs
    ]
    if found.legs and (
        steps[0] != 0
        or steps != sorted(set(steps))
        or steps[-1] > found.step
        or max(numbers, default=0) >= len(found.sources)
        or not all(lists)
    ):
        raise UserError("not the state of a loader", why="its legs do not fit together")
    return found


def read_state(state: Mapping[str, Any] | str | Path) -> LoaderState:
    """Return a state that a loader returned, or that is in a JSON file.

    Raises:
        UserError: it is not the state of a loader, or there is no such file.
    """
    if isinstance(state, Mapping):
        return checked_state(dict(state))
    place = local_path(state, "a state")
    try:
        values = msgspec.json.decode(read_bounded(place, MOST_BYTES, "the state"))
    except (msgspec.DecodeError, RecursionError) as error:
        hint = "save it with json.dump(loader.state_dict(), file)"
        raise UserError(
            "the state is no JSON", where=str(place), why=str(error), hint=hint
        ) from None
    return checked_state(values)


def write_state(state: LoaderState, path: str | Path) -> None:
    """Write a state to a new JSON file.

    Raises:
        OutputConflictError: the file exists.
        StorageError: it cannot be written.
    """
    place = output_path(path, "the state")
    if place.exists():
        hint = "give a new name: a state is small, and the old one can be resumed again"
        raise OutputConflictError("the file of the state exists", where=str(place), hint=hint)
    write_atomically(place, msgspec.json.format(msgspec.json.encode(state), indent=2))


def check_state(values: Any, own: LoaderState) -> LoaderState:
    """Return the state in `values`, if training can resume from it.

    Raises:
        UserError: it cannot. The message lists what differs.
    """
    found = checked_state(values)
    there, here = _settings(found), _settings(own)
    if found.legs and found.legs[-1].set_shares:
        there.pop("shares", None)
        here.pop("shares", None)
    hint = (
        "open the same dataset and plan, with the same order and global_batch_size; ranks and "
        "workers may differ. To go on with other data, shares or sizes, amend the state: "
        "tokenmill.amend"
    )
    refuse_another("loader", there, here, hint)
    return found


def _settings(state: LoaderState) -> dict[str, Any]:
    """Return everything that must not change, by the names that messages use."""
    settings: dict[str, Any] = {"version": state.version, "seed": state.seed}
    sizes = msgspec.structs.asdict(state.global_batch)
    settings |= {f"{name} of a global batch": size for name, size in sizes.items()}
    settings["sources"] = len(state.present)
    for number, source in enumerate(state.present):
        of = f" of source {number}" if len(state.present) > 1 else ""
        names = ("dataset", "tokenizer", "plan")
        settings |= {f"{name}{of}": getattr(source, name) for name in names}
    return settings | msgspec.structs.asdict(state.order) | dict(sorted(state.labels.items()))


def decoded(values: Any, kind: type[T], of: str) -> T:
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
