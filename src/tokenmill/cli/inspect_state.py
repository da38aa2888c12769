"""tokenmill inspect STATE.json: the steps of a training run, and the spikes of its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from tokenmill.cli.parser import Command, Decoder, Json
from tokenmill.cli.sequence_lines import sequence_lines
from tokenmill.cli.tables import fact_lines, next_text, print_json
from tokenmill.cli.terminal import fitted, use_colour
from tokenmill.core.errors import UserError
from tokenmill.core.options import about
from tokenmill.core.values import counted

if TYPE_CHECKING:
    from tokenmill.load.steps.state import LoaderState
    from tokenmill.reports.losses import Losses, Spike
    from tokenmill.reports.steps import Steps

MAX_SHOWN_TOKENS = 500
MOST_ROWS = 4
"""Rows of a step that are shown without --all."""
MOST_SPIKES, MOST_STEPS, MOST_INPUTS, MOST_BAD = 10, 16, 3, 3


class OfState(Command, kw_only=True):
    """The part of `inspect` that shows states."""

    path: Annotated[
        str, about("folder of a dataset, or file with the state of a loader", positional="PATH")
    ]
    step: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("show the rows of step N of a state's run, from 0")
    ] = None
    rank: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("show the rows of one rank of the step")
    ] = None
    ranks: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("deal the step to N ranks (default: as it was)")
    ] = None
    dataset: Annotated[
        list[str], about("a dataset of the run that is not where it was", metavar="DIR")
    ] = []
    losses: Annotated[
        str | None,
        about(
            "show where the loss of a run jumps: JSON Lines, or CSV of W&B or TensorBoard",
            metavar="FILE",
        ),
    ] = None
    first_step: Annotated[
        Annotated[int, Meta(ge=0)], about("the number that the losses give to the first step")
    ] = 0
    all: Annotated[
        bool,
        about(f"show all of a document, not only {MAX_SHOWN_TOKENS} tokens, or all rows of a step"),
    ] = False
    tokenizer: Decoder = None
    json: Json = False

    def show_state(self) -> None:
        """Print a run, one of its steps, or the steps where its loss jumps."""
        from tokenmill.load.steps.state import read_state
        from tokenmill.reports.steps import Steps
        from tokenmill.store.dataset import Dataset

        if self.step is None and (self.rank, self.ranks) != (None, None):
            raise UserError("--rank and --ranks need --step", hint="add --step with a step")
        if self.step is not None and self.losses is not None:
            raise UserError("--step and --losses cannot be combined", hint="give one of them")
        state = read_state(self.path)
        if self.step is None and self.losses is None:
            self._show_run(state)
            return
        steps = Steps(state, [Dataset(each) for each in self.dataset], self.tokenizer)
        if self.step is None:
            self._show_spikes(steps)
        else:
            self._show_step(steps, self.step)

    def refuse_options_of_states(self) -> None:
        """Raise a UserError if there is an option that only a state can have."""
        of_state = [self.step, self.rank, self.ranks, self.losses, *self.dataset]
        if any(each is not None for each in of_state):
            hint = "give the file with the state of a loader"
            raise UserError("these options need a state", where=self.path, hint=hint)

    def _show_run(self, state: LoaderState) -> None:
        import msgspec

        from tokenmill.cli.amend import leg_facts
        from tokenmill.load.legs import given_by, name_of

        if self.json:
            print_json(msgspec.to_builtins(state))
            return
        facts = [*leg_facts(state, self.path)]
        try:
            rows = [sum(each.rows) for each in given_by(state)] + [0] * len(state.sources)
            given = [f", {counted(each, 'row')} given" for each in rows]
        except UserError:  # the state of a curriculum, or an older one
            given = [""] * len(state.sources)
        for source, text in zip(state.sources, given, strict=False):
            place = f"plan {source.plan_name} of {source.location}"
            facts.append(("source", f"{name_of(source)}: {place}{text}"))
        facts.append(("next", f"step {state.step:,}, with {counted(state.ranks, 'rank')} so far"))
        print("\n".join(fact_lines(facts, 12)))
        if given[0] and state.step:
            last = ("tokenmill", "inspect", self.path, "--step", str(state.step - 1))
            print(f"\n{next_text(last, ('tokenmill', 'provenance', self.path))}")

    def _show_step(self, steps: Steps, step: int) -> None:
        rows = steps.rows(step, self.ranks)
        ranks = rows[-1].rank + 1
        if self.rank is not None and self.rank >= ranks:
            why = f"step {step} has {counted(ranks, 'rank')}, counted from 0"
            raise UserError(f"there is no rank {self.rank}", why=why)
        chosen = [row for row in rows if self.rank in (None, row.rank)]
        shown = chosen if self.all or self.json else chosen[:MOST_ROWS]
        if self.json:
            views = [{**asdict(row), **asdict(steps.view(row))} for row in shown]
            print_json({"step": step, "ranks": ranks, "leg": steps.leg_at(step), "rows": views})
            return
        title = f"step {step:,}: {counted(len(rows), 'row')} for {counted(ranks, 'rank')}"
        print(fitted(f"{title}; {steps.leg_at(step)}"))
        for change in steps.changes:
            print(f"rows are shown as they are stored; the loader {change}")
        for row in shown:
            place = f"rank {row.rank}, row {row.row}: {row.name}, plan {row.plan}"
            print(fitted(f"\n{place}, sequence {row.sequence}, epoch {row.epoch}"))
            print("\n".join(sequence_lines(steps.view(row), colour=use_colour())))
        if more := len(chosen) - len(shown):
            print(f"\n... {counted(more, 'more row')}: add --all to see every row")

    def _show_spikes(self, steps: Steps) -> None:
        from tokenmill.reports.losses import RULE, find_spikes, read_losses

        found = read_losses(str(self.losses), self.first_step, steps.state.step)
        spikes = find_spikes(found)
        inputs = [steps.tokens_of_inputs(_data_of(spike)) for spike in spikes[:MOST_SPIKES]]
        if self.json:
            shown = [
                {
                    **asdict(spike),
                    "steps": [*spike.steps],
                    "data_of": [*_data_of(spike)],
                    "inputs": of,
                }
                for spike, of in zip(spikes, inputs, strict=False)
            ]
            counts = {"outside": found.outside, "without": found.without, "bad": found.bad}
            counts |= {"losses": len(found.by_step), "repeated": found.repeated}
            print_json({**counts, "rule": RULE, "num_spikes": len(spikes), "spikes": shown})
            return
        facts = [*_log_facts(found), ("spikes", f"{len(spikes):,}: {RULE}")]
        print("\n".join(fact_lines(facts, 12)))
        for spike, of in zip(spikes, inputs, strict=False):
            named = [f"{name} ({counted(tokens, 'token')})" for name, tokens in of[:MOST_INPUTS]]
            more = [f"{len(of) - MOST_INPUTS} more"] if len(of) > MOST_INPUTS else []
            print(fitted(f"\n{_spike_text(spike)}\n    from {', '.join([*named, *more])}"))
        if spikes:
            words = ("tokenmill", "inspect", self.path, "--step", str(spikes[0].step))
            print(f"\n{next_text(words)}")


def _log_facts(found: Losses) -> Iterator[tuple[str, str]]:
    first, *_, last = [*found.by_step, *found.by_step]
    yield "losses", f"{len(found.by_step):,}, of steps {first:,} to {last:,} of the loader"
    if found.outside:
        yield "outside", f"{counted(found.outside, 'logged step')} that the state does not have"
    if found.repeated:
        yield "repeated", f"{counted(found.repeated, 'step')} logged again; the last loss counts"
    if found.without:
        yield "without", f"{counted(found.without, 'line')} without a step and a loss"
    if found.bad:
        yield "damaged", f"{counted(len(found.bad), 'line')}: {'; '.join(found.bad[:MOST_BAD])}"


def _data_of(spike: Spike) -> range:
    """The steps whose documents are named: those until the highest loss."""
    return spike.steps[: spike.steps.index(spike.step) + 1][-MOST_STEPS:]


def _spike_text(spike: Spike) -> str:
    text, data = f"step {spike.step:,}: loss {spike.loss:.4g}", _data_of(spike)
    if isfinite(spike.score):
        text += f", {spike.score:.1f} deviations above {spike.median:.4g}"
    return text if len(data) == 1 else f"{text}; data of steps {data[0]:,} to {data[-1]:,}"
