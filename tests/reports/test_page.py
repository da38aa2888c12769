"""A report is one page that loads nothing, shows what the dataset holds, and keeps text as text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from browser_kit import accessibility_problems, needs_chromium, opened_page
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.reports import samples
from tokenmill.reports.lengths.counts import LengthCounts
from tokenmill.reports.overview import Overview

HOSTILE = [
    "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>",
    "right to left: \u202eabc\u202c and an escape: \x1b[31m",
    "one line " * 20_000,
    "\u0645\u0631\u062d\u0628\u0627 \u65e5\u672c\u8a9e \U0001f469\u200d\U0001f4bb",
    "secret and open",
]
NO_LOSS = [[], [], [], [], [[0, 6]]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> tokenmill.Dataset:
    """Hostile texts, a hostile file name, and two records that are rejected."""
    folder = tmp_path_factory.mktemp("report")
    path = write_jsonl(folder / "a <b onclick=x>.jsonl", HOSTILE, mask=NO_LOSS)
    with path.open("ab") as lines:
        lines.write(b"<script>not json</script>\n" + b'{"text": 5, "mask": []}\n')
    write_jsonl(folder / "z.jsonl", ["short"] * 20, mask=[[]] * 20)
    out = folder / "corpus"
    options: dict[str, Any] = {"workers": 1, "no_loss": "mask", "max_bad": 0.5}
    report = tokenmill.build([path, folder / "z.jsonl"], tokenizer_path, out, **options)
    tokenmill.pack(out, sequence_length=64, long_documents="drop", name="short")
    tokenmill.pack(out, sequence_length=256, name="long")
    return tokenmill.open(report.out)


@pytest.fixture(scope="module")
def page(dataset: tokenmill.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    tokenmill.report(dataset, out, plan="short")
    return out


class Parsed(HTMLParser):
    """The elements of a page, its scripts, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not self.elements:
            return
        tag, attributes = self.elements[-1]
        if tag == "script" and "type" not in attributes:
            self.scripts += [data] if data.strip() else []
        else:
            self.text += data


def test_a_page_loads_nothing_and_runs_only_its_own_scripts(page: Path) -> None:
    parsed = Parsed(page)
    assert len(parsed.scripts) == 2
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()) for s in parsed.scripts]
    policies = [a["content"] for _, a in parsed.elements if a.get("http-equiv")]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    assert policies == [
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'",
    ]
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not {"src", "srcset", "onclick", "onerror", "onload"} & names
    links = [a["href"] for _, a in parsed.elements if "href" in a]
    assert links
    assert all(str(link).startswith("#") for link in links)


def test_hostile_text_stays_text(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    assert "\u202e" not in source
    assert "\x1b" not in source
    assert len(source) < 3_000_000
    parsed = Parsed(page)
    assert not [tag for tag, _ in parsed.elements if tag in ("img", "iframe", "b")]
    assert "a <b onclick=x>.jsonl" in parsed.text
    assert "<script>not json</script>" in parsed.text


def test_the_figures_are_those_of_the_dataset(dataset: tokenmill.Dataset) -> None:
    found = tokenmill.report(dataset)
    assert isinstance(found, Overview)
    sources = {source.name: source.counts.documents for source in found.manifest.sources}
    assert sources == {"a <b onclick=x>.jsonl": 5, "z.jsonl": 20}
    assert {
        reason: [record.record for record in examples]
        for reason, examples in found.rejected.items()
    } == {
        "invalid-json": ["<script>not json</script>"],
        "text-not-a-string": ['{"text": 5, "mask": []}'],
    }
    assert found.lengths.documents == 25
    assert sum(each.documents for each in found.length_bins) == 25
    assert found.vocabulary.tokens == dataset.num_tokens
    assert [plan.name for plan in found.plans] == ["long", "short"]
    assert [sum(plan.fill) for plan in found.plans] == [
        plan.figures.sequences for plan in found.plans
    ]
    assert found.notes == []
    assert msgspec.json.decode(msgspec.json.encode(found))["location"] == found.location


def test_the_batch_of_a_state_is_the_next_one_of_its_loader(
    dataset: tokenmill.Dataset, tmp_path: Path
) -> None:
    batches = dataset.batches("long", batch_size=4, seed=7, rank=0, world_size=1)
    batches.advance()
    state = batches.state_dict()
    found = tokenmill.report(state, dataset=dataset)
    assert isinstance(found, Overview)
    assert found.batch is not None
    whole = batches.global_batch(1)
    assert whole is not None
    assert [row.sequence for row in found.batch.rows] == whole.sequences.tolist()
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state))
    with pytest.raises(UserError, match="needs its dataset"):
        tokenmill.report(path)
    state["sources"][0]["dataset"] = "0" * 32
    with pytest.raises(UserError, match="belongs to another dataset"):
        tokenmill.report(state, dataset=dataset)


