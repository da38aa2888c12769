"""Compare every engine with its reference, for every kind of tokenizer.

It trains a tokenizer of each kind (see `kinds.py`), and also takes the given files. Every admitted
engine encodes the whole corpus, with and without control tokens, and documents with other ids than
the reference are counted. For the published GPT-2 and Llama 3 files, the ids of a known text are
checked, too. The exit code is 1 if anything differs.

    python bench/exactness.py --corpus corpus/*.jsonl.zst --tokenizers gpt2.json --work WORK
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from kinds import CACHE_BYTES, documents, train_all
from tokenmill.core.records import TokenBatch
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Encoder
from tokenmill.encode.engine_ranking import REFERENCE, load_engine, rank_engines
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file

GPT2 = ("Hello  wörld 😀\n", [15496, 220, 266, 30570, 335, 30325, 222, 198])
PUBLISHED_IDS = {
    "gpt2.json": GPT2,
    "gpt2.tiktoken": GPT2,
    "llama3.tiktoken": ("Hello world", [9906, 1917]),
}


def num_differing(found: TokenBatch, expected: TokenBatch) -> int:
    """Documents that have other ids in two encodings."""
    pairs = zip(
        np.split(found.ids, found.offsets[1:-1]),
        np.split(expected.ids, expected.offsets[1:-1]),
        strict=True,
    )
    return sum(not np.array_equal(ours, theirs) for ours, theirs in pairs)


def compare(file: TokenizerFile, control_tokens: bool, options: argparse.Namespace) -> int:
    """Print a line for each engine; how many documents differ in all."""
    reference = load_reference(file, control_tokens)
    names = rank_engines(file, control_tokens).names
    encoders = {
        name: Encoder(load_engine(name, file, control_tokens, CACHE_BYTES), reference.largest_id)
        for name in names
        if name != REFERENCE
    }
    differing = dict.fromkeys(encoders, 0)
    count = 0
    batches = documents(options.corpus, options.every)
    for texts in (adversarial_texts(reference.special_tokens), *batches):
        count += len(texts)
        expected = reference.encode(texts)
        for name, encoder in encoders.items():
            differing[name] += num_differing(encoder.encode(texts), expected)
    policy = "control" if control_tokens else "text"
    for name, number in differing.items():
        print(f"  special tokens as {policy}, {name}: {number} of {count:,} differ", flush=True)
    return sum(differing.values())


def main() -> None:
    """Compare everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--tokenizers", type=Path, nargs="*", default=[])
    parser.add_argument("--work", type=Path, required=True, help="folder for what is trained")
    parser.add_argument("--every", type=int, default=1, help="take every n-th document")
    options = parser.parse_args()
    problems = 0
    for path in [*options.tokenizers, *train_all(options.corpus, options.work).values()]:
        file = load_tokenizer_file(str(path))
        print(path.name, flush=True)
        if path.name in PUBLISHED_IDS:
            text, wanted = PUBLISHED_IDS[path.name]
            found = load_reference(file, False).encode([text]).ids.tolist()
            if found != wanted:
                problems += 1
                print(f"  {found} instead of {wanted}")
        for control_tokens in (False, True) if KINDS[file.kind].is_json else (False,):
            problems += compare(file, control_tokens, options)
    print(f"{problems} documents differ")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
