"""The dataloader for torchtitan: built, run, checkpointed and resumed as its trainer does it.

Where torchtitan is not installed, a stand-in checks what its configuration asks of a dataloader.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from loading_kit import digits, plan_of
from resume_kit import sharded
from titan_kit import IS_INSTALLED, TokenmillDataLoader

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.load.steps.mixture import MixtureSource

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.distributed.checkpoint")

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning:torch")]
if IS_INSTALLED:
    pytestmark.append(pytest.mark.cluster)  # which `make cluster` does

SEQ_LEN, GLOBAL_BATCH, STEPS, STOP = 16, 16, 9, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded(tmp_path_factory.mktemp("titan") / "corpus", per_shard=40).folder


def config(folder: Path, **options: Any) -> Any:
    options = {"plan": "packed", "global_batch_size": GLOBAL_BATCH, **options}
    return TokenmillDataLoader.Config(dataset_path=str(folder), **options)


def build(config: Any, rank: int = 0, ranks: int = 1, local: int = 2, **more: Any) -> Any:
    """As `Trainer` of torchtitan 0.3.0."""
    runtime = {"tokenizer": None, "seq_len": SEQ_LEN, "snapshot_every_n_steps": 10, **more}
    return config.build(dp_world_size=ranks, dp_rank=rank, local_batch_size=local, **runtime)


def steps_of(loaders: Sequence[Any], local: int = 2) -> Iterator[str]:
    """The digest of the rows of each step of the optimizer, over all ranks and in any order."""
    accumulated = GLOBAL_BATCH // (len(loaders) * local)
    iterators = [iter(loader) for loader in loaders]
    while True:
        rows = []
        for each in iterators:
            for inputs, labels in islice(each, accumulated):
                arrays = (inputs["input"], inputs["positions"], labels)
                assert {(array.shape, array.dtype) for array in arrays} == {
                    ((local, SEQ_LEN), torch.int64)
                }
                rows += [row.numpy().tobytes() for row in torch.stack(arrays, 1)]
        if not rows:
            return
        yield hashlib.sha256(b"".join(sorted(rows))).hexdigest()


def on_ranks(config: Any, ranks: int, local: int = 2) -> list[Any]:
    return [build(config, rank, ranks, local) for rank in range(ranks)]


def test_a_batch_is_inputs_with_positions_and_the_next_tokens(tmp_path: Path) -> None:
    dataset = digits(tmp_path, ["789", "3425"])
    rows = [[(0, 0, 4), (1, 0, 2)], [(1, 2, 3)]]
    plan_of(dataset.folder / "plans/p", dataset, rows, sequence_length=7)
    loader = build(config(dataset.folder, plan=None, global_batch_size=-1), seq_len=7)
    inputs, labels = next(iter(loader))
    found = {"input": inputs.pop("input"), "labels": labels, "positions": inputs.pop("positions")}
    assert inputs == {}
    order = found["input"][:, 0].argsort(descending=True)  # rows are shuffled
    assert {name: array[order].tolist() for name, array in found.items()} == {
        "input": [[7, 8, 9, 0, 3, 4, 10], [2, 5, 0, 10, 10, 10, 10]],
        "labels": [[8, 9, 0, -100, 4, 2, -100], [5, 0, -100, -100, -100, -100, -100]],
        "positions": [[0, 1, 2, 3, 0, 1, 0], [0, 1, 2, 0, 1, 2, 3]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "others"), [((4, 2), (2, 2)), ((2, 4), (8, 1)), ((1, 16), (4, 4))]
)
def test_a_run_resumes_on_another_number_of_ranks(
    folder: Path, tmp_path: Path, ranks: tuple[int, int], others: tuple[int, int]
) -> None:
    whole = [*islice(steps_of(on_ranks(config(folder), 1, 16), 16), STEPS)]
    assert len({*whole}) == STEPS
    (before, local), (after, other) = ranks, others
    loaders = on_ranks(config(folder), before, local)
    assert [*islice(steps_of(loaders, local), STOP)] == whole[:STOP]
    steps = [json.loads(loader.state_dict()["tokenmill"])["step"] for loader in loaders]
    assert steps == [STOP] * before
    checkpoint.save({"dataloader": loaders[0]}, checkpoint_id=tmp_path, no_dist=True)
    resumed = on_ranks(config(folder), after, other)
    for loader in resumed:
        checkpoint.load({"dataloader": loader}, checkpoint_id=tmp_path, no_dist=True)
    assert [*islice(steps_of(resumed, other), STEPS - STOP)] == whole[STOP:]


def test_a_checkpoint_fits_any_loader_with_the_same_global_batch_only(folder: Path) -> None:
    loader = build(config(folder, global_batch_size=-1), ranks=4)
    state = loader.state_dict()
    with pytest.raises(UserError, match="rows of a global batch: 8 in the state, 4 here"):
        build(config(folder, global_batch_size=-1), ranks=2).load_state_dict(state)
    build(config(folder, global_batch_size=8), ranks=2).load_state_dict(state)
    with pytest.raises(UserError, match="the state belongs to another dataloader"):
        loader.load_state_dict({"dp_rank_0": b"", "world_size": 4})
    loader.load_state_dict({})  # torchtitan: an empty state is valid


def test_no_state_is_saved_within_a_step_and_no_part_of_it_is_lost(folder: Path) -> None:
    (whole,) = islice(steps_of(on_ranks(config(folder), 1, 16), 16), 1)
    loader = build(config(folder), local=8)
    first = next(iter(loader))
    with pytest.raises(UserError, match="1 of 2 parts of the step are left"):
        loader.state_dict()
    second = next(iter(loader))
    loader.state_dict()
    rows = [
        row.numpy().tobytes()
        for inputs, labels in (first, second)
        for row in torch.stack((inputs["input"], inputs["positions"], labels), 1)
    ]
    assert hashlib.sha256(b"".join(sorted(rows))).hexdigest() == whole


def test_validation_ends_after_each_row_was_given_once(folder: Path) -> None:
    """`Validator` of torchtitan 0.3.0 sets `infinite`, and builds a loader for each validation."""
    wanted = dataclasses.replace(config(folder), infinite=False)
    dataset = tokenmill.open(folder)
    num_rows = len(tokenmill.open_plan(dataset, "packed"))
    for _ in range(2):
        loader = build(wanted)
        given = sum(len(labels) for _, labels in loader)
        assert given == num_rows - num_rows % GLOBAL_BATCH > 100
    with pytest.raises(UserError, match="no batches left"):
        next(iter(loader))


def test_a_subclass_trains_on_a_mixture(folder: Path) -> None:
    class Mixed(TokenmillDataLoader):
        def open_batches(self, config: Any, **options: Any) -> Any:
            dataset = tokenmill.open(config.dataset_path)
            plan = tokenmill.open_plan(dataset, config.plan)
            sources = [
                MixtureSource(dataset=dataset, plan=plan, share=share, epochs=None, name=name)
                for name, share in (("a", 3.0), ("b", 1.0))
            ]
            columns = ("input_ids", "labels", "position_ids")
            return tokenmill.mix_batches(sources, columns=columns, labels="next", **options)

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(TokenmillDataLoader.Config):
            pass

    mixed = Mixed.Config(dataset_path=str(folder), plan="packed", global_batch_size=GLOBAL_BATCH)
    whole = [*islice(steps_of(on_ranks(mixed, 4)), STEPS)]
    loaders = on_ranks(mixed, 4)
    assert [*islice(steps_of(loaders), STOP)] == whole[:STOP]
    resumed = on_ranks(mixed, 2)
    for loader in resumed:
        loader.load_state_dict(loaders[3].state_dict())
    assert [*islice(steps_of(resumed), STEPS - STOP)] == whole[STOP:]


@pytest.mark.parametrize(
    ("options", "runtime", "why"),
    [
        ({}, {"seq_len": 32}, "they have 16 tokens, and training.seq_len is 32"),
        ({"plan": "buckets"}, {}, "they have 8 or 16 or 32 tokens"),
        ({"global_batch_size": 20}, {"ranks": 4}, "it has 20 rows, and 4 ranks take 2 each"),
        ({"global_batch_size": 0}, {}, "it has 0 rows"),
        ({"dataset": "c4"}, {}, "got dataset='c4'"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    folder: Path, options: dict[str, Any], runtime: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        build(config(folder, **options), **runtime)


@pytest.mark.skipif(not IS_INSTALLED, reason="torchtitan is not installed (make cluster does)")
def test_a_dataloader_of_torchtitan_refuses_other_ranks() -> None:
    from torchtitan.components.dataloader import ParallelAwareDataloader

    rows = [{"input": number} for number in range(8)]
    state = {
        name: value
        for rank in range(4)
        for name, value in ParallelAwareDataloader(rows, rank, 4).state_dict().items()
    }
    with pytest.raises(AssertionError, match="dp_degree is inconsistent"):
        ParallelAwareDataloader(rows, 1, 2).load_state_dict(state)
