"""Everything that is found out and refused before work starts."""

from __future__ import annotations

import difflib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.engine import Reference
from tokenmill.encode.selection import Candidates, load_reference, rank_engines
from tokenmill.encode.tokenizer_file import TokenizerFile, load_tokenizer_file
from tokenmill.errors import DataError, UserError
from tokenmill.read.columnar import check_schema
from tokenmill.read.documents import COLUMNAR_FORMATS, Reader
from tokenmill.read.fields import Fields
from tokenmill.read.preview import fields_of_first_records
from tokenmill.read.sources import Source, find_sources
from tokenmill.read.units import (
    Extent,
    Stream,
    Unit,
    choose_unit_bytes,
    cut_units,
    decompressed_bytes,
)
from tokenmill.run.recipe import Recipe
from tokenmill.run.resources import Resources, choose_resources
from tokenmill.store.layout import token_dtype

MAX_PREVIEWED_SOURCES = 64
MAX_SAMPLE_TEXTS = 200
MAX_SAMPLE_CHARACTERS = 400_000
PREVIEW_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Preparation:
    """A recipe, resolved."""

    recipe: Recipe
    resources: Resources
    sources: list[Source]
    items: list[Unit | Stream]
    file: TokenizerFile
    reference: Reference
    candidates: Candidates
    boundary: BoundaryTokens
    sample: list[str]
    """Real documents for calibration."""

    @property
    def dtype_name(self) -> str:
        """The width of the shards' ids."""
        return token_dtype(self.reference.largest_id).name

    @property
    def num_bytes(self) -> int:
        """Bytes of all inputs on disk."""
        return sum(source.num_bytes for source in self.sources)


def prepare(recipe: Recipe) -> Preparation:
    """Resolve a recipe; reads the first records of the inputs, writes nothing.

    Raises:
        UserError: something in it cannot be carried out.
    """
    fields = recipe.read.fields
    sources = find_sources(recipe.inputs, recipe.read.format)
    _refuse_output_inside(sources, Path(recipe.out))
    file = load_tokenizer_file(recipe.tokenizer, recipe.encode.encoding)
    control = recipe.encode.special_tokens == "control"
    reference = load_reference(file, control)
    boundary = resolve_boundary_tokens(reference, file, recipe.encode.eos, recipe.encode.pad)
    candidates = rank_engines(file, control, recipe.encode.engine)
    check_fields(sources, fields)
    return Preparation(
        recipe=recipe,
        resources=choose_resources(recipe.resources),
        sources=sources,
        items=list(cut_units(sources, fields, choose_unit_bytes(sources))),
        file=file,
        reference=reference,
        candidates=candidates,
        boundary=boundary,
        sample=sample_texts(sources, fields),
    )


def check_fields(sources: Sequence[Source], fields: Fields) -> None:
    """Raise a UserError where the text is in none of a source's first records, or another field
    in none of any source's: ids and kept fields may be rare, the text may not.
    """
    seen: set[str] = set()
    records: Source | None = None
    for source in sources[:MAX_PREVIEWED_SOURCES]:
        if source.num_bytes == 0 or source.format == "text":
            continue
        try:
            if source.format in COLUMNAR_FORMATS:
                check_schema(source, fields)
                continue
            present = fields_of_first_records(source, PREVIEW_BYTES)
        except DataError:
            continue  # the unit that reads the file reports the damage
        if present:
            _require_field(fields.text, present, source)
            records, seen = source, seen | present
    if records:
        for name in fields.extra:
            _require_field(name, seen, records)


def _require_field(name: str, present: set[str], source: Source) -> None:
    if name in present:
        return
    close = difflib.get_close_matches(name, present, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UserError(
        f"there is no field {name!r} in the first records",
        where=str(source.path),
        why=f"the fields are {', '.join(sorted(present)[:20])}",
        hint=hint + "name the right one with --text-field, --id-field, --keep or --no-loss",
    )


def sample_texts(sources: Sequence[Source], fields: Fields) -> list[str]:
    """The first documents of some sources, for calibration and estimates."""
    reader = Reader(sources, fields, PREVIEW_BYTES)
    chosen = [source for source in sources if source.num_bytes and not _too_large(source, fields)]
    chosen = chosen[:: max(len(chosen) // 8, 1)][:8]
    texts: list[str] = []
    for source in chosen:
        budget = MAX_SAMPLE_CHARACTERS // len(chosen)
        count = MAX_SAMPLE_TEXTS // len(chosen)
        try:
            batch = next(reader.read(Extent(source.index)), None)
        except DataError:
            continue
        for text in batch.texts[:count] if batch else ():
            texts.append(text[:budget])
            budget -= len(text)
            if budget <= 0:
                break
    return texts


def _too_large(source: Source, fields: Fields) -> bool:
    """A file that is one document would have to be read whole."""
    whole = source.format == "text" and not fields.separator
    return whole and decompressed_bytes(source) > (4 << 20)


def _refuse_output_inside(sources: Sequence[Source], out: Path) -> None:
    inside = [source for source in sources if source.path.is_relative_to(out.resolve())]
    if inside:
        why = "a build never reads what it writes"
        raise UserError("an input lies in the output folder", where=str(inside[0].path), why=why)


def identity_of(prepared: Preparation) -> dict[str, Any]:
    """What a resumed build must agree with."""
    return {
        "inputs": [
            {"name": source.name, "bytes": source.num_bytes, "mtime_ns": source.mtime_ns}
            for source in prepared.sources
        ],
        "tokenizer": prepared.file.sha256,
        "eos_id": prepared.boundary.eos_id,
        "pad_id": prepared.boundary.pad_id,
        "prefix_ids": list(prepared.boundary.prefix),
        "policies": prepared.recipe.policies,
        "engine": prepared.recipe.encode.engine,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of everything that has a say in the bytes of a dataset."""
    names = ("tokenmill", "tokenizers", "fastokens", "gigatoken", "tiktoken", "sentencepiece")
    found = {"python": platform.python_version()}
    for name in (*names, "msgspec", "numpy", "pyarrow", "xxhash"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
