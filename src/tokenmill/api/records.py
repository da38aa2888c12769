"""Records that a caller has in Python, written to a file from which a build reads them."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import xxhash

from tokenmill.cloud.names import is_remote
from tokenmill.errors import UserError
from tokenmill.paths import local_path
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.jsonl import JsonlParser, RenderingParser

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

FOLDER = "tokenmill-inputs"
TRAIN = "train"
TEXT = "text"
READ_ROWS = 1_000
"""Rows of a data set that are copied at a time."""
GROUP_BYTES = 8 << 20
"""About what a record batch holds; a build cuts files between them."""


def are_names(inputs: object) -> bool:
    """Whether inputs are names of files, folders and the like, which a recipe can hold.

    A collection of strings is; an iterator of strings gives texts.
    """
    if isinstance(inputs, (str, Path)):
        return True
    if _is_data_set(inputs) or _is_table(inputs) or isinstance(inputs, Mapping):
        return False
    if not isinstance(inputs, Collection):
        return False
    return all(isinstance(each, (str, Path)) for each in inputs)


def names_of(inputs: object) -> list[str]:
    """Inputs as a recipe holds them.

    Raises:
        UserError: they are records.
    """
    if isinstance(inputs, (str, Path)):
        return [str(inputs)]
    names: list[str] = []
    for each in [inputs] if _is_data_set(inputs) else cast(Iterable[Any], inputs):
        if not isinstance(each, (str, Path)):
            why = f"{type(inputs).__name__} holds records, which only build takes"
            raise UserError("inputs must be names of files", why=why)
        names.append(str(each))
    return names


@contextmanager
def written(
    inputs: Iterable[Any],
    fields: Fields | None,
    out: str,
    cache_dir: str | None,
    max_documents: int | None = None,
) -> Iterator[list[str]]:
    """The names of files that hold records, or of those that `inputs` name after all.

    `fields` say what is kept of each; None: everything. An iterable may have no end: no more of it
    is read than gives `max_documents`, if the fields are known.

    The rows of a data set are kept below `cache_dir`, by their fingerprint, and found there again.
    Those of anything else are kept beside `out` for as long as the context.

    Raises:
        UserError: the inputs are not records.
    """
    inputs = _one_split(inputs)
    if _is_data_set(inputs, "Dataset"):
        yield [str(_cached(inputs, fields, cache_dir))]
        return
    items = _iterator(inputs)
    first = next(items, None)
    if isinstance(first, Path):
        yield [str(each) for each in chain([first], items)]
        return
    warnings.warn(
        "records of an iterable have no fingerprint: after an interruption they are read again "
        "from the first one, and the build resumes only if they are the same",
        stacklevel=6,
    )
    parent = None if is_remote(out) else local_path(out, "the output").resolve().parent
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tokenmill-records-", dir=parent) as folder:
        path = Path(folder) / "records.jsonl"
        records = chain(() if first is None else (first,), items)
        with open(path, "wb", 1 << 20) as file:
            lines = _lines(records, fields)
            if fields and max_documents is not None:
                lines = _first_documents(lines, fields, max_documents)
            file.writelines(lines)
        yield [str(path)]


def _is_data_set(inputs: object, *names: str) -> bool:
    """Whether something is of `datasets`; if it is, that has been imported."""
    library = sys.modules.get("datasets")
    kinds = names or ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
    return library is not None and isinstance(
        inputs, tuple(getattr(library, name) for name in kinds)
    )


def _is_table(inputs: object) -> bool:
    """Whether something is a table of pandas, Polars or PyArrow, which yields its columns."""
    return hasattr(inputs, "columns") and hasattr(inputs, "shape")


def _iterator(inputs: Any) -> Iterator[Any]:
    kind = type(inputs).__name__
    if _is_table(inputs):
        why = f"a {kind} yields its columns, where records are needed"
        hint = "for example datasets.Dataset.from_pandas(...) or datasets.Dataset(arrow_table)"
        raise UserError("a table in memory is no input", why=why, hint=hint)
    try:
        return iter(inputs)
    except TypeError as error:
        hint = "give names of files, a data set, or records: [{...}]"
        what = "this is no input"
        raise UserError(what, why=f"it is of the type {kind}", hint=hint) from error


def _one_split(inputs: Any) -> Any:
    """The only split of several, or the one for training."""
    if not isinstance(inputs, Mapping):
        return inputs
    if not inputs or not all(_is_data_set(split) for split in inputs.values()):
        what = "a dict is not an input"
        hint = "give a list of records: [{...}]"
        raise UserError(what, why=f"its keys are {', '.join(map(str, inputs))[:200]}", hint=hint)
    if len(inputs) == 1:
        return next(iter(inputs.values()))
    names = ", ".join(map(str, inputs))
    if TRAIN not in inputs:
        raise UserError(
            "the data set has several splits",
            why=f"they are {names}, and none is called {TRAIN!r}",
            hint="give one of them: build(data_set[...], ...)",
        )
    left_out = ", ".join(str(name) for name in inputs if name != TRAIN)
    warnings.warn(f"only the split {TRAIN!r} is read; left out: {left_out}", stacklevel=7)
    return inputs[TRAIN]


def _cached(data_set: Dataset, fields: Fields | None, cache_dir: str | None) -> Path:
    """An Arrow file with the columns of a data set that are wanted, in the order of its rows."""
    if data_set.format["type"] == "custom":
        raise UserError(
            "the dataset has a transform, which makes its texts when they are read",
            why="texts are read from its columns, past set_transform and with_transform",
            hint="apply it with dataset.map, or give it to the build: transform=function",
        )
    columns = _columns(data_set, fields)
    key = {"fingerprint": data_set._fingerprint, "columns": columns}
    name = xxhash.xxh3_64_hexdigest(msgspec.json.encode(key, order="sorted"))
    folder = _cache_folder(cache_dir) / name
    split = re.sub(r"[^\w.-]+", "-", str(data_set.split or TRAIN))  # as "train[:10%]"
    path = folder / f"{split}.arrow"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
            whole = Path(part) / path.name
            _write_table(data_set.select_columns(columns), whole)
            whole.replace(path)
    return path


def _cache_folder(cache_dir: str | None) -> Path:
    if cache_dir is not None:
        return local_path(cache_dir, "cache_dir") / FOLDER
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE) / FOLDER


def _columns(data_set: Dataset, fields: Fields | None) -> list[str]:
    """The columns that a build reads."""
    present = list(data_set.column_names)
    if fields is None or fields.wanted is None:
        return present
    keys = dict.fromkeys(name.partition(".")[0] for name in fields.wanted)
    for key in keys:
        if key not in fields.may_be_missing:
            require_field(key, set(present), "the data set")
    return [name for name in present if name in keys]


def _write_table(data_set: Dataset, path: Path) -> None:
    import pyarrow as pa

    rows = data_set.with_format("arrow")
    with contextlib.ExitStack() as stack:
        writer: pa.RecordBatchFileWriter | None = None
        for table in _groups(rows):
            if writer is None:
                file = stack.enter_context(pa.OSFile(str(path), "wb"))
                writer = stack.enter_context(pa.ipc.new_file(file, table.schema))
            for batch in table.combine_chunks().to_batches():
                writer.write_batch(batch)
        if writer is None:
            raise UserError("the data set has no rows")


def _groups(rows: Dataset) -> Iterator[pa.Table]:
    """The rows in tables of about `GROUP_BYTES`."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    size = 0
    for table in rows.iter(READ_ROWS):
        tables.append(table)
        size += table.nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(tables)
            tables, size = [], 0
    if tables:
        yield pa.concat_tables(tables)


