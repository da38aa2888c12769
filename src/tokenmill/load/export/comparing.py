"""What comparisons of exported rows and of documents with their dataset share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Advance
from tokenmill.store.dataset import Dataset
from tokenmill.store.exports import EXPORT_NAME, AnyManifest

DESCRIBED = (
    "dtypes",
    "dtype",
    "left_out",
    "pad_id",
    "eos_id",
    "parts",
    "num_sequences",
    "num_rows",
)
"""What manifests say of rows or of documents."""


@dataclass(slots=True)
class Checked:
    """An export, and how much of it was compared."""

    folder: Path
    manifest: AnyManifest
    dataset: Dataset
    rows: int = 0
    documents: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Share:
    """The share of each file that is compared; it tells the progress."""

    sample: float
    advance: Advance
    total: int = 0
    done: int = 0
    _random: np.random.Generator = field(default_factory=np.random.default_rng)

    def takes(self, num_bytes: int, *, first: bool) -> bool:
        """Decide about the next piece; the first of a file is always compared."""
        self.done += num_bytes
        self.advance("comparing", self.done, self.total)
        return first or self._random.random() < self.sample


def damaged_export(what: str, where: Path, why: str) -> VerificationError:
    """The error for an export that differs from its manifest or its dataset."""
    hint = "restore it from a copy, or export again with --overwrite"
    return VerificationError(what, where=str(where), why=why, hint=hint)


def differs(
    path: Path, what: str, place: int | None, found: Any, expected: Any
) -> VerificationError:
    """The error for a token, or for a number of tokens if there is no place."""
    at = "number of tokens" if place is None else f"token {place:,}"
    why = f"{what}, {at}: {found} in the file, {expected} in the dataset"
    return damaged_export("the export differs from its dataset", path, why)


def require_names(folder: Path, expected: Iterable[str], names: Iterator[str]) -> None:
    """Take the next names of files from a list, all that are left if none are expected."""
    wanted = list(dict.fromkeys(expected))  # columns share a file but in npy
    found = list(islice(names, len(wanted) or None))
    if found != wanted:
        lists = [", ".join(each) or "nothing" for each in (found, wanted)]
        why = f"it lists {lists[0]} instead of {lists[1]}"
        raise damaged_export("the export has other files", folder / EXPORT_NAME, why)


def require_described(folder: Path, found: AnyManifest, wanted: AnyManifest) -> None:
    """Compare what a manifest says of an export with what it should say."""
    for name in DESCRIBED:
        pair = [getattr(manifest, name, None) for manifest in (found, wanted)]
        if pair[0] != pair[1]:
            why = f"{name}: {pair[0]} instead of {pair[1]}"
            raise damaged_export("the export is described wrongly", folder / EXPORT_NAME, why)
