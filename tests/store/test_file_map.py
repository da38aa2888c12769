"""Files mapped without a descriptor."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tokenmill.store.file_map import FileMap


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_mapped_file_is_read_at_its_address_and_holds_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"tokens")
    before = open_files()
    mapped = FileMap(path, 6)
    assert ctypes.string_at(mapped.address, 6) == b"tokens"
    assert open_files() == before


def test_it_is_unmapped_once_however_often_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"tokens")
    mapped = FileMap(path, 6)
    begin = f"{mapped.address:x}-"
    assert any(line.startswith(begin) for line in maps_of_this_process())
    mapped.close()
    mapped.close()
    assert not any(line.endswith(str(path)) for line in maps_of_this_process())


def maps_of_this_process() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def test_a_file_that_is_replaced_has_another_identity(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"tokens")
    other.write_bytes(b"Tokens")
    first = FileMap(path, 6).identity
    assert FileMap(path, 6).identity == first
    other.replace(path)
    assert FileMap(path, 6).identity != first
