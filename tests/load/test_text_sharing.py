"""Ranks that share the encoding of a text stream: the same rows and states, each text once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.load.text import pieces as corpus
from tokenmill.load.text.stream import TextStream, TextStreamOptions
from tokenmill.read import units

torch = pytest.importorskip("torch")

OPTIONS = TextStreamOptions(
    sequence_length=64, global_batch_size=4, dropout=0.3, epochs=2, seed=5, open_sequences=6
)
STOP = 5


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BATCH_BYTES", 512)
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 2048)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A file of several extents, with an odd number of portions."""
    texts = [f"{number} " + TEXTS[number % 5] * (number**2 % 7) for number in range(60)]
    return str(write_jsonl(tmp_path / "a.jsonl", texts))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Epoch and number of each document that any rank encodes."""
    found: list[tuple[int, int]] = []
    whole = corpus.DocumentEncoder.encode

    def encode(self: Any, texts: Sequence[str], epoch: int, first: int) -> Any:
        found.extend((epoch, first + index) for index in range(len(texts)))
        return whole(self, texts, epoch, first)

    monkeypatch.setattr(corpus.DocumentEncoder, "encode", encode)
    return found


def exchanges(world_size: int) -> list[Callable[[Any], list[Any]]]:
    """The function of each rank that sends a value to all, for ranks that are threads."""
    values: list[Any] = [None] * world_size
    barrier = threading.Barrier(world_size, timeout=60)

    def of_rank(rank: int) -> Callable[[Any], list[Any]]:
        def exchange(value: Any) -> list[Any]:
            values[rank] = value
            barrier.wait()
            found = [*values]
            barrier.wait()
            return found

        return exchange

    return [of_rank(rank) for rank in range(world_size)]


def sharing(source: str, tokenizer: Path, world_size: int, *seeds: int) -> list[TextStream]:
    """The streams of all ranks. `seeds` are those of each rank, if they are not the same."""
    return [
        TextStream(
            [source],
            str(tokenizer),
            msgspec.structs.replace(OPTIONS, seed=seeds[rank] if seeds else OPTIONS.seed),
            rank=rank,
            world_size=world_size,
            exchange=exchange,
        )
        for rank, exchange in enumerate(exchanges(world_size))
    ]


def together(streams: Sequence[TextStream], task: Callable[[TextStream], Any]) -> list[Any]:
    """What a task returns for each rank; all run at once."""
    with ThreadPoolExecutor(len(streams)) as threads:
        return [*threads.map(task, streams)]


def batches_of(streams: Sequence[TextStream], stop: int | None = None) -> list[Any]:
    """The ids and labels of global batches, put together."""

    def take(stream: TextStream) -> list[Any]:
        found: list[Any] = []
        while (stop is None or len(found) < stop) and (rows := next(stream, None)) is not None:
            found.append((rows.ids, rows.labels))
        return found

    parts = zip(*together(streams, take), strict=True)
    return [np.concatenate(each, axis=1).tolist() for each in parts]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_batches_and_states_are_those_of_a_rank_that_encodes_everything(
    source: str, tokenizer_path: Path, encoded: list[tuple[int, int]], ranks: int
) -> None:
    alone = TextStream([source], str(tokenizer_path), OPTIONS)
    batches, states = [], []
    for rows in alone:
        batches.append([rows.ids.tolist(), rows.labels.tolist()])
        states.append(alone.state_dict())
    once = sorted(encoded)
    assert once == [(epoch, number) for epoch in (0, 1) for number in range(60)]
    encoded.clear()
    streams = sharing(source, tokenizer_path, ranks)
    assert batches_of(streams, STOP) == batches[:STOP]
    assert [stream.state_dict() for stream in streams] == [states[STOP - 1]] * ranks
    assert batches_of(streams) == batches[STOP:]
    assert sorted(encoded) == once
    assert [stream.counts for stream in streams] == [alone.counts] * ranks


def test_a_state_fits_any_number_of_ranks(source: str, tokenizer_path: Path) -> None:
    whole = batches_of([TextStream([source], str(tokenizer_path), OPTIONS)])
    streams = sharing(source, tokenizer_path, 4)
    batches_of(streams, STOP)
    state = json.loads(json.dumps(streams[3].state_dict()))
    for ranks in (1, 2):
        resumed = sharing(source, tokenizer_path, ranks)
        together(resumed, lambda stream: stream.load_state_dict(state))
        assert batches_of(resumed) == whole[STOP:]


def test_ranks_at_different_places_are_refused(source: str, tokenizer_path: Path) -> None:
    streams = sharing(source, tokenizer_path, 2)
    batches_of(streams, STOP)
    late, early = sharing(source, tokenizer_path, 2)
    state = streams[0].state_dict()
    state["rows_given"] = 0  # else resuming packs a portion
    late.load_state_dict(state)
    ordinal = state["before"]["cursor"]["ordinal"]
    assert together([late, early], refusal) == [
        f"rank 1 is at document 0 of epoch 0; rank 0 is at document {ordinal} of epoch 0",
        f"rank 0 is at document {ordinal} of epoch 0; rank 1 is at document 0 of epoch 0",
    ]
    other = ", of other texts or with other options"
    assert together(sharing(source, tokenizer_path, 2, 5, 6), refusal) == [
        f"rank 1 is at document 0 of epoch 0{other}; rank 0 is at document 0 of epoch 0",
        f"rank 0 is at document 0 of epoch 0{other}; rank 1 is at document 0 of epoch 0",
    ]


def refusal(stream: TextStream) -> str | None:
    with pytest.raises(UserError, match="are not at the same place") as caught:
        next(stream)
    return caught.value.why


IN_A_GROUP = """
import json, os, sys
import torch.distributed as dist
import tokenmill

folder, source, tokenizer, options = sys.argv[1:]
child = os.fork()  # PyTorch is imported once for both
rank = 0 if child else 1
dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store"), rank=rank, world_size=2)
loader = tokenmill.text_loader(
    source, tokenizer, rank=rank, world_size=2, group=dist.group.WORLD, **json.loads(options)
)
with open(f"{folder}/{rank}.json", "w") as file:
    json.dump([batch["input_ids"].tolist() for batch in loader], file)
dist.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_loaders_share_by_a_process_group(
    source: str, tokenizer_path: Path, tmp_path: Path
) -> None:
    options = msgspec.structs.asdict(OPTIONS)
    whole = [
        batch["input_ids"].tolist()
        for batch in tokenmill.text_loader(source, tokenizer_path, **options)
    ]
    command = [sys.executable, "-W", "ignore", "-c", IN_A_GROUP]
    arguments = [str(tmp_path), source, str(tokenizer_path), json.dumps(options)]
    subprocess.run([*command, *arguments], check=True)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert [[*a, *b] for a, b in zip(first, second, strict=True)] == whole


def test_what_a_group_cannot_do_is_refused(
    source: str, tokenizer_path: Path, tmp_path: Path
) -> None:
    dist = torch.distributed
    store = dist.FileStore(str(tmp_path / "store"))
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        options = {**msgspec.structs.asdict(OPTIONS), "group": dist.group.WORLD}
        with pytest.raises(UserError, match=r"is rank 0 of 1 in the group; got rank=1, world_siz"):
            tokenmill.text_loader(source, tokenizer_path, rank=1, world_size=2, **options)
        loader = tokenmill.text_loader(source, tokenizer_path, **options)
        with pytest.raises(UserError, match="cannot share the encoding from a worker"):
            loader.dataloader(1)
        assert next(iter(loader.dataloader()))["input_ids"].shape == (4, 64)
    finally:
        dist.destroy_process_group()
