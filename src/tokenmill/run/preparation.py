"""Everything that is found out and refused before work starts."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.engine import Reference
from tokenmill.encode.selection import Candidates, load_reference, rank_engines
from tokenmill.encode.tokenizer_file import TokenizerFile, load_tokenizer_file
from tokenmill.errors import DataError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.hub.download import DownloadListener
from tokenmill.read.hub.inputs import HubAccess, find_hub_inputs
from tokenmill.read.hub.names import is_hub_name, parse_hub_name
from tokenmill.read.preview import PREVIEW_BYTES, check_fields
from tokenmill.read.sources import Source, find_sources, hub_source
from tokenmill.read.units import (
    Extent,
    Stream,
    Unit,
    choose_unit_bytes,
    cut_units,
    decompressed_bytes,
)
from tokenmill.run.recipe import Recipe
from tokenmill.run.resources import PYTHON_BATCH_BYTES, Resources, choose_resources
from tokenmill.store.layout import token_dtype

MAX_SAMPLE_TEXTS = 200
MAX_SAMPLE_CHARACTERS = 400_000


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
    tokenizer_source: str
    """What makes a Python tokenizer in a worker process; "" for all others."""

    @property
    def dtype_name(self) -> str:
        """The width of the shards' ids."""
        return token_dtype(self.reference.largest_id).name

    @property
    def num_bytes(self) -> int:
        """Bytes of all inputs on disk."""
        return sum(source.num_bytes for source in self.sources)

    @property
    def batch_bytes(self) -> int:
        """Record bytes read, parsed and encoded at a time."""
        return PYTHON_BATCH_BYTES if self.file.kind == "python" else self.resources.batch_bytes


def prepare(recipe: Recipe, tokenizer: object = None, hub: HubAccess | None = None) -> Preparation:
    """Resolve a recipe; downloads what is to be downloaded, reads the first records of the inputs,
    writes nothing else.

    `tokenizer` is an object to encode with, which the recipe can only name. `hub` says how files of
    the Hub are read, in place of the recipe.

    Raises:
        UserError: something in it cannot be carried out.
    """
    fields = recipe.read.fields
    named = recipe.tokenizer if tokenizer is None else tokenizer
    file = load_tokenizer_file(named, recipe.encode.encoding)
    control = recipe.encode.special_tokens == "control"
    reference = load_reference(file, control)
    boundary = resolve_boundary_tokens(reference, file, recipe.encode.eos, recipe.encode.pad)
    candidates = rank_engines(file, control, recipe.encode.engine)
    if fields.no_loss is not None:
        reference.encode_with_offsets("")  # a Python tokenizer refuses
    access = hub or hub_access(recipe)
    if access.mode == "download":
        _check_first_files(recipe)
    sources = find_sources(recipe.inputs, recipe.read.format, access)
    _refuse_output_inside(sources, Path(recipe.out))
    if recipe.read.streaming:
        _refuse_other_streams(sources)
    check_fields(sources, fields)
    resources = choose_resources(recipe.resources)
    return Preparation(
        recipe=recipe,
        resources=resources,
        sources=sources,
        items=list(
            cut_units(sources, fields, choose_unit_bytes(sources, slow=file.kind == "python"))
        ),
        file=file,
        reference=reference,
        candidates=candidates,
        boundary=boundary,
        sample=sample_texts(sources, fields),
        tokenizer_source=_source_for_workers(file, resources.num_workers),
    )


def _source_for_workers(file: TokenizerFile, num_workers: int) -> str:
    if file.kind != "python" or num_workers == 1:
        return ""  # made of the dataset's own files, or there is one in this process
    from tokenmill.encode.references.python_source import pickled_source

    return file.source or pickled_source(file.tokenizer)


def hub_access(recipe: Recipe, listener: DownloadListener = lambda progress: None) -> HubAccess:
    """How a build reads files of the Hub."""
    mode: Literal["stream", "download"] = "stream" if recipe.read.streaming else "download"
    return HubAccess(mode, recipe.resources.cache_dir, listener)


def _check_first_files(recipe: Recipe) -> None:
    """Raise a UserError where a text is not in the first file of a data set on the Hub: that is
    seen from a part of the file, before a long download.
    """
    names = [name for name in recipe.inputs if is_hub_name(name)]
    if not names:
        return
    access = HubAccess("sample", recipe.resources.cache_dir)
    for files in find_hub_inputs(names, access).values():
        source = hub_source(0, files[0], recipe.read.format)
        check_fields([source], Fields(recipe.read.text_field))


def _refuse_other_streams(sources: Sequence[Source]) -> None:
    for source in sources:
        if source.streamed and source.format != "parquet":
            raise UserError(
                "an input cannot be streamed",
                where=source.where,
                why=f"only of Parquet files parts can be read; this one is {source.format}",
                hint="leave out --streaming: the files are downloaded once, and kept",
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
    kept = [source for source in sources if not source.streamed]
    inside = [source for source in kept if source.path.resolve().is_relative_to(out.resolve())]
    if inside:
        why = "a build never reads what it writes"
        raise UserError("an input lies in the output folder", where=str(inside[0].path), why=why)


def identity_of(prepared: Preparation) -> dict[str, Any]:
    """What a resumed build must agree with."""
    return {
        **({"commits": commits} if (commits := _commits(prepared.sources)) else {}),
        "inputs": [_input_identity(source) for source in prepared.sources],
        "tokenizer": prepared.file.sha256,
        "eos_id": prepared.boundary.eos_id,
        "pad_id": prepared.boundary.pad_id,
        "prefix_ids": list(prepared.boundary.prefix),
        "policies": prepared.recipe.policies,
        "engine": prepared.recipe.encode.engine,
        "versions": versions(),
    }


def _input_identity(source: Source) -> dict[str, Any]:
    version = {"etag": source.etag} if source.etag else {"mtime_ns": source.mtime_ns}
    return {"name": source.name, "bytes": source.num_bytes, **version}


def _commits(sources: Sequence[Source]) -> dict[str, str]:
    """The commit of each data set of the Hub that is read."""
    names = [parse_hub_name(source.origin) for source in sources if source.origin]
    return {name.repo: name.revision for name in names}


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
