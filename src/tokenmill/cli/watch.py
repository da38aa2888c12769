"""tokenmill watch"""

from __future__ import annotations

import shutil
import signal
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.parser import Command
from tokenmill.cli.tables import bar, fact_lines, print_facts, table_lines
from tokenmill.cli.terminal import BOLD, painted, use_colour
from tokenmill.core.errors import Interrupted
from tokenmill.core.options import about
from tokenmill.core.values import safe_text

if TYPE_CHECKING:
    from tokenmill.reports.watching import Run, Watched

REDRAW_SECONDS = 1.0
LINE_SECONDS = 10.0
"""Time between two lines about a run where there is no terminal."""
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Begin and end the alternate screen of a terminal, without a cursor."""
LEVELS = "▁▂▃▄▅▆▇█"


class Watch(Command, kw_only=True):
    """Show running builds, exports and loaders, live."""

    usage: ClassVar[str] = "OUT ... [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill watch corpus/ --open                  # a page in your browser
  tokenmill watch corpus/ rows/ s3://bucket/big   # several runs on one page
  tokenmill watch corpus/ --terminal"""

    outs: Annotated[
        list[str],
        about("the --out of a build or export, or a file of metrics", positional="OUT"),
        Meta(min_length=1),
    ]
    open: Annotated[bool, about("open the page in a browser")] = False
    port: Annotated[int, Meta(ge=0, le=65535), about("port of the page (default: a free one)")] = 0
    terminal: Annotated[bool, about("show the runs here; in a pipe, as lines")] = False
    once: Annotated[bool, about("print the state once, and end")] = False

    def run(self) -> None:
        from tokenmill.reports.watching import Run, watching

        try:
            if self.once:
                _print_once([Run(name) for name in self.outs])
            elif self.terminal and not sys.stdout.isatty():
                _print_lines([Run(name) for name in self.outs])
            else:
                with watching(self.outs) as runs:
                    _fill_screen(runs) if self.terminal else self._serve(runs)
        except Interrupted as error:
            if error.exit_code != 128 + signal.SIGINT:  # Ctrl-C is how people end it
                raise

    def _serve(self, runs: Sequence[Run]) -> None:
        from tokenmill.reports.page.server import PageServer

        with PageServer(self.port, lambda: [run.now for run in runs]) as server:
            print_facts([("page", server.address), ("end", "Ctrl-C; the runs go on")])
            sys.stdout.flush()
            if self.open:
                webbrowser.open(server.address)
            server.serve_forever()


def _facts(run: Watched) -> list[tuple[str, str]]:
    """Everything about a run, as names and values."""
    from tokenmill.core.values import number_text
    from tokenmill.reports.watching import run_facts

    facts = [("run", f"{run.name}: {run.headline}"), *([("error", run.note)] if run.note else [])]
    gauges = (
        (name, f"{number_text(value)} {labels}".rstrip()) for name, labels, value in run.gauges
    )
    return [*facts, *gauges, *run_facts(run)]


def _print_once(runs: Sequence[Run]) -> None:
    for at, run in enumerate(runs):
        run.read()
        print("\n" if at else "", end="")
        print_facts(_facts(run.now))


def _print_lines(runs: Sequence[Run]) -> None:
    """Print a line about each run that has changed, every ten seconds until all are complete."""
    printed: dict[Run, str] = {}
    while True:
        for run in runs:
            run.read()
            parts = [run.now.headline, *(f"{name} {text}" for name, text in _facts(run.now)[1:5])]
            line = safe_text(f"{run.now.name}: {'; '.join(parts)}")
            if printed.get(run) != line:
                print(line, flush=True)
            printed[run] = line
        if all(run.now.state == "complete" for run in runs):
            return
        time.sleep(LINE_SECONDS)


def _fill_screen(runs: Sequence[Run]) -> None:
    """Draw all runs each second on the alternate screen, until the process is interrupted."""
    print(ENTER, end="")
    try:
        while True:
            columns, rows = shutil.get_terminal_size()
            lines = [line for run in runs for line in _drawn(run.now, columns)][: rows - 1]
            text = "".join(f"{line}\x1b[K\n" for line in lines)
            print(f"\x1b[H{text}\x1b[J", end="", flush=True)
            time.sleep(REDRAW_SECONDS)
    finally:
        print(LEAVE, end="", flush=True)


def _drawn(run: Watched, columns: int) -> Iterator[str]:
    from tokenmill.reports.status_facts import agent_table

    (_, heading), *facts = ((name, safe_text(text)) for name, text in _facts(run))
    heading = heading[: columns - 1]
    yield painted(heading, BOLD) if use_colour() else heading
    if 0 < run.share < 1:
        yield f"  {bar(run.share, '·', columns - 4)}"
    if run.curve:
        shown, top = run.curve[4 - columns :], max(run.curve) or 1.0
        levels = (round(max(speed, 0.0) / top * (len(LEVELS) - 1)) for speed in shown)
        yield f"  {''.join(LEVELS[level] for level in levels)}"
    yield from fact_lines(facts, max((len(name) for name, _ in facts), default=0) + 2)
    if run.status is not None and len(run.status.agents) > 1:
        yield from ("", *table_lines(*agent_table(run.status, len(run.status.agents))))
    yield ""
