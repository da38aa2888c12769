"""Write a `.pt` file without PyTorch, bit for bit as `torch.save` of PyTorch 2.13 does.

The file is a zip archive (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT) without
compression: a pickle that describes a dictionary of tensors, and one record of raw values per
tensor. The values of each record begin at a multiple of 64 bytes (`getPadding` in PyTorch's
caffe2/serialize/inline_container.cc), and its checksum follows them. So all positions follow from
the shapes, and values are written as they arrive: the file is never in memory as a whole, and the
checksums need no second pass.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.load.export.columns import Columns
from tokenmill.store.files import write_pieces

ALIGNMENT = 64
_STORAGES = {"int8": "CharStorage", "int32": "IntStorage", "int64": "LongStorage"}
_NAME_HASHES = (
    15728199511854643026,
    5611085236196705294,
    8494888479650487350,
    10778627297998541625,
)
"""PyTorch's hash of the names of all records, for files with one to four tensors."""
_FLAGS = 0x0808
"""Names are UTF-8, and checksums follow the records."""


@dataclass(slots=True)
class _Record:
    """A file in the archive."""

    name: bytes
    start: int
    """Where its header begins."""
    padding: bytes
    """The bytes between the header and the values."""
    num_bytes: int
    """The number of bytes of values."""
    checksum: int = 0
    """CRC-32 of the values so far."""

    @property
    def values(self) -> int:
        """Where the values begin."""
        return self.start + 30 + len(self.name) + len(self.padding)

    @property
    def stop(self) -> int:
        """Where the record ends, with its checksum."""
        return self.values + self.num_bytes + 16

    @property
    def header(self) -> bytes:
        """The bytes before the values."""
        fields = struct.pack("<HH18xHH", 0, _FLAGS, len(self.name), len(self.padding))
        return b"PK\3\4" + fields + self.name + self.padding

    @property
    def descriptor(self) -> bytes:
        """The bytes after the values."""
        return b"PK\7\10" + struct.pack("<III", self.checksum, self.num_bytes, self.num_bytes)

    @property
    def entry(self) -> bytes:
        """The record's entry in the directory at the end of the archive."""
        sizes = struct.pack("<III", self.checksum, self.num_bytes, self.num_bytes)
        places = struct.pack("<H12xI", len(self.name), self.start)
        return b"PK\1\2" + struct.pack("<HHH6x", 0, 0, _FLAGS) + sizes + places + self.name


class TorchFile:
    """A file with tensors that are filled in batches of rows.

    All records end before 4 GiB: an output file has at most 512 MiB of values.
    """

    def __init__(self, path: Path, num_rows: int, columns: Columns) -> None:
        """Lay out tensors of `num_rows` rows with the names, widths and dtypes of `columns`.

        Raises:
            OSError: the file cannot be created.
        """
        self._archive = path.stem.encode()
        self._stop = 0
        self._small: list[tuple[_Record, bytes]] = []
        self._add("data.pkl", _pickled(num_rows, columns))
        self._add(".format_version", b"1")
        self._add(".storage_alignment", b"%d" % ALIGNMENT)
        self._add("byteorder", b"little")
        self._tensors = {
            name: self._record(f"data/{i}", num_rows * values.shape[1] * values.itemsize)
            for i, (name, values) in enumerate(columns.items())
        }
        self._filled = dict.fromkeys(columns, 0)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed by finish() or close()

    def append(self, columns: Columns) -> None:
        """Add rows.

        Raises:
            OSError: the file system refused them.
        """
        from isal import isal_zlib  # four times as fast as zlib

        for name, values in columns.items():
            record, data = self._tensors[name], values.data.cast("B")
            self._file.seek(record.values + self._filled[name])
            write_pieces(self._file, data)
            record.checksum = isal_zlib.crc32(data, record.checksum)
            self._filled[name] += len(data)

    def finish(self) -> None:
        """Write everything except the values, and close the file.

        Raises:
            OSError: the file system refused it.
        """
        self._add("version", b"3\n")
        described = [record for record, _ in self._small]
        described[-1:-1] = self._tensors.values()
        self._add(".data/serialization_id", self._identity(described))
        for record in self._tensors.values():
            self._put(record.start, record.header)
            self._put(record.stop - 16, record.descriptor)
        for record, content in self._small:
            self._put(record.start, record.header + content + record.descriptor)
        self._put(self._stop, _directory([*described, self._small[-1][0]], self._stop))
        self.close()

    def close(self) -> None:
        """Close the file, even if it is incomplete."""
        self._file.close()

    def _add(self, name: str, content: bytes) -> None:
        """Add a record with known content."""
        from isal import isal_zlib

        record = self._record(name, len(content))
        record.checksum = isal_zlib.crc32(content)
        self._small.append((record, content))

    def _record(self, name: str, num_bytes: int) -> _Record:
        """Reserve a record after all others."""
        full_name = self._archive + b"/" + name.encode()
        unpadded = self._stop + 30 + len(full_name) + 4
        padding = b"Z" * (-unpadded % ALIGNMENT)
        extra = b"FB" + struct.pack("<H", len(padding)) + padding
        record = _Record(full_name, self._stop, extra, num_bytes)
        self._stop = record.stop
        return record

    def _put(self, place: int, data: bytes) -> None:
        self._file.seek(place)
        self._file.write(data)

    def _identity(self, records: list[_Record]) -> bytes:
        """Return PyTorch's hash of the names and checksums of all records."""
        combined = 0
        for record in records:  # c10::hash_combine
            mixed = record.checksum + 0x9E3779B9 + (combined << 6) + (combined >> 2)
            combined = (combined ^ mixed) % 2**64
        return b"%020d%020d" % (_NAME_HASHES[len(self._tensors) - 1], combined)


