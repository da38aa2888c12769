"""Which official readers read what tokenmill writes: a table, of those that are installed.

    python bench/readers.py [--write]    # make readers-table

Every reader reads a small corpus in its own environment (`make readers`, `make cluster`), and each
token must be that of the dataset. `--write` puts the table into `docs/guides/other-trainers.md`.
To add a reader, add a line to `main`; its code gets a path as `sys.argv[1]` and makes `rows`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "run"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))
import test_documents as document_tests
import test_export as row_tests
from corpora import write_corpus

import tokenmill
from tokenmill.load.rows.reader import RowReader

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guides" / "other-trainers.md"
BEGIN, END = "<!-- make readers-table: begin -->\n\n", "\n<!-- make readers-table: end -->\n"
HEAD = ["format", "reader", "version", "compared"]
LENGTH = 64
VOCABULARY = 400
READERS, CLUSTER = ".venv-readers", ".venv-cluster"

# A window of datatrove has one token more, and the next one begins after it.
DATATROVE = f"""
from datatrove.utils.dataset import DatatroveFileDataset
read = DatatroveFileDataset(sys.argv[1], seq_len={LENGTH - 1}, token_size=2)
rows = [read[i]["input_ids"].tolist() for i in range(len(read))]
"""
OLMO = f"""
import numpy as np
from olmo_core.data.numpy_dataset import NumpyFSLDataset
read = NumpyFSLDataset(
    sys.argv[1], sequence_length={LENGTH}, dtype=np.uint16, eos_token_id=0, pad_token_id=0,
    vocab_size={VOCABULARY},
)
read.prepare()
rows = [read[i]["input_ids"].tolist() for i in range(len(read))]
"""
STREAMING = """
from streaming import StreamingDataset
read = StreamingDataset(local=sys.argv[1], batch_size=1)
rows = [read[i]["tokens"].tolist() for i in range(len(read))]
"""
LITDATA = """
from litdata import StreamingDataset
read = StreamingDataset(sys.argv[1])
rows = [read[i]["tokens"].tolist() for i in range(len(read))]
"""
INDEXED = """
from megatron.core.datasets.indexed_dataset import IndexedDataset
read = IndexedDataset(sys.argv[1].removesuffix(".bin"))
rows = [read[i].tolist() for i in range(len(read))]
"""
GRAIN = """
import grain, tokenmill.grain
read = grain.MapDataset.source(tokenmill.grain.rows(sys.argv[1])).to_iter_dataset()
rows = [row["input_ids"].tolist() for row in read]
"""
GRAIN_DOCUMENTS = GRAIN.replace("grain.rows", "grain.documents")
TORCHTITAN = f"""
import tokenmill
from tokenmill.torchtitan import TokenmillDataLoader
config = TokenmillDataLoader.Config(dataset_path=sys.argv[1], global_batch_size=1)
read = config.build(
    dp_world_size=1, dp_rank=0, local_batch_size=1, tokenizer=None, seq_len={LENGTH},
    snapshot_every_n_steps=10,
)
num_rows = len(tokenmill.open_plan(sys.argv[1]))
rows = [inputs["input"][0].tolist() for (inputs, _), _ in zip(read, range(num_rows))]
"""
Rows = list[list[int]]


def in_environment(name: str, distribution: str, code: str, path: Path) -> tuple[str, Rows] | None:
    """The version of a reader and what it reads; None if it is not installed."""
    python = ROOT / name / "bin" / "python"
    asked = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    if not python.is_file():
        return None
    known = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    if known.returncode:
        return None
    script = f"import json, sys\n{code}\nprint(json.dumps(rows))"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [python, "-W", "ignore", "-c", script, path]
    read = subprocess.run(command, env=environment, capture_output=True, text=True)
    if read.returncode:
        sys.exit(f"{distribution} cannot read {path}:\n{read.stderr}")
    return known.stdout.strip(), json.loads(read.stdout.splitlines()[-1])


def here(distribution: str, read: Callable[[], Rows]) -> tuple[str, Rows] | None:
    """The same for a reader that is installed beside tokenmill."""
    try:
        return version(distribution), read()
    except PackageNotFoundError:
        return None


def ids_of(name: str, out: Path) -> Rows:
    """What the tests' reader of a format reads."""
    return [row for part in row_tests.READERS[name](out) for row in part["input_ids"].tolist()]


def as_nanogpt(path: Path) -> Rows:
    """The stream that nanoGPT's `train.py` draws from."""
    return [np.memmap(path, dtype=np.uint16, mode="r").tolist()]


def by_megatron(name: str, out: Path) -> tuple[str, Rows] | None:
    """The documents of an export; the tests' reader compares GPTDataset's samples, too."""
    known = in_environment(name, "megatron-core", "rows = []", out)
    if known is None:
        return None
    python, cache = ROOT / name / "bin" / "python", out.with_name(f"{out.name}-{name}")
    found = document_tests.read_by_megatron(out, cache, python)
    return known[0], [row for each in found.values() for row in each["documents"]]


