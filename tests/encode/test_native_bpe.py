"""BPE in compiled code: ids are those of the reference, wherever texts are cut."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import DIGITS, bert_normalizer, metaspace, normalizers
from published_kit import GEMMA_SPLIT, MARK_SPACES, PREPEND, plain, published, special, with_added
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    as_file,
    byte_level_json,
    documents,
    sentencepiece_json,
    sequence,
    split,
)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.normalizers import BertNormalizer
from trained_kit import SENTENCES, trained_json

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.engines.native.gate import native_objection
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.words.patterns import LLAMA3_SPLIT, QWEN2_SPLIT

CACHE_BYTES = 1 << 26
NO_FALLBACK = {"byte_fallback": False}
CHARACTERS = " ▁ab.,\n\t1中文éж\u0301😀<s>x"


def steps(normalizer: Json | None, pre_tokenizer: Json | None, **model: Any) -> Json:
    """The trained Llama 2 of the kit with other steps, and options of its model."""
    made = trained_json("llama2")
    changed = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    return {**made, **changed, "model": {**made["model"], **model}}


def byte_level(normalizer: Json | None, pre_tokenizer: Json) -> Json:
    """The trained GPT-2 of the kit with other steps."""
    made = trained_json("gpt2")
    return {**made, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


KINDS: dict[str, Json] = {
    "Llama 2": steps(normalizers(PREPEND, MARK_SPACES), None),
    "Gemma": steps(MARK_SPACES, GEMMA_SPLIT),
    "Mistral": steps(None, metaspace()),
    "Metaspace, first": steps(None, metaspace("first")),
    "Metaspace, never": steps(None, metaspace("never")),
    "Metaspace without splits": steps(None, metaspace(split=False)),
    "Metaspace and <unk>": steps(None, metaspace(), **NO_FALLBACK, fuse_unk=False),
    "fused <unk>": steps(None, metaspace(), **NO_FALLBACK, fuse_unk=True),
    "fused <unk> in texts": steps(MARK_SPACES, None, **NO_FALLBACK, fuse_unk=True),
    "unknown characters dropped": steps(MARK_SPACES, None, **NO_FALLBACK, unk_token=None),
    "dropped, in words": steps(None, metaspace(), **NO_FALLBACK, unk_token=None),
    "spaces as they are": steps(None, None),
}

BYTE_LEVEL_KINDS = {
    "GPT-2": byte_level(None, BYTE_LEVEL),
    "StarCoder": byte_level(None, sequence(DIGITS, BYTE_LEVEL)),
    "Llama 3": byte_level(None, sequence(split(LLAMA3_SPLIT), BYTES_ONLY)),
    "Qwen 2": byte_level({"type": "NFC"}, sequence(split(QWEN2_SPLIT), BYTES_ONLY)),
}
KINDS |= BYTE_LEVEL_KINDS
for _name in ("Claude (2023)", "CLIP", "Falcon", "Gemma 3"):
    KINDS[_name] = json.loads(published(_name).data)


@functools.cache
def ends_of_words() -> Json:
    """Words of BERT's steps, whose last characters have tokens of their own."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    made: Json = json.loads(tokenizer.to_str())
    return made


for _name, _changes in {
    "GPT": {},
    "GPT, cased": {"lowercase": False},
    "GPT, marks kept": {"strip_accents": False},
    "GPT, marks removed only": {"lowercase": False, "strip_accents": True},
    "GPT, not cleaned": {"clean_text": False, "handle_chinese_chars": False},
}.items():
    KINDS[_name] = {**ends_of_words(), "normalizer": bert_normalizer(**_changes)}
KINDS["words as they are"] = {**ends_of_words(), "normalizer": None}


def native_and_reference(tokenizer: Json, control: bool = False) -> tuple[Engine, Reference]:
    """The engine, and what it must agree with."""
    assert native_objection(tokenizer, control) == ""
    file = as_file(tokenizer)
    return load_engine("native", file, control, CACHE_BYTES), load_reference(file, control)


