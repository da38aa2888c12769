"""tokenmill amend"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tokenmill.cli.parser import Command, Json
from tokenmill.core.errors import UserError
from tokenmill.core.options import about
from tokenmill.core.values import parse_quantity, parse_share

if TYPE_CHECKING:
    from tokenmill.load.legs import LegSource
    from tokenmill.load.steps.batch_size import Ramp
    from tokenmill.load.steps.state import LoaderState


class Amend(Command, kw_only=True):
    """Change the shares, data or batch size of a training run, from the step of its state on."""

    usage: ClassVar[str] = "STATE.json --out NEW.json [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill amend state.json --out next.json --share code=0.3
  tokenmill amend state.json --out next.json --global-batch-size 128
  tokenmill amend state.json --out next.json --global-batch-size 0:64,9000:128
  tokenmill amend state.json --out next.json --source math=math/:best-fit-4096 --share math=0.1
  tokenmill amend state.json --out next.json --dataset cleaned/ --plan best-fit-8192-rest"""

    state: Annotated[str, about("file with the state of a loader", positional="STATE.json")]
    out: Annotated[str, about("file for the new state", metavar="NEW.json", example="next.json")]
    share: Annotated[
        list[str],
        about("share of a source of a mixture, relative to the others", metavar="NAME=SHARE"),
    ] = []
    source: Annotated[
        list[str],
        about("add a source to a mixture, or give one another plan", metavar="NAME=DATASET:PLAN"),
    ] = []
    end: Annotated[list[str], about("end a source of a mixture", metavar="NAME")] = []
    plan: Annotated[str | None, about("go on with another plan", metavar="PLAN")] = None
    dataset: Annotated[
        str | None, about("dataset of the plan, if it is another one", metavar="DIR")
    ] = None
    when_one_ends: Annotated[
        Literal["stop", "go on"] | None, about("what a mixture does when a source ends")
    ] = None
    global_batch_size: Annotated[
        str | None, about("rows in a global batch, or STEP:ROWS,... as a ramp", metavar="ROWS")
    ] = None
    global_batch_tokens: Annotated[
        str | None,
        about("tokens in a global batch, or STEP:TOKENS,... as a ramp", metavar="TOKENS"),
    ] = None
    json: Json = False

    def run(self) -> None:
        import msgspec

        from tokenmill.cli.tables import fact_lines, print_json
        from tokenmill.load.legs import amended
        from tokenmill.load.steps.batch_size import BatchSize
        from tokenmill.load.steps.state import read_state, write_state

        state = read_state(self.state)
        sizes = [
            _size(self.global_batch_size, "--global-batch-size"),
            _size(self.global_batch_tokens, "--global-batch-tokens"),
        ]
        found = amended(
            state,
            self._sources(state) if self.source or self.end else None,
            shares=dict(map(_named_share, self.share)) or None,
            dataset=self.dataset,
            plan=self.plan,
            global_batch=BatchSize.of(*sizes) if any(sizes) else None,
            when_one_ends=self.when_one_ends,
        )
        write_state(found, self.out)
        if self.json:
            print_json(msgspec.to_builtins(found))
        else:
            print("\n".join(fact_lines(leg_facts(found, self.out), 12)))

    def _sources(self, state: LoaderState) -> list[LegSource]:
        """The sources of the new leg."""
        from tokenmill.load.legs import by_name, named_plan, sources_of

        found = by_name(sources_of(state))
        for name in self.end:
            if found.pop(name, None) is None:
                why = f"they are {', '.join(map(repr, found))}"
                raise UserError(f"the run has no source {name!r}", why=why)
        for text in self.source:
            name, dataset, plan = _named_plan(text)
            found[name] = named_plan(name, dataset, plan, found.get(name))
        return [*found.values()]


def leg_facts(state: LoaderState, out: str) -> Iterator[tuple[str, str]]:
    """The legs of a run, each in a line."""
    from tokenmill.load.legs import describe_leg

    yield "state", f"{out}, at step {state.step:,}"
    for leg in state.all_legs:
        yield f"step {leg.first_step:,}", describe_leg(state, leg)


def _size(text: str | None, option: str) -> int | Ramp | None:
    """A batch size: a number, or points STEP:SIZE of a ramp."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return _positive(text)
        pairs = [each.partition(":") for each in text.split(",")]
        return tuple((int(parse_quantity(step)), _positive(size)) for step, _, size in pairs)
    except ValueError as error:
        why = f"got {text!r}"
        hint = "give a number such as 128, or points such as 0:64,5000:128"
        raise UserError(f"{option} is no batch size", why=why, hint=hint) from error


def _positive(text: str) -> int:
    value = parse_quantity(text)
    if value < 1 or value != int(value):
        raise ValueError(text)
    return int(value)


def _named_share(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name, parse_share(value)
    except ValueError as error:
        hint = "give NAME=SHARE, for example code=0.3"
        raise UserError("--share is no share", why=f"got {text!r}", hint=hint) from error


def _named_plan(text: str) -> tuple[str, str, str]:
    name, _, place = text.partition("=")
    dataset, _, plan = place.rpartition(":")
    if not (name and dataset and plan):
        hint = "give NAME=DATASET:PLAN, for example math=math/:best-fit-4096"
        raise UserError("--source is no source", why=f"got {text!r}", hint=hint)
    return name, dataset, plan
