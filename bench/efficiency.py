"""Measure what packing a dataset saves: in rows, ranks that wait, loading, and training steps.

Rows of one document each are compared with the rows of each packing. Four tables are printed, each
as soon as it is complete:

- rows: padding, cuts, and how many keys a token attends to on average, if attention stays inside
  documents or covers whole rows, those of padding shared among the tokens;
- waiting: attention cost of the busiest rank over the mean of all, by step of an epoch, with rows
  dealt to ranks in order and evenly;
- loading: tokens a second of one thread, as NumPy arrays from the page cache;
- training: steps of a small transformer on one thread or a GPU, with attention over whole rows (as
  if a row were one document), with a mask, and inside documents; on a GPU also with compiled
  FlexAttention. All but the first must agree.

These commands make the tables of docs/explanation/efficiency.md, on the dataset of the demo:

    python bench/efficiency.py --packing all
    python bench/efficiency.py --packing all --sequence-length 8192

It needs PyTorch. For your own dataset:

    python bench/efficiency.py corpus/ --device cuda --layers 12 --hidden-size 768 --seconds 120

On a GPU the time of a step includes making its mask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

import measure
import tokenmill
from tokenmill.load.batches import Batches
from tokenmill.load.masks import Causal, Grid
from tokenmill.load.masks.torch_forms import block_mask
from tokenmill.load.masks.varlen import of_position_ids
from tokenmill.packing.options import Packing
from tokenmill.packing.planning import PlanReport

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before PyTorch 2.10
    varlen_attn = None

PACKAGES = ("tokenmill", "numpy", "numba", "torch")
ALONE, LONGEST = "one document a row", "the same, as long as the batch needs"
WHOLE_ROWS, MASK, DOCUMENTS = "over whole rows", "mask over rows", "inside documents"
FLEX = "FlexAttention"
COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids")
"""Columns of a batch that a step needs, each of shape (rows, length)."""
LOADING_SECONDS, LOADING_TURNS = 0.3, 3
VOCABULARY, HEAD_SIZE, LEARNING_RATE, IGNORED = 1024, 64, 1e-4, -100
AGREEMENT = {"cpu": 1e-4, "cuda": 0.02}
"""How far logits with a mask and inside documents may be apart: in float32, and in bfloat16."""

Figures = dict[str, Any]
"""A line of a table."""
Batch = dict[str, np.ndarray]
Attend = Callable[[Tensor], Tensor]
"""From queries, keys and values, shape (3, rows, heads, length, 64), to the result of each head."""


@dataclass(frozen=True)
class Planned:
    """A plan and the counts of its sequences."""

    report: PlanReport
    costs: np.ndarray
    """Sum of squared segment lengths of each sequence."""
    sizes: np.ndarray
    """Tokens of each sequence that are not padding."""


@dataclass
class Contender:
    """A packing with a kind of attention, and the steps it made."""

    packing: str
    attention: str
    batches: Batches
    fill: float
    """Share of the rows' tokens that are not padding, over the whole plan."""
    shorten: bool = False
    seconds: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    """Tokens a second that are not padding."""


def make_plans(
    dataset: tokenmill.Dataset, folder: Path, packings: Sequence[str], **options: int
) -> dict[str, Planned]:
    """Plans by name: rows of one document each come first, then every packing."""
    asked: dict[str, Any] = {ALONE: {"max_segments": 1}}
    asked |= {name: {"packing": name} for name in packings}
    plans = {}
    for number, (name, own) in enumerate(asked.items()):
        report = tokenmill.pack(dataset, folder=folder / f"plan-{number}", **own, **options)
        lengths = np.asarray(report.plan.lengths, np.int64)
        firsts = report.plan.offsets[:-1]
        costs, sizes = np.add.reduceat(lengths**2, firsts), np.add.reduceat(lengths, firsts)
        plans[name] = Planned(report, costs, sizes)
    return plans


def count_rows(plans: dict[str, Planned], rows_per_batch: int) -> Iterator[Figures]:
    """Counts of each plan, and of documents alone in batches no longer than their longest row."""
    for name, planned in plans.items():
        row_tokens = planned.report.plan.rows.row_lengths_of(planned.sizes)
        yield _counts(name, planned, row_tokens)
        if name == ALONE:
            yield _counts(LONGEST, planned, _longest_rows(planned.sizes, rows_per_batch))


