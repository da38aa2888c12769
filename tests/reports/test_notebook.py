"""Objects show themselves in a notebook: whole tables, no script, nothing but text from outside."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from conftest import write_jsonl
from tokenmill.api.datasets import dataset_card
from tokenmill.core.errors import VerificationError
from tokenmill.load.loader import Loader
from tokenmill.reports import samples
from tokenmill.store.dataset import Shard
from tokenmill.store.layout import HEADER

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
SHOWN = "<script>alert(1)</script>\\u202e\\x1b[31m"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Any:
    """Documents of 4, 4, 8 and 2 tokens (digits and an end) in sequences of 5."""
    folder = tmp_path_factory.mktemp("notebook")
    path = write_jsonl(folder / "a.jsonl", ["123", "456", "7890123", "4"])
    return tokenmill.build(path, tokenizer_path, folder / "out", workers=1, sequence_length=5)


def card(value: object) -> dict[str, str]:
    """The rows of the table, after a check that there is no script."""
    found: str = value._repr_html_()  # type: ignore[attr-defined]
    assert "<script" not in found
    assert not re.search(r" on\w+=|javascript:|https?:", found)
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", found, re.DOTALL)
    pairs = [(html.unescape(name), html.unescape(text)) for name, text in rows]
    title = re.findall(r"<strong>(.*?)</strong>", found)
    assert found.count("<svg") <= 1
    return {"": html.unescape(title[0]), **dict(pairs)}


def heights(value: object) -> list[float]:
    """Of the bars in the picture."""
    found: str = value._repr_html_()  # type: ignore[attr-defined]
    return [float(each) for each in re.findall(r'<rect [^>]*height="([\d.]+)"', found)]


def test_a_dataset_shows_its_facts_and_its_lengths(report: Any) -> None:
    dataset = tokenmill.open(report.out)
    identity = f"id {dataset.manifest.dataset_id}, format 2"
    tokenizer = dataset.manifest.tokenizer
    assert card(dataset) == {
        "": "Dataset",
        "dataset": f"{report.out} ({identity})",
        "documents": "4 in 1 shard",
        "tokens": "18 as uint16, 4 per document",
        "records": "4: 0 empty, rejected: none",
        "tokenizer": f"huggingface, largest id {tokenizer.largest_id}, begins with nothing, "
        f"ends with {tokenizer.eos_id}",
        "sources": "1",
        "plans": "best-fit-5",
        "lengths": "2 to 8 tokens; half have at most 4",
    }
    assert heights(dataset) == [24, 0, 48, 0, 24]  # of 2, 3, 4 or 5, 6 or 7, and 8 to 10 tokens


def test_a_build_shows_the_dataset_and_how_long_it_took(report: Any) -> None:
    shown = card(report)
    assert shown.pop("") == "Build"
    assert re.fullmatch(r"\d+\.\d s with \w+", shown.pop("built in"))
    assert shown == {name: text for name, text in card(report.dataset).items() if name}


def test_a_large_dataset_shows_the_lengths_of_a_sample(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SMALL", (2, 1))
    monkeypatch.setattr(samples, "BLOCK_DOCUMENTS", 1)
    monkeypatch.setattr(Shard, "read_lengths", None)  # reads all lengths
    shown = card(report.dataset)
    assert shown["lengths"] == "4 to 8 tokens; half have at most 4 (of 2 documents)"
    assert heights(report.dataset) == [48, 0, 48]


def test_a_damaged_index_is_an_error(report: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(report.out, tmp_path / "out")
    (index,) = folder.glob("tokens/*.idx")
    data = index.read_bytes()
    index.write_bytes(data[: HEADER.size] + bytes(len(data) - HEADER.size))
    with pytest.raises(VerificationError, match="a token index is damaged") as caught:
        tokenmill.open(folder)._repr_html_()
    assert caught.value.why == "it contains a document without tokens"


def test_a_dataset_in_a_bucket_is_shown_by_its_manifest(report: Any) -> None:
    shown = dataset_card("Build", report.manifest, "s3://bucket/out", None)
    assert "s3://bucket/out (id" in shown
    assert "<svg" not in shown


def test_a_plan_shows_its_fill_and_some_rows(report: Any) -> None:
    plan = report.plans[0].plan
    assert repr(plan) == f"<Plan '{report.out}/plans/best-fit-5': 4 sequences>"
    assert card(plan) == {
        "": "Plan best-fit-5",
        "rows": "4 of 5 tokens",
        "fill": "90.00%, with 1 cut",
        "segments": "5, 1.2 per row",
        "strategy": "best-fit, documents: split",
        "id": plan.manifest.plan_id,
    }
    assert "4 of 4 rows: segments in shades, padding empty" in plan._repr_html_()
    assert heights(plan) == [10] * 5
    assert report.plans[0]._repr_html_() == plan._repr_html_()


@pytest.mark.parametrize("figures", [{}, {"padding": "no", "row_tokens": 3}])
def test_a_plan_with_wrong_figures_is_shown_without_them(
    figures: dict[str, Any], report: Any
) -> None:
    plan = tokenmill.open_plan(report.out)
    plan.manifest = tokenmill.store.plan.msgspec.structs.replace(plan.manifest, figures=figures)
    assert card(plan)["fill"] == "unknown"


def test_loaders_show_their_progress_and_their_rows(report: Any) -> None:
    batches = report.dataset.batches(batch_size=2, columns=("input_ids", "labels"))
    next(iter(batches))
    assert repr(batches) == "<Batches: 2 steps, rank 0 of 1>"
    expected = {
        "step": "1 of 2",
        "batch": "2 rows, for rank 0 of 1",
        "data": f"{report.out}, plan best-fit-5",
        "columns": "input_ids, labels",
    }
    assert card(batches) == {"": "Batches"} | expected
    widths = re.findall(r'<rect [^>]*width="([\d.]+)"', batches._repr_html_())
    assert widths == ["320", "160.0"]
    loader = Loader(batches)
    assert repr(loader) == "<Loader: 2 steps, rank 0 of 1>"
    assert card(loader) == {"": "Loader"} | expected


def test_a_loader_without_a_known_end_is_shown_without_progress(report: Any) -> None:
    source = tokenmill.MixtureSource(dataset=report.dataset, plan=report.plans[0].plan)
    batches = tokenmill.mix_batches([source], batch_size=2)
    assert repr(batches) == "<Batches: no known end, rank 0 of 1>"
    assert card(batches)["step"] == "0"
    assert heights(batches) == []


def test_an_analysis_shows_lengths_and_what_it_recommends(report: Any) -> None:
    analysis = tokenmill.analyze(report.dataset, sequence_lengths=[8, 16])
    assert card(analysis) == {
        "": "Analysis of lengths",
        "corpus": report.out,
        "documents": "4 documents with 18 tokens",
        "lengths": "2 to 8 tokens, 4.5 on average",
        "recommended": "sequences of 8 tokens",
    }
    assert heights(analysis) == [24, 48, 24]


def test_a_report_on_tokenizers_shows_each_and_its_bytes_per_token(
    report: Any, tokenizer_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "$other.json"
    other.write_bytes(tokenizer_path.read_bytes())
    text = write_jsonl(tmp_path / "a.jsonl", ["1234", "5 6"])
    found = tokenmill.report_tokenizers([tokenizer_path, other], text)
    assert repr(found) == f"<Report on '{tmp_path}/a.jsonl': 2 tokenizers>"
    figures = "372 ids, 1.00 bytes per token"
    assert card(found) == {
        "": "Tokenizers",
        "text": str(text),
        (own := tokenizer_path.parent.name): figures,
        "$other": figures,
    }
    assert heights(found) == [10, 10]
    (axes,) = found.plot.pareto("matplotlib").axes
    assert [dot.get_offsets().tolist() for dot in axes.collections] == [[[372, 1.0]]] * 2
    assert [each.get_text() for each in axes.texts] == [own, "$other"]
    assert len(axes.lines[0].get_xdata()) == 1


def test_text_from_outside_stays_text(report: Any, tmp_path: Path) -> None:
    analysis = tokenmill.analyze(report.dataset, sequence_lengths=[8])
    object.__setattr__(analysis, "corpus", HOSTILE)
    assert card(analysis)["corpus"] == SHOWN
    folder = tmp_path / HOSTILE.replace("/", "_")
    plan = tokenmill.pack(report.dataset, sequence_length=9, folder=folder).plan
    assert card(plan)[""] == "Plan " + SHOWN.replace("/", "_")


# charts


def bars_of(figure: Any) -> dict[float, float]:
    """The height of each bar that has one, by its left edge."""
    (axes,) = figure.axes
    return {bar.get_x(): bar.get_height() for bar in axes.patches if bar.get_height()}


def test_a_dataset_draws_the_lengths_of_its_documents(report: Any) -> None:
    figure = report.dataset.plot.lengths("matplotlib")
    assert bars_of(figure) == {2: 1, 4: 2, 8: 1}
    assert figure.axes[0].get_title() == "Lengths of 4 documents"


def test_a_plan_draws_the_fill_of_its_rows(report: Any) -> None:
    figure = report.plans[0].plan.plot.fill("matplotlib")
    assert bars_of(figure) == {80: 2, 99: 2}
    assert figure.axes[0].get_title() == "Fill of 4 rows"
