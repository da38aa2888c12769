"""What packing saves: padding, attention, waiting ranks, and what loading costs.

Every strategy is given the same documents, and so are two ways without packing: one document a
row, padded to the sequence length or to the longest of its batch. All split long documents alike.

- rows: padding, cuts, and the keys that a token attends to: within its document, or in its whole
  row, which is what attention computes that knows no boundaries;
- ranks: the attention cost of the rank that has the most over the mean, for every step of an epoch,
  where rows are dealt in their order and where they are dealt evenly;
- attention: scaled_dot_product_attention, forward, on random rows of some plans;
- loader: tokens a second of whole epochs in a bare loop, in this process, warm page cache.

The first two are counted, the others timed. Time is that of one thread, which stands still while
others have the core; contenders take turns, and the median is reported. Without --dataset, the
documents are Python's standard library, as in `make demo`.

    python bench/efficiency.py
    python bench/efficiency.py --dataset CORPUS --sequence-lengths 4096
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import measure
import tokenmill
from tokenmill.pack.figures import Figures
from tokenmill.pack.options import Packing

ALONE = "one document a row"
LONGEST = "the same, as long as the batch needs"
TIMED_ATTENTION = (ALONE, "best-fit", "concat-and-chunk", "length-buckets")
PACKAGES = ("tokenmill", "numpy", "numba", "torch")


@dataclass(frozen=True)
class Planned:
    """A plan with what is counted of its sequences."""

    plan: tokenmill.Plan
    figures: Figures
    costs: np.ndarray
    """Shape (num_sequences,): sum of squared segment lengths."""
    sizes: np.ndarray
    """Shape (num_sequences,): tokens that are not padding."""

    @property
    def length(self) -> int:
        return self.plan.rows.length

    @property
    def row_tokens(self) -> np.ndarray:
        """Shape (num_sequences,): tokens of each row, padding included."""
        return self.plan.rows.row_lengths_of(self.sizes)

    def segments(self, sequence: int) -> list[int]:
        """Lengths of the segments of a sequence."""
        first, stop = self.plan.offsets[sequence], self.plan.offsets[sequence + 1]
        return self.plan.lengths[first:stop].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, help="default: Python's standard library")
    parser.add_argument("--sequence-lengths", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rows-per-rank", type=int, default=4)
    parser.add_argument("--attention-tokens", type=int, default=1 << 16, help="that are timed")
    parser.add_argument("--heads", type=int, default=2, help="of 64 channels each")
    parser.add_argument("--epoch-tokens", type=float, default=1e8, help="of a loader's run")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(measure.machine(), measure.versions(PACKAGES))
    with tempfile.TemporaryDirectory() as work:
        dataset = tokenmill.open(options.dataset or library_dataset(Path(work)))
        print(f"\n{dataset.num_documents:,} documents, {dataset.num_tokens:,} tokens")
        for length in options.sequence_lengths:
            print(f"\n# Sequences of {length:,}")
            plans = make_plans(dataset, Path(work), length, options.ranks)
            print_rows(plans, options)
            print_ranks(dataset, plans, options)
            print_attention(plans, options)
            print_loader(dataset, plans, options)


def library_dataset(work: Path) -> Path:
    """The dataset of `make demo`."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from demo.demo import train_tokenizer, write_corpus

    paths = write_corpus(work / "data")
    train_tokenizer(work / "tokenizer.json")
    tokenmill.build(paths, work / "tokenizer.json", work / "corpus")
    return work / "corpus"


def make_plans(
    dataset: tokenmill.Dataset, work: Path, length: int, ranks: int
) -> dict[str, Planned]:
    """A plan of every strategy, and one whose rows hold one document each."""
    plans = {}
    asked = {ALONE: {"packing": "best-fit", "max_segments": 1}}
    asked |= {packing: {"packing": packing} for packing in get_args(Packing)}
    for number, (name, more) in enumerate(asked.items()):
        report = tokenmill.make_plan(
            dataset,
            folder=work / f"plan-{length}-{number}",
            sequence_length=length,
            ranks=ranks,
            **more,
        )
        lengths, firsts = np.asarray(report.plan.lengths, np.int64), report.plan.offsets[:-1]
        costs, sizes = np.add.reduceat(lengths**2, firsts), np.add.reduceat(lengths, firsts)
        plans[name] = Planned(report.plan, report.figures, costs, sizes)
    return plans