class Table:
    """The lines of the table."""

    def __init__(self) -> None:
        self.lines = [HEAD, ["---"] * len(HEAD)]

    def add(
        self, what: str, reader: str, found: tuple[str, Rows] | None, expected: Rows, unit: str
    ) -> None:
        """Add a line, after comparing all that was read; the order of rows does not count."""
        if found is None:
            self.lines.append([what, reader, "", "not run"])
            return
        known, rows = found
        if sorted(rows) != sorted(expected):
            sys.exit(f"{reader} {known} reads other tokens in {what}")
        tokens = sum(map(len, rows))
        self.lines.append([what, reader, known, f"{len(rows):,} {unit}, {tokens:,} tokens"])

    def text(self) -> str:
        """As Markdown."""
        return "".join(f"| {' | '.join(line)} |\n" for line in self.lines)


def build(folder: Path) -> Path:
    """A corpus of 1,000 short texts, a fifth of them held out, with a plan."""
    write_corpus(folder / "data", num_files=2, per_file=500)
    tokenizer = folder / "tokenizer"
    tokenmill.train_tokenizer(folder / "data", tokenizer, vocabulary=VOCABULARY)
    corpus = folder / "corpus"
    tokenmill.build(folder / "data", tokenizer, corpus, workers=1, validation=0.2)
    tokenmill.pack(corpus, sequence_length=LENGTH)
    return corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table into the guide")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        table = compared(Path(temporary))
    print(table.text(), end="")
    if options.write:
        before, _, rest = GUIDE.read_text().partition(BEGIN)
        GUIDE.write_text(before + BEGIN + table.text() + END + rest.partition(END)[2])


def compared(folder: Path) -> Table:
    """Write the corpus in every format, and read it by every reader."""
    table, corpus = Table(), build(folder)
    dataset = tokenmill.open(corpus)
    plan = tokenmill.open_plan(dataset)
    rows = RowReader(dataset, plan, "aligned").read(np.arange(len(plan)), LENGTH).ids.tolist()
    for name, reader in [
        ("npy", "numpy"),
        ("pt", "torch"),
        ("parquet", "pyarrow"),
        ("datasets", "datasets"),
    ]:
        out = folder / name
        tokenmill.export(corpus, out, format=name, with_labels=True)
        found = here(reader, partial(ids_of, name, out))
        table.add(f"`--format {name}`", reader, found, rows, "rows")
    out = folder / "mds"
    tokenmill.export(corpus, out, format="mds")
    for reader, code in (("mosaicml-streaming", STREAMING), ("litdata", LITDATA)):
        found = in_environment(f"{READERS}-{reader}", reader, code, out)
        table.add("`--format mds`", reader, found, rows, "rows")
    documents = document_tests.documents_of(dataset)
    every = [tokens for _, tokens in documents.values()]
    for index_only in (False, True):
        out = folder / f"megatron-{index_only}"
        tokenmill.export_documents(corpus, out, index_only=index_only)
        what = "`--format megatron`" + " `--index-only`" * index_only
        for name in (READERS, f"{READERS}-newest"):
            found = by_megatron(name, out)
            table.add(what, "megatron-core", found, every, "documents")
    tokenmill.export_documents(corpus, folder / "nanogpt", format="nanogpt")
    for file, subset in (("train", "train"), ("val", "validation")):
        path = folder / "nanogpt" / f"{file}.bin"
        flat = [token for name, tokens in documents.values() if name == subset for token in tokens]
        found = here("numpy", partial(as_nanogpt, path))
        table.add(f"`--format nanogpt`, `{file}.bin`", "numpy", found, [flat], "stream")
    (tokens,) = (corpus / "tokens").glob("*.bin")
    flat = [token for document in every for token in document]
    windows = [flat[at : at + LENGTH] for at in range(0, len(flat) - LENGTH + 1, LENGTH)]
    for reader, code, expected, unit in [
        ("megatron-core", INDEXED, every, "documents"),
        ("datatrove", DATATROVE, windows, "windows"),
        ("ai2-olmo-core", OLMO, windows, "windows"),
    ]:
        name = READERS if reader == "megatron-core" else f"{READERS}-{reader}"
        found = in_environment(name, reader, code, tokens)
        table.add("`tokens/*.bin`", reader, found, expected, unit)
    for what, reader, code, expected, unit in [
        ("`tokenmill.grain.rows`", "grain", GRAIN, rows, "rows"),
        ("`tokenmill.grain.documents`", "grain", GRAIN_DOCUMENTS, every, "documents"),
        ("`tokenmill.torchtitan`", "torchtitan", TORCHTITAN, rows, "rows"),
    ]:
        found = in_environment(CLUSTER, reader, code, corpus)
        table.add(what, reader, found, expected, unit)
    return table


if __name__ == "__main__":
    main()
