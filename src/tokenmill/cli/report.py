"""tokenmill report"""

from __future__ import annotations

from typing import Annotated, ClassVar

from tokenmill.cli.parser import Command, Decoder
from tokenmill.core.options import about


class Report(Command, kw_only=True):
    """Write a page about a dataset, a plan, an analysis or tokenizers."""

    usage: ClassVar[str] = "PATH [--out report.html] [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill report corpus/
  tokenmill report corpus/plans/best-fit-4096 --out plan.html
  tokenmill report state.json --dataset corpus/ --out step.html
  tokenmill tokenizer report mine/ gpt2 --on data/ --json > tokenizers.json
  tokenmill report tokenizers.json --out tokenizers.html"""

    subject: Annotated[
        str,
        about(
            "a dataset, a plan, the state of a loader, or what analyze --json or tokenizer "
            "report --json printed",
            positional="PATH",
        ),
    ]
    out: Annotated[
        str | None,
        about("file for the page (default: report.html; with --json, none)", metavar="FILE"),
    ] = None
    dataset: Annotated[
        str | None,
        about("the dataset of a state, or of a plan that is elsewhere", metavar="DIR"),
    ] = None
    plan: Annotated[
        str | None,
        about("the plan of the batch to show, if the dataset has several", metavar="PLAN"),
    ] = None
    tokenizer: Decoder = None
    json: Annotated[bool, about("all figures as JSON on stdout")] = False

    def run(self) -> None:
        import shlex
        from pathlib import Path

        from tokenmill.api.reporting import report
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import print_json
        from tokenmill.core.values import safe_text, size_text

        out = self.out if self.json else ("report.html" if self.out is None else self.out)
        with meter() as advance:
            found = report(
                self.subject,
                out,
                dataset=self.dataset,
                plan=self.plan,
                tokenizer=self.tokenizer,
                advance=advance,
            )
        if self.json:
            print_json(found)
        elif out is not None:
            size = size_text(Path(out).stat().st_size)
            print(f"wrote {safe_text(shlex.quote(out))}, {size}: open it in a browser")
