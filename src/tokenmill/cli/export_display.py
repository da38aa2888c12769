"""An export as it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.cli.quantities import counted
from tokenmill.export.rows import ExportReport


def export_lines(report: ExportReport) -> Iterator[str]:
    """What an export wrote."""
    manifest = report.manifest
    num_bytes = sum(file.bytes for file in manifest.files)
    columns = ", ".join(f"{name} {dtype}" for name, dtype in manifest.dtypes.items())
    rows, files = counted(manifest.num_sequences, "row"), counted(len(manifest.files), "file")
    labels = manifest.options.labels
    yield f"{rows} in {files}, {num_bytes:,} bytes"
    yield f"columns: {columns}; labels {labels}; padding is id {manifest.pad_id}"
    if report.files_kept:
        yield f"reused: {counted(report.files_kept, 'file')} of an export that was stopped"
    asked = min(manifest.options.sequences_per_file, manifest.num_sequences)
    for length, fewer in report.rows_per_file.items():
        if fewer < asked:
            yield f"files hold {fewer:,} rows of {length:,} tokens, so that none takes over 512 MiB"
