"""Check what the output folder of an export holds already."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from tokenmill.core.errors import OutputConflictError, TokenmillError
from tokenmill.store.canonical import read_sealed
from tokenmill.store.exports import EXPORT_NAME, ExportManifest
from tokenmill.store.ownership import refuse_strangers


def found_export(out: Path, wanted: ExportManifest, *, overwrite: bool) -> ExportManifest | None:
    """Return the manifest of a complete export equal to the wanted one; checks sizes, not digests.

    With `overwrite`, any export is replaced: the result is None.

    Raises:
        OutputConflictError: the folder holds another export or something else.
    """
    if not out.exists() and not out.is_symlink():
        return None
    found = export_at(out)
    if overwrite:
        refuse_strangers(out, {EXPORT_NAME, *(entry.name for entry in found.files)}.__contains__)
        return None
    why = difference(found, wanted) or _damage(out, found)
    if not why:
        return found
    raise OutputConflictError(
        "the output folder holds another export",
        where=str(out),
        why=why,
        hint="choose another folder, or replace the export with --overwrite",
    )


def export_at(out: Path) -> ExportManifest:
    """Return the manifest of the export in the existing folder `out`.

    Raises:
        OutputConflictError: the folder holds something else.
    """
    if not out.is_symlink():
        with contextlib.suppress(TokenmillError, OSError):
            return read_sealed(out / EXPORT_NAME, ExportManifest)
    hint = "choose another folder, or remove this one"
    raise OutputConflictError("the output folder already exists", where=str(out), hint=hint)


def difference(found: ExportManifest, wanted: ExportManifest) -> str:
    """How an export differs from the wanted one; "" if it does not."""
    for name in ("dataset_id", "plan_id"):
        there, asked = getattr(found, name), getattr(wanted, name)
        if there != asked:
            return f"{name}: {there}, not {asked}"
    there, asked = _options(found), _options(wanted)
    differing = [name for name in asked if there[name] != asked[name]]
    return "; ".join(f"{name}: {there[name]}, not {asked[name]}" for name in differing)


def _options(manifest: ExportManifest) -> dict[str, str]:
    """Options formatted for a message."""
    values = {**msgspec.to_builtins(manifest.options)}
    values.setdefault("dtype", "int32")
    return {
        name: ",".join(value) if isinstance(value, (list, tuple)) else str(value)
        for name, value in values.items()
    }


def _damage(folder: Path, manifest: ExportManifest) -> str:
    """Which file of an export is missing or has another size; "" if none."""
    for entry in manifest.files:
        path = folder / entry.name
        if "/" in entry.name or not path.is_file() or path.stat().st_size != entry.bytes:
            return f"its file {entry.name!r} is missing or has another size"
    return ""