def _longest_rows(sizes: np.ndarray, rows: int) -> np.ndarray:
    """Tokens of each row, if batches are as long as their longest row."""
    shuffled = np.random.default_rng(0).permutation(sizes)
    firsts = np.arange(0, len(shuffled), rows)
    longest = np.maximum.reduceat(shuffled, firsts)
    return np.repeat(longest, np.diff([*firsts, len(shuffled)]))


def _counts(name: str, planned: Planned, row_tokens: np.ndarray) -> Figures:
    """The first token of a document attends to itself, the last to all before it."""
    figures = planned.report.figures
    tokens = figures.tokens_in_sequences
    return {
        "packing": name,
        "rows": len(row_tokens),
        "padding": 1 - tokens / int(row_tokens.sum()),
        "documents_cut": figures.documents_cut,
        "avoidable_cuts": figures.avoidable_cuts,
        "keys_in_documents": figures.attention_cost / 2 / tokens,
        "keys_in_rows": int((row_tokens**2).sum()) / 2 / tokens,
    }


def count_waiting(
    dataset: tokenmill.Dataset, plans: dict[str, Planned], ranks: int, rows: int
) -> Iterator[Figures]:
    """How uneven steps are; nothing for a plan whose epoch has no complete step."""
    for name, planned in plans.items():
        plan, found = planned.report.plan, {"packing": name}
        for dealt in ("in_order", "evenly"):
            batches = dataset.batches(
                plan,
                tokens_per_batch=rows * plan.rows.length,
                rank=0,
                world_size=ranks,
                even_attention=dealt == "evenly",
            )
            ratios = []
            for step in range(len(batches)):
                whole, rows_of_ranks = batches.rows_of_ranks(step)
                sums = planned.costs[whole.sequences][rows_of_ranks].sum(axis=1)
                ratios.append(float(sums.max() / sums.mean()))
            if ratios:
                found |= {f"{dealt}_mean": statistics.mean(ratios), f"{dealt}_worst": max(ratios)}
        if len(found) > 1:
            yield found


