"""What tokenmill has written, told by exact names: nothing else is ever deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenmill.core.errors import OutputConflictError

TEMPORARY = r"\.[^/]+\.[0-9a-f]{16}\.tmp"
"""The name of a file that is being written."""
_UNIT = r"(\d{5,}|\d{8}-\d{6}(-limit)?)"
_WORK = (
    r"run\.json|work/(lock|\w+\.json|\.?probe-\w+(\.link)?|(attempts|shards)/.+"
    rf"|(receipts|streams|claims|agents|damaged|failed|agreed)/[^/]+)|rejected/{_UNIT}\.jsonl"
    rf"|([^/]+/)*{TEMPORARY}"
)
PLAN_FILES = r"(plan\.json|(offsets|documents|starts|lengths)\.npy)"
UNFINISHED_PLAN = re.compile(rf"(new|replaced)/({PLAN_FILES}|{TEMPORARY})")
"""The files in the folder beside a plan in which that is written."""
DATASET_FILES = re.compile(
    rf"(manifest|copy)\.json|{_WORK}|(tokens|documents)/{_UNIT}\.(bin|idx|xxh3|parquet)"
    r"|tokenizer/(tokenizer\.(json|tiktoken|model)|(tokenizer-python|rank_encoding|tokenizer_config)\.json)"
    rf"|plans/(\.[^/]+\.unfinished/(new|replaced)|[^/]+)/{PLAN_FILES}"
    r"|\.copy\.[0-9a-f]{8}\.tmp/[0-9a-f]{32}"
)
"""The files of a dataset, and of an unfinished build or copy of one."""
COUNTS_FILES = re.compile(rf"counts\.json|{_WORK}|\d{{5,}}\.(words|offsets|counts)\.npy")
"""The files of word counts, and of an unfinished count."""


def refuse_strangers(folder: Path, is_ours: Callable[[str], object]) -> None:
    """Raise an OutputConflictError if a folder to be replaced holds files of someone else.

    `is_ours` is called with names relative to the folder. A link to a folder counts as a file.
    """
    strangers = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        paths = (Path(parent, name).relative_to(folder) for name in (*files, *links))
        strangers += [path.as_posix() for path in paths if not is_ours(path.as_posix())]
    if strangers:
        more = f" and {len(strangers) - 3:,} more" if len(strangers) > 3 else ""
        raise OutputConflictError(
            "the output folder holds files that tokenmill has not written",
            where=str(folder),
            why=f"it holds {', '.join(map(repr, sorted(strangers)[:3]))}{more}",
            hint="move them elsewhere: replacing the folder would delete them",
        )


def sweep_temporaries(folders: Iterable[Path]) -> None:
    """Remove the unfinished files that killed processes have left in these folders."""
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            if re.fullmatch(TEMPORARY, path.name) and path.is_file():
                path.unlink(missing_ok=True)
