"""Any Python object with `encode`: what it is asked, what it may answer, and what is kept of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import tokenizers
from python_tokenizers import ByteTokenizer, FailingBytes, UnsendableBytes
from tokenizer_kit import documents
from tokenizers import models, normalizers, pre_tokenizers

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.installed import install_command
from tokenmill.encode.engine import TextError
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.kinds import load_any_reference, load_reference
from tokenmill.encode.references.python_object import LARGEST_ID, TokenizerObject
from tokenmill.encode.references.python_source import differences, make_tokenizer, pickled_source
from tokenmill.encode.references.python_tokenizer import PythonReference
from tokenmill.encode.tokenizer_file import (
    load_tokenizer_file,
    open_stored_tokenizer,
)


class Answering:
    """Gives the same answer to every text."""

    def __init__(self, answer: Any, **attributes: Any) -> None:
        self.answer = answer
        self.__dict__.update(attributes)

    def encode(self, text: str) -> Any:
        return self.answer


class WithOptions:
    """Takes the options of transformers; "<s>" is 1 in a text unless special tokens are split."""

    all_special_tokens = ("<s>", "</s>")
    all_special_ids = (1, 2)
    split_special_tokens = False
    eos_token = "</s>"
    unk_token_id = 0

    def __len__(self) -> int:
        return 300

    def encode(self, text: str, add_special_tokens: bool = True, **options: bool) -> list[int]:
        ids = list(text.encode())
        if not options["split_special_tokens"] and text in self.all_special_tokens:
            ids = [self.all_special_tokens.index(text) + 1]
        return [1, *ids, 2] if add_special_tokens else ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return f"{list(ids)} {skip_special_tokens}"


def reference_of(tokenizer: object, control_tokens: bool = False) -> PythonReference:
    found = load_reference(load_tokenizer_file(tokenizer), control_tokens)
    assert isinstance(found, PythonReference)
    return found


# What it is.


def test_an_object_with_encode_is_a_tokenizer_of_its_own_kind() -> None:
    tokenizer = ByteTokenizer()
    file = load_tokenizer_file(tokenizer)
    assert (file.kind, file.origin) == ("python", "<object of python_tokenizers.ByteTokenizer>")
    assert file.config == {"eos_token": "<end>"}
    assert file.tokenizer is tokenizer
    assert rank_engines(file, False).names == ("reference",)


def test_its_own_answers_are_the_right_ids() -> None:
    reference = reference_of(ByteTokenizer())
    assert documents(reference.encode(["ab", "", "ä"])) == [[97, 98], [], [195, 164]]
    assert documents(reference.encode([])) == []
    assert reference.decode([97, 256]) == "a<end>"
    assert (reference.largest_id, reference.special_tokens) == (256, {"<end>": 256})
    assert (reference.prefix, reference.suffix, reference.unk_id) == ((), (), None)
    assert (reference.token_id("<end>"), reference.token_id("a")) == (256, None)


@pytest.mark.parametrize(
    "answer",
    [
        [5, 6],
        (5, 6),
        np.array([5, 6]),
        np.array([5, 6], np.uint8),
        [np.int32(5), 6],
        SimpleNamespace(ids=[5, 6]),
        {"input_ids": [5, 6], "attention_mask": [1, 1]},
        iter([5, 6]),
    ],
)
def test_ids_come_in_many_forms(answer: Any) -> None:
    assert TokenizerObject(Answering(answer)).encode("x", {}).tolist() == [5, 6]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (["a", "b"], "TypeError: encode returned str instead of ids"),
        ("ab", "TypeError: encode returned str instead of ids"),
        ([1, True], "TypeError: encode returned bool instead of ids"),
        ([1.0], "TypeError: encode returned float instead of ids"),
        (np.array([1.0]), "TypeError: encode returned float64 instead of ids"),
        (np.array([True]), "TypeError: encode returned bool instead of ids"),
        ([[1, 2]], "TypeError: encode returned list instead of ids"),
        (np.array([[1, 2]]), "TypeError: encode returned an array of shape (1, 2) instead of ids"),
        (None, "TypeError: 'NoneType' object is not iterable"),
        (
            [3, -1],
            "ValueError: encode returned id -1; the largest id of its",
        ),
        (
            [2**31],
            "ValueError: encode returned id 2147483648; the largest id",
        ),
        ([2**70], "ValueError: encode returned id"),
    ],
)
def test_what_are_no_ids_is_refused(answer: Any, why: str) -> None:
    with pytest.raises(TextError) as caught:
        TokenizerObject(Answering(answer)).encode("some text", {})
    assert caught.value.why.startswith(why)
    assert caught.value.where == "text 'some text'"


@pytest.mark.parametrize(
    ("attributes", "largest_id"),
    [
        ({}, LARGEST_ID),
        ({"vocab_size": 10}, 9),
        ({"vocab_size": lambda: 10}, 9),
        ({"n_vocab": 10}, 9),
        ({"get_vocab": lambda: {"a": 3, "b": 70}}, 70),
        ({"vocab_size": 10, "special_tokens": {"<s>": 12}}, 12),
        ({"special_tokens": {"<s>": 12}}, LARGEST_ID),
        ({"vocab_size": 10, "eos_token": "</s>", "eos_token_id": 11}, 11),
        ({"vocab_size": None}, LARGEST_ID),
        ({"vocab_size": 2**40}, LARGEST_ID),
    ],
)
def test_the_largest_id_is_over_all_that_an_object_tells(
    attributes: dict[str, Any], largest_id: int
) -> None:
    assert TokenizerObject(Answering([], **attributes)).largest_id == largest_id


@pytest.mark.parametrize(
    "thing",
    [ByteTokenizer, object(), 5, Answering([]).encode, models.BPE(), pre_tokenizers.Whitespace()],
)
def test_what_has_no_encode_is_no_tokenizer(thing: object) -> None:
    with pytest.raises(UserError, match="not a tokenizer"):
        load_tokenizer_file(thing)


# How it is asked.


def test_surroundings_are_left_out_and_known() -> None:
    reference = reference_of(WithOptions())
    assert documents(reference.encode(["a"])) == [[97]]
    assert (reference.prefix, reference.suffix, reference.unk_id) == ((1,), (2,), 0)
    assert reference.decode([97]) == "[97] False"


def test_special_tokens_in_a_text_follow_the_policy() -> None:
    tokenizer = WithOptions()
    assert documents(reference_of(tokenizer).encode(["<s>"])) == [[60, 115, 62]]
    assert documents(reference_of(tokenizer, True).encode(["<s>"])) == [[1]]


def test_an_object_that_cannot_follow_the_policy_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        reference_of(ByteTokenizer(), control_tokens=True)
    assert caught.value.what == "the tokenizer reads '<end>' in texts as ordinary text"
    assert caught.value.hint == "use --special-tokens text"
    with pytest.raises(UserError) as caught:
        reference_of(Answering([1], special_tokens={"<s>": 1}))
    assert caught.value.what == "the tokenizer reads '<s>' in texts as a control token"
    assert caught.value.hint == "use --special-tokens control"


def test_tiktoken_objects_are_asked_in_their_own_way() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)}
    options = {"pat_str": r"\w+|\W+", "mergeable_ranks": ranks, "special_tokens": {"<e>": 256}}
    encoding = tiktoken.Encoding("bytes", **options)
    assert documents(reference_of(encoding).encode(["<e>"])) == [[60, 101, 62]]
    assert documents(reference_of(encoding, True).encode(["a<e>"])) == [[97, 256]]
    assert reference_of(encoding).largest_id == 256


def test_an_exception_is_told_with_its_text_and_its_line() -> None:
    with pytest.raises(TextError) as caught:
        reference_of(FailingBytes()).encode(["fine", "unspeakable", "fine"])
    assert caught.value.text == "unspeakable"
    assert caught.value.why.startswith("ValueError: there are no words for it (")
    assert "python_tokenizers.py:" in caught.value.why


def test_a_twin_asks_a_copy_of_the_object() -> None:
    tokenizer = ByteTokenizer()
    reference = reference_of(tokenizer)
    twin = reference.twin()
    assert twin is not reference
    tokenizer.encode = lambda text: [1]  # type: ignore[method-assign]
    assert documents(reference.encode(["a"])) == [[1]]
    assert documents(twin.encode(["a"])) == [[97]]
    alone = reference_of(UnsendableBytes())
    assert alone.twin() is alone


def test_characters_of_tokens_are_not_known() -> None:
    with pytest.raises(UserError, match="does not report which characters a token covers"):
        reference_of(ByteTokenizer()).encode_with_offsets("a")


def test_a_decode_that_fails_is_told() -> None:
    tokenizer = Answering([1], decode=lambda ids: 1 / 0)
    with pytest.raises(EngineError, match="ZeroDivisionError: division by zero"):
        reference_of(tokenizer).decode([1])


class Han(Answering):
    """Knows Chinese characters only; `before` and `after` stand around a text."""

    vocab_size = 70_000

    def __init__(self, before: list[int], after: list[int]) -> None:
        self.before, self.after = before, after

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids = [ord(letter) for letter in text if ord(letter) > 0x3000]
        return [*self.before, *ids, *self.after] if add_special_tokens else ids


def test_surroundings_are_found_with_a_text_that_has_ids() -> None:
    reference = reference_of(Han([0], [2]))
    assert (reference.prefix, reference.suffix) == ((0,), (2,))
    assert reference_of(Han([], [])).prefix == ()


@pytest.mark.parametrize("name", ["get_vocab", "vocab_size", "__len__"])
def test_code_of_an_object_that_fails_is_named(name: str) -> None:
    def fail(self: object) -> int:
        raise RuntimeError("not loaded")

    member = property(fail) if name == "vocab_size" else fail
    broken = type("Broken", (ByteTokenizer,), {name: member})()
    with pytest.raises(UserError, match=f"the tokenizer's own {name} failed") as caught:
        load_tokenizer_file(broken)
    assert caught.value.why.startswith("RuntimeError: not loaded (")


def test_an_object_that_encodes_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="the tokenizer fails on every text"):
        load_tokenizer_file("python:os:getcwd")


def test_special_tokens_that_are_read_in_two_ways_are_refused() -> None:
    class Letters(Answering):
        special_tokens: ClassVar = {"<s>": 1, "x": 120}

        def encode(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    with pytest.raises(UserError, match="some special tokens as text and others as"):
        load_any_reference(load_tokenizer_file(Letters([])))


# Where it comes from.


@pytest.mark.parametrize("name", ["BYTES", "make_bytes", "ByteTokenizer"])
def test_a_module_of_the_user_is_imported_by_name(name: str) -> None:
    spec = f"python:python_tokenizers:{name}"
    file = load_tokenizer_file(spec)
    assert isinstance(file.tokenizer, ByteTokenizer)
    assert (file.origin, file.source, file.kind) == (spec, spec, "python")
    assert file.data == load_tokenizer_file(ByteTokenizer()).data


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("python:no_such_module:x", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("python:python_tokenizers:nothing", "AttributeError: module 'python_tokenizers' has no"),
        ("python:python_tokenizers:SHARED.x", "AttributeError"),
        ("python:json:loads", "TypeError: loads() missing 1 required positional argument"),
        ("python:this_exits:x", "SystemExit: 3"),
    ],
)
def test_a_name_that_gives_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, why: str
) -> None:
    (tmp_path / "this_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as caught:
        load_tokenizer_file(spec)
    assert caught.value.what == "cannot import the tokenizer"
    assert caught.value.why.startswith(why)


def test_an_object_of_tokenizers_is_as_good_as_its_file(tokenizer_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    file = load_tokenizer_file(tokenizer)
    assert (file.kind, file.data) == ("huggingface", tokenizer_path.read_bytes())
    assert file.origin == "<object of tokenizers.Tokenizer>"


def test_a_fast_object_of_transformers_is_as_good_as_its_file(tokenizer_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_path), eos_token="<|endoftext|>"
    )
    file = load_tokenizer_file(tokenizer)
    assert (file.kind, file.config) == ("huggingface", {"eos_token": "<|endoftext|>"})
    ours = load_reference(load_tokenizer_file(tokenizer_path), False)
    texts = ["def f(x):", "日本語 <|endoftext|>"]
    theirs = load_reference(file, False)
    assert documents(theirs.encode(texts)) == documents(ours.encode(texts))


def test_a_fast_object_is_left_as_it_was(tokenizer_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_path), eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    tokenizer("def f", truncation=True, max_length=2, padding="max_length")
    before = tokenizer.backend_tokenizer.to_str()
    load_tokenizer_file(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert tokenizer.backend_tokenizer.encode_special_tokens is False


def test_an_object_that_does_more_than_what_stands_behind_it_is_asked_itself(
    tokenizer_path: Path,
) -> None:
    class Around:
        backend_tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))

        def encode(self, text: str) -> list[int]:
            return self.backend_tokenizer.encode(text.strip()).ids

    class Same(Around):
        def encode(self, text: str) -> Any:
            return self.backend_tokenizer.encode(text)

    file = load_tokenizer_file(Around())
    assert (file.kind, load_tokenizer_file(Same()).kind) == ("python", "huggingface")
    assert file.reason.startswith("its encode(\" it's 1,234.50!")
    assert rank_engines(file, False).objections["fastokens"] == file.reason


def test_a_tokenizer_without_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="the tokenizer has no tokens"):
        load_reference(load_tokenizer_file(tokenizers.Tokenizer(models.BPE())), False)


def test_an_object_with_a_part_in_python_has_no_file() -> None:
    class Upper:
        def normalize(self, text: Any) -> None:
            text.uppercase()

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Normalizer.custom(Upper())
    with pytest.raises(UserError, match="cannot save the tokenizer as tokenizer"):
        load_tokenizer_file(tokenizer)


def test_a_folder_of_a_slow_tokenizer_is_loaded_by_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    file = load_tokenizer_file(str(tmp_path))
    assert (file.kind, file.origin) == ("python", str(tmp_path))
    again = load_tokenizer_file(make_tokenizer(file.source))
    assert again.data == file.data == load_tokenizer_file(transformers.ByT5Tokenizer()).data


def test_without_transformers_a_folder_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=re.escape(install_command("hf"))):
        load_tokenizer_file(tmp_path)


def test_another_process_gets_an_object_by_its_pickle() -> None:
    source = pickled_source(ByteTokenizer())
    assert source.startswith("pickle:")
    assert isinstance(make_tokenizer(source), ByteTokenizer)
    with pytest.raises(UserError, match="cannot recreate the tokenizer in a worker process"):
        make_tokenizer("pickle:AAAA")


def test_an_object_that_no_process_can_send_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        pickled_source(UnsendableBytes())
    assert caught.value.what == "cannot send the tokenizer to worker processes"
    assert caught.value.where == "python_tokenizers.UnsendableBytes"
    assert "python:module:name" in caught.value.hint
    assert "--workers 1" in caught.value.hint


# What is kept of it.


def test_a_description_tells_tokenizers_apart_by_what_they_do() -> None:
    data = load_tokenizer_file(ByteTokenizer()).data
    described = json.loads(data)
    assert list(described) == [
        "answers_sha256",
        "class",
        "format",
        "largest_id",
        "library_version",
        "num_answers",
        "special_tokens",
        "vocabulary_sha256",
    ]
    assert described["class"] == "python_tokenizers.ByteTokenizer"
    assert (described["largest_id"], described["special_tokens"]) == (256, {"<end>": 256})
    assert load_tokenizer_file(ByteTokenizer()).data == data

    class Shifted(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return [byte ^ 1 for byte in super().encode(text)]

    other = load_tokenizer_file(Shifted()).data
    found = [line.partition(":")[0] for line in differences(data, other)]
    assert found == ["answers_sha256", "class"]


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_description_is_refused(data: bytes) -> None:
    with pytest.raises(UserError, match="the tokenizer's description is damaged"):
        differences(data, load_tokenizer_file(ByteTokenizer()).data)


def test_a_description_alone_encodes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer-python.json").write_bytes(load_tokenizer_file(ByteTokenizer()).data)
    stored = open_stored_tokenizer(tmp_path, "python", "")
    assert stored.tokenizer is None
    with pytest.raises(UserError, match="stores only a description of it"):
        load_reference(stored, False)
    with pytest.raises(UserError, match="it is only the description of a Python object"):
        load_tokenizer_file(tmp_path)
