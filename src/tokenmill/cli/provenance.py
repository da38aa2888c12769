"""tokenmill provenance"""

from __future__ import annotations

from typing import Annotated, ClassVar

from tokenmill.cli.parser import Command, Json
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.options import about

MOST_SHOWN = 20


class Provenance(Command, kw_only=True):
    """Count the documents and tokens that a training run has given, by source."""

    usage: ClassVar[str] = "STATE.json [--by COLUMN] [--markdown | --json] [--out FILE.md]"
    examples: ClassVar[str] = """\
examples:
  tokenmill provenance state.json
  tokenmill provenance state.json --by license
  tokenmill provenance state.json --by lang --out DATA.md"""

    state: Annotated[str, about("file with the state of a loader", positional="STATE.json")]
    by: Annotated[str | None, about("also count by the values of a kept column, or of subset")] = (
        None
    )
    dataset: Annotated[
        list[str], about("a dataset of the run that is not where it was", metavar="DIR")
    ] = []
    markdown: Annotated[bool, about("print a data statement in Markdown")] = False
    out: Annotated[str | None, about("new file for the data statement", metavar="FILE.md")] = None
    json: Json = False

    def run(self) -> None:
        from tokenmill.api.runs import provenance
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import fact_lines, print_json, print_table
        from tokenmill.core.paths import output_path
        from tokenmill.reports.given_data import given_facts, input_table, source_table, value_table
        from tokenmill.store.files import write_atomically

        if self.markdown and self.json:
            raise UserError("--markdown and --json cannot be combined", hint="give one of them")
        place = None if self.out is None else output_path(self.out, "the data statement")
        if place is not None and place.exists():
            hint = "give another name with --out"
            raise OutputConflictError("the file exists", where=str(place), hint=hint)
        with meter() as advance:
            found = provenance(self.state, datasets=self.dataset, by=self.by, advance=advance)
        if place is not None:
            write_atomically(place, found.statement().encode())
        if self.json:
            print_json(found)
        elif self.markdown:
            print(found.statement(), end="")
        else:
            print("\n".join(fact_lines(given_facts(found), 12)))
            tables = [source_table(found), input_table(found.inputs)]
            for header, rows in [*tables, value_table(found)] if found.by else tables:
                print()
                print_table(header, rows[:MOST_SHOWN])
                if len(rows) > MOST_SHOWN:
                    print(f"and {len(rows) - MOST_SHOWN} more: --json has all")
