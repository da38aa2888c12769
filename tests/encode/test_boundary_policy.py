"""The end-of-document token: named by the user, a configuration or the tokenizer, never guessed."""

from __future__ import annotations

import pytest
from tokenizer_kit import Json, added_token, as_file, byte_level_json

from tokenmill.core.errors import UserError
from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.references.huggingface import HuggingFaceReference

ONLY_KNOWN = "the only known end-of-document token among its special tokens"
CONFIG = "the tokenizer's config"


def resolve(
    *specials: str, eos: str | None = None, pad: str | None = None, config: Json | None = None
) -> BoundaryTokens:
    """With a tokenizer whose special tokens have the ids 259, 260, ... in the order given."""
    tokens = [added_token(name, 259 + i, special=True) for i, name in enumerate(specials)]
    file = as_file(byte_level_json(added_tokens=tokens), config)
    return resolve_boundary_tokens(HuggingFaceReference(file, False), file, eos, pad)


@pytest.mark.parametrize(
    ("specials", "eos", "expected"),
    [
        (["<a>", "<b>"], "<b>", 260),
        (["<a>", "<b>"], "259", 259),
        (["<a>"], "7", 7),  # the token "7" has the id 55
        (["<a>", "777"], "777", 260),
        (["<a>"], "abc", 258),  # an ordinary token
    ],
)
def test_eos_is_the_token_or_the_id_that_the_user_names(
    specials: list[str], eos: str, expected: int
) -> None:
    found = resolve(*specials, eos=eos, config={"eos_token": "<a>"})
    assert found == BoundaryTokens((), expected, "--eos", None)


@pytest.mark.parametrize("value", ["<b>", {"content": "<b>", "lstrip": False}])
def test_eos_is_what_the_configuration_beside_the_tokenizer_names(value: str | Json) -> None:
    found = resolve("</s>", "<b>", config={"eos_token": value})
    assert (found.eos_id, found.eos_reason) == (260, CONFIG)


@pytest.mark.parametrize("value", [None, "", {}, {"content": ""}, 5])
def test_a_configuration_that_names_nothing_leaves_it_to_the_table(value: object) -> None:
    found = resolve("<a>", "</s>", config={"eos_token": value})
    assert (found.eos_id, found.eos_reason) == (260, ONLY_KNOWN)


@pytest.mark.parametrize(
    ("specials", "why"),
    [
        (["<s>", "</s>", "<|endoftext|>"], "candidates: <|endoftext|>, </s>"),
        (["<b>", "<a>"], "candidates: <a>, <b>"),
        ([], "candidates: none: it has no special tokens"),
    ],
)
def test_an_end_that_would_be_a_guess_is_refused_with_the_candidates(
    specials: list[str], why: str
) -> None:
    with pytest.raises(UserError, match="cannot tell which token ends a document") as caught:
        resolve(*specials)
    assert (caught.value.why, caught.value.hint) == (why, "choose one with --eos TOKEN")


def test_an_ordinary_token_with_a_known_name_is_not_taken_for_the_end_of_documents() -> None:
    file = as_file(byte_level_json(added_tokens=[added_token("</s>", 259)]))
    with pytest.raises(UserError):
        resolve_boundary_tokens(HuggingFaceReference(file, False), file, None, None)


@pytest.mark.parametrize("eos", ["<no>", "", "260", "-1", "99999999999999999999", "1.0"])
def test_an_eos_that_does_not_exist_is_refused_with_the_special_tokens(eos: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve("</s>", eos=eos)
    assert caught.value.what == f"the tokenizer has no token {eos!r}"
    assert caught.value.where == "--eos"
    assert caught.value.why == "its special tokens are: </s>"


@pytest.mark.parametrize(
    ("pad", "config", "expected"),
    [
        (None, {}, None),
        ("<pad>", {}, 260),
        ("260", {}, 260),
        (None, {"pad_token": "<pad>"}, 260),
        (None, {"pad_token": {"content": "<pad>"}}, 260),
        ("</s>", {"pad_token": "<pad>"}, 259),
    ],
    ids=["none", "token", "id", "config", "config with a dict", "both"],
)
def test_pad_is_named_by_the_user_or_the_configuration_or_absent(
    pad: str | None, config: Json, expected: int | None
) -> None:
    assert resolve("</s>", "<pad>", pad=pad, config=config).pad_id == expected


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"config": {"eos_token": "<no>"}}, "tokenizer_config.json"),
        ({"pad": "<no>"}, "--pad"),
    ],
)
def test_a_token_that_does_not_exist_is_refused(options: Json, where: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve("</s>", **options)
    assert caught.value.where == where


def test_the_prefix_is_that_of_the_tokenizer() -> None:
    single = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    post_processor = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [259], "tokens": ["<s>"]}},
    }
    tokens = [added_token("<s>", 259, special=True), added_token("</s>", 260, special=True)]
    file = as_file(byte_level_json(added_tokens=tokens, post_processor=post_processor))
    found = resolve_boundary_tokens(HuggingFaceReference(file, False), file, None, None)
    assert found == BoundaryTokens((259,), 260, ONLY_KNOWN, None)
