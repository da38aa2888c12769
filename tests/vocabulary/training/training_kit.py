"""Small corpora, counted by the library itself, and tokenizers trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from tokenmill.encode.split_file import find_split
from tokenmill.encode.splitters import LIBRARY, load_splitter
from tokenmill.encode.words.splits import Digits, with_digits
from tokenmill.encode.words.table import WordTable
from tokenmill.store.counts.folder import CountsManifest, write_counts
from tokenmill.vocabulary.training.options import make_train_options
from tokenmill.vocabulary.training.train import TrainReport, train

TEXTS = [
    "All human beings are born free and equal in dignity and rights; it's everyone's.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "人人生而自由，在尊严和权利上一律平等。",
    "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิ",
    "def f(x):\n    return {x: 1_000, 'y': 3.14}  # 2024\n\n\tif (a == b) {\n\t\tbreak;\n\t}\n",
    "e\u0301 cafe\u0301 ﬁne №1 😀👩\u200d👩\u200d👧 … “don't”, he'd say; we'll   see 1234567\r\n",
]


def counted(
    folder: Path, texts: Mapping[str, Sequence[str]], split: str = "llama3", digits: Digits = "keep"
) -> Path:
    """Counts of groups of texts."""
    found = with_digits(find_split(split), digits)
    splitter = load_splitter(found, LIBRARY, 1 << 20)
    groups = {}
    for name, members in texts.items():
        table = WordTable()
        splitter.count(members, table)
        groups[name] = [table.take()]
    write_counts(
        folder, CountsManifest(split=found, by="language" if len(groups) > 1 else ""), groups
    )
    return folder


def trained(out: Path, counts: Path, **options: Any) -> TrainReport:
    """A tokenizer from counts."""
    return train([str(counts)], out, make_train_options(options))


def loaded(report: TrainReport, size: int | None = None) -> tokenizers.Tokenizer:
    """The file that was written, as the library loads it."""
    folder = report.folder if size is None else report.folder / str(size)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
