"""Rendering of records of any format as documents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.records import DocumentBatch, Int64Array, Rejection
from tokenmill.read.fields import Fields
from tokenmill.read.rendering.renderer import FailedRenderingError, RenderedText, Renderer
from tokenmill.read.values import UnfitRecordError, char_spans, column_value, missing_field, walk

AsFound = Callable[[int], bytes]
"""Returns the raw bytes of a record by its number."""


class RecordRenderer:
    """Renders records as document batches, for a set of fields."""

    def __init__(self, fields: Fields, *, is_flat: bool = False) -> None:
        """Create the renderer; the values of `is_flat` records are strings under plain names."""
        self._fields = fields
        self._paths = {name: [name] if is_flat else name.split(".") for name in fields.extra}
        rendering = fields.rendering
        self._render = rendering.renderer() if rendering else _text_field(fields)

    def render(
        self,
        source: int,
        records: Sequence[Mapping[str, Any]],
        positions: Int64Array,
        record_bytes: Int64Array | None = None,
        as_found: AsFound | None = None,
        rejected: Sequence[Rejection] = (),
    ) -> DocumentBatch:
        """Return the documents of some records of one source, and the rejected records.

        Args:
            source: the index of the source.
            records: the records, each with the fields in `Fields.wanted`, nested as in the file.
            positions: shape (n,), their positions in the source.
            record_bytes: shape (n,), their sizes in the source. None for rows of tables: each text
                then counts its own bytes, and a rejected record those of its JSON.
            as_found: returns the raw record for `rejected/`; without it, records are kept as JSON.
            rejected: other rejected records among them.

        The first text of a record counts all of its bytes; later texts have the same position. A
        record without texts becomes an empty document.

        Raises:
            FailedRenderingError: the user's code failed.
        """
        found: list[tuple[int, RenderedText, list[str | None]]] = []
        failed = [*rejected]
        for index, record in enumerate(records):
            try:
                extra = [self._value(record, path) for path in self._paths.values()]
                found += [(index, each, extra) for each in self._texts(record)]
            except FailedRenderingError as error:
                error.position = int(positions[index])
                raise
            except UnfitRecordError as error:
                raw = as_found(index) if as_found else as_json(record)
                num_bytes = len(raw) if record_bytes is None else int(record_bytes[index])
                failed.append(error.rejection(source, int(positions[index]), raw, num_bytes))
        indices = np.array([index for index, _, _ in found], np.int64)
        texts = [each.text for _, each, _ in found]
        counts = [each.special_strings for _, each, _ in found if each.special_strings is not None]
        if record_bytes is None:
            sizes = np.array([len(text.encode()) for text in texts], np.int64)
        else:
            sizes = record_bytes[indices]
            sizes[1:][indices[1:] == indices[:-1]] = 0
        columns = {
            name: [values[number] for _, _, values in found]
            for number, name in enumerate(self._paths)
        }
        return DocumentBatch(
            source,
            texts,
            positions=positions[indices],
            record_bytes=sizes,
            ids=columns[self._fields.id] if self._fields.id else None,
            columns={name: columns[name] for name in self._fields.keep},
            no_loss=[each.no_loss or [] for _, each, _ in found]
            if self._fields.has_no_loss
            else None,
            special_strings=np.array(counts, np.int64) if len(counts) == len(texts) else None,
            rejected=sorted(failed, key=lambda item: item.position),
        )

    def _texts(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        rendered = self._render(record)
        for each in rendered:
            if not each.text.isascii():
                try:
                    each.text.encode()
                except UnicodeEncodeError as error:
                    detail = f"character {error.start} of the text is half of a surrogate pair"
                    raise UnfitRecordError("lone-surrogate", detail) from error
        return rendered or [RenderedText("", [])]

    def _value(self, record: Mapping[str, Any], path: Sequence[str]) -> str | None:
        try:
            return column_value(walk(record, path))
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise UnfitRecordError("unusable-field", f"{'.'.join(path)!r}: {error}") from error


def _text_field(fields: Fields) -> Renderer:
    """Return a renderer that takes the text from a field of a record of strings.

    Another field may have the ranges without loss as JSON.
    """

    def render(record: Mapping[str, Any]) -> Sequence[RenderedText]:
        if fields.text not in record:
            raise missing_field(fields.text)
        spans = record.get(fields.no_loss) if fields.no_loss else None
        with contextlib.suppress(msgspec.DecodeError):  # `char_spans` refuses it
            spans = msgspec.json.decode(spans) if spans else None
        return [RenderedText(record[fields.text], char_spans(spans))]

    return render


def documents_of(
    render: Callable[..., DocumentBatch | None],
    source: int,
    body: bytes,
    offset: int,
    bounds: Iterable[tuple[int, int]],
    records: Iterable[Mapping[str, Any] | msgspec.Struct | UnfitRecordError | None],
) -> DocumentBatch:
    """Return the documents that `render` makes of records, and the rejected ones.

    A record is in bytes [start, stop) of `body`, which starts at `offset` of the source. In its
    place can be the reason why it is rejected, or None to skip it.
    """
    good, places, rejected = [], [], []
    for record, (start, stop) in zip(records, bounds, strict=True):
        if isinstance(record, UnfitRecordError):
            rejected.append(record.rejection(source, offset + start, body[start:stop]))
        elif record is not None:
            good.append(record)
            places.append((start, stop))
    starts, stops = np.array(places, np.int64).reshape(-1, 2).T

    def as_found(index: int) -> bytes:
        return body[starts[index] : stops[index]]

    batch = render(source, good, starts + offset, stops - starts, as_found, rejected)
    assert batch is not None, "a record that cannot be used was not rejected"
    return batch


def as_json(record: Mapping[str, Any]) -> bytes:
    """Encode a record as JSON, or as its repr if that fails."""
    try:
        return msgspec.json.encode(record, enc_hook=str)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return repr(record).encode(errors="backslashreplace")
