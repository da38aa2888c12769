"""Measure `tokenmill provenance` on a dataset of many documents, against `tokenmill pack` of it.

    python bench/seen.py --documents 10000000 --tokenizer tokenizer.json

The dataset is one built shard under many names, as in `bench/report.py`. The state is in the middle
of the second epoch.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

import report
import tokenmill
from measure import Run, interleave, machine, run
from selecting import print_runs

COMMANDS = {
    "pack": ("pack", "corpus", "--sequence-length", "4096", "--plan-out", "again", "--overwrite"),
    "provenance": ("provenance", "state.json"),
    "provenance by lang": ("provenance", "state.json", "--by", "lang"),
}


def main() -> None:
    """Make a dataset, a plan and a state; count what was given."""
    options = report.parse_options(__doc__, documents=10_000_000, rounds=1)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = {"id_field": "id", "keep": ["lang"]}
        documents = options.documents // report.SHARDS
        report.build_shard(folder / "one", documents, options.tokenizer, **kept)
        report.repeat(folder / "one", folder / "corpus")
        dataset = tokenmill.open(folder / "corpus")
        print(f"{dataset.num_documents:,} documents, {dataset.num_tokens:,} tokens")
        plan = tokenmill.pack(dataset, sequence_length=4096).plan
        batches = dataset.batches(plan, global_batch_size=1, epochs=2)
        state = batches.state_dict(len(plan) * 3 // 2)
        (folder / "state.json").write_text(json.dumps(state))
        contenders = {
            name: functools.partial(measured, folder, words) for name, words in COMMANDS.items()
        }
        print_runs(interleave(contenders, options.rounds))


def measured(folder: Path, words: tuple[str, ...]) -> Run:
    """Run a command whose output nobody keeps."""
    places = {"corpus", "state.json", "again"}
    words = tuple(str(folder / word) if word in places else word for word in words)
    return run([sys.executable, "-m", "tokenmill", *words])


if __name__ == "__main__":
    main()