def longest_of_batches(sizes: np.ndarray, rows: int) -> np.ndarray:
    """Shape (num_rows,): tokens of each row where shuffled batches are as long as they need be."""
    shuffled = np.random.default_rng(0).permutation(sizes)
    firsts = np.arange(0, len(shuffled), rows)
    longest = np.maximum.reduceat(shuffled, firsts)
    return np.repeat(longest, np.diff([*firsts, len(shuffled)]))


def print_rows(plans: dict[str, Planned], options: argparse.Namespace) -> None:
    rows = []
    for name, planned in plans.items():
        figures, lengths = planned.figures, planned.row_tokens
        assert lengths.sum() == figures.row_tokens
        rows.append(row_of(name, figures, lengths))
        if name == ALONE:
            lengths = longest_of_batches(planned.sizes, options.rows_per_rank)
            rows.append(row_of(LONGEST, figures, lengths))
    header = ["packing", "rows", "padding", "documents cut", "avoidable cuts"]
    header += ["keys a token, in documents", "in whole rows"]
    print("\n## Rows\n")
    print(measure.table(header, rows), flush=True)


def row_of(name: str, figures: Figures, row_tokens: np.ndarray) -> list[str]:
    """A token attends to the keys before it: on average, half of its document or of its row."""
    tokens = figures.tokens_in_sequences
    return [
        name,
        f"{len(row_tokens):,}",
        f"{1 - tokens / row_tokens.sum():.2%}",
        f"{figures.documents_cut:,}",
        f"{figures.avoidable_cuts:,}",
        f"{figures.attention_cost / 2 / tokens:,.0f}",
        f"{(row_tokens**2).sum() / 2 / tokens:,.0f}",
    ]


def print_attention(plans: dict[str, Planned], options: argparse.Namespace) -> None:
    contenders: dict[str, Callable[[], dict[str, float]]] = {}
    counted: dict[str, float] = {}
    for name in TIMED_ATTENTION:
        planned = plans[name]
        order = np.random.default_rng(0).permutation(len(planned.plan))
        before = np.cumsum(planned.row_tokens[order]) - planned.row_tokens[order]
        chosen = order[before < options.attention_tokens].tolist()
        sample = [
            tokenmill.Segmentation.of_lengths(
                [planned.segments(sequence)], int(planned.row_tokens[sequence])
            )
            for sequence in chosen
        ]
        check_forms(sample[0], options.heads)
        tokens = int(planned.sizes[chosen].sum())
        within = sum(int((each.lengths.astype(np.int64) ** 2).sum()) for each in sample)
        counted[name] = sum(each.row_length**2 for each in sample) / within
        contenders[name] = functools.partial(timed_attention, sample, tokens, options.heads)
    rows = []
    for name, runs in measure.interleave(contenders, options.rounds).items():
        micros = {form: [run[form] for run in runs] for form in FORMS}
        ratios = [run["whole rows"] / run["documents"] for run in runs]
        rows.append(
            [
                name,
                *(f"{statistics.median(group):.2f}" for group in micros.values()),
                f"{statistics.median(ratios):.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{counted[name]:.2f}",
            ]
        )
    print(f"\n## Attention: microseconds a token, {options.heads} heads of 64, forward\n")
    header = ["packing", "within documents", "mask over rows", "whole rows", "whole / within"]
    print(measure.table([*header, "in the rounds", "as counted"], rows), flush=True)


def timed_attention(
    sample: Sequence[tokenmill.Segmentation], tokens: int, heads: int
) -> dict[str, float]:
    """Microseconds a token of each form; forms take turns row by row."""
    seconds = dict.fromkeys(FORMS, 0.0)
    for segmentation in sample:
        qkv = random_row(segmentation.row_length, heads)
        for form, function in FORMS.items():
            started = time.thread_time()
            function(qkv, segmentation)
            seconds[form] += time.thread_time() - started
    return {form: value / tokens * 1e6 for form, value in seconds.items()}


def random_row(length: int, heads: int) -> torch.Tensor:
    return torch.randn(3, 1, heads, length, 64)


