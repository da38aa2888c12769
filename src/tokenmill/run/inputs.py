"""Fetch, check and sample the inputs before work starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenmill.core.errors import DataError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, Extent
from tokenmill.read.places.folders import is_glob, matches
from tokenmill.read.source import Access, FetchListener, ReadMode, Source
from tokenmill.read.sources import check_before_fetch, check_fields, fetch_sources
from tokenmill.read.units import decompressed_bytes
from tokenmill.run.recipe.options import ReadOptions, ResourceOptions
from tokenmill.store.cloud.names import ObjectName, is_remote

MAX_SAMPLE_TEXTS = 200
MAX_SAMPLE_CHARACTERS = 400_000
SAMPLE_BYTES = 1 << 18
MAX_WHOLE_BYTES = 4 << 20
WRITTEN = (
    *("manifest.json", "run.json", "tokenizer/tokenizer.json", "work/job.json"),
    *("tokens/0.bin", "tokens/0.idx", "documents/0.parquet", "rejected/0.jsonl"),
)
"""One example of each kind of file that a build writes."""


def access_of(read: ReadOptions, resources: ResourceOptions, listener: FetchListener) -> Access:
    """Return how to read remote inputs."""
    mode: ReadMode = "stream" if read.streaming else "download"
    return Access(mode, resources.cache_dir, listener)


def ready_sources(
    sources: Sequence[Source], fields: Fields, file_format: str, out: str, access: Access
) -> list[Source]:
    """Return the sources, downloaded if necessary, after checking that they have all fields.

    Raises:
        UserError: a field is missing, or a file cannot be read in this way.
        TokenmillError: a file cannot be fetched.
    """
    check_before_fetch(sources, fields, file_format, access)
    fetched = fetch_sources(sources, file_format, access)
    refuse_output_inside(fetched, out)
    check_fields(fetched, fields)
    return fetched


def refuse_output_inside(sources: Sequence[Source], out: str) -> None:
    """Raise a UserError if an input lies in the output."""
    why = "a build never reads what it writes"
    if is_remote(out):
        place = f"{ObjectName.parse(out)}/"
        for source in sources:
            if source.location.startswith(place):
                what = "an input is inside the output prefix"
                raise UserError(what, where=source.location, why=why)
        return
    folder = Path(out).resolve()
    for source in sources:
        if source.path and source.path.is_relative_to(folder):  # paths are resolved
            raise UserError("an input is inside the output folder", where=str(source.path), why=why)


def refuse_output_among(inputs: Sequence[str], out: str) -> None:
    """Raise a UserError if an input includes the output prefix.

    Agents that start later would read the output as input.
    """
    if not is_remote(out):
        return
    output = ObjectName.parse(out)
    for name in inputs:
        if not is_remote(name):
            continue
        named = ObjectName.parse(name)
        if named.store == output.store and _takes(named.key, output.key.split("/")):
            raise UserError(
                "the output prefix is inside an input",
                where=str(output),
                why=f"the input {name} would include what the build writes",
                hint="choose a prefix that is not below an input",
            )


def _takes(key: str, output: Sequence[str]) -> bool:
    """Whether a folder or a glob includes files that are written below an output."""
    if not is_glob(key):
        return not key or list(output[: key.count("/") + 1]) == key.split("/")
    pattern = key.split("/")
    folders = (output[: end + 1] for end in range(len(output)))
    return any(matches(folder, pattern, hidden=False) for folder in folders) or any(
        matches([*output, *written.split("/")], pattern, hidden=False) for written in WRITTEN
    )


def sample_texts(sources: Sequence[Source], fields: Fields) -> list[str]:
    """Return the first documents of some sources, for calibration and estimates."""
    reader = Reader(sources, fields, SAMPLE_BYTES)
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
    """Whether a source must be read whole and is too large for that."""
    whole = FORMATS[source.format].reads_whole(fields)
    return whole and decompressed_bytes(source) > MAX_WHOLE_BYTES
