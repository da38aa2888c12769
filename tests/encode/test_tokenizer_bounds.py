"""Tokenizer files that are damaged, or made to do damage: each is refused with one typed error."""

from __future__ import annotations

import base64
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizer_kit import (
    BYTE_LEVEL,
    Json,
    added_token,
    as_file,
    byte_level_json,
    replace,
    sequence,
    split,
)

from tokenmill.core.errors import UserError
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_bounds import FREE_IDS, LARGEST_ID, check_ids
from tokenmill.encode.tokenizer_file import load_tokenizer_file, open_stored_tokenizer

GIB = 1 << 30


def with_model(**model: Any) -> Json:
    return byte_level_json() | {"model": model}


def with_id(kind: str, token_id: object) -> Json:
    """A tokenizer of a kind, one id of which is `token_id`."""
    vocab = {"a": 0, "[UNK]": 1, "b": token_id}
    if kind == "WordPiece":
        affixes = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
        return with_model(type=kind, vocab=vocab, unk_token="[UNK]", **affixes)
    if kind == "WordLevel":
        return with_model(type=kind, vocab=vocab, unk_token="[UNK]")
    if kind == "BPE":
        return byte_level_json(model={"vocab": vocab, "merges": []})
    pieces = [["<unk>", 0.0], ["a", -1.0]]
    added = [{**added_token("b", 0), "id": token_id}]
    return with_model(type="Unigram", vocab=pieces, unk_id=0) | {"added_tokens": added}


def write(folder: Path, tokenizer: Json | bytes) -> Path:
    path = folder / "tokenizer.json"
    data = tokenizer if isinstance(tokenizer, bytes) else json.dumps(tokenizer).encode()
    path.write_bytes(data)
    return path


def refusal(folder: Path, tokenizer: Json | bytes) -> str:
    """Why a file cannot be loaded; the error is the same from a dataset's own folder."""
    path = write(folder, tokenizer)
    with pytest.raises(UserError) as caught:
        load_reference(load_tokenizer_file(path), False)
    with pytest.raises(UserError) as stored:
        load_reference(open_stored_tokenizer(folder, "huggingface", ""), False)
    assert caught.value.what == stored.value.what == "cannot load the tokenizer"
    assert caught.value.why == stored.value.why
    assert caught.value.where == str(path)
    return caught.value.why


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "WordLevel", "Unigram"])
@pytest.mark.parametrize("token_id", [-1, FREE_IDS + 1, 1 << 31, (1 << 32) - 1])
def test_an_id_that_is_negative_or_far_above_the_files_size_is_refused(
    tmp_path: Path, kind: str, token_id: int
) -> None:
    why = f"the id of 'b' is {token_id}; a file of this size can have ids from 0 to {FREE_IDS}"
    assert refusal(tmp_path, with_id(kind, token_id)) == why


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "WordLevel", "Unigram"])
@pytest.mark.parametrize("token_id", [1.5, True, "5", None, 1 << 64])
def test_an_id_that_is_no_id_is_refused(tmp_path: Path, kind: str, token_id: object) -> None:
    assert refusal(tmp_path, with_id(kind, token_id))


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "WordLevel", "Unigram"])
def test_two_tokens_with_one_id_are_refused_and_named(tmp_path: Path, kind: str) -> None:
    first = "<unk>" if kind == "Unigram" else "a"
    assert refusal(tmp_path, with_id(kind, 0)) == f"{first!r} and 'b' have the same id, 0"


def test_a_large_file_has_as_many_ids_as_bytes_but_fewer_than_two_to_the_31() -> None:
    check_ids([("a", 5_000_000)], num_bytes=5_000_000, origin="")
    check_ids([("a", LARGEST_ID)], num_bytes=1 << 40, origin="")
    with pytest.raises(UserError, match="can have ids from 0 to 5000000"):
        check_ids([("a", 5_000_001)], num_bytes=5_000_000, origin="")
    with pytest.raises(UserError, match="can have ids from 0 to 2147483647"):
        check_ids([("a", 1 << 31)], num_bytes=1 << 40, origin="")


def test_an_id_of_two_to_the_31_takes_no_memory(tmp_path: Path) -> None:
    """Every engine made a table of 34 GB for it: here a process may have 4."""
    path = write(tmp_path, with_id("BPE", 1 << 31))
    code = (
        "import sys; from tokenmill.cli import main; "
        f"sys.exit(main(['tokenizer', 'show', {str(path)!r}]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB)),
    )
    assert (found.returncode, "the id of 'b' is 2147483648" in found.stderr) == (2, True), (
        found.stderr
    )


def template(token_id: int) -> Json:
    parts = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    pair = [*parts, {"Sequence": {"id": "B", "type_id": 1}}]
    special = {"<s>": {"id": "<s>", "ids": [token_id], "tokens": ["<s>"]}}
    return {
        "type": "TemplateProcessing",
        "single": parts,
        "pair": pair,
        "special_tokens": special,
    }


@pytest.mark.parametrize("token_id", [259, 70_000, (1 << 32) - 1])
@pytest.mark.parametrize("kind", ["template", "bert"])
def test_an_id_that_only_the_post_processor_knows_is_refused(
    tmp_path: Path, kind: str, token_id: int
) -> None:
    bert = {"type": "BertProcessing", "sep": ["a", 97], "cls": ["b", token_id]}
    tokenizer = byte_level_json(post_processor=template(token_id) if kind == "template" else bert)
    why = f"its post-processor adds id {token_id}; its largest id is 258"
    assert refusal(tmp_path, tokenizer) == why


