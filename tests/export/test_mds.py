"""MDS: shards and their index, byte for byte, and as mosaicml-streaming and litdata read them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import write_corpus

import tokenmill
from tokenmill.core.errors import Interrupted
from tokenmill.load.export.rows import exporting as rows
from tokenmill.load.export.rows import mds
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.steps.order import shuffled
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import MDS_NAMES

ROOT = Path(__file__).parents[2]
LENGTH = 32
ALL = ("input_ids", "labels", "position_ids", "attention_mask")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """A hundred documents, with a plan of rows of 32 tokens."""
    folder = tmp_path_factory.mktemp("dataset")
    write_corpus(folder / "data", num_files=1, per_file=100)
    built = tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1)
    tokenmill.pack(built.dataset, sequence_length=LENGTH)
    return built.dataset


def expected(dataset: Dataset) -> dict[str, list[list[int]]]:
    """The columns of all rows, by their names in MDS."""
    plan = tokenmill.open_plan(dataset)
    found = RowReader(dataset, plan).read(shuffled(plan, 0), LENGTH)
    starts = np.where(found.restarts, np.arange(LENGTH), 0)
    return {
        "tokens": found.ids.tolist(),
        "labels": np.where(found.has_label, found.labels.astype(np.int64), -100).tolist(),
        "position_ids": (np.arange(LENGTH) - np.maximum.accumulate(starts, axis=1)).tolist(),
        "attention_mask": found.real.astype(int).tolist(),
    }


def test_a_shard_has_offsets_a_description_and_rows(dataset: Dataset, tmp_path: Path) -> None:
    columns = ("input_ids", "position_ids")
    out = tmp_path / "out"
    tokenmill.export(dataset, out, format="mds", dtype="uint16", columns=columns, max_sequences=2)
    text = (
        b'{"column_encodings": ["ndarray:int32:32", "ndarray:uint16:32"], '
        b'"column_names": ["position_ids", "tokens"], "column_sizes": [128, 64], '
        b'"compression": null, "format": "mds", "hashes": ["xxh3_128"], "size_limit": null, '
        b'"version": 2}'
    )
    first, values = 16 + len(text), expected(dataset)
    data = np.array([2, first, first + 192, first + 384], "<u4").tobytes() + text
    for row in range(2):
        data += np.array(values["position_ids"][row], "<i4").tobytes()
        data += np.array(values["tokens"][row], "<u2").tobytes()
    path = out / f"rows-{LENGTH}-00000.mds"
    assert path.read_bytes() == data
    raw = {
        "basename": path.name,
        "bytes": len(data),
        "hashes": {"xxh3_128": file_digest(path)},
    }
    shard = {**json.loads(text), "raw_data": raw, "samples": 2, "zip_data": None}
    index = json.loads((out / "index.json").read_text())
    assert (index["version"], index["shards"]) == (2, [shard])
    assert index["chunks"] == [
        {
            "chunk_bytes": len(data),
            "chunk_size": 2,
            "column_sizes": [128, 64],
            "dim": None,
            "filename": path.name,
        }
    ]
    assert index["config"]["data_format"] == ["no_header_numpy:2", "no_header_numpy:5"]
    assert index["config"]["format"] == "mds"


def test_ids_alone_are_the_default(dataset: Dataset, tmp_path: Path) -> None:
    made = tokenmill.export(dataset, tmp_path / "out", format="mds")
    assert made.dtypes == {"input_ids": "int32"}
    assert made.options.columns == ("input_ids",)


@pytest.mark.parametrize("asked", [{}, {"sequences_per_file": 10**9}])
def test_a_shard_is_as_small_as_it_must_be(
    asked: Any, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default 64 MiB; never so large that an offset does not fit 32 bits."""
    monkeypatch.setattr(mds, "MOST_BYTES" if asked else "FILE_BYTES", 10 * LENGTH * 4 + 300)
    out = tmp_path / "out"
    made = tokenmill.export(dataset, out, format="mds", **asked)
    sizes = [path.stat().st_size for path in sorted(out.glob("*.mds"))]
    samples = [shard["samples"] for shard in json.loads((out / "index.json").read_text())["shards"]]
    assert sum(samples) == made.num_sequences == len(tokenmill.open_plan(dataset))
    assert len(set(samples[:-1])) == 1
    assert samples[0] == (10 if asked else 12)
    assert not asked or max(sizes) <= mds.MOST_BYTES < max(sizes) + 4 * LENGTH + 4
    assert tokenmill.verify(out).files == len(sizes) + 1


