"""SentencePiece models from counts of words, against the library's own from texts."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenmill.core.errors import EngineError, UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.sentencepiece import (
    NORMAL,
    TRAINER,
    published,
    read_fields,
    read_model,
)
from tokenmill.vocabulary.sentencepiece.seeds import find_seeds
from tokenmill.vocabulary.sentencepiece.trainer import SentencePieceModel, train_sentencepiece
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions
from tokenmill.vocabulary.training.sentencepiece_models import differing_texts
from vocabulary.texts_kit import counted, made_up_lines
from vocabulary.training import training_kit as kit

sentencepiece = pytest.importorskip("sentencepiece")

LINES = made_up_lines(1_500)
BPE = SentencePieceOptions(model="bpe", vocabulary_size=600)
UNIGRAM = SentencePieceOptions(model="unigram", vocabulary_size=600)
LLAMA = replace(
    BPE,
    vocabulary_size=900,
    normalization="identity",
    byte_fallback=True,
    split_digits=True,
    character_coverage=0.98,
    specials={"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"},
    control_symbols=("<mask>",),
)


def from_texts(lines: list[str], options: SentencePieceOptions) -> bytes:
    """The library's own model of the same texts."""
    arguments: dict[str, Any] = options.trainer_arguments() | {
        "normalization_rule_name": options.normalization,
    }
    # The library writes no default into a model that it is not given.
    del arguments["add_dummy_prefix"], arguments["remove_extra_whitespaces"]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines), model_writer=written, minloglevel=2, **arguments
    )
    return written.getvalue()


def from_counts(options: SentencePieceOptions) -> SentencePieceModel:
    """The model of the words of `LINES`."""
    return train_sentencepiece(counted(LINES, options.split), options)


def pieces_of(data: bytes) -> list[str]:
    return [piece.text for piece in read_model(data).pieces if piece.type == NORMAL]


def num_tokens(data: bytes, texts: list[str]) -> int:
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    return sum(len(ids) for ids in processor.encode(texts))


@pytest.mark.parametrize(
    "options",
    [BPE, LLAMA, replace(BPE, normalization="nfkc", specials={"unk": "?", "eos": "</s>"})],
)
def test_a_bpe_model_from_counts_is_the_file_that_the_library_makes_of_the_texts(options):
    found = from_counts(options)
    assert found.data == from_texts(LINES, options)
    assert (found.long_words, found.reserved_words) == (0, 0)


def test_tabs_and_newlines_inside_words_are_learned_as_from_texts():
    texts = [f"if {line}:\n\t\t{line};" for line in LINES[:300]]  # it drops a last "\\n"
    found = train_sentencepiece(counted(texts, LLAMA.split), LLAMA)
    assert found.data == from_texts(texts, LLAMA)
    assert ":\n\t\t" in pieces_of(found.data)


def test_a_unigram_model_from_counts_needs_fewer_tokens_than_from_texts():
    found = from_counts(UNIGRAM)
    held_out = made_up_lines(300, seed=1)
    assert len(read_model(found.data).pieces) == 600
    assert num_tokens(found.data, held_out) <= num_tokens(from_texts(LINES, UNIGRAM), held_out)


def test_spaces_may_be_spelled_either_way():
    marked = counted(LINES[:200], BPE.split)
    spaced = {word.replace("▁".encode(), b" "): n for word, n in marked.to_dict().items()}
    options = replace(BPE, vocabulary_size=200)
    assert train_sentencepiece(WordCounts.of(spaced), options) == train_sentencepiece(
        marked, options
    )


def test_what_no_piece_can_hold_cuts_a_word_and_is_counted():
    options = SentencePieceOptions(model="bpe", vocabulary_size=12)
    words = WordCounts.of({b" ab": 5, " ab▅ab".encode(): 3, b" b\0ab": 2, b"a" * 9_000: 1})
    found = train_sentencepiece(words, options)
    assert (found.long_words, found.reserved_words) == (1, 5)
    cut = WordCounts.of({b" ab": 8, b"ab": 5, b" b": 2, b"a" * 4_096: 2, b"a" * 808: 1})
    assert found.data == train_sentencepiece(cut, options).data


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (replace(BPE, vocabulary_size=90_000), "not enough for 90,000 pieces"),
        (replace(BPE, vocabulary_size=20), "20 pieces is too small"),
        (replace(UNIGRAM, vocabulary_size=90_000), "not enough for 90,000 pieces"),
        (replace(UNIGRAM, vocabulary_size=20), "20 pieces is too small"),
        (replace(BPE, vocabulary_size=3), "alone need 3"),
        (replace(BPE, character_coverage=0.5), "accepts 0.98 to 1"),
        (replace(BPE, max_piece_characters=0), "accepts 1 to 512"),
        (replace(BPE, specials={}), "has no id"),
        (replace(BPE, control_symbols=("<s>",)), "two special pieces have the same name"),
        (replace(BPE, control_symbols=("a b",)), "is not a valid piece"),
    ],
)
def test_what_cannot_be_is_refused_in_plain_words(options, text):
    with pytest.raises(UserError, match=text):
        train_sentencepiece(counted(LINES[:50], BPE.split), options)