def time_loading(
    dataset: tokenmill.Dataset, plans: dict[str, Planned], tokens: int
) -> Iterator[Figures]:
    """Plans take turns; thread time is measured, so other processes do not count."""
    batches = {
        name: dataset.batches(planned.report.plan, tokens_per_batch=tokens)
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
        learned = speed * plans[name].report.figures.fill
        yield {"packing": name, "tokens_per_second": speed, "learned_tokens_per_second": learned}


def _load(batches: Batches) -> float:
    """Tokens per second, padding included."""
    tokens, step, started = 0, 0, time.thread_time()
    while (seconds := time.thread_time() - started) < LOADING_SECONDS:
        tokens += batches.batch(step % len(batches))["input_ids"].size
        step += 1
    return tokens / seconds


def contenders_of(
    dataset: tokenmill.Dataset,
    plans: dict[str, Planned],
    rows: list[Figures],
    tokens: int,
    attentions: Sequence[str],
) -> Iterator[Contender]:
    fills = {each["packing"]: 1 - each["padding"] for each in rows}
    for name, planned in plans.items():
        batches = dataset.batches(
            planned.report.plan, tokens_per_batch=tokens, columns=COLUMNS, labels="next"
        )
        yield Contender(name, attentions[0], batches, fills[name])
        if name == ALONE:
            yield Contender(LONGEST, attentions[0], batches, fills[LONGEST], shorten=True)
            continue
        for attention in attentions[1:]:
            yield Contender(name, attention, batches, fills[name])


def time_training(
    trainer: Trainer, contenders: list[Contender], seconds: float
) -> Iterator[Figures]:
    """Contenders take turns, one step each. No round begins after so many seconds, but the first.

    Raises:
        AssertionError: a mask and attention inside documents give different logits.
    """
    batch = contenders[-1].batches.batch(0)
    for attention in trainer.attentions:  # a step that loads and compiles, short on a processor
        width = batch["input_ids"].shape[1] if FLEX in trainer.attentions else 64
        trainer.step({name: batch[name][:, :width] for name in COLUMNS}, attention)
    difference = trainer.largest_difference(batch)
    if difference > AGREEMENT[trainer.device.type]:
        raise AssertionError(f"logits inside documents differ from masked ones by {difference:.1e}")
    end, turn = time.monotonic() + seconds, 0
    while turn == 0 or time.monotonic() < end:
        print(f"training steps, round {turn + 1}", file=sys.stderr)
        for contender in contenders:
            batch = contender.batches.batch(turn % len(contender.batches))
            took, row_tokens = trainer.step(batch, contender.attention, shorten=contender.shorten)
            contender.seconds.append(took)
            contender.speeds.append(row_tokens * contender.fill / took)
        turn += 1
    for contender in contenders:
        pairs = zip(contender.speeds, contenders[0].speeds, strict=True)
        ratios = [speed / alone for speed, alone in pairs]
        yield {
            "packing": contender.packing,
            "attention": contender.attention,
            "steps": turn,
            "seconds": statistics.median(contender.seconds),
            "learned_tokens_per_second": statistics.median(contender.speeds),
            "speed_up": statistics.median(ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
        }


class Trainer:
    """A model with its optimizer.

    Ids are taken modulo a small vocabulary, so that the output matrix does not hide what packing
    does to the rest.
    """

    def __init__(self, device: str, num_layers: int, hidden_size: int, length: int) -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self.attentions = [WHOLE_ROWS, MASK, DOCUMENTS, *([FLEX] if device == "cuda" else [])]
        self._flex = torch.compile(flex_attention, dynamic=False)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._model = Model(num_layers, hidden_size, length).to(self.device)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATE)
        self.num_parameters = sum(each.numel() for each in self._model.parameters())

    def step(self, batch: Batch, attention: str, *, shorten: bool = False) -> tuple[float, int]:
        """Forward, backward and update; `shorten` cuts rows to the longest of the batch.

        Returns:
            Seconds, and tokens of the rows with their padding.
        """
        if shorten:
            longest = int((batch["segment_ids"] >= 0).sum(axis=1).max())
            batch = {name: batch[name][:, :longest] for name in COLUMNS}
        ids, labels, positions = self._tensors(batch)
        started = self._now()
        attend = self._attend(batch, attention)
        with self._precision():
            logits = self._model(ids, positions, attend)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return self._now() - started, ids.numel()

    def largest_difference(self, batch: Batch) -> float:
        """Between the logits with a mask and those of the others, by the largest logit."""
        ids, _, positions = self._tensors(batch)
        found = []
        with torch.no_grad(), self._precision():
            for attention in self.attentions[1:]:
                attend = self._attend(batch, attention)
                found.append(self._model(ids, positions, attend).float())
        real = torch.from_numpy(batch["segment_ids"] >= 0).to(self.device)
        first, *others = (each[real] for each in found)
        return max(float((first - each).abs().max() / first.abs().max()) for each in others)

    def _tensors(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        ids, labels, positions = (
            torch.from_numpy(np.ascontiguousarray(batch[name], np.int64)).to(self.device)
            for name in ("input_ids", "labels", "position_ids")
        )
        labels = torch.where(labels == IGNORED, labels, labels % VOCABULARY)
        return ids % VOCABULARY, labels, positions

    def _attend(self, batch: Batch, attention: str) -> Attend:
        segment_ids = batch["segment_ids"]
        if attention == WHOLE_ROWS:
            return causal
        if attention == FLEX:
            grid = Grid(of_position_ids(batch["position_ids"]))
            block = block_mask(Causal(), grid, device=self.device)
            return lambda qkv: self._flex(qkv[0], qkv[1], qkv[2], block_mask=block)
        if attention == MASK:
            ids = torch.from_numpy(np.ascontiguousarray(segment_ids)).to(self.device)
            mask = (ids[:, :, None] == ids[:, None, :]).tril()[:, None]
            return lambda qkv: scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=mask)
        lengths = list(segment_lengths(segment_ids))
        if self.device.type == "cuda" and varlen_attn is not None:
            return all_segments(lengths, self.device)
        return lambda qkv: each_segment(qkv, lengths)

    def _precision(self) -> Any:
        on_gpu = self.device.type == "cuda"
        return torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()

    def _now(self) -> float:
        """On a GPU the time on the wall, when it has done all; else that of the processor.

        One thread is at work on a processor, and its time stops while others have the core.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.process_time()


def segment_lengths(segment_ids: np.ndarray) -> Iterator[int]:
    """Lengths of the segments of all rows; padding is a segment, too."""
    for row in segment_ids:
        edges = np.flatnonzero(np.diff(row)) + 1
        yield from np.diff([0, *edges, len(row)]).tolist()


def causal(qkv: Tensor) -> Tensor:
    return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)


def each_segment(qkv: Tensor, lengths: list[int]) -> Tensor:
    """One call for each segment: the work of a kernel that takes `cu_seqlens`."""
    rows, length = qkv.shape[1], qkv.shape[3]
    flat = qkv.transpose(1, 2).flatten(2, 3)  # three, heads, all tokens, 64
    parts = [causal(part[:, None])[0] for part in torch.split(flat, lengths, dim=2)]
    joined = torch.cat(parts, dim=1)  # heads, all tokens, 64
    return joined.reshape(len(joined), rows, length, HEAD_SIZE).transpose(0, 1)


def all_segments(lengths: list[int], device: torch.device) -> Attend:
    """One call of PyTorch's own kernel for segments of several lengths."""
    edges = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device)
    longest = max(lengths)

    def attend(qkv: Tensor) -> Tensor:
        rows, length = qkv.shape[1], qkv.shape[3]
        queries, keys, values = qkv.transpose(2, 3).flatten(1, 2).to(torch.bfloat16)
        found = varlen_attn(
            queries, keys, values, edges, edges, longest, longest, window_size=(-1, 0)
        )
        return found.reshape(rows, length, -1, HEAD_SIZE).transpose(1, 2)

    return attend


