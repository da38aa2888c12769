"""On a GPU: compiled kernels compute what dense masks say, and batches arrive whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from attention_kit import MASKS, attention_inputs, grid_of
from loading_kit import as_lists
from resume_kit import sharded
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

import tokenmill
from tokenmill import Dataset
from tokenmill.load.columns import COLUMNS, Batch
from tokenmill.load.masks import Bidirectional, Causal, Grid, Mask, Window
from tokenmill.load.masks.bias import alibi_bias, alibi_slopes
from tokenmill.load.masks.torch_forms import alibi_score_mod, block_mask
from tokenmill.load.masks.varlen import flash_varlen
from tokenmill.load.masks.windows import flash_window

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # of compilers, about themselves
]

HEADS, SIZE, ROW_LENGTH = 3, 64, 512
BATCHES = [[[300, 200], [12, 480]], [[1, 250, 13], [400]], [[260], [100] * 5]]
"""Lengths of documents in two rows of three batches."""
Attend = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def compiled_once() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield


def assert_equals_sdpa(attend: Attend, inputs: list[Tensor], scores: Tensor, within: float) -> None:
    """Outputs and the gradients of queries, keys and values, relative to the largest."""
    exact = [each.float().requires_grad_() for each in inputs]
    found = attend(*(each.requires_grad_() for each in inputs))
    expected = scaled_dot_product_attention(*exact, scores.float())
    back = torch.randn_like(expected)
    found.backward(back.to(found))
    expected.backward(back)
    gradients = [(ours.grad, theirs.grad) for ours, theirs in zip(inputs, exact, strict=True)]
    for ours, theirs in [(found, expected), *gradients]:
        assert (ours - theirs).abs().max() <= within * theirs.abs().max()


@pytest.mark.parametrize("exact", [True, False], ids=["float32", "bfloat16, cached, ALiBi"])
@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_flex_attention_is_compiled_once_and_computes_what_sdpa_computes(
    mask: Mask, exact: bool
) -> None:
    compiled = torch.compile(flex_attention)
    for rows in BATCHES:
        count = sum(len(row) + (sum(row) < ROW_LENGTH) for row in rows)
        fields = {"prefix_lengths": range(3, 3 + count), "tasks": range(count)}
        grid = grid_of(rows, ROW_LENGTH, None if exact else 256, **fields)
        dtype = torch.float32 if exact else torch.bfloat16
        *inputs, scores = attention_inputs(mask, grid, HEADS, SIZE, dtype, "cuda")
        given: dict[str, Any] = {"block_mask": block_mask(mask, grid, device="cuda")}
        if not exact:
            given["score_mod"] = alibi_score_mod(grid, HEADS, "cuda")
            scores = scores + torch.from_numpy(alibi_bias(grid, HEADS)).cuda()
        attend = lambda *inputs: compiled(*inputs, **given)  # noqa: B023, E731
        assert_equals_sdpa(attend, inputs, scores, 1e-4 if exact else 2e-2)


# Kernels that take boundaries: each gets a mask, `flash_varlen` of it, and joined rows.


def flash_2(mask: Mask, given: dict[str, Any], *inputs: Tensor) -> Tensor:
    return pytest.importorskip("flash_attn").flash_attn_varlen_func(*inputs, **given)


def flash_2_with_alibi(mask: Mask, given: dict[str, Any], *inputs: Tensor) -> Tensor:
    return flash_2(
        mask, {**given, "alibi_slopes": torch.tensor(alibi_slopes(HEADS)).cuda()}, *inputs
    )


def flash_4(mask: Mask, given: dict[str, Any], *inputs: Tensor) -> Tensor:
    return pytest.importorskip("flash_attn.cute").flash_attn_varlen_func(*inputs, **given)[0]


def of_torch(mask: Mask, given: dict[str, Any], *inputs: Tensor) -> Tensor:
    kernel = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    names = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    return kernel(*inputs, *(given[name] for name in names), window_size=flash_window(mask))


@pytest.mark.parametrize("kernel", [flash_2, flash_2_with_alibi, flash_4, of_torch])
@pytest.mark.parametrize("num_queries", [None, 300])
@pytest.mark.parametrize(
    "mask", [Causal(), Bidirectional(), Window(16), Window(16, both_sides=True)], ids=repr
)
def test_boundaries_say_what_the_mask_says(
    mask: Mask, num_queries: int | None, kernel: Attend
) -> None:
    for rows in BATCHES:
        grid = grid_of(rows, ROW_LENGTH, num_queries)
        given = {
            name: torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value
            for name, value in flash_varlen(mask, grid, num_segments=12).items()
        }

        def attend(*inputs: Tensor) -> Tensor:
            joined = (each.transpose(1, 2).flatten(0, 1) for each in inputs)
            found = kernel(mask, given, *joined)  # noqa: B023
            return found.view(len(rows), -1, HEADS, SIZE).transpose(1, 2)  # noqa: B023

        *inputs, scores = attention_inputs(mask, grid, HEADS, SIZE, torch.bfloat16, "cuda")
        if kernel is flash_2_with_alibi:
            scores = scores + torch.from_numpy(alibi_bias(grid, HEADS)).cuda()
        assert_equals_sdpa(attend, inputs, scores, 2e-2)


# Batches.


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sharded(tmp_path_factory.mktemp("gpu") / "corpus", per_shard=30)


EVERYTHING: dict[str, Any] = {"global_batch_size": 4, "columns": tuple(COLUMNS)}


def moved(batch: Batch) -> Batch:
    return {
        name: value.to("cuda", non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in batch.items()
    }


def contents(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    return [as_lists({**each, "segmentation": each["segmentation"].edges}) for each in batches]


@pytest.mark.parametrize(("prefetch", "workers"), [(0, None), (2, None), (2, 0), (2, 2)], ids=str)
def test_batches_come_from_pinned_memory_and_arrive_whole(
    prefetch: int, workers: int | None, dataset: Dataset
) -> None:
    expected = contents(dataset.batches("packed", **EVERYTHING))
    loader = dataset.loader("packed", prefetch=prefetch, **EVERYTHING)
    found = []
    for batch in loader if workers is None else loader.dataloader(workers, pin_memory=True):
        assert all(value.is_pinned() for value in batch.values() if isinstance(value, Tensor))
        found.append(moved(batch))
    assert contents(found) == expected
    assert loader.stats()["samples"] == 4 * len(expected)


def test_a_batch_on_a_gpu_has_parts_and_a_grid(dataset: Dataset) -> None:
    here = next(iter(dataset.loader("packed", **EVERYTHING)))
    there = moved(here)
    assert contents(tokenmill.micro_batches(there, 2)) == contents(tokenmill.micro_batches(here, 2))
    assert Grid.of_batch(there).keys.task.tolist() == Grid.of_batch(here).keys.task.tolist()
