"""Rows from text: the same on every resume and for every number of ranks, and nothing lost."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.core.errors import DataError, InputChangedError, UserError
from tokenmill.load.rows.reader import Rows
from tokenmill.load.text import pieces as corpus
from tokenmill.load.text.stream import TextStream, TextStreamOptions
from tokenmill.packing.long_documents import cut
from tokenmill.packing.options import PackOptions
from tokenmill.packing.streaming import StreamPacker
from tokenmill.read import units

LENGTH, BATCH = 64, 4
OPTIONS = TextStreamOptions(
    sequence_length=LENGTH, global_batch_size=BATCH, dropout=0.3, epochs=2, seed=5, open_sequences=6
)


def texts(count: int) -> list[str]:
    """Documents of very different lengths, some empty, some longer than several rows."""
    return [
        "" if i % 11 == 7 else f"{i} " + TEXTS[i % len(TEXTS)] * (i * i % 7 + (i % 13 == 0) * 9)
        for i in range(count)
    ]


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BATCH_BYTES", 512)
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 2048)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Two files of JSON Lines; one of them is cut into several extents, one is compressed."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", texts(40))
    second = write_jsonl(folder / "b.jsonl", texts(20))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(second.read_bytes()))
    second.unlink()
    return str(folder)


@pytest.fixture
def make(source: str, tokenizer_path: Path) -> Callable[..., TextStream]:
    def build(rank: int = 0, world_size: int = 1, **changes: Any) -> TextStream:
        made = msgspec.structs.replace(OPTIONS, **changes)
        return TextStream([source], str(tokenizer_path), made, rank=rank, world_size=world_size)

    return build


def plain(rows: Rows) -> tuple[list[Any], ...]:
    return rows.ids.tolist(), rows.labels.tolist(), rows.flags.tolist()


def segments_of(batches: list[Rows]) -> list[tuple[int, ...]]:
    """The tokens of every segment, padding left out."""
    found = []
    for rows in batches:
        for ids, restarts, real in zip(rows.ids, rows.restarts, rows.real, strict=True):
            for part in np.split(np.arange(len(ids)), np.flatnonzero(restarts)[1:]):
                if real[part[0]]:
                    found.append(tuple(ids[part].tolist()))
    return found


class TestResume:
    @pytest.mark.parametrize("labels", ["aligned", "next"])
    def test_at_every_batch(self, make: Callable[..., TextStream], labels: str) -> None:
        stream = make(labels=labels)
        states, batches = [stream.state_dict()], []
        for rows in stream:
            batches.append(plain(rows))
            states.append(json.loads(json.dumps(stream.state_dict())))
        places = {(s["before"]["cursor"]["epoch"], s["before"]["cursor"]["extent"]) for s in states}
        assert {epoch for epoch, _ in places} == {0, 1}
        assert len(places) > 4
        for done, state in enumerate(states):
            resumed = make(labels=labels)
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            assert [plain(rows) for rows in resumed] == batches[done:]
            assert resumed.counts == stream.counts

    def test_by_another_number_of_ranks(self, make: Callable[..., TextStream]) -> None:
        stream = make()
        whole = [plain(rows)[0] for rows in stream]
        first = make(rank=1, world_size=2)
        for _ in range(5):
            next(first)
        ranks = [make(rank=rank, world_size=4) for rank in range(4)]
        for stream in ranks:
            stream.load_state_dict(first.state_dict())
        for ids in whole[5:]:
            assert np.concatenate([next(each).ids for each in ranks]).tolist() == ids

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"seed": 6}, "options.seed: 5 in the state, 6 here"),
            ({"dropout": 0.2}, "options.dropout: 0.3 in the state, 0.2 here"),
            ({"sequence_length": 32}, "options.sequence_length: 64 in the state, 32 here"),
            ({"global_batch_size": 8}, "options.global_batch_size: 4 in the state, 8 here"),
            ({"eos": "a"}, "tokenizer.eos_id: "),
        ],
    )
    def test_other_settings_are_refused(
        self, make: Callable[..., TextStream], changes: Any, message: str
    ) -> None:
        with pytest.raises(UserError, match=message):
            make(**changes).load_state_dict(make().state_dict())

    def test_other_sources_are_refused(
        self, make: Callable[..., TextStream], source: str, tmp_path: Path
    ) -> None:
        state = make().state_dict()
        write_jsonl(Path(source) / "c.jsonl", ["new"])
        with pytest.raises(UserError, match=r"sources.files: 2 in the state, 3 here"):
            make().load_state_dict(state)

    def test_what_is_no_state_is_refused(self, make: Callable[..., TextStream]) -> None:
        stream = make()
        state = stream.state_dict()
        for broken in (
            {},
            state | {"version": 2},
            state | {"rows_given": 10**6},
            state | {"before": {}},
            state | {"more": 1},
        ):
            with pytest.raises(UserError, match="state"):
                make().load_state_dict(broken)

    def test_contradictions_are_refused(self, make: Callable[..., TextStream]) -> None:
        stream = make()
        for _ in range(5):
            next(stream)
        state = json.loads(json.dumps(stream.state_dict()))
        before = state["before"]
        assert before["origins"]
        with pytest.raises(UserError, match="inconsistent"):
            make().load_state_dict(state | {"before": before | {"origins": []}})
        late = [[*origin[:4], 10**6, 0] for origin in before["origins"]]
        with pytest.raises(InputChangedError, match="batch 1000000 does not exist"):
            make().load_state_dict(state | {"before": before | {"origins": late}})


class TestRows:
    @pytest.mark.parametrize("world_size", [1, 2, 4])
    def test_ranks_share_the_global_batch(
        self, make: Callable[..., TextStream], world_size: int
    ) -> None:
        ranks = [make(rank=rank, world_size=world_size) for rank in range(world_size)]
        for batch in make():
            parts = [next(each) for each in ranks]
            for name in ("ids", "labels", "flags"):
                together = np.concatenate([getattr(rows, name) for rows in parts])
                assert (together == getattr(batch, name)).all()
        assert [next(each, None) for each in ranks] == [None] * world_size

    def test_without_dropout_rows_are_those_of_plain_encoding(
        self, make: Callable[..., TextStream], reference: Callable[[str], list[int]]
    ) -> None:
        (eos,) = boundary_ids(make)
        encoded = [[*reference(text), eos] for text in texts(40) + texts(20) if text]
        lengths = np.array([len(ids) for ids in encoded], np.int32)
        numbers = np.arange(len(lengths), dtype=np.int32)
        pieces, _ = cut(numbers, lengths, PackOptions(sequence_length=LENGTH))
        packer = StreamPacker(LENGTH, open_sequences=OPTIONS.open_sequences)
        want = []
        for sequences in (packer.push(pieces), packer.finish()):
            for first, stop in zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True):
                row: list[int] = []
                for part in range(first, stop):
                    start = sequences.segments.starts[part]
                    end = start + sequences.segments.lengths[part]
                    row += encoded[sequences.segments.documents[part]][start:end]
                want.append(row + [eos] * (LENGTH - len(row)))
        found = np.concatenate([rows.ids for rows in make(dropout=0.0, epochs=1)]).tolist()
        assert found[: len(want)] == want
        assert len(found) - len(want) < BATCH
        almost = np.concatenate([rows.ids for rows in make(dropout=1e-20, epochs=1)]).tolist()
        assert almost == found

    def test_every_document_is_there_once_an_epoch(
        self, make: Callable[..., TextStream], tokenizer_path: Path
    ) -> None:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
        stream = make(sequence_length=4096)  # no document is cut
        found = Counter(tokenizer.decode(ids[:-1]) for ids in segments_of(list(stream)))
        assert found == Counter([text for text in texts(40) + texts(20) if text] * 2)
        assert stream.counts.documents == 2 * sum(map(bool, texts(40) + texts(20)))
        assert stream.counts.empty == 2 * sum(not text for text in texts(40) + texts(20))

    def test_labels(self, tmp_path: Path, tokenizer_path: Path) -> None:
        path = write_jsonl(tmp_path / "x.jsonl", ["abcdefgh", "x"])
        found = {}
        for labels in ("aligned", "next"):
            options = TextStreamOptions(
                sequence_length=6, global_batch_size=2, dropout=1.0, labels=labels, pad="!", eos="!"
            )
            (rows,) = list(TextStream([str(path)], str(tokenizer_path), options))
            found[labels] = rows
        (_, b, c, d, e, f), (g, h, eos, _, last, pad) = found["aligned"].ids.tolist()
        assert (eos, pad) == (last, eos)
        assert found["aligned"].aligned
        assert found["aligned"].has_label.astype(int).tolist() == [
            [0, 1, 1, 1, 1, 1],
            [0, 1, 1, 0, 1, 0],
        ]
        rows = found["next"]
        assert not rows.aligned
        assert rows.has_label.astype(int).tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0]]
        assert rows.labels[rows.has_label].tolist() == [b, c, d, e, f, g, h, eos, last]
        assert rows.restarts.astype(int).tolist() == [[1, 0, 0, 0, 0, 0], [1, 0, 0, 1, 0, 1]]
        assert rows.real.astype(int).tolist() == [[1] * 6, [1] * 5 + [0]]

    def test_the_last_batch_is_filled_with_empty_rows(
        self, make: Callable[..., TextStream]
    ) -> None:
        *_, last = make(global_batch_size=16, sequence_length=256)
        assert last.ids.shape == (16, 256)
        empty = last.flags[-1]
        assert empty[0] == 2
        assert not empty[1:].any()


def boundary_ids(make: Callable[..., TextStream]) -> list[int]:
    """What stands around a document."""
    tokenizer = make().state_dict()["identity"]["tokenizer"]
    assert tokenizer["prefix"] == []
    return [tokenizer["eos_id"]]


class TestSources:
    def test_bad_lines_are_counted(self, tmp_path: Path, tokenizer_path: Path) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text('{"text": "a b c"}\n{"text": 1}\nnonsense\n{"text": ""}\n\n{"text": "d"}\n')
        options = TextStreamOptions(
            sequence_length=8, global_batch_size=1, dropout=0.5, max_bad=0.5
        )
        stream = TextStream([str(path)], str(tokenizer_path), options)
        (rows,) = list(stream)
        assert len(rows.ids) == 1
        counts = stream.counts
        assert (counts.records, counts.documents, counts.empty) == (5, 2, 1)
        assert counts.rejected == {"invalid-json": 1, "text-not-a-string": 1}
        options = TextStreamOptions(sequence_length=8, global_batch_size=1, dropout=0.5)
        with pytest.raises(DataError, match=r"2 of 5 records(.|\n)*1 invalid-json"):
            list(TextStream([str(path)], str(tokenizer_path), options))

    def test_a_field_without_texts_is_noticed_early(
        self, tmp_path: Path, tokenizer_path: Path
    ) -> None:
        path = write_jsonl(tmp_path / "x.jsonl", ["a"] * 5000)
        path.write_text('{"content": null}\n' + path.read_text())
        options = TextStreamOptions(
            sequence_length=8, global_batch_size=1, dropout=0.5, text_field="content", max_bad=0.99
        )
        with pytest.raises(DataError, match=r"1\d\d\d of 1\d\d\d records(.|\n)*missing-field"):
            list(TextStream([str(path)], str(tokenizer_path), options))

    def test_nothing_to_read(self, tmp_path: Path, tokenizer_path: Path) -> None:
        path = write_jsonl(tmp_path / "x.jsonl", [""])
        options = TextStreamOptions(sequence_length=8, global_batch_size=1, dropout=0.5)
        with pytest.raises(DataError, match="nothing to read"):
            list(TextStream([str(path)], str(tokenizer_path), options))

    def test_a_file_that_changes_is_noticed(
        self, make: Callable[..., TextStream], source: str
    ) -> None:
        stream = make()
        next(stream)
        os.utime(Path(source) / "a.jsonl", ns=(1, 1))
        with pytest.raises(InputChangedError):
            list(stream)


class TestLoader:
    def test_batches_are_the_rows_of_the_stream_as_tensors(
        self, source: str, tokenizer_path: Path, make: Callable[..., TextStream]
    ) -> None:
        options = {**msgspec.structs.asdict(OPTIONS), "max_segments": 9}
        loader = tokenmill.text_loader(source, tokenizer_path, **options)
        for batch, rows in zip(loader, make(max_segments=9), strict=True):
            assert batch["input_ids"].tolist() == rows.ids.tolist()
            assert batch["labels"].tolist() == rows.labels.tolist()
            assert batch["position_ids"].tolist() == rows.segmentation.positions.tolist()
            assert batch["cu_seqlens"].shape == (BATCH * 10 + 1,)

    def test_it_goes_on_where_a_state_was_taken(self, source: str, tokenizer_path: Path) -> None:
        def fresh() -> Any:
            options = msgspec.structs.asdict(OPTIONS)
            return tokenmill.text_loader(source, tokenizer_path, **options)

        whole = [batch["input_ids"].tolist() for batch in fresh()]
        stopped = fresh()
        begun = [batch["input_ids"].tolist() for batch in itertools.islice(stopped, 3)]
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
        assert begun + [batch["input_ids"].tolist() for batch in resumed] == whole

    def test_a_worker_of_a_data_loader_makes_the_same_batches(
        self, source: str, tokenizer_path: Path
    ) -> None:
        options = msgspec.structs.asdict(OPTIONS)
        whole = list(tokenmill.text_loader(source, tokenizer_path, **options))
        loader = tokenmill.text_loader(source, tokenizer_path, **options)
        batches = list(loader.dataloader(1))
        assert [batch["labels"].tolist() for batch in batches] == [
            batch["labels"].tolist() for batch in whole
        ]
        several = iter(loader.dataloader(2))
        with pytest.raises(UserError, match="a text stream supports one worker"):
            next(several)
        several._shutdown_workers()  # as garbage, they would be waited for

    def test_options_that_need_a_plan_are_refused(self, source: str, tokenizer_path: Path) -> None:
        options = {**msgspec.structs.asdict(OPTIONS), "positions": "document"}
        with pytest.raises(UserError, match="does not support positions"):
            tokenmill.text_loader(source, tokenizer_path, **options)

    def test_a_second_pass_is_refused(self, source: str, tokenizer_path: Path) -> None:
        options = msgspec.structs.asdict(OPTIONS)
        loader = tokenmill.text_loader(source, tokenizer_path, **options)
        list(loader)
        with pytest.raises(UserError, match="the whole stream has been returned already"):
            next(iter(loader))
        loader = tokenmill.text_loader(source, tokenizer_path, **options)
        workers = loader.dataloader(1)
        list(workers)
        with pytest.raises(UserError, match="have been returned already"):
            next(iter(workers))
        with pytest.raises(UserError, match="cannot tell how far the stream has been read"):
            loader.state_dict()
