"""Sealed JSON as objects of a store: created once, and compared with the digest inside."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tokenmill.store.canonical import canonical_json, sealed, unseal
from tokenmill.store.objects.object_store import ObjectStore

T = TypeVar("T", bound=msgspec.Struct)


def create_record(store: ObjectStore, name: str, value: T) -> T:
    """What the name holds from now on: `value` with its digest, or what was there first.

    Raises:
        VerificationError: what was there is damaged.
    """
    record = sealed(value)
    data = canonical_json(record)
    held = store.create(name, data)
    return record if held == data else open_record(store, name, held, type(value))


def open_record(store: ObjectStore, name: str, data: bytes | None, kind: type[T]) -> T:
    """The content of an object's bytes.

    Raises:
        VerificationError: they are not what was written, or there is no object.
    """
    return unseal(data or b"", kind, f"{store.location}/{name}")
