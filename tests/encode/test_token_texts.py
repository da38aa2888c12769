"""Texts that are put together from a table are those that the reference decodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pipeline_kit import BERT_SPLIT, bert_normalizer, metaspace
from published_kit import SHAPES, published, special, unigram, with_added
from tokenizer_kit import Json, as_file, sentencepiece_json, sentencepiece_model
from trained_kit import NAMES, SENTENCES, trained

from tokenmill.encode.kinds import load_reference
from tokenmill.encode.token_texts import special_ids, token_texts
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.kernels.texts import write_texts

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "tokenizers"
TEXTS = [
    *SENTENCES,
    " a",
    "  a  a",
    "a",
    "ab  ",
    "isn't it ? 's",
    "<unk> x",
    "\n\na",
    "",
    "日本 \x00",
]


def word_piece(**decoder: object) -> Json:
    vocab = {"[UNK]": 0, "[SEP]": 1, "a": 2, "##b": 3, "n't": 4, ".": 5, "is": 6, "##": 7, "do": 8}
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": vocab,
    }
    made = sentencepiece_json(
        normalizer=bert_normalizer(),
        pre_tokenizer=BERT_SPLIT,
        added_tokens=[],
        decoder={"type": "WordPiece", "prefix": "##", **decoder} if decoder else None,
    )
    return with_added({**made, "model": model}, special("[UNK]"), special("[SEP]"))


def with_metaspace(scheme: str) -> Json:
    return {**unigram(), "decoder": metaspace(scheme)}  # type: ignore[arg-type]


TOKENIZERS = {
    **{f"trained {name}": lambda name=name: trained(name) for name in NAMES},
    **{name: lambda name=name: published(name) for name in SHAPES},
    "WordPiece": lambda: as_file(word_piece(cleanup=False)),
    "WordPiece with cleanup": lambda: as_file(word_piece(cleanup=True)),
    "WordPiece without decoder": lambda: as_file(word_piece()),
    "Metaspace": lambda: as_file(with_metaspace("always")),
    "Metaspace, never": lambda: as_file(with_metaspace("never")),
    "a replacement across tokens": lambda: as_file(
        {
            **unigram(),
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Fuse"},
                    {"type": "Replace", "pattern": {"Regex": "a▁"}, "content": "b"},
                ],
            },
        }
    ),
    "a decoder that looks at the last token": lambda: as_file(
        {**unigram(), "decoder": {"type": "BPEDecoder", "suffix": "a"}}
    ),
    "SentencePiece": lambda: TokenizerFile("sentencepiece", sentencepiece_model("bpe")),
    "SentencePiece, unigram": lambda: TokenizerFile(
        "sentencepiece", sentencepiece_model("unigram", add_dummy_prefix=False)
    ),
    "SentencePiece, no prefix": lambda: TokenizerFile(
        "sentencepiece",
        sentencepiece_model("bpe", add_dummy_prefix=False, remove_extra_whitespaces=False),
    ),
}
WITHOUT_TABLE = ["a decoder that looks at the last token", "a replacement across tokens"]


def check(file: TokenizerFile) -> bool:
    """Compare all texts, then random tokens; False if the tokenizer has no table."""
    reference = load_reference(file, False)
    table = token_texts(file, reference)
    if table is None:
        return False
    silent = special_ids(reference)
    tokens = reference.encode(TEXTS)
    documents = [tokens.ids[a:b] for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]
    around = np.array([*silent][:1], np.uint32)
    documents = [np.concatenate([around, ids, around]) for ids in documents]
    lengths = [len(ids) for ids in documents]
    stops = np.cumsum(lengths)
    ids = np.concatenate(documents).astype(np.int32)
    out, ends = np.empty(1 << 16, np.uint8), np.zeros(len(documents), np.int64)
    edges = np.stack([stops - lengths, stops], axis=1)
    written = write_texts(ids, edges, table, table.slack, out, ends)
    assert written == (len(documents), -1)
    found = [out[a:b].tobytes() for a, b in zip([0, *ends], ends, strict=False)]
    kept = [[i for i in each.tolist() if i not in silent] for each in documents]
    assert found == [reference.decode(each).encode() for each in kept]
    return True


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_are_those_of_the_reference(name: str) -> None:
    if "SentencePiece" in name or ".model" in name:
        pytest.importorskip("sentencepiece")
    assert check(TOKENIZERS[name]()) is (name not in WITHOUT_TABLE)


@pytest.mark.parametrize("name", ["dolma2.json", "gpt2.json", "llama2.json", "neox.json"])
def test_texts_of_published_files_are_those_of_the_reference(name: str) -> None:
    if not (PUBLISHED / name).is_file():
        pytest.skip("shared/data/tokenizers is not beside the repository")
    assert check(load_tokenizer_file(PUBLISHED / name))


@pytest.mark.parametrize("name", ["gpt2.tiktoken", "llama3.tiktoken"])
def test_texts_of_rank_files_are_those_of_the_reference(name: str) -> None:
    pytest.importorskip("tiktoken")
    if not (PUBLISHED / name).is_file():
        pytest.skip("shared/data/tokenizers is not beside the repository")
    assert check(load_tokenizer_file(PUBLISHED / name))


@pytest.mark.parametrize("wrong", [-1, 10_000])
def test_an_id_that_the_vocabulary_lacks_is_told(wrong: int) -> None:
    file = trained("gpt2")
    table = token_texts(file, load_reference(file, False))
    assert table is not None
    ids, out, ends = np.array([65, wrong], np.int32), np.empty(100, np.uint8), np.zeros(1, np.int64)
    assert write_texts(ids, np.array([[0, 2]]), table, table.slack, out, ends) == (0, 1)
