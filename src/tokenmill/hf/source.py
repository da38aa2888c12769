"""Load a dataset by name, and read its texts in batches with limited documents and bytes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.core.errors import DataError, UserError
from tokenmill.core.installed import install_command
from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.core.suggestions import nearest
from tokenmill.encode.exactness import MAX_SAMPLE_DOCUMENTS
from tokenmill.hf.columns import RowFormat
from tokenmill.hf.rows import WindowRule
from tokenmill.hf.summary import logger

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

DEFAULT_COLUMN = "text"
MAX_TEXT_BYTES = 4 << 20
"""The most text encoded at a time: engines hold the GIL while they copy it."""
MAX_SAMPLE_BYTES = 400_000
MAX_ROWS_BYTES = 64 << 20
"""The rows of a batch, if all of them are in memory at once."""
FIRST_BATCH_SIZE = 6000


@dataclass(frozen=True, slots=True)
class Texts:
    """The documents of a batch, without null texts, which are counted."""

    texts: list[str]
    num_bytes: int
    num_null: int
    first: int = 0
    """Position of the first document in the dataset."""


def find_text_column(features: Mapping[str, Any], wanted: str | None) -> str:
    """Return the column with the texts: the named one, `text`, or the only one with strings.

    Raises:
        UserError: it is not known, or is not there.
    """
    kinds = {name: getattr(kind, "dtype", None) for name, kind in features.items()}
    strings = [name for name in kinds if kinds[name] in ("string", "large_string", "string_view")]
    where = f"columns: {', '.join(features) or 'none'}"
    if wanted is not None:
        if wanted not in strings:
            close = nearest(wanted, strings)
            hint = f"did you mean {close!r}?" if close else ""
            raise UserError(f"no column of strings is called {wanted!r}", where=where, hint=hint)
        return wanted
    if DEFAULT_COLUMN in strings:
        return DEFAULT_COLUMN
    if len(strings) == 1:
        return strings[0]
    raise UserError(
        "cannot tell which column holds the texts",
        where=where,
        why=f"{len(strings)} columns hold strings, none of them called {DEFAULT_COLUMN!r}",
        hint='name it: text_column="...", or --text-column on the command line',
    )


def features_of_stream(dataset: IterableDataset) -> Mapping[str, Any]:
    """The columns of an iterable dataset; if unknown, the first document is read.

    Raises:
        UserError: there is none.
    """
    if dataset.features is not None:
        return dict(dataset.features)
    try:
        return dict(dataset._resolve_features().features)
    except StopIteration as error:
        hint = "create it with features, so that its columns are known"
        raise UserError("the iterable dataset holds no documents", hint=hint) from error


def first_texts(dataset: IterableDataset, name: str) -> Texts:
    """The first documents of an iterable dataset, as many as a sample needs."""
    rows = iter(dataset.select_columns([name]).with_format(None))
    found: list[str | None] = []
    num_bytes = 0
    for row in itertools.islice(rows, MAX_SAMPLE_DOCUMENTS):
        found.append(row[name])
        num_bytes += texts_of(found[-1:]).num_bytes
        if num_bytes >= MAX_SAMPLE_BYTES:
            break
    return texts_of(found)


def texts_of(column: Iterable[str | None]) -> Texts:
    """A column of Python strings, some of which may be null."""
    values = list(column)
    texts = without_null(values)
    num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return Texts(texts, num_bytes, len(values) - len(texts))


class TextColumn:
    """The texts of a dataset, respecting its selection and shuffling.

    Raises:
        UserError: the dataset has a transform, which would be left out.
    """

    def __init__(self, dataset: Dataset, name: str) -> None:
        if dataset.format["type"] == "custom":
            raise UserError(
                "the dataset has a transform, which would be ignored",
                why="texts are read from its columns, past set_transform and with_transform",
                hint="apply it with dataset.map, or remove it: dataset.with_format(None)",
            )
        self.name = name
        self._rows = dataset.select_columns([name]).with_format("arrow")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Bytes of all texts, estimated from the sample."""
        return int(self.mean_bytes * len(self))

    @functools.cached_property
    def mean_bytes(self) -> float:
        """Mean bytes of a text in the sample."""
        return float(_byte_lengths(self._sample).mean()) if len(self) else 0.0

    def sample(self) -> list[str]:
        """Sample documents from the whole dataset; very long ones are cut."""
        sizes = _byte_lengths(self._sample)
        count = int(np.searchsorted(np.cumsum(sizes), MAX_SAMPLE_BYTES)) + 1
        try:
            texts = self._texts(self._sample[:count], 0, sizes[:count]).texts
        except DataError:
            return []  # `batches` will find it again and report its position
        return shortened(texts)

    @functools.cached_property
    def _sample(self) -> Any:
        count = min(len(self), MAX_SAMPLE_DOCUMENTS)
        places = np.linspace(0, max(len(self) - 1, 0), count).astype(np.int64)
        return self._rows[places.tolist()][self.name]

    def batches(self, batch_size: int, begin: int = 0) -> Iterator[Texts]:
        """Yield all documents in order, from `begin` on; batches end at multiples of `batch_size`.

        Raises:
            DataError: a text is not UTF-8.
        """
        for start in range(begin // batch_size * batch_size, len(self), batch_size):
            column = self._rows[start : start + batch_size][self.name]
            sizes = _byte_lengths(column)
            ends = np.cumsum(sizes)
            first = max(begin - start, 0)
            while first < len(sizes):
                limit = (ends[first - 1] if first else 0) + MAX_TEXT_BYTES
                stop = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
                yield self._texts(column[first:stop], start + first, sizes[first:stop])
                first = stop

    def _texts(self, column: Any, position: int, sizes: Int64Array) -> Texts:
        try:
            texts = column.to_pylist()
        except UnicodeDecodeError as error:
            where = f"column {self.name!r}, rows {position} to {position + len(sizes) - 1}"
            raise DataError("a text is not valid UTF-8", where=where, why=str(error)) from error
        return Texts(without_null(texts), int(sizes.sum()), int(column.null_count), position)


def shortened(texts: Sequence[str]) -> list[str]:
    """Texts for a sample; very long ones are cut."""
    return [text[:MAX_SAMPLE_BYTES] for text in texts]


def without_null(texts: Sequence[str | None]) -> list[str]:
    """The texts that are not null."""
    return [text for text in texts if text is not None]


def _byte_lengths(column: Any) -> Int64Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths.to_numpy(), np.int64)


