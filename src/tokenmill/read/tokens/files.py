"""Finding and opening token files: their formats follow from names, headers, and files beside them.

PREFIX.bin + PREFIX.idx   a pair of Megatron
NAME.ds (+ .ds.index)     datatrove
NAME.npy                  OLMo: no header, in spite of its name
NAME.bin                  nanoGPT: uint16
Parquet, Arrow            a column of ids

A file without a header does not say how many bytes an id has: datatrove writes it beside, others
follow the size of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import LOCAL, PLACES, Access, Source, place_of
from tokenmill.read.tokens.columns import id_column
from tokenmill.read.tokens.indexes import (
    datatrove_dtype,
    datatrove_file,
    megatron_file,
    megatron_header,
)
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.tokens.pieces import TokenFile, flat_pieces, mapped, split_after

TABLES = ("parquet", "arrow-file", "arrow-stream")
FLAT = {".npy": "olmo", ".ds": "datatrove", ".bin": "nanogpt"}
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
HEADERS = {
    b"\x93NUMPY": "numpy.save wrote it, with a header; OLMo's files have none",
    (20240520).to_bytes(4, "little"): "it has the header of llm.c",
    (20240801).to_bytes(4, "little"): "it has the header of llm.c",
}


def list_token_files(inputs: Sequence[str]) -> list[Source]:
    """Return the token files that files, folders, globs and prefixes of pairs name.

    Raises:
        UserError: nothing matches, a file is named twice, or is not a token file.
    """
    names = [_with_end(name) for name in dict.fromkeys(inputs)]
    for name in names:
        if place_of(name) != LOCAL:
            hint = "copy the files to this machine first"
            raise UserError("can only adopt local files", where=name, hint=hint)
    by_name = PLACES[LOCAL].list(names, Access())
    found = (each for name in dict.fromkeys(names) for each in by_name[name])
    sources = [
        replace(source, index=index, format=_format_of(source))
        for index, source in enumerate(each for each in found if not _is_beside(each))
    ]
    if not sources:
        raise UserError("no token files", why=f"found none in {', '.join(inputs)}")
    where, count = Counter(source.where for source in sources).most_common(1)[0]
    if count > 1:
        raise UserError("an input is named twice", where=where)
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
    """Return the documents of a file, after a check of its index and its size.

    Raises:
        DamagedInputError: it is damaged.
        UserError: it cannot be read in this way.
    """
    path, by_eos = Path(source.location), options.boundaries == "eos"
    if source.format in TABLES:
        return id_column(source, options.column, eos_id if by_eos else None)
    if source.format == "megatron" and not by_eos:
        return megatron_file(source)
    index = path.with_name(f"{path.name}.index")
    has_index = source.format == "datatrove" and index.is_file()
    if options.boundaries == "index" and not has_index:
        raise UserError(
            "a token file has no index",
            where=source.where,
            hint="--boundaries eos ends a document after each EOS",
        )
    if (losses := path.with_name(f"{path.name}.loss")).is_file():
        raise UserError(
            "cannot adopt which tokens have a loss",
            where=str(losses),
            why="training would use the tokens that this file leaves out",
            hint="move it elsewhere to adopt all tokens with a loss",
        )
    dtype = _dtype_of(source, options.dtype, largest_id)
    num_tokens = _count_ids(source, dtype)
    if has_index and not by_eos:
        return datatrove_file(source, dtype, index)
    return TokenFile(
        source=source,
        num_tokens=num_tokens,
        plain_dtype=dtype,
        pieces=lambda: split_after(eos_id, flat_pieces(mapped(path, dtype)), dtype.itemsize),
    )


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
    if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
        return "megatron"
    if path.suffix in FLAT:
        return FLAT[path.suffix]
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    return next((name for name in TABLES if FORMATS[name].sniff(head, path)), "")


def _dtype_of(source: Source, chosen: str, largest_id: int) -> np.dtype[np.integer]:
    """Return the dtype of a file without a header: the option's, the noted one, or the usual."""
    path = Path(source.location)
    if chosen != "auto":
        return np.dtype(chosen).newbyteorder("<")
    if source.format == "megatron":
        megatron_file(source)  # of a damaged index, nothing counts
        return megatron_header(path.with_suffix(".idx"))[0]
    if source.format == "datatrove":
        noted = datatrove_dtype(path.with_name(f"{path.name}.metadata"))
        if noted is not None:
            return noted
    sizes = ("u1", "<u2", "<u4") if source.format == "olmo" else ("<u2", "<u4")
    return next(dtype for each in sizes if largest_id <= np.iinfo(dtype := np.dtype(each)).max)


def _count_ids(source: Source, dtype: np.dtype[np.integer]) -> int:
    """Return the number of ids in a file without a header.

    Raises:
        DamagedInputError: its size is no whole number of ids.
        UserError: it has a header, or looks as if its ids had more bytes than `dtype`.
    """
    path = Path(source.location)
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    for magic, why in HEADERS.items():
        if head.startswith(magic):
            hint = "write the ids alone: numpy.ndarray.tofile"
            raise UserError("a token file has a header", where=source.where, why=why, hint=hint)
    ids = mapped(path, dtype)
    if dtype.itemsize == 2 and len(ids) > 3 and not ids[1 : 1 << 20 : 2].any():
        raise UserError(
            "the ids of a token file seem to have four bytes",
            where=source.where,
            why="read as uint16, every second id is 0",
            hint="--dtype uint32",
        )
    return len(ids)
