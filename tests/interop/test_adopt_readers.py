"""What official writers wrote is adopted, and what a build wrote survives the way round."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from corpora import documents, write_corpus

import tokenmill
from tokenmill.core.errors import UserError

READERS = Path(__file__).parents[2] / ".venv-readers" / "bin" / "python"
WRITE = """
import json, sys
import numpy, torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
documents = json.load(sys.stdin)
for name, dtype, cut in [("u2", numpy.uint16, 1000), ("i4", numpy.int32, 1000),
                         ("cut", numpy.uint16, 7), ("modes", numpy.uint16, 1000)]:
    modal, prefix = name == "modes", f"{sys.argv[1]}/{name}"
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=modal)
    for document in documents:
        sizes = [len(document[i : i + cut]) for i in range(0, len(document), cut)]
        modes = [0] * len(sizes) if modal else None
        builder.add_document(torch.tensor(document), sizes, modes)
    builder.finalize(f"{prefix}.idx")
"""
READ = """
import json, sys
from megatron.core.datasets.indexed_dataset import IndexedDataset
dataset = IndexedDataset(sys.argv[1])
print(json.dumps([dataset[i].tolist() for i in range(len(dataset))]))
"""


def run(program: str, *arguments: object, given: object = None) -> str:
    if not READERS.is_file():
        pytest.skip("megatron-core is not installed: make readers")
    line = [str(READERS), "-W", "ignore", "-c", program, *map(str, arguments)]
    done = subprocess.run(line, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("built")
    write_corpus(folder / "data", num_files=1, per_file=80)
    tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1)
    return folder / "out"


def batches_of(folder: Path) -> list[np.ndarray]:
    """Every batch of an epoch of packed rows."""
    dataset = tokenmill.open(folder)
    if not dataset.plans:
        tokenmill.pack(dataset, sequence_length=64)
    return [batch["input_ids"] for batch in dataset.batches(global_batch_size=4, epochs=1)]


@pytest.fixture(scope="module")
def pairs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents as Megatron's builder writes them."""
    folder = tmp_path_factory.mktemp("pairs")
    run(WRITE, folder, given=documents(built))
    return folder


@pytest.mark.parametrize("name", ["u2", "i4", "cut"])
def test_pairs_of_megatron_give_the_batches_of_a_build(
    name: str, pairs: Path, built: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    """Also if documents consist of several sequences."""
    dataset = tokenmill.adopt(pairs / name, tokenizer_path, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(built)
    expected, found = batches_of(built), batches_of(tmp_path / "out")
    assert len(found) == len(expected) > 5
    assert all(map(np.array_equal, found, expected))
    path = dataset.shards[0].path("bin")
    assert path.samefile(pairs / f"{name}.bin") == (name != "i4")
    if name == "cut":
        assert json.loads(run(READ, path.with_suffix(""))) == documents(built)


def test_megatrons_index_of_several_kinds_of_data_is_refused(
    pairs: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    with pytest.raises(UserError, match="cannot adopt an index of several kinds of data"):
        tokenmill.adopt(pairs / "modes", tokenizer_path, tmp_path / "out")


def test_the_shards_of_a_build_come_back_byte_for_byte(
    built: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = tokenmill.adopt(built / "tokens", tokenizer_path, tmp_path / "out")
    names = [".bin", ".idx", ".xxh3"]
    before, after = (
        [
            file.xxh3_128
            for file in each.manifest.shards[0].files
            if file.name.endswith(tuple(names))
        ]
        for each in (tokenmill.open(built), dataset)
    )
    assert after == before
    assert len(after) == 3
    tokenmill.verify(tmp_path / "out")


def test_documents_go_through_datasets_and_back(
    built: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    import datasets

    rows = {"input_ids": documents(built)}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    tokenmill.adopt(tmp_path / "saved", tokenizer_path, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(built)
    assert len(tokenmill.open(tmp_path / "out").shards) == 3
    assert all(map(np.array_equal, batches_of(tmp_path / "out"), batches_of(built)))


def test_views_merge_an_adopted_dataset_with_a_built_one(
    built: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenmill.adopt(built / "tokens", tokenizer_path, tmp_path / "out")
    view = tokenmill.select([built, tmp_path / "out"], tmp_path / "view")
    tokenmill.copy(view, tmp_path / "copy")
    assert documents(tmp_path / "copy") == documents(built) * 2