class Block(nn.Module):
    """Pre-norm attention, and a feed-forward block of four times the hidden size."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, hidden_size, bias=False)
        self.up = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.down = nn.Linear(4 * hidden_size, hidden_size, bias=False)

    def forward(self, states: Tensor, attend: Attend) -> Tensor:
        rows, length, _ = states.shape
        qkv = self.qkv(self.before(states)).reshape(rows, length, 3, -1, HEAD_SIZE)
        heads = attend(qkv.permute(2, 0, 3, 1, 4))
        states = states + self.out(heads.transpose(1, 2).flatten(2))
        return states + self.down(gelu(self.up(self.between(states))))


class Model(nn.Module):
    """A small transformer with learned positions, which begin again in each document."""

    def __init__(self, num_layers: int, hidden_size: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, hidden_size)
        self.positions = nn.Embedding(length, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        states = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            states = block(states, attend)
        return self.norm(states) @ self.tokens.weight.T


def library_dataset(work: Path) -> Path:
    """The dataset of `make demo`."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from demo.demo import train_tokenizer, write_corpus

    paths = write_corpus(work / "data")
    train_tokenizer(work / "tokenizer.json")
    tokenmill.build(paths, work / "tokenizer.json", work / "corpus")
    return work / "corpus"


def cell(name: str, value: Any) -> str:
    """A figure as it is printed."""
    if isinstance(value, str):
        return value
    if name == "padding":
        return f"{value:.2%}"
    return f"{value:.3f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dataset", nargs="?", help="default: that of the demo, built on the spot")
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--packing", default="concat-and-chunk,best-fit", help="names, or all")
    parser.add_argument("--rows", type=int, default=2, help="of a step, and of each rank")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden-size", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=50, help="for all training steps")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, at the end")
    options = parser.parse_args()
    if options.hidden_size % HEAD_SIZE:
        parser.error(f"--hidden-size must be a multiple of {HEAD_SIZE}")
    print(measure.machine(), measure.versions(PACKAGES), file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        dataset = tokenmill.open(options.dataset or library_dataset(Path(folder)))
        report = {}
        for title, found in measured(dataset, options, Path(folder)):
            report[title] = found
            if found and not options.json:
                cells = [[cell(*figure) for figure in row.items()] for row in found]
                header = [name.replace("_", " ") for name in found[0]]
                print(f"\n## {title}\n\n{measure.table(header, cells)}", flush=True)
    if options.json:
        print(json.dumps(report, indent=1))


def measured(
    dataset: tokenmill.Dataset, options: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, list[Figures]]]:
    """Titles and lines of the tables."""
    length, rows = options.sequence_length, options.rows
    trainer = Trainer(options.device, options.layers, options.hidden_size, length)
    about = {"documents": dataset.num_documents, "tokens": dataset.num_tokens}
    about |= {"sequence_length": length, "parameters": trainer.num_parameters}
    yield "dataset and model", [about | {"device": trainer.device.type}]
    names = get_args(Packing) if options.packing == "all" else options.packing.split(",")
    plans = make_plans(dataset, folder, names, sequence_length=length, ranks=options.ranks)
    counted = list(count_rows(plans, rows))
    yield "rows", counted
    yield "waiting", list(count_waiting(dataset, plans, options.ranks, rows))
    yield "loading", list(time_loading(dataset, plans, rows * length))
    contenders = list(contenders_of(dataset, plans, counted, rows * length, trainer.attentions))
    yield "training", list(time_training(trainer, contenders, options.seconds))


if __name__ == "__main__":
    main()
