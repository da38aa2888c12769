"""Rendering of records of any format as documents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.records import CharSpans, DocumentBatch, Int64Array, Rejection
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
        self._renderer: Renderer = rendering.renderer() if rendering else _TextField(fields)

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
        made = _Documents()
        for index, record in enumerate(records):
            try:
                extra = [self._value(record, path) for path in self._paths.values()]
                texts = self._texts(record)
            except FailedRenderingError as error:
                error.position = int(positions[index])
                raise
            except UnfitRecordError as error:
                found = as_found(index) if as_found else as_json(record)
                num_bytes = len(found) if record_bytes is None else int(record_bytes[index])
                place = int(positions[index])
                made.rejected.append(error.rejection(source, place, found, num_bytes))
                continue
            made.add(index, texts, extra)
        if rejected:
            made.rejected = sorted([*rejected, *made.rejected], key=lambda item: item.position)
        return self._batch(source, made, positions, record_bytes)

    def _texts(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        rendered = self._renderer.render(record)
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

    def _batch(
        self,
        source: int,
        made: _Documents,
        positions: Int64Array,
        record_bytes: Int64Array | None,
    ) -> DocumentBatch:
        indices = np.array(made.indices, np.int64)
        if record_bytes is None:
            sizes = np.array([len(text.encode()) for text in made.texts], np.int64)
        else:
            sizes = record_bytes[indices]
            sizes[1:][indices[1:] == indices[:-1]] = 0
        columns = {
            name: [values[number] for values in made.extra]
            for number, name in enumerate(self._paths)
        }
        return DocumentBatch(
            source,
            made.texts,
            positions=positions[indices],
            record_bytes=sizes,
            ids=columns[self._fields.id] if self._fields.id else None,
            columns={name: columns[name] for name in self._fields.keep},
            no_loss=made.no_loss if self._fields.has_no_loss else None,
            special_strings=made.counted_strings(),
            rejected=made.rejected,
        )


class _TextField:
    """Takes the text from a field of a record of strings."""

    def __init__(self, fields: Fields) -> None:
        self._text, self._no_loss = fields.text, fields.no_loss

    def render(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        """Return the text, with the ranges without loss that another field has as JSON."""
        if self._text not in record:
            raise missing_field(self._text)
        spans = record.get(self._no_loss) if self._no_loss else None
        with contextlib.suppress(msgspec.DecodeError):  # `char_spans` refuses it
            spans = msgspec.json.decode(spans) if spans else None
        return [RenderedText(record[self._text], char_spans(spans))]


class _Documents:
    """Collects documents."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        """The index of the record of each document."""
        self.texts: list[str] = []
        self.no_loss: list[CharSpans] = []
        self.special_strings: list[int | None] = []
        self.extra: list[list[str | None]] = []
        self.rejected: list[Rejection] = []

    def counted_strings(self) -> Int64Array | None:
        """Special tokens in the record of each text; None if they are counted in the texts."""
        counts = [each for each in self.special_strings if each is not None]
        return np.array(counts, np.int64) if len(counts) == len(self.texts) else None

    def add(self, index: int, rendered: Sequence[RenderedText], extra: list[str | None]) -> None:
        """Add the texts of one record."""
        for text, no_loss, special_strings in rendered:
            self.indices.append(index)
            self.texts.append(text)
            self.no_loss.append(no_loss or [])
            self.special_strings.append(special_strings)
            self.extra.append(extra)


def as_json(record: Mapping[str, Any]) -> bytes:
    """Encode a record as JSON, or as its repr if that fails."""
    try:
        return msgspec.json.encode(record, enc_hook=str)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return repr(record).encode(errors="backslashreplace")
