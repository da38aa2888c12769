"""A sealed file has one spelling, and no byte of it changes unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenmill.core.errors import VerificationError
from tokenmill.store import canonical
from tokenmill.store.canonical import canonical_json, read_sealed, sealed, write_sealed


class Note(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sizes: list[int]
    more: dict[str, Any] = {}
    digest: str = ""


NOTE = Note(name="é <|x|>", sizes=[1, 22], more={"half": 0.5, "none": None, "yes": True})


def test_json_is_written_in_declared_order_with_two_spaces() -> None:
    assert canonical_json(Note(name="a", sizes=[1])) == (
        b'{\n  "name": "a",\n  "sizes": [\n    1\n  ],\n  "more": {},\n  "digest": ""\n}\n'
    )


def test_what_is_sealed_is_read_back(tmp_path: Path) -> None:
    write_sealed(tmp_path / "note.json", NOTE)
    found = read_sealed(tmp_path / "note.json", Note)
    assert found == sealed(NOTE)
    assert msgspec.structs.replace(found, digest="") == NOTE
    assert len(found.digest) == 32


def test_every_flipped_bit_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    data = canonical_json(sealed(NOTE))
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(VerificationError, match="the file is damaged"):
                read_sealed(path, Note)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"\n",
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b'"sizes"', b'"unknown": 1,\n  "sizes"'),
        lambda data: data.replace(b'"name": "', b'"name": "other",\n  "name": "'),
        lambda data: b"",
        lambda data: b"[" * 100_000,
    ],
)
def test_every_other_spelling_is_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(change(canonical_json(sealed(NOTE))))
    with pytest.raises(VerificationError, match="the file is damaged") as caught:
        read_sealed(path, Note)
    assert caught.value.where == str(path)


def test_a_device_or_pipe_that_might_never_end_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "note.json").symlink_to("/dev/null")
    with pytest.raises(VerificationError, match="not a regular file"):
        read_sealed(tmp_path / "note.json", Note)


def test_a_file_over_the_limit_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "MAX_JSON_BYTES", 10)
    write_sealed(tmp_path / "note.json", NOTE)
    with pytest.raises(VerificationError, match="too large"):
        read_sealed(tmp_path / "note.json", Note)
