"""Find where an engine differs from the reference, code point by code point.

Each of the 1,112,064 Unicode scalar values is in a separate short text, between letters, digits,
spaces, an apostrophe and line ends. The program prints the ranges on which each engine returns
other ids. The allow-list in `encode/engines/fastokens.py` comes from here.

    python bench/code_points.py --tokenizer tokenizer.json --engines native
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.engines.fastokens import FastokensEngine
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file

GROUP = 16
"""Code points in one text; only the texts that differ are taken apart."""
BATCH = 4_000
CACHE_BYTES = 1 << 30

LOADERS: dict[str, Callable[[TokenizerFile], Engine]] = {
    "fastokens": lambda file: FastokensEngine(file.data, control_tokens=False),
    "native": lambda file: load_engine("native", file, False, CACHE_BYTES),
}
"""Without what sends known differences to the reference."""


def context(code_point: int) -> str:
    """A code point where it can change how its neighbours are split."""
    c = chr(code_point)
    return f"a{c}b {c}1{c} {c}{c}'s\n{c}\n"


def differing(engine: Engine, reference: Engine, texts: Sequence[str]) -> Iterator[int]:
    """Indices of the texts for which two engines give different ids."""
    ours, theirs = engine.encode(texts), reference.encode(texts)
    for index in range(len(texts)):
        a = ours.ids[ours.offsets[index] : ours.offsets[index + 1]]
        b = theirs.ids[theirs.offsets[index] : theirs.offsets[index + 1]]
        if not np.array_equal(a, b):
            yield index


def differing_code_points(engine: Engine, reference: Engine) -> Iterator[int]:
    """All code points on which two engines differ."""
    scalars = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    groups = [scalars[i : i + GROUP] for i in range(0, len(scalars), GROUP)]
    for start in range(0, len(groups), BATCH):
        batch = groups[start : start + BATCH]
        texts = ["".join(map(context, group)) for group in batch]
        for index in differing(engine, reference, texts):
            alone = [context(c) for c in batch[index]]
            yield from (batch[index][i] for i in differing(engine, reference, alone))


def ranges(code_points: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbours, both ends included."""
    found: list[tuple[int, int]] = []
    for c in code_points:
        if found and found[-1][1] == c - 1:
            found[-1] = (found[-1][0], c)
        else:
            found.append((c, c))
    return found


def main() -> None:
    """Print a table for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", choices=LOADERS, default=["fastokens"])
    options = parser.parse_args()
    file = load_tokenizer_file(str(options.tokenizer))
    reference = HuggingFaceReference(file, control_tokens=False)
    for engine in (LOADERS[name](file) for name in options.engines):
        found = list(differing_code_points(engine, reference))
        print(f"{engine.name} {engine.version}: {len(found)} code points differ from tokenizers")
        for first, last in ranges(found):
            print(f"  U+{first:04X}" + (f"-U+{last:04X}" if last > first else ""))


if __name__ == "__main__":
    main()
