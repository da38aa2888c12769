"""Compare parity-aware merges of tokenmill and `tokenizers.trainers.ParityBpeTrainer`.

Every language has a file NAME.dev, from which merges are learnt and which decides the next
language, and a file NAME.devtest with other lines, on which tokens are counted. Both read lines
from memory. tokenmill counts words first, which is part of its time. CPU seconds include all
threads, because the library uses several. Compiled code is loaded before anything is measured.

    python bench/parity.py --texts flores/ --merges 4000
    python bench/parity.py --texts flores/ --merges 300 --languages eng_Latn,tha_Thai
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure

Texts = Mapping[str, list[str]]
Merges = list[tuple[str, str]]


def read(folder: Path, ending: str, names: Sequence[str]) -> Texts:
    """The lines of every language; of all that there are if none are named."""
    paths = sorted(folder.glob(f"*.{ending}"))
    return {
        path.stem: path.read_text().splitlines()
        for path in paths
        if not names or path.stem in names
    }


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def with_tokenmill(texts: Texts, num_merges: int, variant: str) -> tuple[Merges, float]:
    """Merges, and the CPU seconds that counting words took."""
    from tokenmill.encode.splitters import load_splitter, word_splitters
    from tokenmill.encode.words.splits import named_split
    from tokenmill.encode.words.table import WordTable
    from tokenmill.vocabulary.bpe.learning import learn_merges
    from tokenmill.vocabulary.bpe.merges import MergeOptions
    from tokenmill.vocabulary.bpe.parity import ParityOptions, learn_parity_merges
    from tokenmill.vocabulary.bpe.symbols import byte_symbols

    started = cpu_seconds()
    split = named_split("gpt2")
    splitter = load_splitter(split, word_splitters(split)[0], 64 << 20)
    table, groups = WordTable(), {}
    for name in [""] if variant == "classical" else texts:
        for lines in texts.values() if variant == "classical" else [texts[name]]:
            splitter.count(lines, table)
        groups[name] = table.take()
    counting = cpu_seconds() - started
    symbols = byte_symbols()
    options = MergeOptions(vocabulary_size=len(symbols) + num_merges)
    if variant == "classical":
        merges = learn_merges(groups[""], symbols, options)
    else:
        chosen = ParityOptions(dev=groups, variant=variant)
        merges = learn_parity_merges(groups, symbols, options, chosen).merges
    strings = merges.strings()
    spelled = [(strings[left], strings[right]) for left, right in merges.pairs.tolist()]
    return spelled, counting


def with_library(texts: Texts, num_merges: int, variant: str) -> Merges:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if variant == "classical":
        trainer = trainers.BpeTrainer(
            vocab_size=256 + num_merges, initial_alphabet=alphabet, show_progress=False
        )
        lines = (line for lines in texts.values() for line in lines)
        tokenizer.train_from_iterator(lines, trainer)
    else:
        trainer = trainers.ParityBpeTrainer(
            num_merges=num_merges, variant=variant, initial_alphabet=alphabet, show_progress=False
        )
        iterators = [[iter(lines) for lines in texts.values()] for _ in range(2)]
        trainer.train_from_iterator(tokenizer, iterators[0], dev_iterators=iterators[1])
    model = json.loads(tokenizer.to_str())["model"]
    return [tuple(merge) for merge in model["merges"]]


def judged(merges: Merges, texts: Texts) -> tuple[int, float, float]:
    """Tokens of all texts, the Gini coefficient of languages, and the worst premium over English
    (over the first language if there is no English)."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    lengths = {
        name: sum(len(found.ids) for found in tokenizer.encode_batch(lines))
        for name, lines in texts.items()
    }
    total = sum(lengths.values())
    differences = sum(abs(one - other) for one in lengths.values() for other in lengths.values())
    english = lengths.get("eng_Latn", next(iter(lengths.values())))
    return total, differences / (2 * len(lengths) * total), max(lengths.values()) / english


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--texts", type=Path, required=True, help="folder of NAME.dev, NAME.devtest"
    )
    parser.add_argument("--merges", type=int, default=4000)
    parser.add_argument("--languages", default="", help="names, with commas; all by default")
    options = parser.parse_args()
    names = [name for name in options.languages.split(",") if name]
    train = read(options.texts, "dev", names)
    test = read(options.texts, "devtest", names)
    for variant in ("classical", "base", "window"):
        with_tokenmill({"a": ["ab ab"], "b": ["cd cd"]}, 2, variant)
    rows = []
    for variant in ("classical", "base", "window"):
        started, cpu = time.perf_counter(), cpu_seconds()
        ours, counting = with_tokenmill(train, options.merges, variant)
        our_cpu, our_wall = cpu_seconds() - cpu, time.perf_counter() - started
        started, cpu = time.perf_counter(), cpu_seconds()
        theirs = with_library(train, options.merges, variant)
        their_cpu, their_wall = cpu_seconds() - cpu, time.perf_counter() - started
        equal = sum(a == b for a, b in zip(ours, theirs, strict=False))
        total, gini, worst = judged(ours, test)
        rows.append(
            [
                variant,
                f"{our_cpu:.2f}",
                f"{our_cpu - counting:.2f}",
                f"{their_cpu:.2f}",
                f"{their_cpu / our_cpu:.0f}",
                f"{our_wall:.2f}",
                f"{their_wall:.2f}",
                f"{equal:,} of {len(theirs):,}",
                f"{total:,}",
                f"{gini:.4f}",
                f"{worst:.2f}",
            ]
        )
    for name, value in (measure.machine() | measure.versions(["numba", "tokenizers"])).items():
        print(f"{name}: {value}")
    print(f"{len(train)} languages, {options.merges:,} merges\n")
    header = [
        "merges",
        "CPU s",
        "without counting",
        "tokenizers CPU s",
        "ratio",
        "wall s",
        "tokenizers wall s",
    ]
    print(measure.table([*header, "equal", "tokens", "Gini", "worst premium"], rows))


if __name__ == "__main__":
    main()
