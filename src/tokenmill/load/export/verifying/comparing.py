"""What comparisons of exported rows and of documents with their dataset share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

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
REPAIR = "restore it from a copy, or export again with --overwrite"


@dataclass(slots=True)
class Comparison:
    """An export, and how much of it was compared."""

    folder: Path
    manifest: AnyManifest
    dataset: Dataset
    sample: float
    """The share of each file to compare."""
    advance: Advance
    rows: int = 0
    documents: int = 0
    tokens: int = 0
    token_bytes: int = 0
    """Of the tokens in all files."""
    _done: int = 0
    _random: np.random.Generator = field(default_factory=np.random.default_rng)

    @property
    def num_files(self) -> int:
        """Files of the export."""
        return len(self.manifest.files)

    @property
    def num_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.manifest.files)

    def takes(self, num_bytes: int, *, first: bool) -> bool:
        """Whether to compare the next piece of a file; the first always. It tells the progress."""
        self._done += num_bytes
        self.advance("comparing", self._done, self.token_bytes)
        return first or self._random.random() < self.sample

    def require(self, wanted: AnyManifest, names: list[str]) -> None:
        """Compare what the manifest says with what it should say, and with these names of files.

        Raises:
            VerificationError: something differs.
        """
        pairs: dict[str, tuple[object, object]] = {
            name: (getattr(self.manifest, name, None), getattr(wanted, name, None))
            for name in DESCRIBED
        }
        if names:
            pairs["files"] = [file.name for file in self.manifest.files], names
        for name, (found, expected) in pairs.items():
            if found != expected:
                why = f"{name}: {found} instead of {expected}"
                path = self.folder / EXPORT_NAME
                raise damaged_export("the export is described wrongly", path, why)


def damaged_export(what: str, where: Path, why: str, hint: str = REPAIR) -> VerificationError:
    """The error for an export that differs from its manifest or its dataset."""
    return VerificationError(what, where=str(where), why=why, hint=hint)


def differs(path: Path, what: str, found: object, expected: object) -> VerificationError:
    """The error for a token that differs, or the number of tokens."""
    why = f"{what}: {found} in the file, {expected} in the dataset"
    return damaged_export("the export differs from its dataset", path, why)