@pytest.mark.parametrize("format_", ["mds", "datasets"])
def test_an_export_that_was_stopped_after_its_index_continues(
    format_: Any, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise Interrupted(2)

    options = {"format": format_, "sequences_per_file": 20}
    with monkeypatch.context() as patch:
        patch.setattr(rows, "take_name", stop)
        with pytest.raises(Interrupted):
            tokenmill.export(dataset, tmp_path / "out", **options)
    tokenmill.export(dataset, tmp_path / "out", **options)
    assert tokenmill.verify(tmp_path / "out").files > 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# The official readers.

STREAMING = """
import json, sys
from streaming import MDSWriter, StreamingDataset

out, copy, columns = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
dataset = StreamingDataset(local=out, shuffle=False, batch_size=1, validate_hash="xxh3_128")
found = {name: [] for name in columns}
with MDSWriter(out=copy, columns=columns, hashes=["xxh3_128"], size_limit=None) as writer:
    for sample in (dataset[i] for i in range(len(dataset))):
        writer.write(sample)
        for name, values in sample.items():
            assert f"ndarray:{values.dtype}:{len(values)}" == columns[name]
            found[name].append(values.tolist())
print(json.dumps(found))
"""
LITDATA = """
import json, sys
import litdata

dataset = litdata.StreamingDataset(sys.argv[1], shuffle=False)
found = {}
for batch in litdata.StreamingDataLoader(dataset, batch_size=7, num_workers=0):
    for name, values in batch.items():
        found.setdefault(name, []).extend(values.tolist())
by_index = [dataset[i] for i in (0, len(dataset) - 1)]
assert all(by_index[-1][name].tolist() == rows[-1] for name, rows in found.items())
print(json.dumps(found))
"""


def read_by(reader: str, program: str, *arguments: object, home: Path) -> Any:
    """What a program in the environment of a reader prints."""
    python = ROOT / f".venv-readers-{reader}" / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"{reader} is not installed: make readers")
    module = reader.removeprefix("mosaicml-")
    if subprocess.run(
        [python, "-W", "ignore", "-c", f"import {module}"], capture_output=True
    ).returncode:
        pytest.skip(f"{reader} is installed, and cannot be imported")
    command = [python, "-W", "ignore", "-c", program, *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("options", [{}, {"columns": ALL, "dtype": "uint16"}], ids=str)
def test_streaming_reads_every_row_and_its_writer_writes_the_same_shard(
    options: Any, dataset: Dataset, tmp_path: Path
) -> None:
    made = tokenmill.export(dataset, tmp_path / "out", format="mds", **options)
    columns = {
        MDS_NAMES.get(name, name): f"ndarray:{dtype}:{LENGTH}"
        for name, dtype in made.dtypes.items()
    }
    places = (tmp_path / "out", tmp_path / "copy", json.dumps(columns))
    found = read_by("mosaicml-streaming", STREAMING, *places, home=tmp_path)
    wanted = expected(dataset)
    assert found == {name: wanted[name] for name in columns}
    written = (tmp_path / "copy" / "shard.00000.mds").read_bytes()
    assert (tmp_path / "out" / f"rows-{LENGTH}-00000.mds").read_bytes() == written
    copied = json.loads((tmp_path / "copy" / "index.json").read_text())["shards"]
    copied[0]["raw_data"]["basename"] = f"rows-{LENGTH}-00000.mds"
    assert json.loads((tmp_path / "out" / "index.json").read_text())["shards"] == copied


@pytest.mark.parametrize(
    ("reader", "program"), [("mosaicml-streaming", STREAMING), ("litdata", LITDATA)]
)
def test_both_read_several_shards_and_change_none(
    reader: str, program: str, dataset: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    tokenmill.export(dataset, out, format="mds", columns=ALL, sequences_per_file=20)
    columns = dict.fromkeys(("tokens", "labels", "position_ids"), f"ndarray:int32:{LENGTH}")
    columns["attention_mask"] = f"ndarray:int8:{LENGTH}"
    found = read_by(reader, program, out, tmp_path / "copy", json.dumps(columns), home=tmp_path)
    assert found == expected(dataset)
    assert tokenmill.verify(out).files == len(list(out.glob("*.mds"))) + 1