def _lines(records: Iterable[Any], fields: Fields | None) -> Iterator[bytes]:
    """Each record as a line of JSON, with what is wanted of it; a string is a text."""
    wanted = fields.wanted if fields else None
    keys = None if wanted is None else {name.partition(".")[0] for name in wanted}
    for number, record in enumerate(records):
        if isinstance(record, str):
            record = {fields.text if fields else TEXT: record}
        elif not isinstance(record, Mapping):
            raise UserError(
                "an input is neither a text nor a record",
                where=f"item {number}",
                why=f"it is of the type {type(record).__name__}",
                hint="records are dicts; names of files are str or Path, in a list",
            )
        if keys is not None:
            record = {name: value for name, value in record.items() if name in keys}
        try:
            yield _line(record) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            hint = "leave that field out, or make a number, a text, a list or a dict of it"
            what = "a record holds what JSON does not have"
            raise UserError(what, where=f"item {number}", why=str(error), hint=hint) from error


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(record, enc_hook=_plain)
    except UnicodeEncodeError:  # half of a surrogate pair: its escape is set aside when it is read
        return json.dumps(record, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Arrays and scalars of NumPy and PyTorch as lists and numbers.

    Raises:
        TypeError: it is something else, whose str() may be cut short or hold an address.
    """
    if callable(found := getattr(value, "tolist", None)):
        return found()
    raise TypeError(f"an object of the type {type(value).__name__}")


def _first_documents(lines: Iterable[bytes], fields: Fields, max_documents: int) -> Iterator[bytes]:
    """The lines up to the one that gives document `max_documents`: empty ones do not count."""
    parser = RenderingParser(fields) if fields.rendering else JsonlParser(fields)
    remaining = max_documents
    for line in lines:
        yield line
        ends = np.array([0], np.int64), np.array([len(line)], np.int64)
        remaining -= sum(map(bool, parser.parse_each(line, 0, 0, *ends).texts))
        if remaining <= 0:
            return