def by_segment(qkv: torch.Tensor, segmentation: tokenmill.Segmentation) -> list[torch.Tensor]:
    """One call a segment, padding included: the work of a kernel that takes cu_seqlens."""
    parts = qkv.split(segmentation.lengths.tolist(), dim=3)
    return [scaled_dot_product_attention(*part, is_causal=True) for part in parts]


def with_mask(qkv: torch.Tensor, segmentation: tokenmill.Segmentation) -> torch.Tensor:
    """A mask of row length squared: the same result, and everything is computed."""
    ids = torch.from_numpy(segmentation.ids)
    mask = (ids[:, :, None] == ids[:, None, :]).tril()[:, None]
    return scaled_dot_product_attention(*qkv, attn_mask=mask)


def over_whole_rows(qkv: torch.Tensor, _segmentation: tokenmill.Segmentation) -> torch.Tensor:
    """Causal over the row, as if it were one document: another result where there are several."""
    return scaled_dot_product_attention(*qkv, is_causal=True)


FORMS = {"documents": by_segment, "mask": with_mask, "whole rows": over_whole_rows}


def check_forms(segmentation: tokenmill.Segmentation, heads: int) -> None:
    qkv = random_row(segmentation.row_length, heads)
    seen = torch.cat(by_segment(qkv, segmentation), dim=2)
    torch.testing.assert_close(seen, with_mask(qkv, segmentation))


def print_ranks(
    dataset: tokenmill.Dataset, plans: dict[str, Planned], options: argparse.Namespace
) -> None:
    rows = []
    for name, planned in plans.items():
        cells = []
        for even in (False, True):
            ratios = imbalances(dataset, planned, options, even=even)
            cells += [f"{statistics.mean(ratios):.3f}", f"{max(ratios):.3f}"]
        rows.append([name, *cells])
    size = f"{options.ranks} ranks of {options.rows_per_rank} rows"
    print(f"\n## Ranks: most attention cost over the mean, {size}\n")
    header = ["packing", "in order: mean of steps", "worst", "evenly: mean of steps", "worst"]
    print(measure.table(header, rows), flush=True)


def imbalances(
    dataset: tokenmill.Dataset, planned: Planned, options: argparse.Namespace, *, even: bool
) -> list[float]:
    """For each step of an epoch: greatest attention cost of a rank over the mean."""
    batches = dataset.batches(
        planned.plan,
        tokens_per_batch=options.rows_per_rank * planned.length,
        world_size=options.ranks,
        even_attention=even,
    )
    ratios = []
    for step in range(len(batches)):
        whole, rows_of_ranks = batches.rows_of_ranks(step)
        sums = planned.costs[whole.sequences][rows_of_ranks].sum(axis=1)
        ratios.append(float(sums.max() / sums.mean()))
    return ratios


def print_loader(
    dataset: tokenmill.Dataset, plans: dict[str, Planned], options: argparse.Namespace
) -> None:
    epochs = max(1, round(options.epoch_tokens / dataset.num_tokens))
    contenders = {
        # As many rows as `balanced` keeps together.
        name: functools.partial(
            timed_epochs, dataset, planned.plan, options.ranks * planned.length, epochs
        )
        for name, planned in plans.items()
    }
    for contender in contenders.values():
        contender()  # compiles, and fills the page cache
    runs = measure.interleave(contenders, options.rounds)
    rows = []
    for name, group in runs.items():
        speed = statistics.median(group)
        rows.append([name, f"{speed / 1e6:.0f}", f"{speed * plans[name].figures.fill / 1e6:.0f}"])
    print(f"\n## Loader: millions of tokens a second of one thread, {epochs} epochs\n")
    header = ["packing", "with padding", "without"]
    print(measure.table(header, rows), flush=True)


def timed_epochs(dataset: tokenmill.Dataset, plan: tokenmill.Plan, size: int, epochs: int) -> float:
    """Tokens a second, padding included."""
    loader = dataset.loader(plan, tokens_per_batch=size, epochs=epochs)
    started = time.thread_time()
    tokens = sum(batch["input_ids"].numel() for batch in loader)
    return tokens / (time.thread_time() - started)


if __name__ == "__main__":
    main()
