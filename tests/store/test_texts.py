"""Blocks of text hold what the reference decodes, whatever their size."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from tokenmill import Dataset
from tokenmill.core.errors import VerificationError
from tokenmill.store.selecting import texts as module
from tokenmill.store.selecting.places import places_of
from tokenmill.store.selecting.texts import Texts
from view_kit import built, view_of

TEXTS = {
    "a.jsonl": ["the quick brown fox", "日本語 😀 é" * 30, "a", "x" * 500, "\n\n", "end"],
    "b.jsonl": ["second file", "ü" * 333, "last <|endoftext|> one"],
}
ALL = [text for texts in TEXTS.values() for text in texts]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    return built(tmp_path_factory.mktemp("texts"), tokenizer_path, TEXTS, eos=None, pad=None)


def texts_of(dataset: Dataset, texts: Texts) -> list[bytes]:
    """The text of each document."""
    found: list[bytes] = []
    for place in places_of([dataset]):
        numbers: list[int] = []
        for block in texts.blocks(place, place.selected):
            numbers += block.documents.tolist()
            found += [block.data[a:b].tobytes() for a, b in pairwise(block.offsets.tolist())]
        assert numbers == place.shard.chosen.tolist()
    return found


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 2000))
def test_blocks_of_any_size_hold_the_same_text(dataset: Dataset, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        texts = Texts(dataset)
        assert not texts.is_slow
        assert texts_of(dataset, texts) == [text.encode() for text in ALL]
        texts.table = None
        assert texts_of(dataset, texts) == [text.encode() for text in ALL]


def test_a_view_has_the_text_of_its_documents(dataset: Dataset, tmp_path: Path) -> None:
    view = view_of(tmp_path / "view", [dataset], {1, 5, 6})
    assert texts_of(view, Texts(view)) == [ALL[i].encode() for i in (1, 5, 6)]


def test_a_token_that_the_vocabulary_lacks_is_an_error(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    made = built(tmp_path, tokenizer_path, {"a.jsonl": ["abc"] * 100}, eos=None, pad=None)
    texts = Texts(made)
    path = made.shards[0].path("bin")
    ids = np.fromfile(path, made.token_dtype)
    ids[5] = 60000
    ids.tofile(path)
    with pytest.raises(VerificationError, match="the vocabulary has no token 60000"):
        texts_of(tokenmill.open(made.folder), texts)
