"""The results of a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError
from tokenmill.run.commit.ledger import Reused
from tokenmill.run.progress import Snapshot
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Manifest, Run

if TYPE_CHECKING:
    from tokenmill.pack.planning import PlanReport


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build."""

    out: str
    """The output folder or bucket prefix."""
    manifest: Manifest
    run: Run
    snapshot: Snapshot | None
    """The last progress. None if the dataset was already complete."""
    opened: Dataset | None = None
    """The opened dataset. None if it is in a bucket."""
    reused: Reused | None = None
    """Work reused from earlier attempts."""
    remarks: tuple[str, ...] = ()
    """Remarks on a complete dataset: libraries that now have another version."""
    plans: tuple[PlanReport, ...] = ()
    """The plans that the recipe asks for, one for each subset."""

    @property
    def dataset(self) -> Dataset:
        """The dataset, opened.

        Raises:
            UserError: the dataset is in a bucket.
        """
        if self.opened is None:
            raise in_bucket(self.out)
        return self.opened


def in_bucket(out: str) -> UserError:
    """Return the error for a dataset in a bucket, which cannot be opened without a cache."""
    hint = "tokenmill.open(report.out, cache=...)"
    return UserError("the dataset is in a bucket", where=out, hint=hint)


@dataclass(frozen=True, slots=True)
class Departure:
    """The result of an agent that left because other agents hold all remaining work."""

    out: str
    snapshot: Snapshot
    reused: Reused | None
