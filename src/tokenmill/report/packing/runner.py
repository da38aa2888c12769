"""Run the packing benchmark: make plans, count, and time steps."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.errors import InternalError, Interrupted, UserError
from tokenmill.installed import install_command
from tokenmill.load.opening import open_batches
from tokenmill.pack.options import Packing
from tokenmill.records import Advance
from tokenmill.report.packing.counted import (
    ALONE,
    LONGEST,
    Planned,
    RowCounts,
    Waiting,
    make_plans,
    row_counts,
    waiting,
)
from tokenmill.store.dataset import Dataset

if TYPE_CHECKING:
    from tokenmill.load.batches import Batches
    from tokenmill.report.packing.steps import Stepper

SECONDS = 50.0
LOADING_SECONDS = 0.3
"""Of one turn of a plan."""
LOADING_TURNS = 3
AGREEMENT = {"cpu": 1e-4, "cuda": 0.05}
"""How far logits of masked attention and of attention inside documents may be apart: float32, and
bfloat16."""


@dataclass(frozen=True, slots=True)
class PackingBenchOptions:
    """The options of the benchmark."""

    sequence_length: int = 2048
    packings: Sequence[Packing] = ("concat-and-chunk", "best-fit")
    rows_per_batch: int = 2
    """Of a step, and of each rank."""
    ranks: int = 8
    num_layers: int = 2
    hidden_size: int = 256
    device: str = "auto"
    seconds: float = SECONDS
    """For the steps together: none is begun after so many, but the first of each contender."""

    def __post_init__(self) -> None:
        numbers = (
            *(self.sequence_length, self.rows_per_batch, self.ranks, self.num_layers),
            *(self.hidden_size, self.seconds),
        )
        if min(numbers) < 1:
            raise UserError("numbers of a benchmark must be 1 or more", why=f"they are {numbers}")
        if self.hidden_size % 64:
            why = f"got {self.hidden_size}; heads have 64 dimensions"
            raise UserError("--hidden-size must be a multiple of 64", why=why)


@dataclass(frozen=True, slots=True)
class Loading:
    """Speed at which one thread loads the rows of a plan as NumPy arrays from the page cache."""

    packing: str
    tokens_per_second: float
    """Padding included; the median of the turns."""
    learned_tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Training:
    """Steps of the model with one packing and one kind of attention."""

    packing: str
    attention: str
    steps: int
    seconds: float
    """Median seconds of one step."""
    learned_tokens_per_second: float
    """Tokens that are not padding: those of the rows, by the padding of the whole plan."""
    speed_up: float
    """Beside one document a row: the median of the rounds."""
    lowest: float
    highest: float
    """Of the rounds."""


@dataclass(slots=True)
class PackingReport:
    """What was found, as far as it went."""

    dataset: str
    documents: int
    tokens: int
    sequence_length: int
    device: str = ""
    parameters: int = 0
    rows: list[RowCounts] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    loading: list[Loading] = field(default_factory=list)
    training: list[Training] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped_by: int = 0
    """The signal that stopped it early; 0 if none."""


@dataclass(frozen=True, slots=True)
class _Contender:
    packing: str
    attention: str
    batches: Batches
    fill: float
    shorten: bool = False


def bench_packing(
    dataset: Dataset,
    options: PackingBenchOptions,
    advance: Advance = lambda stage, done, total: None,
    show: Callable[[PackingReport, str], None] = lambda report, section: None,
) -> PackingReport:
    """Measure what packing a dataset saves; `show` gets the name of each list that is complete.

    A signal ends it, and what was measured by then is reported.

    Raises:
        UserError: PyTorch is not there, or an option cannot be met.
    """
    require_torch()
    report = PackingReport(
        dataset.location, dataset.num_documents, dataset.num_tokens, options.sequence_length
    )
    try:
        with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
            _measure(dataset, options, Path(name), report, advance, show)
    except Interrupted as error:
        report.stopped_by = error.exit_code - 128
        report.notes.append("interrupted: what is missing was not measured")
    return report


def require_torch() -> None:
    """Raise an error if training steps cannot be measured.

    Raises:
        UserError: PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise UserError(
            "steps of a model need PyTorch",
            why="the package torch is not installed",
            hint=f"{install_command('torch')}; tokenmill pack --compare counts without it",
        )


def _measure(
    dataset: Dataset,
    options: PackingBenchOptions,
    folder: Path,
    report: PackingReport,
    advance: Advance,
    show: Callable[[PackingReport, str], None],
) -> None:
    length, rows = options.sequence_length, options.rows_per_batch
    plans = make_plans(dataset, folder, length, options.packings, options.ranks, advance)
    report.rows += row_counts(plans, rows)
    show(report, "rows")
    for name, planned in plans.items():
        found = waiting(dataset, name, planned, options.ranks, rows)
        report.waiting += [found] if found else []
    if len(report.waiting) < len(plans):
        report.notes.append(
            f"with some packing, an epoch has no step of {options.ranks} ranks of {rows} rows"
        )
    show(report, "waiting")
    report.loading += _loading(dataset, plans, rows * length)
    show(report, "loading")
    try:
        _train(dataset, plans, options, report, advance)
    finally:
        show(report, "training")


