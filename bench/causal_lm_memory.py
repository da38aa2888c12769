"""Measure the memory of `CausalLMTokenizer` by context and batch size.

The figures are in docs/guides/hugging-face.md.

Each cell is a separate process. It encodes a few documents to load the tokenizer and the engine,
resets the peak of its resident memory, makes the rows, and prints how far the peak exceeds the
memory before. If a subclass overrides a function, all rows of a batch are in memory. Otherwise,
rows go through a buffer of at most 64 MiB.

    python bench/causal_lm_memory.py --corpus DATA/*.jsonl.zst --tokenizer gpt2.json --work WORK
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import measure
from corpus import documents_of_jsonl

PACKAGES = ("tokenmill", "datasets", "tokenizers")


def status(name: str) -> int:
    """A number of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) * 1024


def run_cell(cell: dict[str, Any]) -> None:
    """In a process of its own: print the peak of one run over what there was before."""
    import datasets

    from tokenmill.hf import CausalLMTokenizer

    class Own(CausalLMTokenizer):
        def _tokenize_function(self, batch: Any) -> Any:
            return super()._tokenize_function(batch)

    texts = datasets.load_from_disk(cell["texts"])
    config = {
        "context_length": cell["context"],
        "batch_size": cell["batch"],
        "show_progress": False,
        "verbose_level": "ERROR",
        **cell["options"],
    }
    kind = Own if cell["own"] else CausalLMTokenizer
    tokenizer = kind({**config, "tokenizer_name": cell["tokenizer"]})
    tokenizer.tokenize(texts.select(range(8)), cache_dir=f"{cell['rows']}/warm")
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again at VmRSS
    tokenizer.tokenize(texts, cache_dir=cell["rows"], force=True)
    print(status("VmHWM") - before)


def main() -> None:
    """Measure all cells, and print a table for each kind of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 4096, 32768])
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 1000, 6000])
    parser.add_argument("--megabytes", type=int, default=30)
    options = parser.parse_args()
    texts = options.work / "texts"
    count = save_texts(options.corpus, texts, options.megabytes * 1_000_000)
    print(*measure.machine().items(), *measure.versions(PACKAGES).items(), sep="\n")
    print(f"{count} documents, {options.megabytes} MB; peak in MB over the process before the run")
    for title, own, others in (
        ("rows as usual", False, {}),
        ("packed (best-fit)", False, {"packing": "best-fit"}),
        ("rows of a subclass with its own function", True, {}),
    ):
        print(f"\n{title}\n{'context':>8}" + "".join(f"{size:>8}" for size in options.batches))
        for context in options.contexts:
            cells = [
                {
                    "texts": str(texts),
                    "rows": str(options.work / "rows"),
                    "tokenizer": str(options.tokenizer),
                    "context": context,
                    "batch": batch,
                    "own": own,
                    "options": others,
                }
                for batch in options.batches
            ]
            found = [measured(cell) for cell in cells]
            print(f"{context:>8}" + "".join(f"{size / 1e6:>8.0f}" for size in found), flush=True)


def measured(cell: dict[str, Any]) -> int:
    """What a process prints for a cell."""
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def save_texts(corpus: list[Path], folder: Path, limit: int) -> int:
    """Save the first documents of a corpus as a dataset; how many they are."""
    import datasets

    texts: list[str] = []
    size = 0
    for document in documents_of_jsonl(corpus):
        texts.append(document["text"])
        size += len(document["text"].encode())
        if size >= limit:
            break
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(folder)
    return len(texts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        run_cell(json.loads(sys.argv[2]))
    else:
        main()
