"""tokenmill cp"""

from __future__ import annotations

from typing import Annotated, ClassVar

from tokenmill.cli.parser import Command, Json
from tokenmill.core.options import about
from tokenmill.core.values import counted, size_text


class Cp(Command, kw_only=True):
    """Copy a dataset, showing progress."""

    usage: ClassVar[str] = "DATASET DESTINATION [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill cp corpus/ s3://bucket/corpus
  tokenmill cp s3://bucket/corpus corpus/ --verify
  tokenmill cp corpus/ /mnt/other/corpus
  tokenmill cp view/ chosen/                   the documents of a view, as a dataset of its own"""

    dataset: Annotated[str, about("its folder, or s3://BUCKET/PREFIX", positional="DATASET")]
    destination: Annotated[
        str,
        about("folder of the copy, or s3://BUCKET/PREFIX", positional="DESTINATION"),
    ]
    verify: Annotated[bool, about("read the destination back, and copy damaged files again")] = (
        False
    )
    json: Json = False

    def run(self) -> None:
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import next_text, print_json
        from tokenmill.cli.terminal import fitted
        from tokenmill.store.copying.copy import copy

        with meter() as advance:
            report = copy(self.dataset, self.destination, verify=self.verify, advance=advance)
        if self.json:
            print_json(report)
            return
        files, plans = counted(report.files, "file"), counted(report.plans, "plan")
        done = "verified" if self.verify else "complete"
        size = size_text(report.bytes)
        print(fitted(f"{done}: {files}, {size}, {plans} (id {report.dataset_id})"))
        there = report.files - report.copied_files
        copied = counted(report.copied_files, "file")
        size = size_text(report.copied_bytes)
        print(fitted(f"copied {copied}, {size}; {there:,} already there"))
        if report.left_plans:
            left = counted(report.left_plans, "plan")
            print(fitted(f"left out: {left}, because documents have other numbers in the copy"))
        print(f"\n{next_text(('tokenmill', 'verify', self.destination))}")
