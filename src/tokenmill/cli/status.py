"""tokenmill status"""

from __future__ import annotations

from typing import Annotated, ClassVar

from tokenmill.cli.parser import Command
from tokenmill.cli.tables import print_facts, print_json, print_table
from tokenmill.core.options import about

MAX_SHOWN = 200
"""Most agents shown in the table; --json lists all."""


class Status(Command, kw_only=True):
    """Print the progress of a build or an export."""

    usage: ClassVar[str] = "OUT [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill status corpus/
  tokenmill status s3://bucket/corpus --json"""

    out: Annotated[
        str,
        about("the --out of the build or export: folder or bucket prefix", positional="OUT"),
    ]
    json: Annotated[bool, about("everything as JSON on stdout")] = False

    def run(self) -> None:
        from tokenmill.reports.status import run_status
        from tokenmill.reports.status_facts import agent_table, status_facts

        status = run_status(self.out)
        if self.json:
            print_json(status)
            return
        stage = f"{status.state}, {status.stage}" if status.state == "under way" else status.state
        print_facts([(status.kind, f"{status.out}: {stage}"), *status_facts(status)])
        if status.agents:
            print()
            print_table(*agent_table(status, MAX_SHOWN))
