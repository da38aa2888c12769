"""The splitters of words, against what the tokenizers library does."""

import json

import numpy as np
import pytest
import tokenizers
from tokenizer_kit import BYTE_LEVEL, BYTES_ONLY, sequence

from tokenmill.core.errors import EngineError, UserError
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.splitters import LIBRARY, load_splitter, word_splitters
from tokenmill.encode.tokenizer_json import steps_of, with_library
from tokenmill.encode.words.splits import SPLITS, Split, named_split, split_of
from tokenmill.encode.words.table import WordTable

CACHE_BYTES = 1 << 28
TEXTS = ["It's a  test\n", "", "<|endoftext|>", "naïve"]


def words_of(split, texts, name=LIBRARY):
    found = load_splitter(split, name, CACHE_BYTES).split(texts)
    words = [
        found.data[start:stop].tobytes()
        for start, stop in zip(found.edges[:-1], found.edges[1:], strict=True)
    ]
    return [
        words[start:stop]
        for start, stop in zip(found.words_before[:-1], found.words_before[1:], strict=True)
    ]


def counts_of(split, texts, name):
    table = WordTable()
    number = load_splitter(split, name, CACHE_BYTES).count(texts, table)
    return number, table.take().to_dict()


def pairs():
    return [(name, other) for name in SPLITS for other in word_splitters(SPLITS[name])]


@pytest.mark.parametrize("name", word_splitters(named_split("gpt2")))
def test_gpt2_words_are_bytes_with_their_space(name):
    assert words_of(named_split("gpt2"), TEXTS, name) == [
        [b"It", b"'s", b" a", b" ", b" test", b"\n"],
        [],
        [b"<|", b"endoftext", b"|>"],
        ["naïve".encode()],
    ]


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_a_prefix_space_is_part_of_the_word(add_prefix_space):
    split = split_of({"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": add_prefix_space}})
    for name in word_splitters(split):
        first = b" a" if add_prefix_space else b"a"
        assert words_of(split, ["a b", " a", ""], name) == [[first, b" b"], [b" a"], []]


@pytest.mark.parametrize(("split", "name"), pairs())
def test_every_splitter_finds_the_words_of_the_library(split, name):
    texts = adversarial_texts(["<|endoftext|>"])
    splitter = load_splitter(SPLITS[split], name, CACHE_BYTES)
    library = load_splitter(SPLITS[split], LIBRARY, CACHE_BYTES)
    compare_tokens(name, texts, splitter.encode(texts), library.encode(texts))


def test_what_memo_keeps_is_bounded():
    split = named_split("gpt2")
    splitter = load_splitter(split, "memo", 1)
    for text in TEXTS * 2:
        found = splitter.split([text])
        assert found.data.tobytes() == text.encode()


def test_bytes_that_a_later_step_hides_are_refused():
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    split = split_of({"pre_tokenizer": sequence(BYTES_ONLY, metaspace)})
    with pytest.raises(EngineError, match="a pre-tokenizer after ByteLevel adds '▁'"):
        words_of(split, ["a"])


def test_steps_that_the_library_does_not_know_are_a_users_mistake():
    with pytest.raises(UserError, match="cannot load the normalizer and the pre-tokenizer"):
        load_splitter(Split("", {"type": "Strange"}, None, False), LIBRARY, CACHE_BYTES)


def test_the_hashes_of_words_are_the_same_in_every_process():
    found = load_splitter(named_split("gpt2"), LIBRARY, CACHE_BYTES).encode(["a a"])
    assert found.ids.dtype == np.uint32
    assert found.ids.tolist() == [2988286166, 563733427]


@pytest.mark.parametrize(
    "name", ["gpt2", "llama3", "qwen2", "starcoder", "deepseek3", "metaspace", "bert", "whitespace"]
)
def test_counts_are_those_of_the_librarys_own_trainer(name):
    """What a trainer has counted is in its state."""
    split = named_split(name)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    steps = with_library(
        {"normalizer": split.normalizer}, list(steps_of(split.pre_tokenizer, "pretokenizers"))
    )
    tokenizer.pre_tokenizer = steps.pre_tokenizer
    if steps.normalizer:
        tokenizer.normalizer = steps.normalizer
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1, show_progress=False)
    texts = adversarial_texts(["<|endoftext|>"])[:1000]
    tokenizer.train_from_iterator(texts, trainer)
    words = json.loads(trainer.__getstate__())["BpeTrainer"]["words"]
    symbols = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    expected = {
        bytes(symbols[c] for c in word) if split.byte_level else word.encode(): count
        for word, count in words.items()
    }
    for each in word_splitters(split):
        assert counts_of(split, texts, each)[1] == expected
