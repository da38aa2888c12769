"""Turning records of strings, such as CSV rows, into documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tokenmill.core.records import CharSpans, DocumentBatch, Rejection
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block
from tokenmill.read.formats.scanned import Scanned
from tokenmill.read.rendering.records import RecordRenderer
from tokenmill.read.values import UnfitRecordError, char_spans, missing_field


class FlatParser:
    """Turns records of strings into documents for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._renderer = RecordRenderer(fields) if fields.rendering else None

    def parse(
        self,
        block: Block,
        source: int,
        records: Sequence[Mapping[str, str] | UnfitRecordError | None],
    ) -> DocumentBatch:
        """Return the documents of a block; None in `records` stands for a record to skip."""
        content: Scanned = block.content
        body, bounds, offset = content.body, content.spans.bounds, content.offset(block)
        rejected: list[Rejection] = []
        kept: list[int] = []
        good: list[Mapping[str, str]] = []
        for index, (record, (start, stop)) in enumerate(zip(records, bounds, strict=True)):
            if record is None:
                continue
            found = self._fields.too_long(stop - start) or (
                record if isinstance(record, UnfitRecordError) else self._problem(record)
            )
            if found:
                place, found_bytes = offset + start, body[start:stop]
                rejected.append(
                    Rejection(source, place, stop - start, found.reason, found.detail, found_bytes)
                )
            elif not isinstance(record, UnfitRecordError):
                kept.append(index)
                good.append(record)
        batch = self._batch(source, content, offset, kept, good, rejected)
        content.count_rest(block, batch)
        return batch

    def _problem(self, record: Mapping[str, str]) -> UnfitRecordError | None:
        """Return why a record has no usable text."""
        fields = self._fields
        if fields.rendering:
            return None
        if fields.text not in record:
            return missing_field(fields.text)
        try:
            if fields.no_loss:
                _spans(record.get(fields.no_loss))
        except UnfitRecordError as error:
            return error
        return None

    def _batch(
        self,
        source: int,
        content: Scanned,
        offset: int,
        kept: Sequence[int],
        records: Sequence[Mapping[str, str]],
        rejected: Sequence[Rejection],
    ) -> DocumentBatch:
        fields, spans = self._fields, content.spans
        starts = np.array(spans.starts, np.int64)[[*kept]]
        stops = np.array(spans.stops, np.int64)[[*kept]]
        if self._renderer:
            return self._renderer.render(
                source,
                records,
                starts + offset,
                stops - starts,
                as_found=lambda index: content.body[starts[index] : stops[index]],
                rejected=rejected,
            )
        return DocumentBatch(
            source,
            [record[fields.text] for record in records],
            positions=starts + offset,
            record_bytes=stops - starts,
            ids=[record.get(fields.id) for record in records] if fields.id else None,
            columns={name: [record.get(name) for record in records] for name in fields.keep},
            no_loss=[_spans(record.get(fields.no_loss)) for record in records]
            if fields.no_loss
            else None,
            rejected=[*rejected],
        )


def _spans(value: str | None) -> CharSpans:
    """Parse character ranges from JSON.

    Raises:
        UnfitRecordError: the value is not a list of ranges.
    """
    try:
        return char_spans(msgspec.json.decode(value) if value else None)
    except msgspec.DecodeError:
        return char_spans(value)
