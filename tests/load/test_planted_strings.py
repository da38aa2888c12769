"""Planted strings: `find` knows every step that gave them, and once taken out they come no more."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from resume_kit import through_json
from tokenizers import Tokenizer

import tokenmill
from conftest import write_jsonl

WORDS = "the quick brown fox jumps over a lazy dog und ein schönes Fräulein".split()


def planted(number: int, source: random.Random) -> str:
    """A text with one string at a random place, which no other text has."""
    words = source.choices(WORDS, k=source.randint(0, 40))
    words.insert(source.randint(0, len(words)), needle(number))
    return source.choice(["", " "]).join(words)


def needle(number: int) -> str:
    return f"[{number:05d}é]"


def recorded(batches: tokenmill.Batches, stop: int, spans: list[range]) -> dict[int, set[int]]:
    """Train up to a step; the steps that gave some token of each document's string."""
    steps = defaultdict(set)
    for step in range(batches.step, stop):
        assert batches.advance() is not None
        for part in batches.explain(step):
            span = spans[part.document]
            if part.start < span.stop and span.start < part.start + part.length:
                steps[part.document].add(step)
    return steps


def uses_found(dataset: Any, strings: list[str], state: dict[str, Any]) -> dict[int, set[int]]:
    found = tokenmill.find(dataset, strings, state=state).documents
    assert all(each.occurrences == 1 for each in found)
    return {each.document: {use.step for use in each.uses or [] if use.is_given} for each in found}


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_every_planted_string_is_found_with_its_steps_and_can_be_taken_out(
    count: int, tokenizer_path: Path, tmp_path: Path
) -> None:
    source = random.Random(count)
    texts = [planted(number, source) for number in range(count)]
    inputs = write_jsonl(tmp_path / "texts.jsonl", texts)
    dataset = tokenmill.build(inputs, tokenizer_path, tmp_path / "data", workers=1).dataset
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    spans = []
    for number, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        first = texts[number].index(needle(number))
        last = first + len(needle(number))
        held = [at for at, (a, b) in enumerate(encoding.offsets) if a < last and first < b]
        spans.append(range(held[0], held[-1] + 1))
    needles = [needle(number) for number in range(count)]

    tokenmill.pack(dataset, sequence_length=32, packing="concat-and-chunk", name="chunks")
    options = {"global_batch_size": 8, "epochs": 4}
    batches = dataset.batches("chunks", **options)
    middle = 3 * len(tokenmill.open_plan(dataset, "chunks")) // 16  # of the second epoch
    given = recorded(batches, middle, spans)
    state = through_json(batches.state_dict())
    found = uses_found(dataset, needles, state)
    assert found.keys() == set(range(count))
    assert found == {number: given[number] for number in range(count)}

    out = needles[::3]
    tokenmill.find(dataset, out, save=tmp_path / "found")
    view = tokenmill.select(dataset, tmp_path / "left", without=tmp_path / "found")
    tokenmill.pack(view, rest_of=state, sequence_length=64, name="rest")
    state = tokenmill.amend(state, dataset=view, plan="rest")
    rest = view.batches("rest", **options)
    rest.load_state_dict(state)
    stop = middle + 2 * len(tokenmill.open_plan(view, "rest")) // 8
    first = rest.step
    later = recorded(rest, stop, spans)
    text = "".join(
        tokenizer.decode(row, skip_special_tokens=False)
        for step in range(first, stop)
        for row in rest.batch(step)["input_ids"].tolist()
    )
    assert sum(each in text for each in out) == 0
    assert sum(each in text for each in needles) > 0
    for number, steps in later.items():
        given[number] |= steps
    state = through_json(rest.state_dict())
    assert uses_found(view, needles, state) == {
        number: given[number] for number in range(count) if number % 3
    }