def _loading(dataset: Dataset, plans: dict[str, Planned], tokens: int) -> Iterator[Loading]:
    """Plans take turns; thread time is measured, so other processes do not count."""
    batches = {
        name: open_batches(dataset, planned.plan, tokens_per_batch=tokens, rank=0, world_size=1)
        for name, planned in plans.items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in plans}
    for turn in range(LOADING_TURNS + 1):
        for name, each in batches.items():
            speed = _load(each)
            if turn:  # the first compiles, and fills the page cache
                speeds[name].append(speed)
    for name, found in speeds.items():
        speed = statistics.median(found)
        yield Loading(name, speed, speed * plans[name].figures.fill)


def _load(batches: Batches) -> float:
    """Tokens per second."""
    tokens, step, started = 0, 0, time.thread_time()
    while (seconds := time.thread_time() - started) < LOADING_SECONDS:
        tokens += batches.batch(step % len(batches))["input_ids"].size
        step += 1
    return tokens / seconds


def _train(
    dataset: Dataset,
    plans: dict[str, Planned],
    options: PackingBenchOptions,
    report: PackingReport,
    advance: Advance,
) -> None:
    from tokenmill.report.packing.steps import Stepper

    stepper = Stepper(
        options.device, options.num_layers, options.hidden_size, options.sequence_length
    )
    try:
        report.device, report.parameters = str(stepper.device), stepper.num_parameters
        contenders = list(_contenders(dataset, plans, report.rows, options))
        for measured in _timed(stepper, contenders, options.seconds, advance):
            report.training.append(measured)
    finally:
        stepper.close()


def _timed(
    stepper: Stepper, contenders: Sequence[_Contender], seconds: float, advance: Advance
) -> Iterator[Training]:
    """Contenders take turns, one step each, until time is up. Each makes at least one.

    Raises:
        Interrupted: a signal came; contenders that had a step by then are yielded first.
    """
    from tokenmill.report.packing.steps import batch_of

    first = batch_of(contenders[-1].batches, 0)
    stepper.warm_up(first)
    _check_agreement(stepper, first)
    times: list[list[float]] = [[] for _ in contenders]
    speeds: list[list[float]] = [[] for _ in contenders]
    end, turn = time.monotonic() + seconds, 0
    stopped: Interrupted | None = None
    try:
        while turn == 0 or time.monotonic() < end:
            for number, contender in enumerate(contenders):
                if turn and time.monotonic() >= end:
                    break
                advance(f"steps, round {turn + 1}", number, len(contenders))
                batch = batch_of(contender.batches, turn)
                found = stepper.step(batch, contender.attention, shorten=contender.shorten)
                times[number].append(found.seconds)
                speeds[number].append(found.row_tokens * contender.fill / found.seconds)
            turn += 1
    except Interrupted as error:
        stopped = error
    for contender, own_times, own in zip(contenders, times, speeds, strict=True):
        if not own:
            continue
        ratios = [speed / base for speed, base in zip(own, speeds[0], strict=False)]
        yield Training(
            packing=contender.packing,
            attention=contender.attention,
            steps=len(own_times),
            seconds=statistics.median(own_times),
            learned_tokens_per_second=statistics.median(own),
            speed_up=statistics.median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
        )
    if stopped is not None:
        raise stopped


def _check_agreement(stepper: Stepper, batch: dict[str, object]) -> None:
    """Check that a mask and attention inside documents give the same result."""
    difference = stepper.largest_difference(batch)
    if difference > AGREEMENT.get(stepper.device.type, 1e-4):
        raise InternalError(f"logits inside documents differ from masked ones by {difference:.1e}")


def _contenders(
    dataset: Dataset,
    plans: dict[str, Planned],
    rows: Sequence[RowCounts],
    options: PackingBenchOptions,
) -> Iterator[_Contender]:
    from tokenmill.report.packing.steps import COLUMNS, DOCUMENTS, MASK, WHOLE_ROWS

    fills = {each.packing: 1 - each.padding for each in rows}
    for name, planned in plans.items():
        batches = open_batches(
            dataset,
            planned.plan,
            tokens_per_batch=options.rows_per_batch * options.sequence_length,
            rank=0,
            world_size=1,
            columns=COLUMNS,
            labels="next",
        )
        yield _Contender(name, WHOLE_ROWS, batches, fills[name])
        if name == ALONE:
            yield _Contender(LONGEST, WHOLE_ROWS, batches, fills[LONGEST], shorten=True)
            continue
        yield _Contender(name, MASK, batches, fills[name])
        yield _Contender(name, DOCUMENTS, batches, fills[name])
