"""A build draws documents, compares them with the reference, and says what that excludes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from corpora import write_corpus

import tokenmill
from cli.test_summary import RUN
from conftest import write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import EngineError
from tokenmill.core.records import DocumentBatch, TokenBatch
from tokenmill.encode import engine_ranking, exactness
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.exactness import WHOLE_BYTES, audit_share, excluded_error_rate
from tokenmill.reports.contents import audited_text, stored_run
from tokenmill.run import running, session
from tokenmill.run.executor import Assignment, Receipt, Tally
from tokenmill.run.running import audit_of
from tokenmill.run.units import encode
from tokenmill.run.units.attempt import place_hashes
from tokenmill.run.worker import FinishedUnit, UnitRunner
from tokenmill.store.manifest import Audit

pytest.importorskip("fastokens")


def drawn(dataset: tokenmill.Dataset, share: float) -> int:
    """How many documents of a dataset have a place that is drawn."""
    count = 0
    for shard in dataset.shards:
        table = shard.documents(["source", "position"]).to_pylist()
        for name in {row["source"] for row in table}:
            rows = [row for row in table if row["source"] == name]
            positions = np.array([row["position"] for row in rows], np.int64)
            batch = DocumentBatch(0, [""] * len(rows), positions, positions)
            count += int((~place_hashes(name, batch) <= np.uint64(share * 2**64)).sum())
    return count


@pytest.mark.parametrize(("workers", "most"), [(1, 16), (2, 16), (2, 1)])
def test_documents_are_drawn_by_their_place(
    tmp_path: Path,
    tokenizer_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    most: int,
) -> None:
    monkeypatch.setattr(running, "AUDITED_BY_MAIN", most)
    if workers > most:
        monkeypatch.setattr(session, "audit", None)  # the main process must not need it
    write_corpus(tmp_path / "data", num_files=3, per_file=300)
    out, numbers = tmp_path / "out", ["--workers", str(workers), "--audit-share", "25%"]
    arguments = ["build", tmp_path / "data", "--tokenizer", tokenizer_path, "--out", out]
    assert main([*map(str, arguments), *numbers]) == 0
    dataset = tokenmill.open(out)
    run = stored_run(dataset)
    expected = drawn(dataset, 0.25)
    rate = excluded_error_rate(expected)
    assert run.audit == Audit(share=0.25, drawn=expected, excluded_error_rate=round(rate, 9))
    assert run.audited_documents >= expected > 150
    bound = (
        f"{run.audited_documents} documents compared with the reference tokenizer: all equal; "
        f"with 95 % confidence, fewer than {100 * rate:.2g} % of all documents differ"
    )
    assert bound in capsys.readouterr().out
    assert main(["inspect", str(out)]) == 0
    assert re.search(f"exactness  .*{re.escape(bound)}", capsys.readouterr().out)


AUDITS = [
    (
        Audit(share=5e-4, drawn=4, excluded_error_rate=excluded_error_rate(4)),
        "4 documents compared with the library: all equal; with 95 % confidence, fewer than 53 % "
        "of all documents differ",
    ),
    (
        Audit(share=1.0, drawn=4, excluded_error_rate=0.0),
        "every document compared with the library: all equal",
    ),
    (msgspec.UNSET, "4 documents compared with the library: all equal; others may differ"),
]


@pytest.mark.parametrize(("audit", "text"), AUDITS)
def test_the_summary_says_what_an_audit_may_have_missed(
    audit: Audit | msgspec.UnsetType, text: str
) -> None:
    run = msgspec.structs.replace(RUN, audited_documents=4, audit=audit)
    assert audited_text(run, "the library") == text


@pytest.mark.parametrize(
    ("wanted", "num_bytes", "is_slow", "share"),
    [
        (None, 0, False, 1.0),
        (None, 3_000_000, False, 1.0),
        (None, 1_000_000, True, 1.0),
        (None, 4_000_000, True, 0.25),
        (None, 20_000_000, False, 0.05),
        (None, 10**12, False, 5e-4),
        (0.0, 1, False, 0.0),
        (0.25, 10**12, True, 0.25),
    ],
)
def test_small_inputs_are_audited_more(
    wanted: float | None, num_bytes: int, is_slow: bool, share: float
) -> None:
    assert audit_share(wanted, num_bytes, is_slow) == share


def test_documents_that_share_an_id_are_drawn_one_by_one(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl", [f"document {i}" for i in range(400)], id=["same"] * 400
    )
    options: dict[str, Any] = {"id_field": "id", "audit_share": 0.25}
    dataset = tokenmill.build(path, tokenizer_path, tmp_path / "out", **options).dataset
    audit = stored_run(dataset).audit
    assert audit
    assert audit.drawn == drawn(dataset, 0.25)
    assert 70 < audit.drawn < 130


class Liar:
    """An engine that is wrong about one document."""

    version = "0"

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name = name
        self._engine = load_engine(name, *arguments)

    def encode(self, texts: list[str]) -> TokenBatch:
        tokens = self._engine.encode(texts)
        if "the marked document" in texts:
            first = tokens.offsets[texts.index("the marked document")]
            ids = tokens.ids.copy()
            ids[first] += 1
            return TokenBatch(ids, tokens.offsets)
        return tokens


@pytest.mark.parametrize("most", [0, 16])
def test_one_difference_stops_the_build(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(running, "AUDITED_BY_MAIN", most)
    texts = [f"document {i}" for i in range(300)]  # calibration takes the first 200
    path = write_jsonl(tmp_path / "a.jsonl", [*texts, "the marked document"])
    monkeypatch.setattr(encode, "load_engine", Liar)
    options: dict[str, Any] = {"workers": 1, "audit_share": 0.999999}
    with pytest.raises(EngineError, match="gives ids that differ") as caught:
        tokenmill.build(path, tokenizer_path, tmp_path / "out", **options)
    assert caught.value.where == "text 'the marked document', token 0"
    assert not list((tmp_path / "out" / "work" / "receipts").glob("*.json"))


def test_a_worker_that_audits_says_that_it_does_not_hang(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[int] = []
    run = UnitRunner.run

    def reporting(
        self: UnitRunner, assignment: Assignment, report: Callable[[Tally], None]
    ) -> FinishedUnit:
        def told(tally: Tally) -> None:
            reported.append(tally.documents)
            report(tally)

        return run(self, assignment, told)

    monkeypatch.setattr(UnitRunner, "run", reporting)
    monkeypatch.setattr(running, "AUDITED_BY_MAIN", 0)
    monkeypatch.setattr(exactness, "TEXTS_AT_ONCE", 3)
    path = write_jsonl(tmp_path / "a.jsonl", [f"document {i}" for i in range(10)])
    options: dict[str, Any] = {"workers": 1, "audit_share": 0.999999}
    tokenmill.build(path, tokenizer_path, tmp_path / "out", **options)
    assert reported == [10] * 5  # after the batch, and before each 3 texts of the audit


def receipt(share: float, num_drawn: int, documents: int = 400) -> Receipt:
    return Receipt(
        key="", extents=[], files=[], documents=documents, tokens=0, counts={}, read_digests={},
        audited=num_drawn, audit_share=share, audit_drawn=num_drawn, excluded=[],
        seconds=0.0,
    )  # fmt: skip


def test_nothing_is_excluded_where_attempts_drew_by_different_shares() -> None:
    same = audit_of([receipt(0.1, 20), receipt(0.1, 39)])
    assert same == Audit(share=0.1, drawn=59, excluded_error_rate=round(1 - 0.05 ** (1 / 59), 9))
    every = audit_of([receipt(1.0, 20, documents=20), receipt(1.0, 39, documents=39)])
    assert every == Audit(share=1.0, drawn=59, excluded_error_rate=0.0)
    assert not audit_of([receipt(0.1, 20), receipt(0.2, 39)])
    assert not audit_of([receipt(0.1, 0)])
    assert not audit_of([])


def test_the_reference_encodes_a_small_corpus_itself_unless_an_audit_is_asked_for(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_ranking, "SMALL_BYTES", WHOLE_BYTES)
    write_corpus(tmp_path / "data", num_files=1, per_file=30)
    build = partial(tokenmill.build, tmp_path / "data", tokenizer_path, workers=1)
    alone = build(tmp_path / "alone").run
    assert (alone.engine, alone.calibrated_texts, alone.audited_documents) == ("reference", 0, 0)
    compared = build(tmp_path / "compared", audit_share=0.5).run
    assert compared.engine != "reference"
    assert compared.calibrated_texts > 600
    assert 5 < compared.audited_documents < 25
