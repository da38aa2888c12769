"""Measure `tokenmill select` on a dataset of many documents, against `tokenmill pack` of the same.

    python bench/selecting.py --documents 10000000 --tokenizer tokenizer.json

The dataset is one built shard under many names, as in `bench/report.py`. In `equal`, the shards are
equal, so that every document has 4,095 duplicates to be compared. In `distinct`, the tokens of each
shard are others, and only short documents are duplicates.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np

import report
from measure import Run, interleave, machine, median_seconds, run, table
from tokenmill.store.dataset import Dataset

QUESTIONS = {
    "merge": (),
    "where": ("--where", "tokens > 100 and lang = 'de'"),
    "where tokens": ("--where", "tokens > 100"),
    "without": ("--without", "ids.txt"),
    "dedupe": ("--dedupe", "exact"),
    "sample": ("--sample", "10M"),
}


def main() -> None:
    """Make both datasets; pack them and select from them in turn."""
    options = report.parse_options(__doc__, documents=10_000_000, rounds=1)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = {"id_field": "id", "keep": ["lang"]}
        documents = options.documents // report.SHARDS
        report.build_shard(folder / "one", documents, options.tokenizer, **kept)
        (folder / "ids.txt").write_text("".join(f"document-{n}\n" for n in range(0, documents, 7)))
        for kind in ("equal", "distinct"):
            report.repeat(folder / "one", folder / kind)
        change_tokens(Dataset(folder / "distinct"))
        for kind in ("equal", "distinct"):
            found = Dataset(folder / kind)
            print(f"{kind}: {found.num_documents:,} documents, {found.num_tokens:,} tokens")
            contenders = {
                name: functools.partial(measured, folder, kind, name) for name in QUESTIONS
            }
            packed = {"pack": functools.partial(measured, folder, kind, "")}
            print_runs(interleave(packed | contenders, options.rounds))


def measured(folder: Path, kind: str, question: str) -> Run:
    """Run a command whose output nobody keeps."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        words = ["pack", "--sequence-length", "4096", "--plan-out", f"{out}/plan"]
        if question:
            asked = [word.replace("ids.txt", f"{folder}/ids.txt") for word in QUESTIONS[question]]
            words = ["select", "--out", f"{out}/view", *asked]
        return run([sys.executable, "-m", "tokenmill", words[0], f"{folder}/{kind}", *words[1:]])


def change_tokens(dataset: Dataset) -> None:
    """Give each shard tokens of its own. Nothing here reads the digests."""
    for number, shard in enumerate(dataset.shards):
        path = shard.path("bin")
        ids = np.fromfile(path, dataset.token_dtype)
        path.unlink()
        ((ids.astype(np.int64) + 251 * number) % 2**15).astype(dataset.token_dtype).tofile(path)


def print_runs(runs: dict[str, list[Run]]) -> None:
    """Print a row for each command."""
    rows = [
        [
            name,
            f"{median_seconds(each):.1f} s",
            f"{max(one.cpu_seconds for one in each):.1f} s",
            f"{max(one.peak_bytes for one in each) / 1e6:.0f} MB",
        ]
        for name, each in runs.items()
    ]
    print(table(["command", "seconds", "CPU", "memory"], rows))


if __name__ == "__main__":
    main()
