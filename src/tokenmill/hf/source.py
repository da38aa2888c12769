"""Texts of a `datasets.Dataset`, in batches that are bounded in documents and in bytes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.encode.exactness import MAX_SAMPLE_DOCUMENTS
from tokenmill.errors import DataError, UserError
from tokenmill.hf.log import logger
from tokenmill.records import Int64Array
from tokenmill.suggestions import nearest

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

DEFAULT_COLUMN = "text"
MAX_TEXT_BYTES = 4 << 20
"""Text encoded at a time: engines hold Python's lock while they take it over."""
MAX_SAMPLE_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class Texts:
    """Documents of a batch; null texts are left out and counted."""

    texts: list[str]
    num_bytes: int
    num_null: int
    first: int = 0
    """Which document of the dataset is the first one."""


def find_text_column(features: Mapping[str, Any], wanted: str | None) -> str:
    """The column that holds the texts: `text`, or the only one of strings.

    Raises:
        UserError: it is not known, or is not there.
    """
    strings = [name for name, kind in features.items() if _is_string(kind)]
    where = f"columns: {', '.join(features) or 'none'}"
    if wanted is not None:
        if wanted not in strings:
            close = nearest(wanted, strings)
            hint = f"did you mean {close!r}?" if close else ""
            raise UserError(f"there is no column {wanted!r} of strings", where=where, hint=hint)
        return wanted
    if DEFAULT_COLUMN in strings:
        return DEFAULT_COLUMN
    if len(strings) == 1:
        return strings[0]
    raise UserError(
        "cannot tell which column holds the texts",
        where=where,
        why=f"{len(strings)} of them are strings, and none of these is {DEFAULT_COLUMN!r}",
        hint='name it: text_column="...", or --text-column on the command line',
    )


def tell_of_dropped_columns(features: Mapping[str, Any], column: str) -> None:
    """Log the columns that do not become part of the output: rows are not documents."""
    dropped = [name for name in features if name != column]
    if dropped:
        logger.info("columns that are dropped: %s", ", ".join(dropped))


def features_of_stream(dataset: IterableDataset) -> Mapping[str, Any]:
    """The columns of an iterable dataset; where it does not tell, its first document is read.

    Raises:
        UserError: there is none.
    """
    if dataset.features is not None:
        return dict(dataset.features)
    try:
        return dict(dataset._resolve_features().features)
    except StopIteration as error:
        hint = "give it features, so that its columns are known"
        raise UserError("the iterable dataset holds no documents", hint=hint) from error


def first_texts(dataset: IterableDataset, name: str) -> Texts:
    """The first documents of an iterable dataset, no more than a sample needs."""
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
    """The texts of a dataset, selected and shuffled as it is.

    Raises:
        UserError: the dataset has a transform, which would be left out.
    """

    def __init__(self, dataset: Dataset, name: str) -> None:
        if dataset.format["type"] == "custom":
            raise UserError(
                "the dataset has a transform, which makes its texts when they are read",
                why="texts are read from its columns, past set_transform and with_transform",
                hint="apply it with dataset.map, or remove it: dataset.with_format(None)",
            )
        self.name = name
        self._rows = dataset.select_columns([name]).with_format("arrow")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Bytes of all texts, as the sample lets expect."""
        return int(self.mean_bytes * len(self))

    @functools.cached_property
    def mean_bytes(self) -> float:
        """Bytes of a text, on average over the sample."""
        return float(_byte_lengths(self._sample).mean()) if len(self) else 0.0

    def sample(self) -> list[str]:
        """Documents from everywhere, no more than are needed; a very long one is cut."""
        sizes = _byte_lengths(self._sample)
        count = int(np.searchsorted(np.cumsum(sizes), MAX_SAMPLE_BYTES)) + 1
        try:
            texts = self._texts(self._sample[:count], 0, sizes[:count]).texts
        except DataError:
            return []  # `batches` will meet it again, and know its place
        return shortened(texts)

    @functools.cached_property
    def _sample(self) -> Any:
        count = min(len(self), MAX_SAMPLE_DOCUMENTS)
        places = np.linspace(0, max(len(self) - 1, 0), count).astype(np.int64)
        return self._rows[places.tolist()][self.name]

    def batches(self, batch_size: int, begin: int = 0) -> Iterator[Texts]:
        """All documents in order, from `begin` on; batches end at multiples of `batch_size`.

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
            raise DataError("a text is not UTF-8", where=where, why=str(error)) from error
        return Texts(without_null(texts), int(sizes.sum()), int(column.null_count), position)


def shortened(texts: Sequence[str]) -> list[str]:
    """Texts for a sample: a very long one is cut."""
    return [text[:MAX_SAMPLE_BYTES] for text in texts]


def without_null(texts: Sequence[str | None]) -> list[str]:
    """The texts that are there."""
    return [text for text in texts if text is not None]


def _byte_lengths(column: Any) -> Int64Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths.to_numpy(), np.int64)


def _is_string(kind: object) -> bool:
    return getattr(kind, "dtype", None) in ("string", "large_string", "string_view")
