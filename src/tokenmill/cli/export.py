"""tokenmill export"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, to_builtins

from tokenmill.cli.parser import Command, Events, Section
from tokenmill.core.options import OptionError, Problem, about, make_options
from tokenmill.core.values import counted
from tokenmill.store.exports import DocumentFormat, DocumentOptions, ExportOptions, Format, Order

if TYPE_CHECKING:
    from tokenmill.core.records import Advance
    from tokenmill.load.export.documents.exporting import DocumentsReport
    from tokenmill.load.export.rows.exporting import ExportReport
    from tokenmill.store.dataset import Dataset

SHARED = ("format", "order", "seed")
"""Options of rows and of documents."""


class Export(Command, kw_only=True):
    """Export the rows of a plan, or documents, showing progress."""

    usage: ClassVar[str] = "DIR --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill export corpus/ --out rows/                                # its only plan
  tokenmill export corpus/ --plan best-fit-4096 --out rows/ --format pt --max-sequences 100000
  tokenmill export corpus/ --plan elsewhere/plan --out rows/ --format npy --labels next
  tokenmill export corpus/ --out tuning/ --layout documents            # for axolotl
  tokenmill export corpus/ --out pairs/ --format megatron             # documents, without a plan"""
    common: ClassVar[tuple[str, ...]] = (
        *("out", "plan", "format", "layout", "order", "columns", "labels", "sequences_per_file"),
        *("max_sequences", "file_size", "overwrite"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("rows", ExportOptions, "which rows, and how they are written", SHARED),
        Section("documents", DocumentOptions, "how documents are written", SHARED),
    )

    dataset: Annotated[str, about("folder of the dataset", positional="DIR")]
    out: Annotated[
        str,
        about("folder, or hf://datasets/OWNER/NAME for rows", example="rows/", metavar="DIR"),
    ]
    plan: Annotated[
        str | None,
        about(
            "name or folder of a plan (default: the only one)",
            example="best-fit-4096",
            metavar="PLAN",
        ),
    ] = None
    format: Annotated[
        Literal[Format, DocumentFormat] | None,
        about("rows (default: parquet), or documents for megatron or nanogpt"),
    ] = None
    order: Annotated[
        Order | None,
        about("default: shuffled for rows, corpus for documents"),
    ] = None
    seed: Annotated[int, Meta(ge=0, description="seed of the shuffled order")] = 0
    json: Events = False
    overwrite: Annotated[bool, about("replace an existing export")] = False

    def run(self) -> None:
        from tokenmill.cli.display import Shown, display_for
        from tokenmill.store.temporary import dataset_at

        of_documents = self.format in typing.get_args(DocumentFormat)
        values = self._values("documents" if of_documents else "rows")
        export = self._export_documents if of_documents else self._export_rows
        shown: Shown[None, DocumentsReport | ExportReport] = Shown(
            counted="tokens",
            lines=lambda report, startup, verbose: [*self._lines(report)],
            values=lambda report: to_builtins(report.manifest),
        )
        with dataset_at(self.dataset) as dataset, display_for(shown, json=self.json) as display:
            display.finish(export(dataset, values, display.advance))

    def _lines(self, report: DocumentsReport | ExportReport) -> Iterator[str]:
        """The summary for people."""
        from tokenmill.cli.terminal import fitted
        from tokenmill.load.export.documents.exporting import DocumentsReport
        from tokenmill.read.places.hub.names import PREFIX

        if report.already_there:
            yield "nothing to do: the export is complete"
        if isinstance(report, DocumentsReport):
            lines = document_lines(report)
        else:
            lines = export_lines(report)
        yield fitted("\n".join(lines))
        if self.out.startswith(PREFIX):
            yield f"published as {self.out}"

    def _values(self, section: str) -> dict[str, Any]:
        """The options of a section, with the shared ones.

        Raises:
            UserError: options of the other section, or a plan for documents, were given.
        """
        wrong = [name for part, names in self.given.items() if part != section for name in names]
        if self.plan is not None and section == "documents":
            wrong.append("plan")
        if wrong:
            text = "cannot be given for the format {}, which is one of {}"
            named = self.format or "parquet"
            raise OptionError("the export", [Problem(n, text, named, section) for n in wrong])
        order = {} if self.order is None else {"order": self.order}
        chosen = {} if self.format is None else {"format": self.format}
        return {**chosen, "seed": self.seed, **order, **self.given.get(section, {})}

    def _export_documents(
        self, dataset: Dataset, values: dict[str, Any], advance: Advance
    ) -> DocumentsReport:
        from tokenmill.load.export.documents.exporting import export_documents

        options = make_options(DocumentOptions, values, "the export")
        return export_documents(
            dataset, self.out, options, overwrite=self.overwrite, advance=advance
        )

    def _export_rows(
        self, dataset: Dataset, values: dict[str, Any], advance: Advance
    ) -> ExportReport:
        from tokenmill.load.export.hub.publishing import publish
        from tokenmill.load.export.rows.exporting import export
        from tokenmill.read.places.hub.names import PREFIX
        from tokenmill.store.plan import chosen_plan

        options = make_options(ExportOptions, values, "the export")
        plan = chosen_plan(dataset, self.plan)
        write = publish if self.out.startswith(PREFIX) else export
        return write(dataset, plan, self.out, options, overwrite=self.overwrite, advance=advance)


def document_lines(report: DocumentsReport) -> Iterator[str]:
    """The lines that say what an export of documents wrote, and how to read it."""
    manifest = report.manifest
    for subset in dict.fromkeys(part.subset for part in manifest.parts):
        parts = [part for part in manifest.parts if part.subset == subset]
        documents = counted(sum(part.documents for part in parts), "document")
        tokens = counted(sum(part.tokens for part in parts), "token")
        yield f"{subset}: {documents}, {tokens} in {counted(len(parts), 'file')}"
    yield f"{manifest.dtype}; documents end with token {manifest.eos_id}"
    if report.files_kept:
        yield f"reused: {counted(report.files_kept, 'file')} of an interrupted export"
    if manifest.links:
        yield "the .bin files are links to the dataset"
        yield "IndexedDataset[i] and get() are right; slices, [a:b], silently give wrong tokens"
    for trainer, arguments in manifest.arguments.items():
        yield f"{trainer}: {arguments}"


def export_lines(report: ExportReport) -> Iterator[str]:
    """The lines that say what an export wrote."""
    manifest = report.manifest
    num_bytes = sum(file.bytes for file in manifest.files)
    columns = ", ".join(f"{name} {dtype}" for name, dtype in manifest.stored_dtypes.items())
    rows = counted(manifest.num_rows or manifest.num_sequences, "row")
    files = counted(len(manifest.files), "file")
    labels = f"labels {manifest.options.labels}; " if "labels" in manifest.dtypes else ""
    yield f"{rows} in {files}, {num_bytes:,} bytes"
    yield f"columns: {columns}; {labels}padding id {manifest.pad_id}"
    for name, rule in (manifest.left_out or {}).items():
        yield f"{name} are left out: {rule}"
        yield f"to write them, add --with-{name}"
    if report.files_kept:
        yield f"reused: {counted(report.files_kept, 'file')} of an interrupted export"
    limit = "512 MiB" if manifest.options.format != "mds" else "64 MiB (at most 4 GiB)"
    asked = min(manifest.options.sequences_per_file or 0, manifest.num_sequences)
    for length, fewer in report.rows_per_file.items():
        if fewer < asked:
            yield f"{fewer:,} rows of {length:,} tokens per file, to keep files under {limit}"
