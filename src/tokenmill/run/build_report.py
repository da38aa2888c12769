"""What a build did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenmill.errors import UserError
from tokenmill.run.commit.ledger import Reused
from tokenmill.run.progress import Snapshot
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Manifest, Run

if TYPE_CHECKING:
    from tokenmill.planning.packing import PlanReport


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did."""

    out: str
    """The folder or the bucket's prefix."""
    manifest: Manifest
    run: Run
    snapshot: Snapshot | None
    """None where the dataset was already complete."""
    opened: Dataset | None = None
    """The dataset; None where it is in a bucket."""
    reused: Reused | None = None
    """What earlier attempts at a build had done."""
    remarks: tuple[str, ...] = ()
    """Libraries that a complete dataset was built with, if other versions are installed now."""
    plans: tuple[PlanReport, ...] = ()
    """Plans that the recipe asks for, one a subset."""

    @property
    def dataset(self) -> Dataset:
        """The dataset, opened.

        Raises:
            UserError: it is in a bucket.
        """
        if self.opened is None:
            raise in_bucket(self.out)
        return self.opened


def in_bucket(out: str) -> UserError:
    """The error for a dataset that cannot be opened without a cache."""
    hint = "tokenmill.open(report.out, cache=...)"
    return UserError("the dataset is in a bucket", where=out, hint=hint)


@dataclass(frozen=True, slots=True)
class Departure:
    """An agent has left: what is not done, others are at."""

    out: str
    snapshot: Snapshot
    reused: Reused | None
