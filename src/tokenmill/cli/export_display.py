"""The summary that `export` and `build` print of an export."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.cli.quantities import counted
from tokenmill.load.export.rows import ExportReport


def export_lines(report: ExportReport) -> Iterator[str]:
    """The lines that say what an export wrote."""
    manifest = report.manifest
    num_bytes = sum(file.bytes for file in manifest.files)
    columns = ", ".join(f"{name} {dtype}" for name, dtype in manifest.dtypes.items())
    rows, files = counted(manifest.num_sequences, "row"), counted(len(manifest.files), "file")
    labels = manifest.options.labels
    yield f"{rows} in {files}, {num_bytes:,} bytes"
    yield f"columns: {columns}; labels {labels}; padding id {manifest.pad_id}"
    if report.files_kept:
        yield f"reused: {counted(report.files_kept, 'file')} of an interrupted export"
    asked = min(manifest.options.sequences_per_file, manifest.num_sequences)
    for length, fewer in report.rows_per_file.items():
        if fewer < asked:
            yield f"{fewer:,} rows of {length:,} tokens per file, to keep files under 512 MiB"
