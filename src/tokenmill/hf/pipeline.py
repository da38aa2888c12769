"""Process one split: this thread encodes batches, a second thread writes them one batch behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tokenmill.hf.log import logger
from tokenmill.hf.portions import Place, Portion
from tokenmill.hf.resuming import UnfinishedRows
from tokenmill.hf.source import TextColumn, Texts
from tokenmill.hf.summary import Summary
from tokenmill.hf.writing import RowWriter

Encode = Callable[[Texts, Place], Sequence[Portion]]
Finish = Callable[[], Iterator[Portion]]


def write_rows(
    texts: TextColumn,
    unfinished: UnfinishedRows,
    writer: RowWriter,
    summary: Summary,
    encoding: tuple[Encode, Finish],
    advance: Callable[[int], None],
) -> None:
    """Make and write the rows of all texts that an earlier run has not done.

    Args:
        texts: the documents.
        unfinished: the file, which knows what is done.
        writer: what writes it.
        summary: counts and times.
        encoding: encodes a batch into portions; and what gives the portions left at the end.
        advance: called with the number of bytes of text that are done.
    """
    encode, finish = encoding
    before, done = summary.counts, unfinished.done
    if done.rows:
        logger.info("resuming: an earlier run has made %s rows", f"{done.rows:,}")
        summary.resume(done.counts, done.rows)
        advance(done.counts.get("text_bytes", 0))
    assert unfinished.batch_size is not None
    batches = texts.batches(unfinished.batch_size, done.document)
    seconds = dict(summary.stage_seconds)
    with ThreadPoolExecutor(1, "rows") as background:
        written: Future[None] = background.submit(lambda: None)
        while (batch := summary.timed("read", lambda: next(batches, None))) is not None:
            place = Place(batch.first, counts=summary.since(before))
            summary.count(batch)
            found = summary.timed("encode", encode, batch, place)
            written.result()
            summary.debug_batch(batch, seconds)
            seconds = dict(summary.stage_seconds)
            written = background.submit(_write, writer, found)
            advance(batch.num_bytes)
        written.result()
        background.submit(_write, writer, list(finish())).result()
        background.submit(writer.close).result()


def _write(writer: RowWriter, portions: Sequence[Portion]) -> None:
    for portion in portions:
        writer.write(portion)
