"""The tokens open in other projects as they are, with their own official readers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from corpora import documents, write_corpus

import tokenmill

READERS = Path(__file__).parents[2] / ".venv-readers" / "bin" / "python"

MEGATRON = """
import json, sys
from megatron.core.datasets.indexed_dataset import IndexedDataset
dataset = IndexedDataset(sys.argv[1])
print(json.dumps({
    "documents": [dataset[i].tolist() for i in range(len(dataset))],
    "indices": dataset.document_indices.tolist(),
    "dtype": str(dataset[0].dtype),
}))
"""


@pytest.fixture
def built(tmp_path: Path, tokenizer_path: Path) -> Path:
    write_corpus(tmp_path / "data", num_files=1, per_file=50)
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    return tmp_path / "out"


def test_megatron_reads_every_document(built: Path) -> None:
    if not READERS.is_file():
        pytest.skip("megatron-core is not installed: make readers")
    prefix = str(built / "tokens" / "00000000-000000")
    result = subprocess.run(
        [READERS, "-W", "ignore", "-c", MEGATRON, prefix], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    expected = documents(built)
    assert found["documents"] == expected
    assert found["indices"] == list(range(len(expected) + 1))
    assert found["dtype"] == "uint16"


def test_nanogpt_reads_one_flat_array(built: Path) -> None:
    tokens = np.memmap(built / "tokens" / "00000000-000000.bin", dtype=np.uint16, mode="r")
    assert tokens.tolist() == [token for document in documents(built) for token in document]
