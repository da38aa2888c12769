"""What a query sees: each rule, their combinations, and the tiles that they make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from attention_kit import MASKS, grid_of, grids
from hypothesis import given, settings
from torch.nn.attention.flex_attention import create_block_mask

from tokenmill.core.errors import UserError
from tokenmill.load.masks import (
    Bidirectional,
    Blocks,
    Causal,
    Chunks,
    GlobalTokens,
    Grid,
    Mask,
    Prefix,
    RandomBlocks,
    Sinks,
    Window,
    blocks,
    by_source,
)
from tokenmill.load.masks.bias import alibi_slopes, t5_buckets
from tokenmill.load.masks.blocks import find_tiles
from tokenmill.load.masks.forms import dense
from tokenmill.load.masks.torch_forms import block_mask, mask_mod

# Rules.


def test_random_blocks_draw_as_many_of_the_blocks_before_as_there_are() -> None:
    seen = dense(RandomBlocks(4, 3, seed=1) & Causal(), grid_of([[40]], 40))[0]
    by_blocks = seen.reshape(10, 4, 10, 4).any((1, 3)) & ~np.eye(10, dtype=np.bool_)
    assert by_blocks.sum(1).tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 3, 3]


def test_random_blocks_never_change() -> None:
    """As computed by an implementation of its own, in plain integers."""
    drawn = [[0], [0, 1], [0, 1, 2], [0, 1, 3], [2, 3, 4], [2, 3, 5], [2, 4, 6], [1, 4, 7]]
    seen = dense(RandomBlocks(1, 2, seed=1) & Causal(), grid_of([[8]], 8))[0]
    assert [np.flatnonzero(query).tolist() for query in seen] == drawn


def test_a_segment_that_grows_keeps_its_random_blocks() -> None:
    mask = Causal() & RandomBlocks(2, 2, seed=3)
    short, long = (dense(mask, grid_of([[size]], size))[0] for size in (20, 90))
    assert np.array_equal(short, long[:20, :20])


PLAIN: dict[type[Mask], Callable[..., bool]] = {
    Bidirectional: lambda mask, q, k: True,
    Causal: lambda mask, q, k: k <= q,
    Sinks: lambda mask, q, k: k < mask.count,
    Chunks: lambda mask, q, k: q // mask.size == k // mask.size,
    GlobalTokens: lambda mask, q, k: q in mask.positions or k in mask.positions,
    Blocks: lambda mask, q, k: (q // mask.size, k // mask.size) in mask.pairs,
}


def plain(mask: Mask, q: int, k: int) -> bool:
    """Whether a query sees a key of its segment, by the words of the definition."""
    if isinstance(mask, Window):
        visible = range(0, mask.size * mask.dilation, mask.dilation)
        return q - k in visible or (mask.both_sides and k - q in visible)
    return PLAIN[type(mask)](mask, q, k)


@pytest.mark.parametrize(
    "mask", [mask for mask in MASKS if isinstance(mask, Window) or type(mask) in PLAIN], ids=repr
)
@given(grid=grids(20))
@settings(max_examples=15, deadline=None)
def test_rules_are_what_their_words_say_for_any_rows(mask: Mask, grid: Grid) -> None:
    edges = grid.segmentation.edges.tolist()
    expected = np.zeros((grid.num_rows, grid.row_length, grid.row_length), np.bool_)
    for start, stop in pairwise(edges):
        row, first = divmod(start, grid.row_length)
        for q in range(stop - start):
            for k in range(stop - start):
                expected[row, first + q, first + k] = q == k or plain(mask, q, k)
    assert np.array_equal(dense(mask, grid), expected[:, grid.first_query :])


@pytest.mark.parametrize("mask", MASKS, ids=repr)
@given(grid=grids())
@settings(max_examples=10, deadline=None)
def test_every_query_sees_itself_and_nothing_outside_its_segment(mask: Mask, grid: Grid) -> None:
    seen, segments = dense(mask, grid), grid.keys.segment
    own = np.arange(grid.first_query, grid.row_length)
    assert seen[:, np.arange(len(own)), own].all()
    assert not (seen & (segments[:, grid.first_query :, None] != segments[:, None, :])).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Window(0),
        lambda: Window(2, dilation=0),
        lambda: Sinks(0),
        lambda: Chunks(0),
        lambda: GlobalTokens(()),
        lambda: GlobalTokens((-1,)),
        lambda: Blocks(0, ()),
        lambda: Blocks(1, ((0, -1),)),
        lambda: RandomBlocks(1, 0, 0),
    ],
)
def test_sizes_out_of_range_are_refused(make: Callable[[], Mask]) -> None:
    with pytest.raises(UserError, match="invalid mask"):
        make()


def test_a_grid_says_what_a_mask_lacks() -> None:
    with pytest.raises(UserError, match="needs prefix_lengths"):
        dense(Causal() | Prefix(), grid_of([[2]], 3))
    with pytest.raises(UserError, match="needs tasks"):
        find_tiles(by_source({0: Causal()}, Window(2)), grid_of([[2]], 3))
    with pytest.raises(UserError, match="prefix_lengths must have one value per segment"):
        grid_of([[2]], 3, prefix_lengths=[1])
    with pytest.raises(UserError, match="num_queries cannot be larger than a row"):
        grid_of([[2]], 3, num_queries=4)


@pytest.mark.parametrize(
    "imported",
    [
        "import tokenmill.load.masks; found = tokenmill.load.masks.forms",
        "from tokenmill.load.masks import forms as found",
        "import tokenmill.load.masks.forms; found = tokenmill.load.masks.forms",
        "from tokenmill import masks; found = masks.forms",
    ],
)
def test_masks_have_one_module_under_two_names(imported: str) -> None:
    same = "from tokenmill.load.masks import forms; assert found is forms"
    subprocess.run([sys.executable, "-c", f"{imported}; {same}"], check=True)


def test_masks_are_there_without_torch() -> None:
    code = "import sys, tokenmill.load.masks.varlen, tokenmill.load.masks.blocks; "
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


# Tiles.


def test_tiles_of_a_row() -> None:
    tiles = find_tiles(Causal(), grid_of([[8, 4]], 12), (4, 4))
    assert tiles.full[0].astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert tiles.partial[0].astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


FIELDS = [
    f"{full}{side}_{kind}"
    for full in ("", "full_")
    for side in ("kv", "q")
    for kind in ("num_blocks", "indices")
]


BLOCKS_OF_SOAK: list[tuple[int | None, int | tuple[int, int]]] = [
    *((130, 16), (None, 128), (None, (8, 32))),
]


def assert_is_what_torch_makes(mask: Mask, grid: Grid, block_size: int | tuple[int, int]) -> None:
    made = block_mask(mask, grid, block_size)
    num_queries = grid.row_length - grid.first_query
    expected = create_block_mask(
        mask_mod(mask, grid),
        grid.num_rows,
        None,
        num_queries,
        grid.row_length,
        device="cpu",
        BLOCK_SIZE=block_size,
    )
    assert made.seq_lengths == expected.seq_lengths
    assert made.BLOCK_SIZE == expected.BLOCK_SIZE
    for field in FIELDS:
        ours, theirs = getattr(made, field), getattr(expected, field)
        assert ours.dtype == theirs.dtype
        assert ours.stride() == theirs.stride()  # compiled kernels use those of axes of size 1
        assert torch.equal(ours, theirs), field


@pytest.mark.parametrize(
    ("num_queries", "block_size"),
    [
        *((None, 16), (130, 128), (130, (8, 32))),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in BLOCKS_OF_SOAK),
    ],
    ids=str,
)
@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_block_masks_are_what_create_block_mask_makes(
    mask: Mask, num_queries: int | None, block_size: int | tuple[int, int]
) -> None:
    """Rows of 300 tokens, no multiple of a block: long, short and many segments, and padding."""
    rows = [[300], [200, 60], [1, 15, 16, 17, 64, 128], []]
    count = 1 + 3 + 7 + 1
    prefix_lengths, tasks = [40, 0, 70, 3] * 3, [0, 1, 2] * 4
    grid = grid_of(
        rows,
        300,
        num_queries,
        prefix_lengths=prefix_lengths[:count],
        tasks=tasks[:count],
    )
    assert_is_what_torch_makes(mask, grid, block_size)


def test_nothing_of_a_long_causal_row_is_evaluated_element_by_element(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 131,072 tokens, 16,384 a tile: spans and corners decide all tiles."""
    asked: list[int] = []
    evaluated = blocks._Decider._tokens

    def counted(self, strips, chosen, offsets):  # type: ignore[no-untyped-def]
        asked.append(len(chosen) * offsets.size)
        return evaluated(self, strips, chosen, offsets)

    monkeypatch.setattr(blocks._Decider, "_tokens", counted)
    find_tiles(Causal(), grid_of([[100_000, 31_072]], 131_072))
    assert sum(asked) < 10_000


