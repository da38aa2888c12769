"""tokenmill export"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.core.options import about, make_options
from tokenmill.core.values import counted
from tokenmill.store.exports import ExportOptions

if TYPE_CHECKING:
    from tokenmill.load.export.rows import ExportReport


class Export(Command, kw_only=True):
    """Export the rows of a plan, showing progress."""

    usage: ClassVar[str] = "DIR --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill export corpus/ --out rows/                                # its only plan
  tokenmill export corpus/ --plan best-fit-4096 --out rows/ --format pt --max-sequences 100000
  tokenmill export corpus/ --plan elsewhere/plan --out rows/ --format npy --labels next"""
    sections: ClassVar[tuple[Section, ...]] = (
        Section("rows", ExportOptions, "which rows, and how they are written"),
    )

    dataset: Annotated[str, about("folder of the dataset", positional="DIR")]
    out: Annotated[
        str,
        about("folder for the rows", example="rows/", metavar="DIR"),
    ]
    plan: Annotated[
        str | None,
        about(
            "name or folder of a plan (default: the only one)",
            example="best-fit-4096",
            metavar="PLAN",
        ),
    ] = None
    json: Json = False
    overwrite: Annotated[bool, about("replace an existing export")] = False

    def run(self) -> None:
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import print_json
        from tokenmill.cli.terminal import fitted
        from tokenmill.load.export.rows import export
        from tokenmill.store.plan import chosen_plan
        from tokenmill.store.temporary import dataset_at

        chosen = make_options(ExportOptions, self.given.get("rows", {}), "the export")
        with dataset_at(self.dataset) as dataset, meter() as advance:
            plan = chosen_plan(dataset, self.plan)
            report = export(
                dataset, plan, self.out, chosen, overwrite=self.overwrite, advance=advance
            )
        if self.json:
            print_json(report.manifest)
            return
        if report.already_there:
            print("nothing to do: the export is complete")
        print(fitted("\n".join(export_lines(report))))


def export_lines(report: ExportReport) -> Iterator[str]:
    """The lines that say what an export wrote."""
    manifest = report.manifest
    num_bytes = sum(file.bytes for file in manifest.files)
    columns = ", ".join(f"{name} {dtype}" for name, dtype in manifest.dtypes.items())
    rows, files = counted(manifest.num_sequences, "row"), counted(len(manifest.files), "file")
    labels = f"labels {manifest.options.labels}; " if "labels" in manifest.dtypes else ""
    yield f"{rows} in {files}, {num_bytes:,} bytes"
    yield f"columns: {columns}; {labels}padding id {manifest.pad_id}"
    for name, rule in (manifest.left_out or {}).items():
        yield f"{name} are left out: {rule}"
        yield f"to write them, add --with-{name}"
    if report.files_kept:
        yield f"reused: {counted(report.files_kept, 'file')} of an interrupted export"
    asked = min(manifest.options.sequences_per_file, manifest.num_sequences)
    for length, fewer in report.rows_per_file.items():
        if fewer < asked:
            yield f"{fewer:,} rows of {length:,} tokens per file, to keep files under 512 MiB"