def _directory(records: list[_Record], start: int) -> bytes:
    """Return the directory of an archive, to be written at `start`, and the records that end it."""
    entries = b"".join(record.entry for record in records)
    stop, count = start + len(entries), len(records)
    zip64 = b"PK\6\6" + struct.pack("<QHHII", 44, 0x031E, 45, 0, 0)
    zip64 += struct.pack("<QQQQ", count, count, len(entries), start)
    zip64 += b"PK\6\7" + struct.pack("<IQI", 0, stop, 1)
    return (
        entries
        + zip64
        + b"PK\5\6"
        + struct.pack("<HHHHIIH", 0, 0, count, count, len(entries), start, 0)
    )


class _Pickle:
    """Writes opcodes of pickle protocol 2 (Lib/pickletools.py) like Python's pickler."""

    def __init__(self) -> None:
        self.data = b"\x80\x02"
        self._places: dict[str, int] = {}
        self._kept = 0

    def add(self, opcodes: bytes, *numbers: int) -> None:
        """Append opcodes, then integers."""
        self.data += opcodes + b"".join(map(_integer, numbers))

    def keep(self) -> None:
        """Store the last object in the memo."""
        self.data += b"q%c" % self._kept
        self._kept += 1

    def shared(self, value: str, opcodes: bytes) -> None:
        """Append an object on first use; later, refer to it in the memo."""
        if value in self._places:
            self.data += b"h%c" % self._places[value]
            return
        self._places[value] = self._kept
        self.data += opcodes
        self.keep()

    def text(self, value: str) -> None:
        """Append a string."""
        self.shared(value, b"X" + struct.pack("<I", len(value)) + value.encode())

    def named(self, module: str, name: str) -> None:
        """Append a class or function by name."""
        self.shared(f"{module}.{name}", f"c{module}\n{name}\n".encode())


def _integer(number: int) -> bytes:
    """Return the shortest opcode for a number below 2^31."""
    if number < 1 << 8:
        return b"K" + struct.pack("<B", number)
    return (
        b"M" + struct.pack("<H", number) if number < 1 << 16 else b"J" + struct.pack("<i", number)
    )


def _pickled(num_rows: int, columns: Columns) -> bytes:
    """Pickle a dictionary of tensors; their values are in separate records."""
    made = _Pickle()
    made.add(b"}")
    made.keep()
    made.add(b"(" if len(columns) > 1 else b"")
    for number, (name, values) in enumerate(columns.items()):
        made.text(name)
        _pickle_tensor(made, number, num_rows, values)
    made.add(b"u." if len(columns) > 1 else b"s.")
    return made.data


def _pickle_tensor(
    made: _Pickle, number: int, num_rows: int, values: npt.NDArray[np.integer]
) -> None:
    """Pickle the call that rebuilds a tensor of shape (num_rows, row_length)."""
    row_length, storage = values.shape[1], _STORAGES.get(values.dtype.name)
    made.named("torch._utils", "_rebuild_tensor_v2" if storage else "_rebuild_tensor_v3")
    made.add(b"((")
    made.text("storage")
    made.named(*(("torch", storage) if storage else ("torch.storage", "UntypedStorage")))
    made.text(str(number))
    made.text("cpu")
    made.add(b"", num_rows * row_length * (1 if storage else values.itemsize))
    made.add(b"t")
    made.keep()
    made.add(b"Q", 0)
    for pair in ((num_rows, row_length), (row_length, 1)):
        made.add(b"", *pair)
        made.add(b"\x86")
        made.keep()
    made.add(b"\x89")
    made.named("collections", "OrderedDict")
    made.add(b")R")
    made.keep()
    if not storage:
        made.named("torch", values.dtype.name)
    made.add(b"t")
    made.keep()
    made.add(b"R")
    made.keep()