def choose_batch_size(
    mean_bytes: float, tokens: TokenBatch, rule: WindowRule, form: RowFormat, *, holds_rows: bool
) -> int:
    """Choose the documents per batch: 6000, or fewer if they are large.

    `tokens` are those of a sample, and documents have `mean_bytes` bytes. `holds_rows` is whether
    all rows of a batch are in memory at once. The size does not depend on the machine, because rows
    that are packed batch by batch follow from it.
    """
    mean_rows = max(len(rule.cut(tokens)) / max(len(tokens.lengths), 1), 1.0)
    row_bytes = mean_rows * form.context_length * max(form.token_bytes, 1)
    limits = {"the text encoded at a time": MAX_TEXT_BYTES / max(mean_bytes, 1.0)}
    if holds_rows:
        limits["the rows made at a time"] = MAX_ROWS_BYTES / row_bytes
    limit = min(limits, key=limits.__getitem__)
    size = max(int(min(FIRST_BATCH_SIZE, limits[limit])), 1)
    if size < FIRST_BATCH_SIZE:
        why = f"documents have {mean_bytes:.0f} bytes on average"
        logger.info("batch_size is %d because of %s: %s", size, limit, why)
    return size


FILES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".txt", ".arrow", ".gz", ".zst")
"""Suffixes of names that are not those of datasets on the Hub."""


def load(
    name: str, *, subset: str | None = None, split: str | None = None, revision: str | None = None
) -> Any:
    """Load a `Dataset` if a split is named, else a `DatasetDict`.

    Args:
        name: a folder that `save_to_disk` wrote, a folder of files, a file, or a name on the Hub.
        subset: of a dataset of the Hub: what `load_dataset` calls its configuration.
        split: e.g. "train", or "train[:1%]".
        revision: of a dataset of the Hub.

    Raises:
        UserError: the dataset, the split or the file does not exist.
        DataError: its files cannot be read.
    """
    try:
        import datasets
    except ImportError as error:
        what, hint = "the package datasets is not installed", install_command("hf")
        raise UserError(what, why=str(error), hint=hint) from error

    path = Path(name).expanduser()
    try:
        if any((path / saved).is_file() for saved in ("dataset_dict.json", "state.json")):
            return _chosen(datasets.load_from_disk(str(path)), split, name)
        if path.is_file():  # the suffix says how to read it
            folder, files = str(path.absolute().parent), {"train": path.name}
            return datasets.load_dataset(folder, data_files=files, split=split)
        if not path.exists() and (name.startswith(("/", ".", "~")) or path.suffix in FILES):
            raise UserError("cannot load the dataset", where=name, why="no such file or folder")
        place = str(path) if path.is_dir() else name
        return datasets.load_dataset(place, subset, split=split, revision=revision)
    except datasets.exceptions.DatasetGenerationError as error:
        why = str(error.__cause__ or error)
        raise DataError("cannot read the dataset", where=name, why=why) from error
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, UserError):
            raise
        why = str(error).partition("\n")[0]
        hint = "--dataset takes a file, a folder, or the name of a dataset on the Hub"
        raise UserError("cannot load the dataset", where=name, why=why, hint=hint) from error


def _chosen(dataset: Any, split: str | None, name: str) -> Any:
    """Return a split of a saved dataset.

    Raises:
        UserError: it has none of that name.
    """
    if split is None:
        return dataset
    splits = list(dataset) if isinstance(dataset, dict) else [str(dataset.split)]
    if split not in splits:
        why = f"its splits are {', '.join(splits)}"
        raise UserError(f"the dataset has no split {split!r}", where=name, why=why)
    return dataset[split] if isinstance(dataset, dict) else dataset
