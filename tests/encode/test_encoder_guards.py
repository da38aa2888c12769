"""What an engine may not do: panic, lose documents, invent ids, or differ from the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import batch_of, documents

from tokenmill.core.errors import EngineError, InternalError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.adversarial import NUM_STRINGS, adversarial_texts
from tokenmill.encode.engine import Encoder
from tokenmill.encode.exactness import Exam, check_engine, compare_tokens


class PanicException(BaseException):
    """As Rust panics reach Python: no Exception."""


def code_points(texts: Sequence[str]) -> TokenBatch:
    return batch_of(*([ord(c) for c in text] for text in texts))


class FakeEngine:
    """One id per character, unless a test says otherwise."""

    name = "fake"
    version = "1"

    def __init__(self, encode: Callable[[Sequence[str]], TokenBatch] = code_points) -> None:
        self.calls: list[list[str]] = []
        self._encode = encode

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        self.calls.append(list(texts))
        return self._encode(texts)


def encoder(encode: Callable[[Sequence[str]], TokenBatch]) -> Encoder:
    return Encoder(FakeEngine(encode), largest_id=255)


def raising(error: BaseException) -> Callable[[Sequence[str]], TokenBatch]:
    def encode(texts: Sequence[str]) -> TokenBatch:
        raise error

    return encode


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), ValueError("no")])
def test_a_panic_and_an_exception_become_an_engine_error(error: BaseException) -> None:
    with pytest.raises(EngineError) as caught:
        encoder(raising(error)).encode(["a", "b"])
    assert caught.value.what == "fake failed on a batch of 2 documents"
    assert caught.value.why == f"{type(error).__name__}: {error}"
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        MemoryError(),
        EngineError("one already"),
        InternalError("ours"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_failure_of_the_engine_passes_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        encoder(raising(error)).encode(["a"])
    assert caught.value is error


@pytest.mark.parametrize(
    "returned",
    [
        batch_of([1]),
        batch_of([1], [2], [3]),
        batch_of([1], [256]),
        TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 3, 2])),
        TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 5, 3])),
        TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 1, 2])),
        TokenBatch(np.array([1, 2, 3], np.uint32), np.array([1, 2, 3])),
        TokenBatch(np.array([], np.uint32), np.array([], np.int64)),
    ],
    ids=[
        "too few documents",
        "too many documents",
        "an id above the largest",
        "decreasing offsets",
        "offsets that go beyond and return",
        "ids that no document has",
        "a first document that starts late",
        "nothing at all",
    ],
)
def test_impossible_results_are_refused(returned: TokenBatch) -> None:
    with pytest.raises(EngineError, match="fake returned invalid ids"):
        encoder(lambda texts: returned).encode(["a", "b"])


def test_long_documents_are_encoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.encode.engine.ALONE_CHARACTERS", 3)
    engine = FakeEngine()
    texts = ["long1", "a", "", "long2", "long3", "abc"]
    found = Encoder(engine, largest_id=255).encode(texts)
    assert engine.calls == [["long1"], ["a", ""], ["long2"], ["long3"], ["abc"]]
    assert documents(found) == documents(code_points(texts))
    assert [found.ids.dtype.name, found.offsets.dtype.name] == ["uint32", "int64"]


TEXTS = ["same", "2024", "same too"]
EXAM = Exam(TEXTS, code_points(TEXTS))


def test_an_engine_that_differs_in_one_text_is_caught_with_the_text_and_the_token() -> None:
    def differs(texts: Sequence[str]) -> TokenBatch:
        return code_points([text.replace("24", "25") for text in texts])

    with pytest.raises(EngineError) as caught:
        check_engine(FakeEngine(differs), EXAM)
    assert caught.value.what == "fake gives ids that differ from the reference"
    assert caught.value.where == "text '2024', token 3"
    assert caught.value.why == f"{[ord('5')]} instead of {[ord('4')]}"


@pytest.mark.parametrize(
    ("found", "where", "why"),
    [
        ([1, 2], "text 'x', token 2", "[] instead of [3]"),
        ([1, 2, 3, 4], "text 'x', token 3", "[4] instead of []"),
        ([], "text 'x', token 0", "[] instead of [1, 2, 3]"),
        ([9, 2, 3], "text 'x', token 0", "[9, 2, 3] instead of [1, 2, 3]"),
    ],
    ids=["too short", "too long", "empty", "other"],
)
def test_the_first_differing_token_is_shown(found: list[int], where: str, why: str) -> None:
    with pytest.raises(EngineError) as caught:
        compare_tokens("fake", ["x"], batch_of(found), batch_of([1, 2, 3]))
    assert (caught.value.where, caught.value.why) == (where, why)


lists = st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=4)


@settings(deadline=None)
@given(lists, lists)
def test_a_comparison_passes_exactly_where_documents_are_equal(
    ours: list[list[int]], theirs: list[list[int]]
) -> None:
    texts = ["?"] * len(theirs)
    try:
        compare_tokens("fake", texts, batch_of(*ours), batch_of(*theirs))
    except EngineError:
        assert ours != theirs
    else:
        assert ours == theirs


def test_the_adversarial_texts_are_always_the_same_and_hold_the_special_tokens() -> None:
    texts = adversarial_texts(["<b>", "<a>"])
    assert texts == adversarial_texts(["<a>", "<b>"])
    assert len(texts) == NUM_STRINGS
    assert {"2024", "a<a>b", "<b><b>", " <a ", "<b"} <= set(texts)
