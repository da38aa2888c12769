"""tokenmill bench loader"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.meter import meter
from tokenmill.cli.parser import Command, Json
from tokenmill.cli.tables import print_json, print_table
from tokenmill.core.options import about
from tokenmill.core.tables import table_of
from tokenmill.core.values import counted

if TYPE_CHECKING:
    from tokenmill.reports.loader_bench import LoaderBench, LoaderRow


class BenchLoader(Command, kw_only=True):
    """Measure how long training steps wait for batches."""

    usage: ClassVar[str] = "DIR [--step-ms N] [--batch-size N] [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill bench loader corpus/ --step-ms 50
  tokenmill bench loader s3://bucket/corpus --plan best-fit-4096 --batch-size 16 --step-ms 500"""

    dataset: Annotated[str, about("folder or bucket of the dataset", positional="DIR")]
    plan: Annotated[str | None, about("plan (default: the only one)", metavar="PLAN")] = None
    step_ms: Annotated[
        float, Meta(gt=0, le=600_000), about("milliseconds of a step", metavar="N")
    ] = 50
    batch_size: Annotated[int, Meta(ge=1, description="rows per step on each rank")] = 8
    seconds: Annotated[int, Meta(ge=1, description="time for the whole table")] = 60
    json: Json = False

    def run(self) -> None:
        """Measure and print a table and the answer."""
        from tokenmill.reports.loader_bench import bench_loader

        with meter() as advance:
            report = bench_loader(
                self.dataset,
                self.plan,
                step_seconds=self.step_ms / 1000,
                batch_size=self.batch_size,
                seconds=self.seconds,
                advance=advance,
            )
        if self.json:
            print_json(report)
        else:
            _print(report, self.step_ms)


def _print(report: LoaderBench, step_ms: float) -> None:
    best, is_remote = report.best, report.best.prefetch_steps > 0
    columns: dict[str, Callable[[LoaderRow], str]] = {
        "workers": lambda row: str(row.workers),
        "ahead": lambda row: f"{row.prefetch} batches",
        "wait per step": lambda row: f"{1e3 * row.wait_seconds:,.2f} ms",
        "share": lambda row: f"{row.wait_share:.1%}",
        "fastest step": lambda row: f"{1e3 * row.fastest_seconds:,.2f} ms",
        "first batch": lambda row: f"{row.first_seconds:,.2f} s",
    }
    if is_remote:
        columns["fetched ahead"] = lambda row: f"{row.prefetch_steps} steps"
    print_table(*table_of(columns, report.rows))
    fetched = f", prefetch_steps={best.prefetch_steps}" if is_remote else ""
    print(
        f"\n{'keeps up' if report.keeps_up else 'does not keep up'}: {best.wait_share:.1%} of a "
        f"{step_ms:g} ms step is waiting, with {counted(best.workers, 'worker')}, "
        f"{'prefetch_factor' if best.workers else 'prefetch'}={best.prefetch}{fetched}"
    )
    if not report.keeps_up:
        print("next: use a faster disk or network, more cores, or fewer rows per step")
