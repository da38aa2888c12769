"""Compare extending a tokenizer with bpe-continue, and measure extending and trimming.

Every line of the files is a document. tokenmill first counts the words into a folder and then
extends, in two processes. bpe-continue reads the files, counts and extends in one process. Their
merges must be equal. Held-out lines show whether the extended tokenizer has boundaries that the
base does not have, what trimming costs, and how often a trimmed tokenizer differs from the base
with removed tokens replaced by their parts.

    python bench/extend.py --tokenizer gpt2.json --files flores/*.dev --held-out flores/*.devtest \\
        --add 3000 --trim 24000 --peer PYTHON_WITH_BPE_CONTINUE
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import measure

PEER = Path(__file__).parent / "peers" / "bpe_continue_merges.py"
COUNT = """
import sys
from pathlib import Path
from tokenmill.encode.splitters import find_split
from tokenmill.encode.splitters import load_splitter, word_splitters
from tokenmill.store.counts.folder import CountsManifest, write_counts
from tokenmill.encode.words.table import WordTable
tokenizer, out, *files = sys.argv[1:]
split = find_split(tokenizer)
splitter = load_splitter(split, word_splitters(split)[0], 1 << 28)
table = WordTable()
for file in files:
    splitter.count(Path(file).read_text("utf-8").split("\\n"), table)
write_counts(Path(out), CountsManifest(split=split), {"": [table.take()]})
"""
CHANGE = """
import sys
import tokenmill
action, tokenizer, counts, out, number, frequency = sys.argv[1:]
if action == "extend":
    tokenmill.extend_tokenizer(
        tokenizer, counts, out, add=int(number), min_frequency=int(frequency))
else:
    tokenmill.trim_tokenizer(tokenizer, counts, out, to=int(number))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--files", nargs="+", required=True)
    parser.add_argument("--held-out", nargs="+", required=True)
    parser.add_argument("--add", type=int, default=3000)
    parser.add_argument("--trim", type=int, default=24_000)
    parser.add_argument("--min-frequency", type=int, default=2)
    parser.add_argument("--peer", help="a Python with bpe-continue")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    print(measure.machine())
    print(measure.versions(["tokenmill", "tokenizers", "numba"]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        measured(options, root)
        figures(options, root)


def measured(options: argparse.Namespace, root: Path) -> None:
    """Seconds and memory of every step, in turns."""
    number = itertools.count()

    def ours(code: str, *arguments: object) -> measure.Run:
        return measure.run([sys.executable, "-c", code, *map(str, arguments)])

    def counted() -> measure.Run:
        return ours(COUNT, options.tokenizer, fresh(root / "counts"), *options.files)

    def changed(action: str, amount: int) -> measure.Run:
        out = root / f"{action}{next(number)}"
        run = ours(
            CHANGE, action, options.tokenizer, root / "counts", out, amount, options.min_frequency
        )
        out.rename(fresh(root / action))
        return run

    def peer() -> measure.Run:
        arguments = ["--tokenizer", options.tokenizer, "--add", str(options.add)]
        arguments += ["--min-frequency", str(options.min_frequency)]
        arguments += ["--out", str(root / "peer.json"), *options.files]
        return measure.run([options.peer, str(PEER), *arguments])

    contenders = {
        "count": counted,
        f"extend by {options.add:,}": lambda: changed("extend", options.add),
        f"trim to {options.trim:,}": lambda: changed("trim", options.trim),
    }
    if options.peer:
        print(measure.versions(["bpe-continue", "tokenizers"], options.peer))
        contenders["bpe-continue"] = peer
    runs = measure.interleave(contenders, options.rounds)
    rows = [
        [
            name,
            f"{measure.median_seconds(group):.2f}",
            f"{statistics.median(run.cpu_seconds for run in group):.2f}",
            f"{max(run.peak_bytes for run in group) / 1e6:.0f}",
        ]
        for name, group in runs.items()
    ]
    print(measure.table(["step", "seconds", "CPU s", "peak MB"], rows))


def fresh(path: Path) -> Path:
    """A name that nothing has."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.{len(list(path.parent.iterdir()))}"))
    return path


def figures(options: argparse.Namespace, root: Path) -> None:
    """What must be equal, and what is promised."""
    base = Tokenizer.from_file(options.tokenizer)
    extended = Tokenizer.from_file(str(root / "extend" / "tokenizer.json"))
    trimmed = Tokenizer.from_file(str(root / "trim" / "tokenizer.json"))
    for action in ("extend", "trim"):
        print(action, json.loads((root / action / f"{action}.json").read_bytes())["figures"])
    if options.peer:
        ours, theirs = (
            new_merges(root / "extend" / "tokenizer.json"),
            new_merges(root / "peer.json"),
        )
        old = len(new_merges(Path(options.tokenizer)))
        same = sum(a == b for a, b in zip(ours[old:], theirs[old:], strict=False))
        print(f"merges equal to bpe-continue's: {same:,} of {len(ours) - old:,}")
    texts = [line for file in options.held_out for line in Path(file).read_text().split("\n")]
    old_tokens = base.encode_batch(texts, add_special_tokens=False)
    print(f"held out: {len(texts):,} lines, {sum(map(len, old_tokens)):,} tokens")
    arisen = length = 0
    for before, after in zip(old_tokens, extended.encode_batch(texts), strict=True):
        length += len(after)
        arisen += not edges(after.tokens) <= edges(before.tokens)
    print(f"extended: {length:,} tokens, lines with a new boundary: {arisen}")
    removed = by_parts(base, trimmed)
    other = length = predicted = 0
    for before, after in zip(old_tokens, trimmed.encode_batch(texts), strict=True):
        expected = [part for token in before.tokens for part in removed.get(token, [token])]
        length += len(after)
        predicted += len(expected)
        other += expected != after.tokens
    print(f"trimmed: {length:,} tokens; removed ones replaced by parts: {predicted:,}")
    print(f"lines that are cut otherwise than by parts: {other:,}")


def new_merges(path: Path) -> list[tuple[str, ...]]:
    merges: list[Any] = json.loads(path.read_bytes())["model"]["merges"]
    return [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]


def edges(tokens: list[str]) -> set[int]:
    return set(itertools.accumulate(map(len, tokens)))


def by_parts(base: Tokenizer, trimmed: Tokenizer) -> dict[str, list[str]]:
    """Removed tokens, and what their own texts are in the trimmed tokenizer."""
    kept = trimmed.get_vocab()
    model = trimmed.model
    return {
        token: [part.value for part in model.tokenize(token)]
        for token in base.get_vocab()
        if token not in kept
    }


if __name__ == "__main__":
    main()