@pytest.mark.parametrize("size", [0, (1 << 31) - 1, (1 << 63) - 1])
def test_sizes_of_truncation_and_padding_are_never_used(tmp_path: Path, size: int) -> None:
    cut = {"direction": "Right", "max_length": size, "strategy": "LongestFirst", "stride": size}
    fill = {
        "strategy": {"Fixed": size},
        "direction": "Right",
        "pad_to_multiple_of": size,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "a",
    }
    file = load_tokenizer_file(write(tmp_path, byte_level_json(truncation=cut, padding=fill)))
    assert load_reference(file, False).encode(["abc"]).ids.tolist() == [258]


def nested(depth: int) -> Json:
    step: Json = BYTE_LEVEL
    for _ in range(depth):
        step = sequence(step)
    return byte_level_json(pre_tokenizer=step)


def text_of_depth(depth: int) -> bytes:
    data = json.dumps(byte_level_json(pre_tokenizer=None)).encode()
    steps = b'{"type":"Sequence","pretokenizers":[' * depth + b"]}" * depth
    return data.replace(b'"pre_tokenizer": null', b'"pre_tokenizer": ' + steps)


@pytest.mark.parametrize("depth", [60, 100])
def test_steps_inside_steps_inside_steps_are_refused(tmp_path: Path, depth: int) -> None:
    assert refusal(tmp_path, nested(depth)) == "steps are nested deeper than 100 levels"


def test_json_of_any_depth_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, text_of_depth(100_000))
    for load in (
        lambda: load_tokenizer_file(path),
        lambda: open_stored_tokenizer(tmp_path, "huggingface", ""),
    ):
        with pytest.raises(UserError, match="recursion"):
            load()


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": split("a|" * 40_000)},
        {"normalizer": replace("a", "b" * 80_000)},
        {"decoder": replace("a" * 80_000, "b")},
    ],
)
def test_a_pattern_of_megabytes_is_refused(tmp_path: Path, changes: Json) -> None:
    why = "a step has a string of 80,000 characters; the limit is 65,536"
    assert refusal(tmp_path, byte_level_json(**changes)) == why


def charsmap(data: bytes) -> Json:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("tokenizer", "why"),
    [
        (byte_level_json(model={"merges": [["zz", "a"]]}), "out of vocabulary"),
        (byte_level_json(model={"merges": [["a"]]}), "did not match any variant"),
        (byte_level_json(model={"merges": ["a b c"]}), "Merges text file invalid"),
        (byte_level_json(model={"continuing_subword_prefix": "#" * 9}), "out of range for slice"),
        (byte_level_json(pre_tokenizer=split("(")), "unmatched parenthesis"),
        (byte_level_json(normalizer=charsmap(b"")), "Cannot parse precompiled_charsmap"),
        (byte_level_json(normalizer=charsmap(b"\x10\0\0\0" + b"\xff" * 9)), "Cannot parse"),
        (byte_level_json(added_tokens=[{"id": 1}]), "missing required field `content`"),
        (byte_level_json(added_tokens="x"), "Expected `array | null`"),
        (with_model(type="Nothing", vocab={}), "did not match any variant"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_library_cannot_load_is_refused_with_its_reason(
    tmp_path: Path, tokenizer: Json, why: str
) -> None:
    assert why in refusal(tmp_path, tokenizer)


def test_a_step_that_fails_on_every_text_is_refused() -> None:
    """The library panics, which is not an `Exception` in Python."""
    with pytest.raises(UserError, match="the tokenizer cannot encode 'a'"):
        load_reference(as_file(byte_level_json(normalizer=replace("", "x"))), False)


def ranks(*extra: bytes) -> bytes:
    """A rank for every byte, and further lines."""
    lines = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]
    return b"\n".join([*lines, *extra]) + b"\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ranks(b"!!!! 256"), "line 257, b'!!!! 256': Only base64 data is allowed"),
        (ranks(b"YWE 256"), "line 257, b'YWE 256': Incorrect padding"),
        (ranks(b"YWE= x"), "line 257, b'YWE= x': invalid literal for int()"),
        (ranks(b"YWE="), "line 257, b'YWE=': not enough values"),
        (ranks(b"YWE= 1 2"), "line 257, b'YWE= 1 2': too many values"),
        (ranks(b"YWE= -1"), "the id of \"b'aa'\" is -1"),
        (ranks(b"YWE= 2147483648"), "the id of \"b'aa'\" is 2147483648"),
        (ranks(b"YWE= 1" + b"0" * 5_000), "Exceeds the limit"),
        (ranks(b"YWE= 7"), "two tokens have the same rank"),
        (ranks(b"YQ== 256"), "a token has two ranks"),
        (ranks().replace(b"YQ== 97\n", b""), "byte 0x61 has no rank"),
    ],
)
def test_a_damaged_rank_file_is_refused_and_the_line_named(data: bytes, why: str) -> None:
    with pytest.raises(UserError) as caught:
        load_reference(TokenizerFile("tiktoken", data, "gpt2", origin="x.tiktoken"), False)
    assert (caught.value.what, caught.value.where) == ("cannot load the tokenizer", "x.tiktoken")
    assert why in caught.value.why
