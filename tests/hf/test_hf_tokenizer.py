"""Rows of datasets against the usual recipe for `dataset.map`."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hf_kit import (
    EOT,
    TEXTS,
    Letters,
    bare_tokenizer,
    contents,
    dataset_of,
    fast_tokenizer,
    options,
    recipe,
)

from tokenmill.core.errors import DataError, EngineError, UserError
from tokenmill.hf import CausalLMTokenizer, source, tokenizer, writing

DTYPES = {"input_ids": "int64", "attention_mask": "int8", "labels": "int64"}
LISTS = {name: datasets.List(datasets.Value(dtype)) for name, dtype in DTYPES.items()}


def rows_of(dataset: Any, length: int = 8, tokenizer: Any = None, **others: Any) -> Any:
    """The contents of the rows, for a tokenizer of transformers unless another is given."""
    made = CausalLMTokenizer(options(length, **others), tokenizer or fast_tokenizer())
    return contents(made.tokenize(dataset))


@pytest.mark.parametrize("sides", list(itertools.product(("left", "right"), repeat=2)))
@pytest.mark.parametrize("around", [(0, 0), (1, 0), (2, 1), (0, 2)])
def test_rows_are_those_of_the_usual_recipe(
    around: tuple[int, int], sides: tuple[str, str]
) -> None:
    known = fast_tokenizer(*around, padding_side=sides[0], truncation_side=sides[1])
    dataset = dataset_of(TEXTS)
    for length, overlap in ((7, 0), (8, 3), (16, 12), (64, 10), (256, 7)):
        expected = recipe(known, TEXTS, length, overlap)
        assert rows_of(dataset, length, known, overlap=overlap) == expected


def test_columns_and_features_are_those_of_dataset_map() -> None:
    result = CausalLMTokenizer(options(8), fast_tokenizer()).tokenize(dataset_of(TEXTS))
    assert isinstance(result, datasets.Dataset)
    assert result.features == datasets.Features(LISTS)
    assert result.format["type"] is None
    assert result.with_format("numpy")[0]["labels"].dtype == np.int64
    mapped = result.map(lambda row: {"first": row["input_ids"][0]})
    assert mapped["first"] == [row[0] for row in result["input_ids"]]


def test_all_kinds_of_fast_tokenizers_give_the_same_rows(tmp_path: Path) -> None:
    bare_tokenizer(1).save(str(tmp_path / "tokenizer.json"))
    dataset = dataset_of(TEXTS)
    expected = recipe(fast_tokenizer(1), TEXTS, 8, 0)
    assert rows_of(dataset, tokenizer=fast_tokenizer(1)) == expected
    bare = bare_tokenizer(1)
    bare.enable_padding(pad_id=0)
    assert rows_of(dataset, tokenizer=bare) == expected
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<|endoftext|>"}')
    named = CausalLMTokenizer(options(8, tokenizer_name=str(tmp_path)))
    assert contents(named.tokenize(dataset)) == expected


def test_the_side_of_padding_may_stand_in_the_configuration_of_the_tokenizer(
    tmp_path: Path,
) -> None:
    bare_tokenizer().save(str(tmp_path / "tokenizer.json"))
    config = '{"eos_token": {"content": "</s>"}, "padding_side": "left", "truncation_side": "left"}'
    (tmp_path / "tokenizer_config.json").write_text(config)
    known = fast_tokenizer(pad_token="</s>", padding_side="left", truncation_side="left")
    named = CausalLMTokenizer(options(8, tokenizer_name=str(tmp_path)))
    assert contents(named.tokenize(dataset_of(TEXTS))) == recipe(known, TEXTS, 8, 0)


def test_padding_and_truncation_in_a_file_are_those_of_its_object(tmp_path: Path) -> None:
    bare = bare_tokenizer()
    bare.enable_padding(direction="left", pad_id=7)
    bare.enable_truncation(5, direction="left")
    bare.save(str(tmp_path / "tokenizer.json"))
    named = CausalLMTokenizer(options(8, tokenizer_name=str(tmp_path)))
    dataset = dataset_of(TEXTS)
    rows = contents(named.tokenize(dataset))
    assert rows == rows_of(dataset, tokenizer=bare)
    assert rows["input_ids"][1][:3] == [7, 7, 7]
    known = fast_tokenizer(truncation_side="left", padding_side="left")
    assert rows["attention_mask"] == recipe(known, TEXTS, 8, 0)["attention_mask"]


def test_a_fast_tokenizer_with_python_code_of_its_own_is_asked_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import transformers

    class Lower(transformers.PreTrainedTokenizerFast):
        def _encode_plus(self, text: Any, *others: Any, **named: Any) -> Any:
            return super()._encode_plus(text.lower(), *others, **named)

    known = Lower(tokenizer_object=bare_tokenizer(), pad_token=EOT)
    texts = ["THE FOX", "the fox"]
    rows = rows_of(dataset_of(texts), tokenizer=known, num_proc=1)
    assert rows["input_ids"][0] == rows["input_ids"][1]
    assert rows["input_ids"][1:] == rows_of(dataset_of(texts[1:]))["input_ids"]
    assert "Using slow tokenizer Lower" in caplog.text
    assert "its encode('The Quick  BROWN fox') differs from that of" in caplog.text


def test_without_a_padding_token_the_end_of_document_token_fills_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = fast_tokenizer(pad_token=None)
    rows = rows_of(dataset_of(["a"]), 3, known)
    assert rows["input_ids"][0][1:] == [0, 0]
    assert "padded with its end-of-document token, 0" in caplog.text


def test_a_tokenizer_that_names_nothing_to_fill_rows_with_is_refused(tmp_path: Path) -> None:
    class Bytes:
        def encode(self, text: str) -> list[int]:
            return list(text.encode())

    bare = without_special_tokens()
    bare.save(str(tmp_path / "tokenizer.json"))
    hints = {
        "set tokenizer.pad_token": fast_tokenizer(pad_token=None, eos_token=None),
        "call tokenizer.enable_padding(pad_id=..., pad_token=...)": bare,
        "give the tokenizer an attribute pad_token_id": Bytes(),
        'name a "pad_token" in tokenizer_config.json': None,
    }
    for hint, known in hints.items():
        with pytest.raises(UserError, match="has no token to pad rows with") as caught:
            CausalLMTokenizer(options(8, tokenizer_name=str(tmp_path)), known)
        assert caught.value.hint == hint


def without_special_tokens() -> tokenizers.Tokenizer:
    saved = json.loads(bare_tokenizer().to_str())
    return tokenizers.Tokenizer.from_str(json.dumps(saved | {"added_tokens": []}))


def test_strings_of_special_tokens_are_ordinary_text() -> None:
    rows = rows_of(dataset_of([f"a{EOT}a"]), 32)
    assert 0 not in np.array(rows["input_ids"])[np.array(rows["attention_mask"]) == 1]


def test_null_texts_and_texts_without_tokens_give_no_row_and_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = CausalLMTokenizer(options(8), fast_tokenizer(1))
    result = made.tokenize(dataset_of([None, "a", "", None, "The"]))
    assert contents(result) == recipe(fast_tokenizer(1), ["a", "The"], 8, 0)
    assert (made.summary.documents, made.summary.null, made.summary.empty) == (5, 2, 1)
    assert "3 documents gave no row: 1 without tokens, 2 null" in caplog.text


@pytest.mark.parametrize("texts", [[], [None, None], [""]])
def test_a_dataset_without_documents_gives_a_dataset_without_rows(texts: list[str | None]) -> None:
    result = CausalLMTokenizer(options(8), fast_tokenizer()).tokenize(dataset_of(texts))
    assert len(result) == 0
    assert result.features == datasets.Features(LISTS)


def test_the_summary_counts_rows_and_tokens() -> None:
    made = CausalLMTokenizer(options(8, overlap=2), fast_tokenizer(1))
    rows = contents(made.tokenize(dataset_of(TEXTS)))
    summary = made.summary
    assert summary.rows == len(rows["input_ids"])
    assert summary.tokens == int(np.sum(rows["attention_mask"]))
    assert summary.text_bytes == sum(len(text.encode()) for text in TEXTS)
    assert list(summary.stage_seconds) == ["read", "encode", "windows", "write"]


def test_a_dataset_is_read_as_it_was_selected() -> None:
    whole = dataset_of(TEXTS * 3)
    selections = [
        whole.shuffle(seed=1),
        whole.select(range(4, 9)),
        whole.select([5, 0, 5]),
        whole.filter(lambda row: len(row["text"]) < 60),
        datasets.concatenate_datasets([whole.select([3]), whole.shuffle(seed=2)]),
        whole.with_format("torch").select([1, 2]),
        whole.shard(3, 1),
    ]
    for dataset in selections:
        texts = list(dataset["text"])
        assert rows_of(dataset) == recipe(fast_tokenizer(), texts, 8, 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_may_be_of_any_type_and_in_chunks(kind: pa.DataType) -> None:
    parts = [TEXTS[:3], [], TEXTS[3:]]
    column = pa.chunked_array([pa.array(part, pa.string()).cast(kind) for part in parts])
    dataset = datasets.Dataset(pa.table({"text": column}))
    assert rows_of(dataset, batch_size=2) == recipe(fast_tokenizer(), TEXTS, 8, 0)


def test_a_text_that_is_not_utf8_is_an_error_with_its_place() -> None:
    column = pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False)
    dataset = datasets.Dataset(pa.table({"text": column}))
    with pytest.raises(DataError, match="not valid UTF-8") as caught:
        rows_of(dataset)
    assert caught.value.where == "column 'text', rows 0 to 1"


def test_the_only_column_of_strings_is_the_text_and_others_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = dataset_of(TEXTS, number=list(range(len(TEXTS)))).rename_column("text", "content")
    assert rows_of(dataset) == recipe(fast_tokenizer(), TEXTS, 8, 0)
    assert "dropped columns: number" in caplog.text


def test_a_column_that_is_not_known_must_be_named() -> None:
    two = dataset_of(["a"], b=["The"]).rename_column("text", "a")
    with pytest.raises(UserError, match="cannot tell which column holds the texts") as caught:
        rows_of(two)
    assert caught.value.where == "columns: a, b"
    named = CausalLMTokenizer(options(8), fast_tokenizer(), text_column="b")
    assert contents(named.tokenize(two)) == recipe(fast_tokenizer(), ["The"], 8, 0)
    absent = CausalLMTokenizer(options(8), fast_tokenizer(), text_column="c")
    with pytest.raises(UserError, match="no column of strings is called 'c'"):
        absent.tokenize(two)
    misspelled = CausalLMTokenizer(options(8), fast_tokenizer(), text_column="titel")
    with pytest.raises(UserError) as caught:
        misspelled.tokenize(two.rename_column("a", "title"))
    assert caught.value.hint == "did you mean 'title'?"


def test_a_transform_is_refused() -> None:
    dataset = dataset_of(["AAA"])
    for changed in (dataset.with_transform(lambda batch: batch), datasets.DatasetDict(a=dataset)):
        changed.set_transform(lambda batch: batch)
        with pytest.raises(UserError, match="has a transform") as caught:
            rows_of(changed)
        assert "dataset.map" in caught.value.hint


@pytest.mark.parametrize("wrong", [["a"], {"train": ["a"]}, "a"])
def test_what_is_no_dataset_is_refused(wrong: object) -> None:
    with pytest.raises(UserError, match="expected a dataset"):
        CausalLMTokenizer(options(8), fast_tokenizer()).tokenize(wrong)


def test_a_tokenizer_must_be_named_or_passed() -> None:
    with pytest.raises(UserError, match="no tokenizer"):
        CausalLMTokenizer(options(8))


def test_special_tokens_must_leave_room_for_the_overlap() -> None:
    with pytest.raises(UserError, match="2 special tokens"):
        CausalLMTokenizer(options(8, overlap=6), fast_tokenizer(1, 1))


def test_writes_are_bounded_in_rows_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "DATASET_BATCH_ROWS", 10)
    monkeypatch.setattr(tokenizer, "DATASET_DICT_BATCH_ROWS", 40)

    def batch_rows(result: datasets.Dataset) -> list[int]:
        return [len(batch) for batch in result.data.to_batches()]

    made = CausalLMTokenizer(options(4), Letters())
    dataset = dataset_of(["abcd" * 30, "abcd" * 65])
    assert batch_rows(made.tokenize(dataset)) == [10] * 9 + [5]
    assert batch_rows(made.tokenize(datasets.DatasetDict(x=dataset))["x"]) == [40, 40, 15]
    monkeypatch.setattr(writing, "MAX_WRITE_BYTES", 4 * 17 * 7)
    assert batch_rows(made.tokenize(dataset, force=True)) == [7] * 13 + [4]


def test_long_documents_are_encoded_in_batches_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "MAX_TEXT_BYTES", 100)
    texts = ["a" * 30, "b" * 60, "c" * 500, "d", "", "é" * 50, "f"]
    batches = source.TextColumn(dataset_of([*texts, None]), "text").batches(5)
    assert [batch.texts for batch in batches] == [
        ["a" * 30, "b" * 60],
        ["c" * 500],
        ["d", ""],
        ["é" * 50],
        ["f"],
    ]


def test_the_size_of_a_batch_follows_from_the_documents(caplog: pytest.LogCaptureFixture) -> None:
    def size(texts: list[str], length: int, **others: Any) -> str:
        caplog.clear()
        CausalLMTokenizer(options(length, **others), Letters()).tokenize(dataset_of(texts))
        (line,) = [m for m in caplog.messages if m.startswith("Performance")]
        return line.partition("batch_size=")[2].partition(",")[0]

    assert size(["a"], 16) == "6000"
    assert size(["a" * 10_000], 10_000) == "419"  # 4 MiB of text
    assert size(["a" * (1 << 20)], 1 << 20) == "4"
    assert size(["a"], 1 << 20, batch_size=77) == "77"


def test_an_engine_that_differs_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenmill.encode.engines.fastokens import FastokensEngine

    encode = FastokensEngine.encode

    def wrong(self: Any, texts: Any) -> Any:
        tokens = encode(self, texts)
        found = np.flatnonzero([text == "strange" for text in texts])
        ids = tokens.ids.copy()
        ids[tokens.offsets[found]] = 5
        return type(tokens)(ids, tokens.offsets)

    monkeypatch.setattr(FastokensEngine, "encode", wrong)
    made = CausalLMTokenizer(options(8, batch_size=1), fast_tokenizer())
    dataset = dataset_of(["a"] * 300 + ["strange"] + ["a"] * 300)
    with pytest.raises(EngineError, match="ids that differ from the reference"):
        made.tokenize(dataset)


def test_an_engine_that_fails_the_exam_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tokenmill.core.records import TokenBatch
    from tokenmill.encode.engines.fastokens import FastokensEngine

    def wrong(self: Any, texts: list[str]) -> TokenBatch:
        return TokenBatch(np.zeros(len(texts), np.uint32), np.arange(len(texts) + 1))

    monkeypatch.setattr(FastokensEngine, "encode", wrong)
    assert rows_of(dataset_of(TEXTS)) == recipe(fast_tokenizer(), TEXTS, 8, 0)
    assert "fastokens is not used" in caplog.text


def test_a_tokenizer_that_no_fast_engine_takes_is_exact_too() -> None:
    words = {word: i for i, word in enumerate(["[UNK]", "the", "fox", "##es"])}
    wordpiece = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    wordpiece.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    import transformers

    known = transformers.PreTrainedTokenizerFast(tokenizer_object=wordpiece, pad_token="[UNK]")
    texts = ["the foxes", "fox the, fox", "x"] * 20
    assert rows_of(dataset_of(texts), 4, known) == recipe(known, texts, 4, 0)


def test_logging_is_as_verbose_as_asked_and_the_root_logger_stays_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    rows_of(dataset_of(TEXTS), verbose_level="ERROR")
    assert caplog.messages == []
    rows_of(dataset_of(TEXTS), verbose_level="INFO")
    assert any("rows/s" in message and "tokens/s" in message for message in caplog.messages)
    assert (root.level, list(root.handlers)) == before
    assert logging.getLogger("tokenmill.hf").level == logging.NOTSET
