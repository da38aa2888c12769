"""The end-of-document token: appended to each document once, as the tokenizer names it."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from hf_kit import (
    EOT,
    TEXTS,
    Letters,
    bare_tokenizer,
    contents,
    dataset_of,
    fast_tokenizer,
    options,
    recipe,
)

from tokenmill.core.errors import UserError
from tokenmill.hf import CausalLMTokenizer

AUTO = {"append_eos": "auto"}


def rows_of(texts: list[str | None], length: int, tokenizer: Any, **others: Any) -> dict[str, Any]:
    made = CausalLMTokenizer(options(length, **{**AUTO, **others}), tokenizer)
    return contents(made.tokenize(dataset_of(texts)))


def named(folder: Path, config: str) -> str:
    """A folder with a tokenizer that has two tokens known to end documents."""
    bare_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(config)
    return str(folder)


@pytest.mark.parametrize("sides", list(itertools.product(("left", "right"), repeat=2)))
@pytest.mark.parametrize("around", [(0, 0), (1, 0), (0, 2)])
def test_rows_are_those_of_the_usual_recipe_with_the_token_after_each_text(
    around: tuple[int, int], sides: tuple[str, str]
) -> None:
    known = fast_tokenizer(*around, padding_side=sides[0], truncation_side=sides[1])
    ended = [text + EOT for text in TEXTS]
    for length, overlap in ((7, 0), (8, 3), (16, 12), (256, 7)):
        expected = recipe(known, ended, length, overlap)
        assert rows_of(TEXTS, length, known, overlap=overlap) == expected
    assert rows_of(TEXTS, length, known, overlap=overlap, append_eos=True) == expected


def test_a_stream_and_a_subclass_append_it(tmp_path: Path) -> None:
    class Own(CausalLMTokenizer):
        def _tokenize_function(self, batch: Any) -> Any:
            return super()._tokenize_function(batch)

    expected = recipe(fast_tokenizer(), [text + EOT for text in TEXTS], 8, 0)
    stream = CausalLMTokenizer(options(8, **AUTO), fast_tokenizer()).tokenize(
        dataset_of(TEXTS).to_iterable_dataset()
    )
    assert contents(stream) == expected
    own = Own(options(8, **AUTO), fast_tokenizer()).tokenize(dataset_of(TEXTS))
    assert contents(own) == expected


def test_the_decision_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made = CausalLMTokenizer(options(8, **AUTO), fast_tokenizer())
        made.tokenize(dataset_of(TEXTS))
        made.tokenize(dataset_of(TEXTS))
    line = "each document ends with the end-of-document token, 0 (tokenizer.eos_token_id)"
    assert caplog.messages.count(line) == 1


# Which token it is.


def test_a_configuration_names_the_token(tmp_path: Path) -> None:
    path = named(tmp_path, '{"eos_token": "</s>", "pad_token": "<s>"}')
    rows = rows_of(["a"], 3, None, tokenizer_name=path)
    assert rows["input_ids"][0][1:] == [2, 1]


@pytest.mark.parametrize("append_eos", ["auto", True])
def test_several_candidates_are_refused_as_build_refuses_them(
    append_eos: str | bool, tmp_path: Path
) -> None:
    path = named(tmp_path, '{"pad_token": "<s>"}')
    with pytest.raises(UserError, match="cannot tell which token ends a document") as caught:
        CausalLMTokenizer(options(8, tokenizer_name=path, append_eos=append_eos))
    assert caught.value.why == "candidates: <|endoftext|>, </s>"
    assert caught.value.hint == (
        'name an "eos_token" in tokenizer_config.json, or set append_eos: false'
    )


class Words:
    """A tokenizer in Python that names a padding token and nothing else."""

    pad_token_id = 0

    def encode(self, text: str) -> list[int]:
        return [min(ord(character), 999) for character in text]


def test_a_tokenizer_without_such_a_token_gives_the_old_rows_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = rows_of(["ab"], 4, Words(), num_proc=1)
    assert rows["input_ids"] == [[97, 98, 0, 0]]
    (warning,) = [text for text in caplog.messages if "end-of-document" in text]
    assert warning.startswith(
        "rows have no end-of-document token, because the tokenizer names none"
    )
    assert "set tokenizer.eos_token or tokenizer.eos_token_id" in warning


def test_true_is_an_error_if_no_such_token_is_known() -> None:
    with pytest.raises(UserError, match="cannot tell which token ends a document") as caught:
        CausalLMTokenizer(options(8, append_eos=True), Words())
    assert "or set append_eos: false" in caught.value.hint


# A document never gets two.


def test_a_post_processor_that_ends_texts_with_the_token_is_enough() -> None:
    known = fast_tokenizer(0, 1, eos_token="</s>")
    for length in (8, 64):
        assert rows_of(TEXTS, length, known) == recipe(known, TEXTS, length, 0)


def test_a_python_tokenizer_gets_the_token_once_even_if_encode_adds_it() -> None:
    class Ending(Letters):
        def encode(self, text: str) -> list[int]:
            return [*super().encode(text), self.eos_token_id]

    expected = [[97, 98, 1000, 1000]]
    for tokenizer in (Letters(), Ending()):
        rows = rows_of(["ab"], 4, tokenizer, num_proc=1)
        assert rows["input_ids"] == expected
        assert rows["attention_mask"] == [[1, 1, 1, 0]]


def test_a_slow_tokenizer_that_is_told_to_add_the_token_gets_no_second() -> None:
    class Slow(Letters):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return super().encode(text) + [self.eos_token_id] * add_special_tokens

    rows = rows_of(["abc"], 6, Slow(), num_proc=1)
    assert rows["input_ids"] == [[97, 98, 99, 1000, 1000, 1000]]
    assert rows["attention_mask"] == [[1, 1, 1, 1, 0, 0]]


# The cache.
