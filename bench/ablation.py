"""Measure what each design choice of the build gains, in documents and tokens per second.

Every row is a fresh process on the same documents. Rows are interleaved, and medians are reported.
Rows marked *call* measure only the engine's calls on one core, with the documents in memory. Rows
marked *process* are whole processes, including start-up.

    pip install gigatoken==0.10.0
    python bench/ablation.py --data LARGE --tokenizer tokenizer.json --work WORK

`--data` is a folder made by `corpus.py` with `jsonl/` and `small/`.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import measure
from bound import ENGINES, load_batches, warm_encoder
from build import Builder, add_options, builder, files_of
from corpus import documents_of_jsonl

HERE = Path(__file__).resolve()
BATCH_BYTES = 8_000_000
NAIVE_BATCH = 1000


@dataclass(frozen=True)
class Speed:
    seconds: float
    documents: int
    tokens: int


def engine_calls(engine: str, tokenizer: Path, inputs: Sequence[Path], single: bool) -> Speed:
    """One core, documents in memory: one call per document, or one per batch of 8 MB."""
    batches, _ = load_batches(inputs, BATCH_BYTES)
    if single:
        batches = [[text] for batch in batches for text in batch]
    prepare, encode = warm_encoder(engine, tokenizer.read_text("utf-8"))
    prepared = [prepare(batch) for batch in batches]
    started = time.perf_counter()
    tokens = sum(encode(batch) for batch in prepared)
    return Speed(time.perf_counter() - started, sum(map(len, batches)), tokens)


def naive_lists(tokenizer: Path, inputs: Sequence[Path], out: Path, eos: str) -> Speed:
    """The script that people write: json.loads, one growing list of ids, numpy at the end.

    It has the same fast engine in batches, so the difference to the build is the road around it.
    A list of ids takes about 40 bytes a token, so this row reads one file only.
    """
    import gigatoken

    started = time.perf_counter()
    text = tokenizer.read_text("utf-8")
    added = {entry["content"]: entry["id"] for entry in json.loads(text)["added_tokens"]}
    engine = gigatoken.Tokenizer.from_json(text)
    all_ids: list[int] = []
    documents = 0
    batch: list[str] = []

    def flush() -> None:
        for ids in engine.encode_batch(batch, parallel=True).to_list():
            all_ids.extend(ids)
            all_ids.append(added[eos])
        batch.clear()

    for document in documents_of_jsonl(inputs):
        batch.append(document["text"])
        documents += 1
        if len(batch) == NAIVE_BATCH:
            flush()
    if batch:
        flush()
    np.array(all_ids, dtype=np.uint16).tofile(out)
    return Speed(time.perf_counter() - started, documents, len(all_ids))


def in_fresh_process(options: argparse.Namespace, what: str, *inputs: Path) -> Speed:
    """Run this file again for one *call* or naive row; whole-process time for the naive one."""
    command = [sys.executable, str(HERE), "--once", what, *map(str, inputs)]
    command += ["--tokenizer", str(options.tokenizer), "--work", str(options.work)]
    run = measure.run([*command, "--eos", options.eos], hz=0)
    speed = Speed(**json.loads(run.output.splitlines()[-1]))
    return Speed(run.seconds, speed.documents, speed.tokens) if what == "naive" else speed


def whole_build(tokenmill: Builder, inputs: Sequence[Path], *arguments: str) -> Speed:
    build = tokenmill.build(inputs, *arguments)
    return Speed(build.seconds, build.documents, build.tokens)


def contenders(options: argparse.Namespace, tokenmill: Builder) -> dict[str, Callable[[], Speed]]:
    """All rows of the table, in the order in which they are read."""
    sources = files_of(options.data / "jsonl")
    part = sources[0]
    rows: dict[str, Callable[[], Speed]] = {}
    for engine in options.engines:
        for way, name in (("single", "one document at a time"), ("batch", "batches of 8 MB")):
            rows[f"call: {engine}, {name}"] = functools.partial(
                in_fresh_process, options, f"{engine}-{way}", part
            )
    rows["process: naive script, one list of all ids, first file"] = lambda: in_fresh_process(
        options, "naive", part
    )
    rows["process: build, first file"] = lambda: whole_build(tokenmill, [part])
    rows["process: build, 1 worker"] = lambda: whole_build(tokenmill, sources, "--workers", "1")
    rows["process: build, 2 workers"] = lambda: whole_build(tokenmill, sources, "--workers", "2")
    rows["process: build, default"] = lambda: whole_build(tokenmill, sources)
    rows["process: build, --prefetch 0"] = lambda: whole_build(
        tokenmill, sources, "--prefetch", "0"
    )
    joined = join(sources, options.work / "joined.jsonl")
    rows["process: build, all in 1 file"] = lambda: whole_build(tokenmill, [joined])
    if (options.data / "small").is_dir():
        small = files_of(options.data / "small")
        rows[f"process: build, {len(small)} files"] = lambda: whole_build(tokenmill, small)
    return rows


def join(sources: Sequence[Path], target: Path) -> Path:
    with open(target, "wb") as writer:
        for source in sources:
            with open(source, "rb") as reader:
                shutil.copyfileobj(reader, writer, 1 << 24)
    return target


def measure_here(options: argparse.Namespace) -> Speed:
    engine, _, way = options.once.partition("-")
    if engine == "naive":
        out = options.work / "naive.bin"
        speed = naive_lists(options.tokenizer, options.inputs, out, options.eos)
        out.unlink()
        return speed
    return engine_calls(engine, options.tokenizer, options.inputs, single=way == "single")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="*", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="folder by corpus.py")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--only", default="", help="only rows whose name contains this text")
    add_options(parser)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(vars(measure_here(options))))
        return
    if options.data is None:
        parser.error("--data FOLDER is needed (make it with bench/corpus.py)")

    tokenmill = builder(options)
    rows = contenders(options, tokenmill)
    rows = {name: row for name, row in rows.items() if options.only in name}
    runs = measure.interleave(rows, options.rounds)
    (options.work / "joined.jsonl").unlink()
    lines = []
    for name, group in runs.items():
        seconds = statistics.median(speed.seconds for speed in group)
        documents, tokens = group[0].documents / seconds, group[0].tokens / seconds
        lines.append([name, f"{seconds:.2f}", f"{documents:,.0f}", f"{tokens / 1e6:,.1f}"])
    print(json.dumps({**measure.machine(), **measure.versions(["tokenmill", *ENGINES])}))
    print(measure.table(["arrangement", "seconds", "documents/s", "Mtokens/s"], lines))
    if options.json:
        raw = {name: [vars(speed) for speed in group] for name, group in runs.items()}
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
