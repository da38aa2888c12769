"""Peer: datatrove's `DocumentTokenizer` in a local executor, as its documentation shows it.

One task per core, each with its own share of the files. Shuffling, which is on by default, is
switched off: the output of the others is not shuffled either, and it would cost a second pass. The
batch is 1,000 documents instead of 10,000: with the default, documents of 13 kB need over 10 GB of
memory a worker, because every token of a batch is kept as an object with its text and offsets.

    python datatrove_tokens.py --tokenizer tokenizer.json --out DIR FOLDER_OF_JSONL
"""

from __future__ import annotations

import argparse
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", help="folder of .jsonl files")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--field", default="text")
    parser.add_argument("--eos", default="<|endoftext|>")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1000)
    options = parser.parse_args()

    executor = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(options.folder, glob_pattern="*.jsonl", text_key=options.field),
            DocumentTokenizer(
                str(options.out / "tokens"),
                tokenizer_name_or_path=options.tokenizer,
                eos_token=options.eos,
                shuffle_documents=False,
                batch_size=options.batch_size,
            ),
        ],
        tasks=options.workers,
        workers=options.workers,
        logging_dir=str(options.out / "logs"),
    )
    executor.run()


if __name__ == "__main__":
    main()
