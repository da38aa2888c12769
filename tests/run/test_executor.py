"""Another executor is one module: what counts, and what a crash costs, is the build's."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import contents, random_texts, write_corpus
from toy_executor import LastFirst

import tokenmill
from tokenmill.core.errors import EngineError, Interrupted
from tokenmill.read import units
from tokenmill.run.pipeline import BuildEvents, build
from tokenmill.run.tasks.encode import BuildReport

CRASHING = "00000001-000000"


@pytest.fixture(scope="module", autouse=True)
def _small_units() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 32 << 10)
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six units: two files of two byte ranges each, and a compressed one, which is a stream."""
    folder = tmp_path_factory.mktemp("original") / "data"
    write_corpus(folder, num_files=2, per_file=300)
    texts = random_texts(300, seed=9)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "stream.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return folder


@pytest.fixture
def corpus(original: Path, tmp_path: Path) -> Path:
    """A copy, which may be changed."""
    return Path(shutil.copytree(original, tmp_path / "data"))


@pytest.fixture(scope="module")
def clean(original: Path, tokenizer_path: Path) -> BuildReport:
    """The corpus as processes build it."""
    return tokenmill.build(original, tokenizer_path, original.parent / "clean", workers=1)


@pytest.fixture
def build_with(corpus: Path, tokenizer_path: Path, tmp_path: Path) -> Any:
    def run(executor: LastFirst | None, name: str = "out", **options: Any) -> BuildReport:
        events = options.pop("events", None)
        recipe = tokenmill.recipe(corpus, tokenizer_path, tmp_path / name, workers=1, **options)
        return build(recipe, executor=executor, events=events)

    return run


def same_dataset(report: BuildReport, other: BuildReport) -> bool:
    return contents(Path(report.out)) == contents(Path(other.out))


def test_another_executor_writes_the_same_bytes(build_with: Any, clean: Any) -> None:
    toy = LastFirst()
    assert same_dataset(build_with(toy), clean)
    assert len(toy.finished) > 3
    assert toy.finished != sorted(toy.finished)


def test_a_unit_whose_worker_dies_runs_once_more_and_carefully(
    build_with: Any, clean: BuildReport
) -> None:
    toy = LastFirst({CRASHING: 1})
    assert same_dataset(build_with(toy), clean)
    assert toy.careful == [CRASHING]


def test_a_second_death_ends_the_build_with_the_name_of_the_unit(build_with: Any) -> None:
    with pytest.raises(EngineError) as caught:
        build_with(LastFirst({CRASHING: 2}))
    assert caught.value.what == f"a toy died twice on unit {CRASHING}"
    assert caught.value.why == "the last one was told to"


def test_nothing_counts_before_the_exam(
    build_with: Any, clean: BuildReport, tmp_path: Path
) -> None:
    """The toy finishes units before it takes the exam: of a vetoed engine none has a receipt."""
    receipts: dict[str, int] = {}

    def on_engine(engine: str, remark: str) -> None:
        if remark:
            receipts[engine] = len(list((tmp_path / "out/work/receipts").glob("0*.json")))

    toy = LastFirst(refused=clean.run.engine)
    report = build_with(toy, events=BuildEvents(on_engine=on_engine))
    assert receipts == {clean.run.engine: 0}
    assert report.run.engine != clean.run.engine
    assert same_dataset(report, clean)


def test_a_damaged_file_costs_its_own_units(build_with: Any, corpus: Path) -> None:
    stream = corpus / "stream.jsonl.gz"
    stream.write_bytes(stream.read_bytes()[:-2000])
    quarantine = {"on_bad_file": "quarantine"}
    report = build_with(LastFirst(), **quarantine)
    assert same_dataset(report, build_with(None, "clean", **quarantine))
    assert report.manifest.sources[2].quarantined != ""


def test_what_one_executor_has_begun_another_finishes(build_with: Any, clean: Any) -> None:
    class Stopped(LastFirst):
        def wait(self, seconds: float) -> None:
            if len(self.finished) == 2:
                self._take_exam()
                raise Interrupted(15)
            super().wait(seconds)

    with pytest.raises(Interrupted):
        build_with(Stopped())
    report = build_with(None)
    assert report.reused is not None
    assert report.reused.units == 2
    assert same_dataset(report, clean)


def test_of_a_source_damaged_twice_the_manifest_tells_the_first_place(
    corpus: Path, build_with: Any
) -> None:
    path, lines = corpus / "table.parquet", [{"text": text} for text in random_texts(300, seed=9)]
    pq.write_table(pa.Table.from_pylist(lines), path, row_group_size=100)
    data, groups = bytearray(path.read_bytes()), pq.read_metadata(path)
    for group, size in ((0, 8), (2, 2000)):
        start = groups.row_group(group).column(0).data_page_offset
        data[start : start + size] = bytes(size)
    path.write_bytes(data)
    first, last = (
        build_with(executor, name, on_bad_file="quarantine")
        for executor, name in ((None, "clean"), (LastFirst(), "out"))
    )
    assert same_dataset(first, last)
