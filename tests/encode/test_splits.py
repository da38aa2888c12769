"""Published split patterns, with a vocabulary in which every other split would show."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import BYTE_LEVEL, BYTES_ONLY, Json, as_file, byte_level_json, sequence, split

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.words.patterns import (
    DEEPSEEK3_SPLITS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
)

pytest.importorskip("fastokens")

PRE_TOKENIZERS = {
    "gpt2": BYTE_LEVEL,
    "llama3": sequence(split(LLAMA3_SPLIT), BYTES_ONLY),
    "qwen2": sequence(split(QWEN2_SPLIT), BYTES_ONLY),
    "qwen3.5": sequence(split(QWEN3_5_SPLIT), BYTES_ONLY),
    "o200k": sequence(split(O200K_SPLIT), BYTES_ONLY),
    "tekken": sequence(split(TEKKEN_SPLIT), BYTES_ONLY),
    "deepseek3": sequence(*map(split, DEEPSEEK3_SPLITS), BYTES_ONLY),
}
HOSTILE = adversarial_texts([])
PARTS = [
    *"aAzZéǅʰ中あア가ſK019²٣_-.,!'’/\n\r\t \u00a0\u2028\u180e\u0301\u093f\u200d😀",
    *("'s", "'S", "'ſ", "'ll", "  "),
]
TEXTS = st.lists(
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join), min_size=1, max_size=30
)


def every_pair_merged(pre_tokenizer: Json) -> Json:
    """Bytes and all pairs of those in texts: a border that moves by one changes the pairs after."""
    symbols = byte_symbols()
    occurring = [symbols[byte] for byte in sorted(set("".join([*HOSTILE, *PARTS]).encode()))]
    pairs = [[left, right] for left in occurring for right in occurring]
    vocab = {token: i for i, token in enumerate([*symbols, *map("".join, pairs)])}
    return byte_level_json(model={"vocab": vocab, "merges": pairs}, pre_tokenizer=pre_tokenizer)


@functools.cache
def engine_and_reference(name: str) -> tuple[Engine, Engine]:
    file = as_file(every_pair_merged(PRE_TOKENIZERS[name]))
    best = rank_engines(file, control_tokens=False).names[0]
    assert best == "fastokens"
    return (
        load_engine(best, file, control_tokens=False, cache_bytes=1 << 26),
        load_engine("reference", file, control_tokens=False, cache_bytes=0),
    )


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_texts_made_to_break_a_split_get_the_ids_of_the_reference(name: str) -> None:
    engine, reference = engine_and_reference(name)
    compare_tokens(engine.name, HOSTILE, engine.encode(HOSTILE), reference.encode(HOSTILE))


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(texts=TEXTS)
def test_any_text_gets_the_ids_of_the_reference(name: str, texts: list[str]) -> None:
    engine, reference = engine_and_reference(name)
    compare_tokens(engine.name, texts, engine.encode(texts), reference.encode(texts))


@pytest.mark.parametrize("name", ["llama3", "qwen2", "qwen3.5", "o200k"])
def test_a_long_s_in_a_contraction_goes_to_the_reference(name: str) -> None:
    engine, reference = engine_and_reference(name)
    text = "a'ſb and t'\u017f'TS"
    compare_tokens(engine.name, [text], engine.encode([text]), reference.encode([text]))
