"""JSON Lines and plain text, plain and compressed, for `fuzz_kit`."""

from __future__ import annotations

import bz2
import functools
import gzip
import json
import lzma
from pathlib import Path

try:
    from compression import zstd
except ImportError:
    from backports import zstd

from tokenmill.core.errors import TokenmillError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.sources import find_sources

RECORDS = [
    {"text": "plain", "id": 1, "meta": {"lang": "en"}, "spans": [[0, 2]]},
    {"text": "äöü 日本語 😀", "id": "b", "meta": {"lang": None}, "spans": []},
    {"text": "", "id": None, "meta": {}, "spans": [[0, 0]]},
    {"text": "lines\nand \u0000 😀", "id": 1e3, "meta": {"lang": [1]}, "spans": [[1, 3]]},
]
LINES = b"".join(
    json.dumps(record, ensure_ascii=number % 2 == 0, separators=(",", ":")).encode() + b"\n"
    for number, record in enumerate(RECORDS * 8)
)
FIELDS = Fields(id="id", keep=("meta.lang",), no_loss="spans")
COMPRESSIONS = {
    "": bytes,
    ".gz": functools.partial(gzip.compress, mtime=0),
    ".zst": functools.partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
MOST_TEXT = 1 << 20
"""Damaged files of two kilobytes hold no more text than this, bombs left out."""


@functools.cache
def seeds() -> dict[str, bytes]:
    """Two members, frames or streams each, because damage hides between them."""
    return {
        f"a.jsonl{suffix}": compress(LINES) + compress(LINES)
        for suffix, compress in COMPRESSIONS.items()
    } | {f"a.txt{suffix}": compress(LINES) for suffix, compress in COMPRESSIONS.items()}


def check(name: str, data: bytes, folder: Path) -> str:
    """Read all documents, in blocks of an odd size: each byte read is accounted for."""
    path = folder / name
    path.write_bytes(data)
    try:
        sources = find_sources([str(path)])
        reader = Reader(sources, FIELDS if sources[0].format == "jsonl" else Fields(), 777)
        observed: list[int] = []
        reader.observe = lambda _, block: observed.append(len(block))
        batches = list(reader.read(Extent(0)))
    except TokenmillError:
        return "refused"
    finally:
        path.unlink()
    booked = sum(
        int(batch.record_bytes.sum())
        + sum(rejection.num_bytes for rejection in batch.rejected)
        + batch.blank_bytes
        + batch.bom_bytes
        for batch in batches
    )
    if sources[0].format == "jsonl" and booked != sum(observed):
        raise AssertionError(f"{booked} bytes are booked, {sum(observed)} were read")
    if sum(len(text) for batch in batches for text in batch.texts) > MOST_TEXT:
        raise AssertionError("more text than the file can hold")
    return "read"
