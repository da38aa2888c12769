"""What becomes of a model's embedding rows when its tokenizer is extended or trimmed.

    embeddings.json   for each new id, the old ids whose rows it begins with the mean of
    ids.json          for each old id, its new id, or null if its token was removed

Both are sealed JSON. Ids below `num_unchanged` keep their rows, and `rows[i]` is of the id
`num_unchanged + i`. The mean of the rows of the tokens that a new token is made of is FVT's way
(Gee et al. 2022, arXiv 2402.09977); for an id that was only moved, it is its own old row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.errors import VerificationError
from tokenmill.store.canonical import read_sealed

PLAN_NAME = "embeddings.json"
IDS_NAME = "ids.json"
PLAN_FORMAT = "tokenmill-embeddings"
IDS_FORMAT = "tokenmill-ids"
VERSION = 1

Id = Annotated[int, Meta(ge=0, lt=1 << 31)]


class EmbeddingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the embedding rows of a new tokenizer come from."""

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
    """Old ids of each further id; none where no token has the id."""
    digest: str = ""

    @property
    def num_ids(self) -> int:
        """One more than the largest id of the new tokenizer."""
        return self.num_unchanged + len(self.rows)

    def new_ids(self) -> dict[int, int]:
        """The new id of every old id that keeps its row, alone."""
        moved = {
            olds[0]: self.num_unchanged + i for i, olds in enumerate(self.rows) if is_one(olds)
        }
        return {**moved, **{i: i for i in range(self.num_unchanged)}}


class IdMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new id of every old one."""

    format: str = IDS_FORMAT
    format_version: int = VERSION
    base: str
    tokenizer: str
    ids: list[Id | None]
    """By old id; null where the token was removed, or where no token had the id."""
    digest: str = ""


def is_one(old_ids: list[int]) -> bool:
    """Whether a row is another one as it is."""
    return len(old_ids) == 1


def read_embedding_plan(path: str | Path) -> EmbeddingPlan:
    """Read `embeddings.json`, or that of a folder.

    Raises:
        UserError: the file has a later version of the format.
        VerificationError: it is missing, damaged, or names rows that do not exist.
    """
    path = Path(path)
    path = path / PLAN_NAME if path.is_dir() else path
    plan = read_sealed(path, EmbeddingPlan, (PLAN_FORMAT, VERSION))
    largest = max((old for olds in plan.rows for old in olds), default=-1)
    if plan.format != PLAN_FORMAT or max(largest + 1, plan.num_unchanged) > plan.num_old_ids:
        why = f"it names row {largest} of {plan.num_old_ids}, or has another format"
        raise VerificationError(
            "this file is not a plan of embedding rows", where=str(path), why=why
        )
    return plan