def assert_equal(engine: Engine, reference: Reference, texts: list[str]) -> None:
    """That both give every text the same ids."""
    found, expected = documents(engine.encode(texts)), documents(reference.encode(texts))
    different = [text for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    assert different == []


@pytest.mark.parametrize("name", KINDS)
def test_ids_are_those_of_the_reference(name: str) -> None:
    engine, reference = native_and_reference(KINDS[name])
    characters = [
        chr(c) for c in (*range(0x500), *range(0x500, 0x11000, 89)) if chr(c).isprintable()
    ]
    contexts = [f"a{c}b {c}1{c} {c}{c}'s\n{c}\n▁{c}" for c in characters]
    assert_equal(engine, reference, [*contexts, *adversarial_texts(reference.special_tokens)])
    assert_equal(engine, reference, [*SENTENCES, "".join(SENTENCES), "  " + " ".join(SENTENCES)])


@pytest.mark.parametrize("name", KINDS)
def test_any_text_has_the_ids_of_the_reference(name: str) -> None:
    engine, reference = native_and_reference(KINDS[name])

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.text(st.sampled_from(CHARACTERS) | st.characters(exclude_categories=["Cs"])))
    )
    def check(texts: list[str]) -> None:
        assert_equal(engine, reference, texts)

    check()


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", [*BYTE_LEVEL_KINDS, "CLIP", "Claude (2023)", "GPT"])
def test_chunks_with_added_tokens_are_those_of_the_reference(control: bool, name: str) -> None:
    tokenizer = KINDS[name]
    size = len(tokenizer["model"]["vocab"])
    added = [
        added_token("<|endoftext|>", size, special=True),
        added_token("<|plain|>", size + 1),
        added_token("né", size + 2, normalized=True),
    ]
    engine, reference = native_and_reference({**tokenizer, "added_tokens": added}, control)
    texts = [
        "a<|endoftext|> b",
        "<|plain|><|plain|>a 1",
        "<|pl ain|>",
        "<|PLAIN|>",
        "<|pl\x01ain|> \u212a",
        "né ne\u0301 <|endof",
        "é",
    ]
    assert_equal(engine, reference, [*texts, " ".join(texts)])


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("normalizer", [None, normalizers(PREPEND, MARK_SPACES)])
def test_texts_with_added_tokens_are_those_of_the_reference(
    control: bool, normalizer: Json | None
) -> None:
    added = [
        added_token("<s>", 1, special=True),
        added_token("<plain>", 900, normalized=True),
        added_token("a b", 901, normalized=True),
        added_token("▁▁x", 902, lstrip=True, rstrip=True, single_word=True),
    ]
    made = sentencepiece_json(
        normalizer=normalizer,
        pre_tokenizer=None if normalizer else metaspace(),
        added_tokens=[{**token, "id": 1 if not i else 284 + i} for i, token in enumerate(added)],
    )
    engine, reference = native_and_reference(made, control)
    texts = [
        "<s>a a",
        "a<s> a",
        "a<plain>a",
        " <plain> a",
        "a b",
        "a▁b",
        "aa bb",
        "a  x a",
        "▁▁x b",
    ]
    assert_equal(engine, reference, texts)


PIECES = [
    *("\n", "\t", " ", "▁", "a", "<", ">", "/", "<unk>", "<bos>", "<bo", "<unused1", "<unused12>"),
    *("<table>", "</table", "<|end", "\n<|end|>", "<|end|>", "|>\n"),
]


@pytest.mark.parametrize("control", [False, True])
def test_added_tokens_are_found_first(control: bool) -> None:
    gemma = json.loads(published("Gemma 3").data)
    others = [
        special("\n<|end|>"),
        special("<|end", lstrip=True),
        plain("|>", normalized=True),
        plain("|>\n", rstrip=True),
    ]
    tokenizer = with_added(gemma, *gemma["added_tokens"], *others)
    engine, reference = native_and_reference(tokenizer, control)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.lists(st.sampled_from(PIECES)).map("".join)))
    def check(texts: list[str]) -> None:
        assert_equal(engine, reference, texts)

    check()


@pytest.mark.parametrize(
    "text",
    ["12½3456", "½6789", "м 999", "x²7777", "1234567", "Don't 12,345.67!!", "a  . b  ", "ž12"],
)
def test_falcons_words_end_at_bytes_that_are_spelled_like_numbers(text: str) -> None:
    engine, reference = native_and_reference(KINDS["Falcon"])
    assert_equal(engine, reference, [text, f" {text} {text}", text * 3])


