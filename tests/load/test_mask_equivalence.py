"""Packed is the same as alone: in gradients, logits and losses, in our model and in others'."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from attention_kit import TinyTransformer, attention_inputs, grid_of
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from tokenmill.load.masks import (
    Bidirectional,
    Causal,
    Chunks,
    GlobalTokens,
    Grid,
    Mask,
    Prefix,
    RandomBlocks,
    Sinks,
    Window,
)
from tokenmill.load.masks.bias import alibi_bias
from tokenmill.load.masks.torch_forms import additive, alibi_score_mod, block_mask, sdpa_mask
from tokenmill.load.masks.varlen import position_ids

LENGTHS, PREFIXES, ROW_LENGTH = [9, 1, 14, 6], [4, 1, 5, 0], 32
MASKS: list[Mask] = [
    Causal(),
    Bidirectional(),
    Window(4),
    Window(3, dilation=2),
    Causal() & (Window(3) | Sinks(2)),
    Causal() | Prefix(),
    Causal() & Chunks(4),
    Window(2) | GlobalTokens((0,)),
    Causal() & (RandomBlocks(2, 2, seed=5) | Window(2)),
]
masks = pytest.mark.parametrize("mask", MASKS, ids=repr)
HEADS = 3


@pytest.fixture(scope="module")
def model() -> TinyTransformer:
    return TinyTransformer(heads=HEADS)


@pytest.fixture(scope="module")
def documents() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(32, (length,), generator=generator) for length in LENGTHS]


def packed(documents: list[Tensor], order: list[int]) -> tuple[Tensor, Grid]:
    """Documents in one row, and padding behind them; prefixes go with their documents."""
    ids = torch.cat([*(documents[i] for i in order), torch.zeros(ROW_LENGTH, dtype=torch.int64)])
    lengths, prefixes = ([values[i] for i in order] for values in (LENGTHS, PREFIXES))
    return ids[None, :ROW_LENGTH], grid_of([lengths], ROW_LENGTH, prefix_lengths=[*prefixes, 0])


def scores_of(mask: Mask, grid: Grid, *, alibi: bool = False) -> Tensor:
    scores = additive(mask, grid, torch.float64)
    return scores + torch.from_numpy(alibi_bias(grid, HEADS)) if alibi else scores


def positions_of(grid: Grid) -> Tensor:
    return torch.from_numpy(grid.segmentation.positions.astype(np.int64))


def logits_of(
    model: TinyTransformer, mask: Mask, row: tuple[Tensor, Grid], *, alibi: bool = False
) -> list[Tensor]:
    """Logits of each document of a row, (length, vocabulary)."""
    ids, grid = row
    with torch.no_grad():
        logits = model(ids, positions_of(grid), scores_of(mask, grid, alibi=alibi))
    return list(logits[0].split(grid.segmentation.lengths.tolist())[: len(LENGTHS)])


def alone(documents: list[Tensor], number: int) -> tuple[Tensor, Grid]:
    document = documents[number]
    grid = grid_of([[len(document)]], len(document), prefix_lengths=[PREFIXES[number]])
    return document[None], grid


@pytest.mark.parametrize("alibi", [False, True], ids=["positions", "ALiBi"])
@masks
def test_documents_have_the_logits_packed_that_they_have_alone(
    model: TinyTransformer, documents: list[Tensor], mask: Mask, alibi: bool
) -> None:
    together = logits_of(model, mask, packed(documents, [0, 1, 2, 3]), alibi=alibi)
    for number, logits in enumerate(together):
        row, grid = alone(documents, number)
        with torch.no_grad():
            own = model(row, positions_of(grid), scores_of(mask, grid, alibi=alibi))[0]
        assert (logits - own).abs().max() <= 1e-12


def test_without_the_mask_they_have_not(model: TinyTransformer, documents: list[Tensor]) -> None:
    """Positions that begin again are not enough: the test above can fail."""
    ids, grid = packed(documents, [0, 1, 2, 3])
    one_segment = scores_of(Causal(), grid_of([[ROW_LENGTH]], ROW_LENGTH))
    with torch.no_grad():
        leaking = model(ids, positions_of(grid), one_segment)[0]
    right = torch.cat(logits_of(model, Causal(), (ids, grid)))
    assert (leaking[9:30] - right[9:]).abs().max() > 1e-3


def test_cached_keys_give_the_outputs_of_the_last_tokens() -> None:
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, HEADS, 20, 8, dtype=torch.float64)
    rows = [[7, 9], [20]]
    for mask in (Causal(), Window(4), Causal() & (Window(3) | Sinks(1))):
        whole = scaled_dot_product_attention(q, k, v, sdpa_mask(mask, grid_of(rows, 20)))
        cached = sdpa_mask(mask, grid_of(rows, 20, num_queries=6))
        last = scaled_dot_product_attention(q[:, :, -6:], k, v, cached)
        assert torch.allclose(last, whole[:, :, -6:], rtol=0, atol=1e-12)


# FlexAttention.


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@masks
def test_flex_attention_computes_what_sdpa_computes(mask: Mask) -> None:
    for num_queries in (None, 20):
        grid = grid_of([[9, 20], [32]], 32, num_queries, prefix_lengths=[3, 9, 0, 30])
        q, k, v, scores = attention_inputs(mask, grid, HEADS)
        found = flex_attention(q, k, v, block_mask=block_mask(mask, grid, 16))
        expected = scaled_dot_product_attention(q, k, v, scores)
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_alibi_of_flex_attention_is_the_bias_of_sdpa() -> None:
    for num_queries in (None, 20):
        grid = grid_of([[9, 20], [32]], 32, num_queries)
        q, k, v, scores = attention_inputs(Causal(), grid, HEADS)
        bias = scores + torch.from_numpy(alibi_bias(grid, HEADS))
        found = flex_attention(
            q, k, v, alibi_score_mod(grid, HEADS), block_mask(Causal(), grid, 16)
        )
        assert torch.allclose(
            found, scaled_dot_product_attention(q, k, v, bias), rtol=0, atol=1e-12
        )


# Hugging Face.


Llama = Callable[[Tensor, dict[str, Tensor]], Tensor]


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def llama(request: pytest.FixtureRequest) -> Llama:
    """A Llama of random weights in float64: logits of ids, (length, vocabulary)."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        max_position_embeddings=64,
        attn_implementation=request.param,
    )
    torch.manual_seed(4)
    model = transformers.LlamaForCausalLM(config).double().eval()

    def run(ids: Tensor, arguments: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return model(input_ids=ids, use_cache=False, **arguments).logits[0]

    return run


def test_llama_keeps_documents_apart_by_position_ids(llama: Llama, documents: list[Tensor]) -> None:
    ids, grid = packed(documents, [0, 1, 2, 3])
    positions = torch.from_numpy(position_ids(Causal(), grid))
    together = llama(ids, {"position_ids": positions}).split([*LENGTHS, 2])
    for logits, document in zip(together, documents, strict=False):
        assert (logits - llama(document[None], {})).abs().max() <= 1e-6


@pytest.mark.parametrize("mask", [Causal(), Window(3), Causal() | Prefix()], ids=repr)
def test_llama_keeps_documents_apart_by_a_4d_mask(
    llama: Llama, documents: list[Tensor], mask: Mask
) -> None:
    def arguments(grid: Grid) -> dict[str, Tensor]:
        lowest = torch.finfo(torch.float64).min
        scores = additive(mask, grid, torch.float64, lowest)
        return {"attention_mask": scores, "position_ids": positions_of(grid)}

    ids, grid = packed(documents, [0, 1, 2, 3])
    together = llama(ids, arguments(grid)).split([*LENGTHS, 2])
    for number, logits in enumerate(together[: len(documents)]):
        row, own = alone(documents, number)
        assert (logits - llama(row, arguments(own))).abs().max() <= 1e-6
