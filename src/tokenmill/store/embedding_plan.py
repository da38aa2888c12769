"""A plan for a model's embedding rows after its tokenizer was extended or trimmed.

    embeddings.json   for each new id, the old ids; its initial row is the mean of their rows
    ids.json          for each old id, the new id, or null if the token was removed

Both are sealed JSON. Ids below `num_unchanged` keep their rows, and `rows[i]` belongs to the id
`num_unchanged + i`. As in FVT (Gee et al. 2022, arXiv 2402.09977), a new token starts with the mean
of the rows of the old tokens that it is split into. An id that only moved keeps its row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.core.errors import VerificationError
from tokenmill.store.canonical import read_sealed

PLAN_NAME = "embeddings.json"
IDS_NAME = "ids.json"
PLAN_FORMAT = "tokenmill-embeddings"
IDS_FORMAT = "tokenmill-ids"
VERSION = 1

Id = Annotated[int, Meta(ge=0, lt=1 << 31)]


class EmbeddingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The old embedding rows from which each row of a new tokenizer is computed."""

    format: str = PLAN_FORMAT
    format_version: int = VERSION
    base: str
    """Fingerprint of the old tokenizer."""
    tokenizer: str
    """Fingerprint of the new one."""
    num_old_ids: Id
    """One more than the largest id of the old tokenizer."""
    num_unchanged: Id
    """Ids below this keep their rows."""
    rows: list[list[Id]]
    """Old ids for each further id; empty if no token has the id."""
    digest: str = ""

    @property
    def num_ids(self) -> int:
        """One more than the largest id of the new tokenizer."""
        return self.num_unchanged + len(self.rows)

    def new_ids(self) -> dict[int, int]:
        """The new id of every old id whose row is kept unchanged."""
        moved = {
            olds[0]: self.num_unchanged + i for i, olds in enumerate(self.rows) if is_one(olds)
        }
        return {**moved, **{i: i for i in range(self.num_unchanged)}}


class IdMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new id of every old id."""

    format: str = IDS_FORMAT
    format_version: int = VERSION
    base: str
    tokenizer: str
    ids: list[Id | None]
    """New ids by old id; null if the token was removed or no token had the id."""
    digest: str = ""


def is_one(old_ids: list[int]) -> bool:
    """Return whether a row is an unchanged copy of a single old row."""
    return len(old_ids) == 1


def read_embedding_plan(path: str | Path) -> EmbeddingPlan:
    """Read `embeddings.json`, given its path or its folder.

    Raises:
        UserError: the file has another version of the format.
        VerificationError: the file is missing, damaged, or names rows that do not exist.
    """
    path = Path(path)
    path = path / PLAN_NAME if path.is_dir() else path
    plan = read_sealed(path, EmbeddingPlan)
    largest = max((old for olds in plan.rows for old in olds), default=-1)
    if max(largest + 1, plan.num_unchanged) > plan.num_old_ids:
        why = f"it names row {largest} of {plan.num_old_ids}"
        raise VerificationError(
            "this file is not a plan of embedding rows", where=str(path), why=why
        )
    return plan
