"""Finding token files: their formats follow from names, headers, and files beside them.

PREFIX.bin + PREFIX.idx   a pair of Megatron
NAME.ds (+ .ds.index)     datatrove
NAME.npy                  OLMo: no header, in spite of its name
NAME.bin                  nanoGPT: uint16
Parquet, Arrow            a column of ids
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import LOCAL, PLACES, Access, Source, place_of
from tokenmill.read.tokens.columns import IdColumn
from tokenmill.read.tokens.flat import FlatFile, datatrove_dtype
from tokenmill.read.tokens.megatron import MegatronPair
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.tokens.pieces import TokenFile

TABLES = ("parquet", "arrow-file", "arrow-stream")
HEAD_BYTES = 1024
BESIDE = {
    ".idx": ".bin",
    ".xxh3": ".bin",
    ".ds.index": ".ds",
    ".ds.metadata": ".ds",
    ".csv.gz": ".npy",
    "meta.pkl": "train.bin",
}
"""Ends of files that belong to another file, with the end of that."""


def list_token_files(inputs: Sequence[str]) -> list[Source]:
    """Return the token files that files, folders, globs and prefixes of pairs name.

    Raises:
        UserError: nothing matches, a file is named twice, or is not a token file.
    """
    names = [_with_end(name) for name in inputs]
    for name in names:
        if place_of(name) != LOCAL:
            hint = "copy the files to this machine first"
            raise UserError("can only adopt local files", where=name, hint=hint)
    by_name = PLACES[LOCAL].list(names, Access())
    found = [source for name in dict.fromkeys(names) for source in by_name[name]]
    sources = [
        replace(source, index=index, format=_format_of(source))
        for index, source in enumerate(each for each in found if not _is_beside(each))
    ]
    if not sources:
        raise UserError("no token files", why=f"found none in {', '.join(inputs)}")
    places = [source.path for source in sources]
    for source in sources:
        if places.count(source.path) > 1:
            raise UserError("an input is named twice", where=source.where)
    strange = [source.where for source in sources if not source.format]
    if strange:
        more = f" and {len(strange) - 1:,} more" if strange[1:] else ""
        raise UserError(
            "an input is no token file",
            where=f"{strange[0]}{more}",
            why="only Megatron's pairs, .npy, .ds, .bin, Parquet and Arrow are known",
            hint="name the token files alone; tokenmill build reads texts",
        )
    return sources


def open_token_file(
    source: Source, options: AdoptOptions, eos_id: int, largest_id: int
) -> TokenFile:
    """Open one of the files, and check its index.

    Raises:
        DamagedInputError: it is damaged.
        UserError: it cannot be read in this way.
    """
    beside = Path(source.location)
    by_eos = options.boundaries == "eos"
    if source.format in TABLES:
        return IdColumn(source, options.column, eos_id if by_eos else None)
    if source.format == "megatron" and not by_eos:
        return MegatronPair(source, beside.with_suffix(".idx"))
    index = beside.with_name(f"{beside.name}.index")
    has_index = source.format == "datatrove" and index.is_file()
    if options.boundaries == "index" and not has_index:
        raise UserError(
            "a token file has no index",
            where=source.where,
            hint="--boundaries eos ends a document after each EOS",
        )
    if (losses := beside.with_name(f"{beside.name}.loss")).is_file():
        raise UserError(
            "cannot adopt which tokens have a loss",
            where=str(losses),
            why="training would use the tokens that this file leaves out",
            hint="move it elsewhere to adopt all tokens with a loss",
        )
    dtype = _dtype_of(source, options.dtype, largest_id)
    return FlatFile(source, dtype, eos_id, None if by_eos or not has_index else index)


def _with_end(name: str) -> str:
    """Return the name of a pair's `.bin`, also if its prefix was given as Megatron wants it."""
    path = local_path(name, "an input") if place_of(name) == LOCAL else None
    is_prefix = path is not None and not path.exists() and Path(f"{path}.bin").is_file()
    return f"{name}.bin" if is_prefix else name


def _is_beside(source: Source) -> bool:
    """Whether a file only belongs to another one."""
    path = Path(source.location)
    return any(
        path.name.endswith(end) and path.with_name(path.name.removesuffix(end) + other).is_file()
        for end, other in BESIDE.items()
    )


def _format_of(source: Source) -> str:
    """Return the format of a file; "" if it is no token file."""
    path = Path(source.location)
    flat = {".npy": "olmo", ".ds": "datatrove", ".bin": "nanogpt"}.get(path.suffix, "")
    if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
        return "megatron"
    if flat:
        return flat
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    return next((name for name in TABLES if FORMATS[name].sniff(head, path)), "")


def _dtype_of(source: Source, chosen: str, largest_id: int) -> np.dtype[np.integer]:
    """Return the dtype of a file without a header: the option's, the noted one, or the usual."""
    if chosen != "auto":
        return np.dtype(chosen).newbyteorder("<")
    if source.format == "megatron":
        return MegatronPair(source, Path(source.location).with_suffix(".idx")).dtype
    if source.format == "datatrove":
        noted = datatrove_dtype(Path(f"{source.location}.metadata"))
        if noted is not None:
            return noted
    sizes = ("u1", "<u2", "<u4") if source.format == "olmo" else ("<u2", "<u4")
    return next(dtype for each in sizes if largest_id <= np.iinfo(dtype := np.dtype(each)).max)
