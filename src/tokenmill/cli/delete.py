"""tokenmill delete"""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

from tokenmill.cli.parser import Command
from tokenmill.core.errors import UserError
from tokenmill.core.options import about
from tokenmill.core.values import counted, safe_text, size_text


class Delete(Command, kw_only=True):
    """Delete what a prefix of a bucket holds."""

    usage: ClassVar[str] = "DATASET [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill delete s3://bucket/corpus
  tokenmill delete s3://bucket/corpus --yes"""

    dataset: Annotated[str, about("s3://BUCKET/PREFIX", positional="DATASET")]
    yes: Annotated[bool, about("delete without asking")] = False

    def run(self) -> int:
        from tokenmill.cli.meter import meter
        from tokenmill.store.deletion import delete, look_at

        holding = look_at(self.dataset)
        objects = counted(len(holding.sizes), "object")
        num_bytes = size_text(sum(holding.sizes.values()))
        print(f"{safe_text(holding.location)} holds {holding.what}: {objects}, {num_bytes}")
        if holding.strangers:
            others = counted(len(holding.strangers), "other object")
            print(f"{others} will be kept, such as {safe_text(holding.strangers[0])}")
        if not self.yes and not _agreed():
            print("nothing was deleted")
            return 2
        with meter() as advance:
            delete(holding, advance)
        print(f"deleted {objects}")
        return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        why = "standard input is not a terminal, so the command cannot ask for confirmation"
        raise UserError("nothing was deleted", why=why, hint="add --yes to delete without asking")
    return input("delete it? This cannot be undone [y/N] ").strip().lower() in ("y", "yes")
