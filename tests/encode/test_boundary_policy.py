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


def test_eos_is_a_token_that_the_user_names() -> None:
    found = resolve("<a>", "<b>", eos="<b>")
    assert found == BoundaryTokens((), 260, "--eos", None)


def test_eos_is_an_id_that_the_user_names() -> None:
    assert resolve("<a>", "<b>", eos="259") == BoundaryTokens((), 259, "--eos", None)


def test_a_number_is_an_id_even_where_its_digits_are_a_token() -> None:
    assert resolve("<a>", eos="7").eos_id == 7  # the token "7" has the id 55


def test_a_special_token_made_of_digits_is_a_token() -> None:
    assert resolve("<a>", "777", eos="777").eos_id == 260


def test_eos_may_be_an_ordinary_token_of_the_vocabulary() -> None:
    assert resolve("<a>", eos="abc").eos_id == 258


def test_what_the_user_names_wins_over_the_configuration_and_the_table() -> None:
    found = resolve("</s>", "<a>", eos="<a>", config={"eos_token": "</s>"})
    assert (found.eos_id, found.eos_reason) == (260, "--eos")


@pytest.mark.parametrize("value", ["<b>", {"content": "<b>", "lstrip": False}])
def test_eos_is_what_the_configuration_beside_the_tokenizer_names(value: str | Json) -> None:
    found = resolve("</s>", "<b>", config={"eos_token": value})
    assert (found.eos_id, found.eos_reason) == (260, CONFIG)


@pytest.mark.parametrize("value", [None, "", {}, {"content": ""}, 5])
def test_a_configuration_that_names_nothing_leaves_it_to_the_table(value: object) -> None:
    found = resolve("<a>", "</s>", config={"eos_token": value})
    assert (found.eos_id, found.eos_reason) == (260, ONLY_KNOWN)


def test_several_known_tokens_are_refused_with_the_candidates() -> None:
    with pytest.raises(UserError, match="cannot tell which token ends a document") as caught:
        resolve("<s>", "</s>", "<|endoftext|>")
    assert caught.value.why == "candidates: <|endoftext|>, </s>"
    assert caught.value.hint == "choose one with --eos TOKEN"


def test_no_known_token_is_refused_with_all_special_tokens_as_candidates() -> None:
    with pytest.raises(UserError) as caught:
        resolve("<b>", "<a>")
    assert caught.value.why == "candidates: <a>, <b>"


def test_no_special_tokens_at_all_are_refused_with_those_words() -> None:
    with pytest.raises(UserError) as caught:
        resolve()
    assert caught.value.why == "candidates: none: it has no special tokens"


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


def test_a_configuration_that_names_a_token_which_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        resolve("</s>", config={"eos_token": "<no>"})
    assert caught.value.where == "tokenizer_config.json"


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


def test_a_pad_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        resolve("</s>", pad="<no>")
    assert caught.value.where == "--pad"


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
