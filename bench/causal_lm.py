"""Compare `CausalLMTokenizer` with the usual `dataset.map`, for the same rows.

The usual code of training scripts is `tokenizer(texts, truncation=True, max_length=L,
stride=overlap, return_overflowing_tokens=True, padding="max_length")`, with labels from a Python
loop. Both differ on purpose on empty documents and on documents that contain a special token's
string, so these are left out. All rows are compared at the end.

It also compares labels from NumPy with nested loops, rows as lists with arrays in memory, and a
slow tokenizer on 1 process, half the cores and all cores.

Every run is a separate process with an empty cache. The time is measured from loading the tokenizer
to the finished dataset.

    python bench/causal_lm.py --corpus DATA/*.jsonl.zst --tokenizer gpt2.json --work WORK
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import measure
from corpus import documents_of_jsonl

LABEL_ROWS = 4_000
SLOW_BYTES = 4_000_000
EOS = {"gpt2": "<|endoftext|>", "dolma2": "<|endoftext|>", "neox": "<|endoftext|>"}


def make_dataset(corpus: list[Path], folder: Path, limit: int, specials: list[str]) -> int:
    """Save documents as a dataset; returns how many were left out."""
    import datasets

    texts, size, left_out = [], 0, 0
    for document in documents_of_jsonl(corpus):
        text = document["text"]
        if not text or any(special in text for special in specials):
            left_out += 1
            continue
        texts.append(text)
        size += len(text.encode())
        if size >= limit:
            break
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(folder)
    print(f"{len(texts)} documents, {size / 1e6:.0f} MB of text; {left_out} left out")
    return size


def load_fast(tokenizer: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    eos = EOS.get(Path(tokenizer).stem, "</s>")
    return PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token=eos, pad_token=eos)


def run_recipe(dataset: Any, tokenizer: str, length: int, overlap: int, num_proc: int) -> Any:
    loaded = load_fast(tokenizer)

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        found = loaded(
            batch["text"],
            truncation=True,
            max_length=length,
            stride=overlap,
            return_overflowing_tokens=True,
            padding="max_length",
        )
        labels = []
        for ids, mask in zip(found["input_ids"], found["attention_mask"], strict=True):
            labels.append([i if seen else -100 for i, seen in zip(ids, mask, strict=True)])
        return {
            "input_ids": found["input_ids"],
            "attention_mask": found["attention_mask"],
            "labels": labels,
        }

    return dataset.map(
        tokenize,
        batched=True,
        remove_columns=dataset.column_names,
        num_proc=num_proc if num_proc > 1 else None,
    )


def run_ours(dataset: Any, tokenizer: str, length: int, overlap: int) -> Any:
    from tokenmill.hf import CausalLMTokenizer

    config = {"context_length": length, "overlap": overlap, "verbose_level": "WARNING"}
    config["append_eos"] = False  # as the recipe
    tokenizing = CausalLMTokenizer(config, load_fast(tokenizer))
    result = tokenizing.tokenize(dataset)
    stages = tokenizing.summary.stage_seconds
    print(", ".join(f"{name} {spent:.2f}" for name, spent in stages.items()), file=sys.stderr)
    return result


def run_slow(dataset: Any, num_proc: int) -> Any:
    import transformers

    from tokenmill.hf import CausalLMTokenizer

    config = {"context_length": 1024, "num_proc": num_proc, "verbose_level": "ERROR"}
    config["show_progress"] = False
    return CausalLMTokenizer(config, transformers.ByT5Tokenizer()).tokenize(dataset)


def child(options: argparse.Namespace) -> None:
    """One run in this process: print its seconds, and where its rows are."""
    import datasets
    import transformers  # noqa: F401 - imported before the clock starts, on both sides

    datasets.disable_progress_bars()
    dataset = datasets.load_from_disk(options.dataset)
    before = os.times()
    started = time.perf_counter()
    what = (options.tokenizer, options.length, options.overlap)
    if options.child == "ours":
        result = run_ours(dataset, *what)
    elif options.child == "slow":
        result = run_slow(dataset, options.num_proc)
    else:
        result = run_recipe(dataset, *what, options.num_proc)
    seconds = time.perf_counter() - started
    cpu = sum(os.times()[:4]) - sum(before[:4])
    files = [file["filename"] for file in result.cache_files]
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": len(result), "files": files}))


def run_child(name: str, dataset: Path, options: argparse.Namespace, num_proc: int = 1) -> Any:
    """Run in a fresh process on a fresh copy of the dataset; only files of rows are left."""
    copy = options.work / f"run-{name}-{num_proc}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset, copy)
    measure.warm(sorted(copy.glob("*.arrow")))
    command = [sys.executable, __file__, "--child", name, "--dataset", str(copy)]
    command += ["--tokenizer", options.tokenizer, "--length", str(options.length)]
    command += ["--overlap", str(options.overlap), "--num-proc", str(num_proc)]
    run = measure.run(command)
    found = json.loads(run.output.strip().splitlines()[-1])
    found["peak_bytes"] = run.peak_bytes
    return found


def rows_differ(ours: list[str], theirs: list[str]) -> int:
    """Rows that are not equal, of files that hold as many."""
    import datasets

    a, b = (
        datasets.concatenate_datasets([datasets.Dataset.from_file(f) for f in files])
        for files in (ours, theirs)
    )
    if len(a) != len(b):
        raise SystemExit(f"{len(a)} rows against {len(b)}")
    differing = 0
    for start in range(0, len(a), 1000):
        blocks = [x.with_format("arrow")[start : start + 1000] for x in (a, b)]
        rows = min(1000, len(a) - start)
        wrong = np.zeros(rows, bool)
        for name in ("input_ids", "attention_mask", "labels"):
            x, y = (
                block[name].combine_chunks().flatten().to_numpy().reshape(rows, -1)
                for block in blocks
            )
            wrong |= (x != y).any(axis=1)
        differing += int(wrong.sum())
    return differing


def compare_with_recipe(options: argparse.Namespace, dataset: Path, size: int) -> None:
    cores = len(os.sched_getaffinity(0))
    contenders: dict[str, Callable[[], Any]] = {
        "tokenmill": lambda: run_child("ours", dataset, options),
        "dataset.map": lambda: run_child("recipe", dataset, options),
        f"dataset.map, num_proc={cores}": lambda: run_child("recipe", dataset, options, cores),
    }
    runs = measure.interleave(contenders, options.rounds)
    first = runs["tokenmill"]
    differing = rows_differ(first[-1]["files"], runs["dataset.map"][-1]["files"])
    print(f"\n{first[-1]['rows']} rows of {options.length}; {differing} differ from the recipe's\n")
    rows = []
    for name, group in runs.items():
        seconds = [run["seconds"] for run in group]
        rows.append(
            [
                name,
                f"{statistics.median(seconds):.2f}",
                f"{statistics.median(run['cpu'] for run in group):.2f}",
                f"{size / 1e6 / statistics.median(seconds):.1f}",
                f"{max(run['peak_bytes'] for run in group) / 1e9:.2f}",
                f"{measure.ratio(seconds, [run['seconds'] for run in first]):.1f}",
            ]
        )
    header = ["", "seconds", "CPU s", "MB/s", "peak GB", "times tokenmill's"]
    print(measure.table(header, rows))


def compare_labels(options: argparse.Namespace) -> None:
    """Labels of the same rows, by numpy on the whole batch and by loops over every token."""
    from tokenmill.core.records import TokenBatch
    from tokenmill.encode.boundaries import offsets_from_lengths
    from tokenmill.hf.columns import RowFormat
    from tokenmill.hf.rows import WindowRule

    rng = np.random.default_rng(0)
    lengths = rng.integers(1, options.length + 1, LABEL_ROWS)
    offsets = offsets_from_lengths(lengths)
    tokens = TokenBatch(rng.integers(0, 50_000, offsets[-1]).astype(np.uint32), offsets)
    rows = RowFormat(options.length).filled(WindowRule(options.length, 0, 50_256).cut(tokens))
    ids, mask = rows.input_ids, rows.attention_mask
    lists = ids.tolist(), mask.tolist()

    def by_numpy() -> Any:
        return np.where(mask.view(bool), ids, -100)

    def by_loops() -> Any:
        labels = []
        for row, seen in zip(*lists, strict=True):
            labels.append([i if s else -100 for i, s in zip(row, seen, strict=True)])
        return labels

    assert by_numpy().tolist() == by_loops() == rows.labels.tolist()
    runs = measure.interleave({"loops": timed(by_loops), "numpy": timed(by_numpy)}, 5)
    print(f"\nlabels of {LABEL_ROWS} rows of {options.length}:")
    for name, seconds in runs.items():
        print(f"  {name}: {statistics.median(seconds) * 1e3:.1f} ms")
    print(f"  loops take {measure.ratio(runs['loops'], runs['numpy']):.0f} x as long")

    as_lists = sum(list_bytes(x.tolist()) for x in (ids, mask, rows.labels))
    as_arrays = ids.nbytes + mask.nbytes + rows.labels.nbytes
    print(f"the same rows in memory: {as_lists / 1e6:.0f} MB as lists, {as_arrays / 1e6:.0f} MB")
    print(f"  as arrays: {as_lists / as_arrays:.1f} x less")


def list_bytes(rows: list[list[int]]) -> int:
    """Lists of lists, and the integers that Python does not share."""
    numbers = sum(sys.getsizeof(i) for row in rows for i in row if not -6 < i < 257)
    return numbers + sys.getsizeof(rows) + sum(map(sys.getsizeof, rows))


def timed(function: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    return run


def compare_processes(options: argparse.Namespace, dataset: Path, size: int) -> None:
    cores = len(os.sched_getaffinity(0))
    numbers = sorted({1, max(cores // 2, 1), cores})
    contenders = {
        str(number): (lambda number=number: run_child("slow", dataset, options, number))
        for number in numbers
    }
    runs = measure.interleave(contenders, options.rounds)
    first = [run["seconds"] for run in runs["1"]]
    print(f"\na slow tokenizer (ByT5Tokenizer) on {size / 1e6:.0f} MB, {cores} cores:\n")
    rows = []
    for number, group in runs.items():
        seconds = [run["seconds"] for run in group]
        median = statistics.median(seconds)
        speed = f"{size / 1e6 / median:.2f}"
        rows.append([number, f"{median:.2f}", speed, f"{measure.ratio(first, seconds):.2f}"])
    print(measure.table(["num_proc", "seconds", "MB/s", "speed-up"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, nargs="+", help="JSONL with `text`, or .zst of it")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json")
    parser.add_argument("--work", type=Path, help="folder for datasets, removed at the end")
    parser.add_argument("--bytes", type=int, default=60_000_000, help="text to take")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--overlap", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--dataset", help=argparse.SUPPRESS)
    parser.add_argument("--num-proc", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    print(measure.machine())
    packages = ["tokenizers", "transformers", "datasets", "fastokens", "pyarrow"]
    print(measure.versions([*packages, "numpy"]))
    options.work.mkdir(parents=True)
    try:
        added = load_fast(options.tokenizer).added_tokens_decoder.values()
        specials = [token.content for token in added if token.special]
        whole, part = options.work / "whole", options.work / "part"
        size = make_dataset(options.corpus, whole, options.bytes, specials)
        compare_with_recipe(options, whole, size)
        compare_labels(options)
        size = make_dataset(options.corpus, part, SLOW_BYTES, specials)
        compare_processes(options, part, size)
    finally:
        shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
