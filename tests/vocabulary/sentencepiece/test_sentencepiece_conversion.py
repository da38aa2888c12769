"""A converted tokenizer encodes like the model file."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import tokenizers
from test_sentencepiece import BPE, LLAMA, UNIGRAM, from_counts

from tokenmill.core.errors import UserError
from tokenmill.encode.words.sentencepiece import read_model
from tokenmill.vocabulary.sentencepiece.conversion import differing_texts, tokenizer_json
from vocabulary.texts_kit import made_up_lines

sentencepiece = pytest.importorskip("sentencepiece")

ODD_TEXTS = [
    *("", " ", "  ", "a", " a", "a ", "  a  b ", "a\n\n b \n", " \ta", "\na\n", "x\r\ny"),
    *(
        "a ▁ b",
        "a \u3000 b\u3000",
        "ﬁne №1 ①",
        "e\u0301",
        "\u200bzero",
        "👩‍👩‍👧 😀",
    ),
    *("日本語 ไทย", "1234 5", "x" * 3_000, "ba re" * 500, "q∂x", "\ufeffa", "<mask>a<sep>b"),
]
HELD_OUT = made_up_lines(300, seed=2)
WITHOUT_SYMBOLS = replace(LLAMA, control_symbols=(), user_defined_symbols=())


@pytest.mark.parametrize(
    "options",
    [
        BPE,
        UNIGRAM,
        WITHOUT_SYMBOLS,
        replace(WITHOUT_SYMBOLS, model="unigram"),
        replace(WITHOUT_SYMBOLS, add_prefix=False, join_spaces=True),
        replace(UNIGRAM, normalization="nmt_nfkc_cf", add_prefix=False),
        replace(UNIGRAM, normalization="nfkc", byte_fallback=True, vocabulary_size=800),
    ],
)
def test_a_converted_tokenizer_encodes_like_its_model(options):
    data = from_counts(options).data
    made = tokenizer_json(read_model(data))
    texts = [text for text in ODD_TEXTS if "<" not in text] + HELD_OUT
    assert [texts[i] for i in differing_texts(data, made, texts)] == []


def test_a_user_defined_symbol_is_one_token_wherever_it_is():
    data = from_counts(LLAMA).data
    made = tokenizer_json(read_model(data))
    texts = [*HELD_OUT, "a<sep>b", "ba <sep> re", "a<sep><sep>"]
    assert differing_texts(data, made, texts) == []
    assert differing_texts(data, made, ["<sep>a"]) == [0]  # a ▁ before it, or none


def test_ids_are_the_same_and_special_tokens_are_special():
    data = from_counts(LLAMA).data
    found = tokenizers.Tokenizer.from_str(
        msgspec.json.encode(tokenizer_json(read_model(data))).decode()
    )
    added = {i: token.special for i, token in found.get_added_tokens_decoder().items()}
    assert added == {0: True, 1: True, 2: True, 3: True, 4: True, 5: False}
    assert [found.id_to_token(i) for i in (0, 1, 2, 3, 4, 5, 6)] == [
        *("<unk>", "<s>", "</s>", "<pad>", "<mask>", "<sep>", "<0x00>")
    ]


@pytest.mark.parametrize("options", [BPE, UNIGRAM, WITHOUT_SYMBOLS])
def test_ids_decode_to_the_text(options):
    data = from_counts(options).data
    made = msgspec.json.encode(tokenizer_json(read_model(data))).decode()
    found = tokenizers.Tokenizer.from_str(made)
    text = "bare to ning ра по 1984."
    assert found.decode(found.encode(text).ids) == text


def test_symbols_with_spaces_stay_in_the_model_file():
    options = replace(BPE, user_defined_symbols=("▁▁",))
    model = read_model(from_counts(options).data)
    with pytest.raises(UserError, match="contains a space"):
        tokenizer_json(model)
