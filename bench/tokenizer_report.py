"""Compare a tokenizer report with encoding the same text: CPU seconds of each step, and the ratio.

    python bench/tokenizer_report.py TOKENIZER INPUT [INPUT ...]

Encoding alone reads, parses and encodes with the engine that a build would use. The report does the
same and measures. Both run in one process and alternate by batch, so a busy machine slows both.
Compiled code is loaded before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import time

import numpy as np

from tokenmill.encode.engine import Encoder
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.measure.measurer import Measured, Measurer, token_table
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.sources import find_sources
from tokenmill.reports.tokenizers.subject import open_subject
from tokenmill.run.units.attempt import document_hashes

BATCH_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--encoding", default="")
    parser.add_argument("--words", default="uax29")
    options = parser.parse_args()
    subject = open_subject(options.tokenizer, options.encoding)
    name = rank_engines(subject.file, control_tokens=False).names[0]
    largest = subject.reference.largest_id
    engine = load_engine(name, subject.file, False, 64 << 20)
    tokens = tokens_of(subject.file)
    measured = Measured(
        largest_id=largest,
        unk_id=subject.reference.unk_id,
        table=None if tokens is None else token_table(tokens, largest),
        num_around=2,
        encode_with_offsets=subject.reference.encode_with_offsets,
    )
    encoder = Encoder(engine, largest)
    warm_up = Measurer(measured, options.words, (2048,), 0.0)
    texts = ["warm up 1.5", "\u5b57"]
    warm_up.add(texts, encoder.encode(texts), ["", ""], np.arange(2, dtype=np.uint64))
    measurer = Measurer(measured, options.words, (2048, 8192), 0.1)
    seconds = dict.fromkeys(("read", "encode", "measure"), 0.0)
    sources = find_sources(options.inputs)
    reader = Reader(sources, Fields(), BATCH_BYTES)
    batches = (batch for source in sources for batch in reader.read(Extent(source.index)))
    while True:
        started = time.process_time()
        batch = next(batches, None)
        seconds["read"] += time.process_time() - started
        if batch is None:
            break
        started = time.process_time()
        encoded = encoder.encode(batch.texts)
        seconds["encode"] += time.process_time() - started
        started = time.process_time()
        hashes = document_hashes(sources[batch.source].name, batch)
        measurer.add(batch.texts, encoded, [""] * len(batch.texts), hashes)
        seconds["measure"] += time.process_time() - started
    total = measurer.tally.groups[""]
    versions = {p: importlib.metadata.version(p) for p in ("numpy", "numba", "tokenizers")}
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"engine {name} {encoder.version}, {versions}")
    print(f"{total.total('bytes'):,} bytes, {total.total('tokens'):,} tokens")
    for step, spent in seconds.items():
        print(f"{step:>8}  {spent:7.2f} CPU s")
    alone = seconds["read"] + seconds["encode"]
    print(f"report / encoding alone: {sum(seconds.values()) / alone:.2f}")


if __name__ == "__main__":
    main()