@pytest.mark.parametrize("words", [{b"\xff": 1}, {b"\xc3": 1, b"\xa9": 1}])
def test_words_that_are_no_utf_8_are_refused(words):
    with pytest.raises(UserError, match="UTF-8"):
        train_sentencepiece(WordCounts.of(words), BPE)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import sys; sys.exit('out of luck')", "out of luck"),
        ("open('x')", "No such file"),
    ],
)
def test_a_library_that_dies_is_an_error_that_says_how(program, why, tmp_path, monkeypatch):
    (tmp_path / "sentencepiece.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineError, match=why):
        train_sentencepiece(WordCounts.of({b"ab": 2}), replace(BPE, normalization="identity"))


def test_progress_is_told():
    told: list[tuple[str, int, int]] = []
    train_sentencepiece(counted(LINES, BPE.split), BPE, lambda *each: told.append(each))
    assert {stage for stage, _, _ in told} == {"merging"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.parametrize("options", [UNIGRAM, replace(LLAMA, model="unigram")])
def test_a_unigram_model_stores_the_options_that_the_library_stores(options):
    def stored(data: bytes) -> tuple[Any, list[tuple[str, int]]]:
        spec = next(value for number, value in read_fields(data) if number == TRAINER)
        reserved = [piece for piece in read_model(data).pieces if piece.type != NORMAL]
        return spec, [(piece.text, piece.type) for piece in reserved]

    from_library = published(from_texts(LINES, options), b"", {})
    assert stored(from_counts(options).data) == stored(from_library)


def test_most_pieces_are_those_that_the_library_prunes_the_same_seeds_to():
    words, seeds = counted(LINES, UNIGRAM.split), io.StringIO()
    found = find_seeds(words, UNIGRAM)
    for piece, count in zip(found.pieces, found.counts.tolist(), strict=True):
        seeds.write(f"{piece}\t{count}\n")
    ours = {*pieces_of(from_counts(UNIGRAM).data)}
    theirs = {*pieces_of(from_seeds(words, seeds.getvalue()))}
    assert len(ours) == len(theirs)
    assert len(ours & theirs) > 0.85 * len(theirs)


def from_seeds(words: WordCounts, seeds: str) -> bytes:
    """The library's own model of counted words, from seeds."""
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "seeds.tsv").write_text(seeds)
        lines = (f"{word.decode()}\t{count}\n" for word, count in words.to_dict().items())
        (Path(name) / "words.tsv").write_text("".join(lines))
        sentencepiece.SentencePieceTrainer.Train(
            input=f"{name}/words.tsv", input_format="tsv", model_writer=written, minloglevel=2,
            seed_sentencepieces_file=f"{name}/seeds.tsv", **UNIGRAM.trainer_arguments(),
        )  # fmt: skip
    return written.getvalue()


def test_unigram_training_tells_its_progress_to_the_end():
    told: list[tuple[str, int, int]] = []
    train_sentencepiece(counted(LINES, UNIGRAM.split), UNIGRAM, lambda *each: told.append(each))
    assert {stage for stage, _, _ in told} == {"pruning"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == told[-1][2] > 0


ODD_TEXTS = [
    *("", " ", "  ", "a", " a", "a ", "  a  b ", "a\n\n b \n", " \ta", "\na\n", "x\r\ny"),
    *("a ▁ b", "a \u3000 b\u3000", "ﬁne №1 ①", "e\u0301", "\u200bzero", "👩\u200d👩\u200d👧 😀"),
    *("日本語 ไทย", "1234 5", "x" * 3_000, "ba re" * 500, "q∂x", "\ufeffa"),
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"split": "sentencepiece-nmt_nfkc_cf"},
        {"split": "sentencepiece-nfkc", "byte_fallback": True, "vocabulary": 800},
    ],
)
def test_a_converted_tokenizer_encodes_and_decodes_like_its_model(options, tmp_path):
    import tokenizers

    options = {"vocabulary": 600, "split": "sentencepiece", **options}
    counts = kit.counted(tmp_path / "counts", {"": LINES}, options["split"])
    found = kit.trained(tmp_path / "T", counts, model="unigram", **options)
    as_file = kit.trained(tmp_path / "U", counts, model="sentencepiece-unigram", bos="", **options)
    data = (as_file.folder / "tokenizer.model").read_bytes()
    made = json.loads((found.folder / "tokenizer.json").read_text())
    texts = ODD_TEXTS + made_up_lines(300, seed=2)
    assert [texts[i] for i in differing_texts(data, made, texts)] == []
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(made))
    text = "bare to ning ра по 1984."
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
