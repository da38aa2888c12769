"""Token files of other tools become datasets."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adopt_kit import documents_of, index_bytes, is_shared, places_of, write_pair

import tokenmill
from load.loading_kit import NUM_IDS, write_tokenizer
from tokenmill.core.errors import DamagedInputError, DataError, OutputConflictError, UserError

DOCUMENTS = [[7, 8, 9, 0], [1, 0], [2, 3, 0]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "tokenizer.json")


@pytest.fixture
def adopt(tmp_path: Path, tokenizer: Path):
    def call(*inputs: Path, **options) -> tokenmill.Dataset:
        return tokenmill.adopt(
            list(inputs), tokenizer, tmp_path / "out", eos="<eos>", pad="<pad>", **options
        )

    return call


def test_a_pair_becomes_a_dataset_that_shares_its_ids(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", DOCUMENTS)
    dataset = adopt(pair)
    assert documents_of(dataset) == DOCUMENTS
    assert places_of(dataset) == [("text.bin", 0), ("text.bin", 8), ("text.bin", 12)]
    assert is_shared(dataset, pair)
    manifest = dataset.manifest
    assert (manifest.totals.documents, manifest.totals.tokens, manifest.totals.records) == (3, 9, 3)
    assert manifest.policies == {
        "read": {},
        "encode": {"special_tokens": "text"},
        "adopt": {"boundaries": "auto", "append_eos": False},
    }
    assert [source.format for source in manifest.sources] == ["megatron"]
    tokenmill.verify(dataset.folder)


def test_the_index_is_the_one_of_a_build(tmp_path: Path, adopt) -> None:
    write_pair(tmp_path / "text", DOCUMENTS)
    dataset = adopt(tmp_path / "text")
    assert dataset.shards[0].path("idx").read_bytes() == (tmp_path / "text.idx").read_bytes()


def test_several_files_are_the_shards_in_the_order_of_the_arguments(tmp_path: Path, adopt) -> None:
    second = write_pair(tmp_path / "b", [[4, 0]])
    first = write_pair(tmp_path / "a", [[5, 0], [6, 0]])
    dataset = adopt(second, first)
    assert places_of(dataset) == [("b.bin", 0), ("a.bin", 0), ("a.bin", 4)]
    assert documents_of(dataset) == [[4, 0], [5, 0], [6, 0]]


def test_ids_of_another_size_are_written_anew(tmp_path: Path, adopt) -> None:
    for dtype in ("uint8", "int32", "int64"):
        pair = write_pair(tmp_path / dtype, DOCUMENTS, dtype)
        dataset = adopt(pair, overwrite=True)
        assert documents_of(dataset) == DOCUMENTS
        assert not is_shared(dataset, pair)
        assert dataset.token_dtype == np.uint16


def test_int32_and_uint32_are_shared_if_the_vocabulary_needs_them(tmp_path: Path) -> None:
    large = write_tokenizer(tmp_path / "large.json", [f"<{i}>" for i in range(65_536)])
    pair = write_pair(tmp_path / "text", DOCUMENTS, "int32")
    plain = tmp_path / "part.npy"
    np.array([token for document in DOCUMENTS for token in document], "<u4").tofile(plain)
    dataset = tokenmill.adopt([pair, plain], large, tmp_path / "out", eos="<eos>")
    assert documents_of(dataset) == DOCUMENTS * 2
    assert is_shared(dataset, pair)
    assert is_shared(dataset, plain, 1)


def test_an_index_may_filter_reorder_and_repeat(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", DOCUMENTS)
    data = index_bytes([3, 2, 3], [12, 8, 12], [0, 1, 2, 3])
    (tmp_path / "text.idx").write_bytes(data)
    dataset = adopt(pair)
    assert documents_of(dataset) == [[2, 3, 0], [1, 0], [2, 3, 0]]
    assert places_of(dataset) == [("text.bin", 12), ("text.bin", 8), ("text.bin", 12)]
    assert not is_shared(dataset, pair)
    tokenmill.verify(dataset.folder)


def test_sequences_of_a_document_are_joined_and_empty_documents_left_out(
    tmp_path: Path, adopt
) -> None:
    pair = write_pair(tmp_path / "text", DOCUMENTS)
    lengths, places = [2, 0, 2, 2, 3, 0], [0, 4, 4, 8, 12, 18]
    data = index_bytes(lengths, places, [0, 0, 3, 4, 5, 6])
    (tmp_path / "text.idx").write_bytes(data)
    dataset = adopt(pair)
    assert documents_of(dataset) == DOCUMENTS
    assert dataset.manifest.totals.empty == 2
    assert dataset.manifest.totals.records == 5
    assert is_shared(dataset, pair)
    tokenmill.verify(dataset.folder)


def test_boundaries_of_an_index_may_be_ignored(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", [[7, 8], [9, 0, 1], [0, 2, 3, 0]])
    dataset = adopt(pair, boundaries="eos")
    assert documents_of(dataset) == DOCUMENTS
    assert is_shared(dataset, pair)
    index = (tmp_path / "text.idx").read_bytes()
    (tmp_path / "text.idx").write_bytes(index[:-8] + bytes(8))
    with pytest.raises(DamagedInputError):
        adopt(pair, boundaries="eos", overwrite=True)


@pytest.mark.parametrize("name", ["train.bin", "part-0-00000.npy", "0_unshuffled.ds"])
def test_documents_of_a_file_without_index_end_after_each_eos(
    tmp_path: Path, adopt, name: str
) -> None:
    ids = np.array([token for document in DOCUMENTS for token in document], np.uint16)
    ids.astype(np.uint8 if name.endswith(".npy") else np.uint16).tofile(tmp_path / name)
    dataset = adopt(tmp_path / name)
    assert documents_of(dataset) == DOCUMENTS
    assert is_shared(dataset, tmp_path / name) == (not name.endswith(".npy"))


def test_datatrove_notes_ends_and_the_bytes_of_an_id(tmp_path: Path, adopt) -> None:
    path = tmp_path / "00000_unshuffled.ds"
    documents = [[7, 0, 9, 0], [1, 0], [2, 3, 0]]
    np.array([token for document in documents for token in document], "<u4").tofile(path)
    np.array([4, 4, 6, 9], "<u8").tofile(tmp_path / "00000_unshuffled.ds.index")
    (tmp_path / "00000_unshuffled.ds.metadata").write_text("gpt2|4\n9\n9 T")
    dataset = adopt(path)
    assert documents_of(dataset) == documents
    assert dataset.manifest.totals.empty == 1
    assert dataset.manifest.policies["encode"] == {"special_tokens": "control"}  # an EOS inside
    assert [source.format for source in dataset.manifest.sources] == ["datatrove"]


def test_each_row_of_a_column_is_a_document(tmp_path: Path, adopt) -> None:
    rows = [*DOCUMENTS, []]
    table = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
    datasets.Dataset.from_dict(table).save_to_disk(str(tmp_path / "saved"))
    dataset = adopt(tmp_path / "saved")
    assert documents_of(dataset) == DOCUMENTS
    name = "data-00000-of-00001.arrow"
    assert places_of(dataset) == [(name, 0), (name, 1), (name, 2)]
    assert dataset.manifest.totals.empty == 1


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint16()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 4)]
)
def test_lists_of_all_kinds_are_read(tmp_path: Path, adopt, kind: pa.DataType) -> None:
    rows = [[7, 8, 9, 0], [1, 2, 3, 0], None]
    pq.write_table(pa.table({"ids": pa.array(rows, kind)}), tmp_path / "a.parquet")
    dataset = adopt(tmp_path / "a.parquet", column="ids")
    assert documents_of(dataset) == rows[:2]


def test_blocks_of_rows_are_split_after_each_eos(tmp_path: Path, adopt) -> None:
    blocks = [[7, 8, 9], [0, 1, 0], [2, 3, 0]]
    pq.write_table(pa.table({"input_ids": blocks}), tmp_path / "a.parquet", row_group_size=1)
    dataset = adopt(tmp_path / "a.parquet", boundaries="eos")
    assert documents_of(dataset) == DOCUMENTS
    assert places_of(dataset) == [("a.parquet", 0), ("a.parquet", 1), ("a.parquet", 2)]


def test_documents_without_an_eos_are_refused_and_counted(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", [[7, 0], [8, 9], [1]])
    with pytest.raises(DataError) as caught:
        adopt(pair)
    assert str(caught.value) == (
        "2 of 3 documents do not end with the EOS\n"
        f"  where: {pair}, position 4\n"
        "  why: the EOS has the id 0\n"
        "  next: append it with --append-eos, or name another one with --eos"
    )


def test_an_eos_is_appended_on_request(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", [[7, 0], [8, 9], [1]])
    dataset = adopt(pair, append_eos=True)
    assert documents_of(dataset) == [[7, 0], [8, 9, 0], [1, 0]]
    assert dataset.manifest.policies["adopt"]["append_eos"] is True
    assert dataset.manifest.totals.tokens == 7
    assert np.fromfile(pair, np.uint16).tolist() == [7, 0, 8, 9, 1]  # the input stays as it was
    tokenmill.verify(dataset.folder)


@pytest.mark.parametrize(("dtype", "eos"), [("uint8", 300), ("int16", 40_000)])
def test_an_appended_eos_need_not_fit_the_dtype_of_the_file(
    tmp_path: Path, dtype: str, eos: int
) -> None:
    tokenizer = write_tokenizer(tmp_path / "t.json", [f"<{i}>" for i in range(NUM_IDS, eos + 1)])
    pair = write_pair(tmp_path / "text", [[7, 8], [9]], dtype)
    dataset = tokenmill.adopt(pair, tokenizer, tmp_path / "out", eos=f"<{eos}>", append_eos=True)
    assert documents_of(dataset) == [[7, 8, eos], [9, eos]]


def test_the_end_of_a_file_ends_its_last_document(tmp_path: Path, adopt) -> None:
    np.array([7, 0, 8], np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(DataError, match="1 of 2 documents do not end with the EOS"):
        adopt(tmp_path / "train.bin")
    dataset = adopt(tmp_path / "train.bin", append_eos=True)
    assert documents_of(dataset) == [[7, 0], [8, 0]]


def test_ids_outside_the_vocabulary_are_refused_and_counted(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", [[7, NUM_IDS, 0], [NUM_IDS - 1, 300, 0]])
    with pytest.raises(DataError) as caught:
        adopt(pair)
    assert caught.value.what == "token ids are outside the vocabulary"
    assert caught.value.where == f"{pair}, token 1"
    assert caught.value.why == "2 ids of the file; the largest of the tokenizer is 11"
    negative = write_pair(tmp_path / "negative", [[-100, 0]], "int32")
    with pytest.raises(DataError, match="1 ids of the file"):
        adopt(negative)


def test_a_prefix_is_recorded_only_if_every_document_has_it(tmp_path: Path) -> None:
    import tokenizers
    from tokenizers.processors import TemplateProcessing

    path = write_tokenizer(tmp_path / "tokenizer.json", ["<bos>"])
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    bos = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", bos)]
    )
    tokenizer.save(str(path))
    all_have = write_pair(tmp_path / "all", [[bos, 7, 0], [bos, 8, 0]])
    dataset = tokenmill.adopt(all_have, path, tmp_path / "out", eos="<eos>")
    assert dataset.manifest.tokenizer.prefix_ids == [bos]
    assert dataset.manifest.policies["encode"] == {"special_tokens": "text"}
    tokenmill.verify(dataset.folder)
    one_has = write_pair(tmp_path / "one", [[bos, 7, 0], [8, 0]])
    dataset = tokenmill.adopt(one_has, path, tmp_path / "other", eos="<eos>")
    assert dataset.manifest.tokenizer.prefix_ids == []
    assert dataset.manifest.policies["encode"] == {"special_tokens": "control"}
    tokenmill.verify(dataset.folder)


def test_what_is_longer_than_a_piece_comes_in_several(
    tmp_path: Path, adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenmill.read.tokens import indexes, pieces

    monkeypatch.setattr(pieces, "PIECE_TOKENS", 3)
    monkeypatch.setattr(indexes, "AT_ONCE", 2)
    documents = [[7, 8, 9, 1, 2, 3, 0], [0], [1, 0], [4, 5, 6, 7, 8, 9, 0, 0], [2, 0]]
    pair = write_pair(tmp_path / "text", documents)
    dataset = adopt(pair)
    assert documents_of(dataset) == documents
    assert places_of(dataset) == [("text.bin", at) for at in (0, 14, 16, 20, 36)]
    assert is_shared(dataset, pair)
    by_eos = adopt(pair, boundaries="eos", overwrite=True)
    assert documents_of(by_eos) == [*documents[:3], documents[3][:-1], [0], documents[4]]
    tokenmill.verify(by_eos.folder)


def test_verify_says_that_there_are_no_texts(tmp_path: Path, adopt) -> None:
    dataset = adopt(write_pair(tmp_path / "text", DOCUMENTS))
    with pytest.raises(UserError, match="an adopted dataset has no texts"):
        tokenmill.verify(dataset.folder, against_sources=True)


def test_the_same_call_again_changes_nothing_and_another_is_refused(tmp_path: Path, adopt) -> None:
    pair = write_pair(tmp_path / "text", DOCUMENTS)
    before = adopt(pair).manifest
    assert adopt(pair).manifest == before
    with pytest.raises(OutputConflictError, match=r"adopt\.append_eos: was False, is True"):
        adopt(pair, append_eos=True)
    assert adopt(pair, append_eos=True, overwrite=True).manifest != before


def test_a_build_does_not_take_an_adopted_dataset_for_its_own(
    tmp_path: Path, adopt, tokenizer: Path
) -> None:
    dataset = adopt(write_pair(tmp_path / "text", DOCUMENTS))
    (tmp_path / "a.jsonl").write_text('{"text": "78"}\n')
    with pytest.raises(OutputConflictError, match="another dataset"):
        tokenmill.build(tmp_path / "a.jsonl", tokenizer, dataset.folder, eos="<eos>")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.npy", b"\x93NUMPY\x01\x00v\x00", "a token file has a header"),
        ("a.bin", (20240520).to_bytes(4, "little") + bytes(1020), "a token file has a header"),
        ("a.txt", b"text", "an input is no token file"),
        ("a.bin", bytes([7, 0, 0, 0] * 4), "the ids of a token file seem to have four bytes"),
    ],
)
def test_files_that_look_otherwise_are_refused(
    tmp_path: Path, adopt, name: str, content: bytes, what: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=what):
        adopt(tmp_path / name)


def test_what_would_be_lost_is_refused(tmp_path: Path, adopt) -> None:
    np.array([7, 0], np.uint16).tofile(tmp_path / "a.ds")
    (tmp_path / "a.ds.loss").write_bytes(b"\x01\x00")
    with pytest.raises(UserError, match="cannot adopt which tokens have a loss"):
        adopt(tmp_path / "a.ds")
    pair = write_pair(tmp_path / "images", DOCUMENTS)
    with open(tmp_path / "images.idx", "ab") as file:
        file.write(b"\x00\x01\x00")
    with pytest.raises(UserError, match="cannot adopt an index of several kinds of data"):
        adopt(pair)


def test_an_adopted_dataset_packs_loads_selects_and_exports(tmp_path: Path, adopt) -> None:
    dataset = adopt(write_pair(tmp_path / "text", DOCUMENTS * 4))
    tokenmill.pack(dataset, sequence_length=6)
    rows = [
        row.tolist()
        for batch in dataset.batches(global_batch_size=1, epochs=1)
        for row in batch["input_ids"]
    ]
    assert sum(token not in (10,) for row in rows for token in row) == 9 * 4
    export = tokenmill.export(dataset, out=tmp_path / "rows", format="parquet")
    assert export is not None
    view = tokenmill.select(dataset, tmp_path / "view", where="tokens > 2")
    copy = tmp_path / "copy"
    tokenmill.copy(view, copy)
    assert documents_of(tokenmill.open(copy)) == [[7, 8, 9, 0], [2, 3, 0]] * 4
    tokenmill.verify(copy)
    found = tokenmill.find(dataset, ["789"])
    assert found is not None


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"format": "megatron"}, "*.bin"),
        ({"format": "megatron", "index_only": True}, "**/*.bin"),
        ({"format": "nanogpt"}, "train.bin"),
    ],
)
def test_adopted_documents_survive_the_way_to_another_tool_and_back(
    tmp_path: Path, adopt, tokenizer: Path, options: dict, pattern: str
) -> None:
    dataset = adopt(write_pair(tmp_path / "text", DOCUMENTS * 5))
    view = tokenmill.select(dataset, tmp_path / "view", where="tokens > 2")
    tokenmill.export_documents(view, tmp_path / "export", **options)
    files = sorted((tmp_path / "export").glob(pattern))
    again = tokenmill.adopt(files, tokenizer, tmp_path / "again", eos="<eos>")
    assert documents_of(again) == [[7, 8, 9, 0], [2, 3, 0]] * 5