# Biases.


def test_alibi_slopes_halve_by_a_constant_factor_and_interleave_for_other_numbers() -> None:
    """The values of the paper's code, `get_slopes`."""
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    twelve = [*(2.0**-n for n in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    assert alibi_slopes(12).tolist() == pytest.approx(twelve, rel=1e-7)
    with pytest.raises(UserError, match="num_heads must be at least 1"):
        alibi_slopes(0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (64, 1000), (8, 20), (10, 9)])
def test_buckets_are_those_of_transformers(
    num_buckets: int, max_distance: int, bidirectional: bool
) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    relative = np.arange(-3000, 3000)
    theirs = t5.T5Attention._relative_position_bucket(
        torch.from_numpy(relative), bidirectional, num_buckets, max_distance
    )
    ours = t5_buckets(relative, num_buckets, max_distance, bidirectional=bidirectional)
    assert ours.tolist() == theirs.tolist()


def test_the_grid_of_a_batch_has_a_task_for_each_source() -> None:
    """Padding is of no task; task_ids say one for each row, whether as array or as tensor."""
    segmentation = grid_of([[2, 1], [4]], 4).segmentation
    batch = {"segmentation": segmentation, "task_ids": np.array([7, 5])}
    grid = Grid.of_batch(batch, num_queries=3)
    assert grid.segmentation is segmentation
    assert (grid.num_rows, grid.num_queries) == (2, 3)
    assert grid.keys.task.tolist() == [[7, 7, 7, -1], [5, 5, 5, 5]]
    tensors = Grid.of_batch({**batch, "task_ids": torch.tensor([7, 5])})
    assert tensors.keys.task.tolist() == grid.keys.task.tolist()
    alone = Grid.of_batch({"segmentation": segmentation}, prefix_lengths=np.array([1, 0, 0, 2]))
    assert alone.tasks is None
    assert alone.keys.prefix.tolist() == [[1, 1, 0, 0], [2] * 4]
    with pytest.raises(UserError, match="the batch has no column segmentation"):
        Grid.of_batch({"task_ids": batch["task_ids"]})
