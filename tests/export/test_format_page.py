"""Exported rows are what docs/reference/format.md and docs/reference/loading.md say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import documents as all_documents
from corpora import write_corpus

import tokenmill


def order_of_the_page(plan: tokenmill.Plan, seed: int) -> list[int]:
    """Steps 1, 2 and 4 of the page, for a plan without --order-by."""
    size, groups, rest, first = plan.rows.group_size, [], [], 0
    for window in plan.manifest.windows:
        sequences = list(range(first, first + window.sequences))
        whole = len(sequences) // size * size
        groups += [sequences[i : i + size] for i in range(0, whole, size)]
        rest += sequences[whole:]
        first += window.sequences
    order = tokenmill.Permutation(len(groups), seed)(range(len(groups)))
    return [i for place in order for i in groups[place]] + rest


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_corpus(folder / "data", num_files=2, per_file=60)
    tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1)
    return folder / "out"


def exported(plan: tokenmill.Plan, dataset: Path, folder: Path, column: str, **options: Any) -> Any:
    tokenmill.export(dataset, folder, plan=plan, format="npy", seed=7, **options)
    files = sorted(folder.glob(f"rows-32-*.{column}.npy"))
    return np.concatenate([np.load(path) for path in files])


def segments(plan: tokenmill.Plan, sequence: int) -> list[tuple[int, int, int]]:
    """Document, start and length of each, as the arrays of the plan have them."""
    first, stop = plan.offsets[sequence : sequence + 2]
    arrays = (plan.documents, plan.starts, plan.lengths)
    return [tuple(int(array[i]) for array in arrays) for i in range(first, stop)]  # type: ignore[misc]


@pytest.mark.parametrize(
    "options", [{"packing": "best-fit"}, {"packing": "balanced", "ranks": 4}], ids=["one", "groups"]
)
def test_a_stranger_finds_the_sequence_of_each_row(
    dataset: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    plan = tokenmill.pack(dataset, folder=tmp_path / "plan", sequence_length=32, **options).plan
    rows = exported(plan, dataset, tmp_path / "rows", "input_ids")
    order, documents = order_of_the_page(plan, seed=7), all_documents(dataset)
    assert sorted(order) == list(range(len(plan)))
    assert order != sorted(order)
    assert len(rows) == len(order)
    for row, sequence in zip(rows.tolist(), order, strict=True):
        parts = [documents[d][start : start + n] for d, start, n in segments(plan, sequence)]
        tokens = [token for part in parts for token in part]
        assert row[: len(tokens)] == tokens