def merged(draw: st.DrawFn) -> Json:
    """A model of random merges over a few characters; several may make the same token, and none
    may be unknown. Characters that are no token are unknown, dropped, or spelled in bytes.
    """
    characters = draw(st.sets(st.sampled_from("▁ab.中"), min_size=1))
    falls_back = draw(st.booleans())
    names = ["<unk>", *sorted(characters), "c"]
    if falls_back:
        names += [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {name: i for i, name in enumerate(names)}
    merges = []
    for _ in range(draw(st.integers(0, 14))):
        parts = [name for name in vocab if "<" not in name]
        left, right = (draw(st.sampled_from(parts)) for _ in range(2))
        if len(left + right) > 6:
            continue
        vocab.setdefault(left + right, len(vocab))
        merges.append([left, right])
    unknown = draw(st.sampled_from(["<unk>", None]))
    options = {"unk_token": unknown, "byte_fallback": falls_back}
    return {"vocab": vocab, "merges": merges, **options}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_merges_give_the_ids_of_the_reference(data: st.DataObject) -> None:
    model = st.composite(merged)()
    pre_tokenizer = data.draw(st.sampled_from([None, metaspace(), metaspace(split=False)]))
    tokenizer = sentencepiece_json(
        model={**data.draw(model), "fuse_unk": data.draw(st.booleans())},
        normalizer=data.draw(st.sampled_from([MARK_SPACES, normalizers(PREPEND, MARK_SPACES)])),
        pre_tokenizer=pre_tokenizer,
        added_tokens=[],
    )
    if native_objection(tokenizer, False):
        return
    engine, reference = native_and_reference(tokenizer)
    strings = st.text(st.sampled_from(" ▁abc.中文!é"), max_size=60)
    assert_equal(engine, reference, data.draw(st.lists(strings, min_size=20, max_size=40)))


def test_long_runs_take_no_quadratic_time() -> None:
    engine, reference = native_and_reference(KINDS["Llama 2"])
    assert_equal(engine, reference, ["a" * 20_000, " " * 20_000, "ab" * 20_000, "中" * 20_000])


@pytest.mark.parametrize(
    ("tokenizer", "objection"),
    [
        (steps(None, metaspace(), dropout=0.1), "dropout"),
        (steps(None, metaspace(), ignore_merges=True), "ignore_merges"),
        (steps(None, metaspace(), unk_token="?"), "an unknown token outside the vocabulary"),
        (
            sentencepiece_json(model={"vocab": {"a": 0, "b": 0}, "merges": []}),
            "tokens that share an id",
        ),
        (
            sentencepiece_json(
                model={
                    "vocab": {f"<0x{byte:02X}>": byte for byte in range(256)},
                    "merges": [],
                    "unk_token": None,
                }
            ),
            "a ▁ that is missing from the vocabulary",
        ),
        (steps({"type": "NFKC"}, metaspace()), "normalizer NFKC"),
        (steps(None, split(r"\s+")), "pre-tokenizer Split"),
        (steps(PREPEND, None), "a prefix other than a space"),
        (byte_level({"type": "NFKD"}, BYTE_LEVEL), "a normalizer"),
        (byte_level(None, {**BYTE_LEVEL, "add_prefix_space": True}), "a prefix space"),
        (byte_level(None, BYTES_ONLY), "a split without compiled code"),
        (
            byte_level_json(model={"vocab": {"a": 0}, "merges": []}),
            "bytes that are missing from the vocabulary",
        ),
        (
            byte_level_json(added_tokens=[added_token("a b", 259)]),
            "an added token with a space",
        ),
        (
            sentencepiece_json(model={"merges": [["▁", "a"], ["<0x41>", "a"]]}),
            "merges of bytes or of the unknown token",
        ),
        (
            sentencepiece_json(added_tokens=[added_token("▁▁", 300)]),
            "an added token of only spaces",
        ),
        (
            steps(MARK_SPACES, None) | {"added_tokens": [added_token("\n", 900, normalized=True)]},
            "an added token of only spaces",
        ),
    ],
)
def test_what_is_not_known_to_be_exact_is_refused(tokenizer: Json, objection: str) -> None:
    assert native_objection(tokenizer, control_tokens=False) == objection
