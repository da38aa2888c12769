"""Grain reads sources of documents and rows: its datasets, its DataLoader, its checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from resume_kit import sharded

import tokenmill.grain
from tokenmill import Dataset
from view_kit import documents_of

pytest.importorskip("grain", reason="grain is not installed (make cluster does)")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # those of Grain and of what it imports
]

import grain  # noqa: E402

WITH_PROCESSES = """
import json, sys
import grain
import tokenmill, tokenmill.grain

def loader(folder, **options):
    source = tokenmill.grain.rows(folder, "packed", labels="next", **options)
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=0, num_epochs=1)
    return grain.DataLoader(data_source=source, sampler=sampler, worker_count=2)

def rows(iterator):
    return [[row["input_ids"].tolist(), row["labels"].tolist()] for row in iterator]

if __name__ == "__main__":
    first, moved = sys.argv[1:]
    iterator = iter(loader(first))
    head = [next(iterator) for _ in range(5)]
    state = iterator.get_state()
    resumed = iter(loader(moved))
    resumed.set_state(state)
    try:
        iter(loader(first, without_prefix=1)).set_state(state)
        refused = ""
    except ValueError as error:
        refused = str(error)
    found = {"head": rows(head), "rest": rows(iterator), "resumed": rows(resumed)}
    print(json.dumps({**found, "refused": refused.splitlines()[:1]}))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sharded(tmp_path_factory.mktemp("grain") / "corpus", per_shard=20)


def test_a_map_dataset_shuffles_and_batches_rows(corpus: Dataset) -> None:
    rows = tokenmill.grain.rows(corpus, "packed")
    dataset = grain.MapDataset.source(rows).shuffle(seed=1).batch(4, drop_remainder=True)
    batches = [*dataset.to_iter_dataset(grain.ReadOptions(num_threads=8))]
    assert len(batches) == len(rows) // 4
    assert batches[0].keys() == {"input_ids", "labels", "position_ids", "segment_ids"}
    given = sorted(row.tolist() for batch in batches for row in batch["input_ids"])
    everything = sorted(item["input_ids"].tolist() for item in rows)
    assert len(given) > 50
    assert [row for row in given if row not in everything] == []


def test_its_packing_takes_documents(corpus: Dataset) -> None:
    documents = tokenmill.grain.documents(corpus)
    packed = grain.experimental.ConcatThenSplitIterDataset(
        grain.MapDataset.source(documents).to_iter_dataset(),
        length_struct={"input_ids": 16},
    )
    rows = [*packed]
    tokens = np.concatenate([row["input_ids"][row["input_ids_segment_ids"] > 0] for row in rows])
    assert tokens.tolist() == [token for each in documents_of(corpus) for token in each]


def test_its_checkpoints_resume_in_processes_and_refuse_other_rows(
    corpus: Dataset, tmp_path: Path
) -> None:
    script, moved = tmp_path / "script.py", tmp_path / "moved"
    script.write_text(WITH_PROCESSES)
    moved.symlink_to(corpus.folder)
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", script, corpus.folder, moved],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(shown.stdout)
    assert found["resumed"] == found["rest"]
    rows = tokenmill.grain.rows(corpus, "packed", labels="next")
    everything = [[row["input_ids"].tolist(), row["labels"].tolist()] for row in rows]
    assert sorted(found["head"] + found["rest"]) == sorted(everything)
    assert found["refused"] == ["DataSource in checkpoint does not match datasource in dataloader."]
