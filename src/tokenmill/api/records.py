"""Records held in Python as inputs of a build: they are written to a file, which the build reads.

Workers are processes, and a build that resumes needs the same bytes again: both need a file.
"""

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
import xxhash

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.json_records import JsonParser
from tokenmill.store.cloud.names import is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

FOLDER = "tokenmill-inputs"
TRAIN = "train"
TEXT = "text"
READ_ROWS = 1_000
"""Rows of a Hugging Face dataset that are copied at a time."""
GROUP_BYTES = 8 << 20
"""Approximate size of a record batch; a build splits files between batches."""


def are_names(inputs: object) -> bool:
    """Whether inputs are names of files or folders, which a recipe can hold.

    A list of strings holds names; an iterator of strings yields texts.
    """
    if isinstance(inputs, (str, Path)):
        return True
    if _is_data_set(inputs) or _is_table(inputs) or isinstance(inputs, Mapping):
        return False
    if not isinstance(inputs, Collection):
        return False
    return all(isinstance(each, (str, Path)) for each in inputs)


def names_of(inputs: object) -> list[str]:
    """Return inputs as the list of names that a recipe holds.

    Raises:
        UserError: the inputs are records.
    """
    if isinstance(inputs, (str, Path)):
        return [str(inputs)]
    names: list[str] = []
    for each in [inputs] if _is_data_set(inputs) else cast(Iterable[Any], inputs):
        if not isinstance(each, (str, Path)):
            why = f"{type(inputs).__name__} holds records, and only build accepts records"
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
    """Write records to a file and yield the file's name in a list.

    `fields` say which fields of a record to keep; None keeps all. An iterable may be endless: if
    the fields are known, it is only read until it has given `max_documents`.

    The rows of a Hugging Face dataset stay in `cache_dir` under their fingerprint, for the next
    build. Other records go into a temporary folder next to `out`.

    If `inputs` yields paths, their names are yielded instead.

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
        "records of an iterable have no fingerprint: if the build is interrupted, the next call "
        "reads them again from the first one, and resumes only if they are the same",
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
    """Whether something is an object of the library `datasets`, without importing it."""
    library = sys.modules.get("datasets")
    kinds = names or ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
    return library is not None and isinstance(
        inputs, tuple(getattr(library, name) for name in kinds)
    )


def _is_table(inputs: object) -> bool:
    """Whether something is a table of pandas, Polars or PyArrow: iterating it yields columns."""
    return hasattr(inputs, "columns") and hasattr(inputs, "shape")


def _iterator(inputs: Any) -> Iterator[Any]:
    kind = type(inputs).__name__
    if _is_table(inputs):
        why = f"iterating a {kind} yields columns, and a build needs records"
        hint = "use datasets.Dataset.from_pandas(...) or datasets.Dataset(arrow_table)"
        raise UserError("a table in memory cannot be an input", why=why, hint=hint)
    try:
        return iter(inputs)
    except TypeError as error:
        hint = "give names of files, a Hugging Face dataset, or records: [{...}]"
        raise UserError(f"an object of type {kind} cannot be an input", hint=hint) from error


def _one_split(inputs: Any) -> Any:
    """The only split of a DatasetDict, or its split "train"."""
    if not isinstance(inputs, Mapping):
        return inputs
    if not inputs or not all(_is_data_set(split) for split in inputs.values()):
        what = "a dict cannot be an input"
        hint = "give a list of records: [{...}]"
        raise UserError(what, why=f"its keys are {', '.join(map(str, inputs))[:200]}", hint=hint)
    if len(inputs) == 1:
        return next(iter(inputs.values()))
    names = ", ".join(map(str, inputs))
    if TRAIN not in inputs:
        raise UserError(
            "the dataset has several splits",
            why=f"its splits are {names}, and none is called {TRAIN!r}",
            hint="give one of them: build(dataset[...], ...)",
        )
    left_out = ", ".join(str(name) for name in inputs if name != TRAIN)
    warnings.warn(f"only the split {TRAIN!r} is read; ignored: {left_out}", stacklevel=7)
    return inputs[TRAIN]


def _cached(data_set: Dataset, fields: Fields | None, cache_dir: str | None) -> Path:
    """The path of an Arrow file with the columns that a build needs, written if it is missing."""
    if data_set.format["type"] == "custom":
        raise UserError(
            "the dataset has a transform, which a build would ignore",
            why="a build reads columns directly, without set_transform and with_transform",
            hint="apply it with dataset.map, or pass it to the build: transform=function",
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
            require_field(key, set(present), "the dataset")
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
            raise UserError("the dataset has no rows")


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
    """Each record as a line of JSON with the fields that are needed; a string is a text."""
    wanted = fields.wanted if fields else None
    keys = None if wanted is None else {name.partition(".")[0] for name in wanted}
    for number, record in enumerate(records):
        if isinstance(record, str):
            record = {fields.text if fields else TEXT: record}
        elif not isinstance(record, Mapping):
            raise UserError(
                f"a record must be a dict or a text, got {type(record).__name__}",
                where=f"item {number}",
                hint="give dicts or texts; for files, give a list of str or Path",
            )
        if keys is not None:
            record = {name: value for name, value in record.items() if name in keys}
        try:
            yield _line(record) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            hint = "remove that field, or convert it to a number, a text, a list or a dict"
            what = "a record holds a value that JSON cannot represent"
            raise UserError(what, where=f"item {number}", why=str(error), hint=hint) from error


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(record, enc_hook=_plain)
    except UnicodeEncodeError:  # a lone surrogate: written as an escape, rejected when it is read
        return json.dumps(record, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Arrays and scalars of NumPy and PyTorch as lists and numbers.

    Raises:
        TypeError: the value is something else. Its str() may be shortened or hold an address.
    """
    if callable(found := getattr(value, "tolist", None)):
        return found()
    raise TypeError(f"an object of the type {type(value).__name__}")


def _first_documents(lines: Iterable[bytes], fields: Fields, max_documents: int) -> Iterator[bytes]:
    """The lines up to document number `max_documents`; empty documents do not count."""
    parser = JsonParser(fields)
    remaining = max_documents
    for line in lines:
        yield line
        remaining -= sum(map(bool, parser.parse_each(line, 0, 0, [(0, len(line))]).texts))
        if remaining <= 0:
            return