def test_a_plan_is_shown_with_its_dataset(dataset: tokenmill.Dataset) -> None:
    found = tokenmill.report(dataset.folder / "plans" / "short")
    assert isinstance(found, Overview)
    assert found.batch is not None
    assert (found.manifest.dataset_id, found.batch.plan) == (dataset.manifest.dataset_id, "short")
    assert found.plans[0].name == "short"


def test_what_commands_print_as_json_becomes_a_page(
    dataset: tokenmill.Dataset, tokenizer_path: Path, tmp_path: Path, capsys: Printed
) -> None:
    texts = write_jsonl(tmp_path / "texts.jsonl", ["one two", "three"], language=["en", "de"])
    commands = {
        "analysis": ["analyze", str(dataset.folder)],
        "tokenizers": [
            *("tokenizer", "report", str(tokenizer_path), "--on", str(texts), "--by", "language"),
        ],
    }
    for name, command in commands.items():
        assert main([*command, "--json"]) == 0
        file, out = tmp_path / f"{name}.json", tmp_path / f"{name}.html"
        file.write_text(capsys.readouterr().out)
        assert main(["report", str(file), "--out", str(out)]) == 0
        assert capsys.readouterr().out.startswith(f"wrote {out}, ")
        parsed = Parsed(out)
        assert ("figure", {"class": "chart"}) in parsed.elements
    assert main(["report", str(texts), "--out", str(tmp_path / "x.html")]) == 2
    assert "cannot make a report of this file" in capsys.readouterr().err


def test_figures_that_contradict_each_other_are_refused(
    dataset: tokenmill.Dataset, tmp_path: Path, capsys: Printed
) -> None:
    assert main(["analyze", str(dataset.folder), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out) | {"percentiles": {}}
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(figures))
    with pytest.raises(UserError, match="contradict each other"):
        tokenmill.report(path)


def test_only_a_page_is_replaced(page: Path, tmp_path: Path, dataset: tokenmill.Dataset) -> None:
    assert main(["report", str(dataset.folder), "--out", str(page)]) == 0
    other = tmp_path / "thesis.html"
    other.write_text("<!doctype html>")
    with pytest.raises(OutputConflictError, match="already exists"):
        tokenmill.report(dataset, other)
    assert other.read_text() == "<!doctype html>"


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(1, 50))
def test_blocks_are_drawn_evenly_and_never_twice(length: int, size: int, step: int) -> None:
    blocks = list(samples._blocks(np.arange(length), size, step))
    drawn = np.concatenate(blocks)
    assert np.array_equal(drawn, np.unique(drawn))
    if step == 1:
        assert len(drawn) == length
    else:
        assert all(block[0] % (size * step) == 0 and len(block) <= size for block in blocks)


def test_a_sample_is_scaled_to_all_documents(
    dataset: tokenmill.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "BLOCK_DOCUMENTS", 2)
    found = samples.sampled_lengths(dataset, 10)
    assert not found.is_whole
    assert found.documents < 25
    assert found.counts.num_documents == pytest.approx(25, abs=3)
    whole = samples.sampled_lengths(dataset, 25)
    assert whole.is_whole
    assert whole.counts.num_documents == 25


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50), st.integers(1, 6))
def test_bins_hold_every_document_once_and_meet(lengths: list[int], per_octave: int) -> None:
    bins = LengthCounts.of([np.array(lengths)]).bins(per_octave)
    assert sum(each.documents for each in bins) == len(lengths)
    assert sum(each.tokens for each in bins) == sum(lengths)
    assert all(one.high + 1 == other.low for one, other in itertools.pairwise(bins))


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_a_browser_draws_every_chart_at_any_width(page: Path, width: int, scheme: str) -> None:
    with opened_page(page, width, scheme) as shown:
        marks = shown.eval_on_selector_all(
            "figure.chart",
            "all => all.map(each => each.querySelectorAll('svg :is(rect, path, circle)').length)",
        )
        assert len(marks) > 10
        assert min(marks) > 0
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.evaluate("window.hurt") is None
        assert accessibility_problems(shown) == []


@needs_chromium
def test_tables_sort_and_leaves_turn_with_the_keyboard(page: Path) -> None:
    with opened_page(page) as shown:
        table = shown.locator("#which-strategy > .wide table")
        table.get_by_role("button", name="sequences", exact=True).focus()
        for sign in (-1, 1):
            shown.keyboard.press("Enter")
            cells = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
            numbers = [int(cell.replace(",", "")) for cell in cells]
            assert numbers == sorted(numbers, key=lambda number: sign * number)
            assert len(numbers) > 5
        leaves = shown.locator("#documents .leaves > li:visible h3")
        first = leaves.all_inner_texts()
        shown.locator("#documents .turn button", has_text="next").focus()
        shown.keyboard.press("Enter")
        second = leaves.all_inner_texts()
        assert len(first) == len(second) == 1
        assert first != second
        assert re.search(r"2 of \d+", shown.locator("#documents .turn").inner_text())
