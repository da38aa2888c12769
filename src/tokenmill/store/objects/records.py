"""Sealed JSON objects in a store: created once, and verified by the digest inside."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tokenmill.store.canonical import canonical_json, sealed, unseal
from tokenmill.store.objects.object_store import ObjectStore

T = TypeVar("T", bound=msgspec.Struct)


def create_record(store: ObjectStore, name: str, value: T) -> T:
    """Create a sealed object and return its content: `value`, or what was written first.

    Raises:
        VerificationError: the existing object is damaged.
    """
    record = sealed(value)
    data = canonical_json(record)
    held = store.create(name, data)
    return record if held == data else open_record(store, name, held, type(value))


def open_record(store: ObjectStore, name: str, data: bytes | None, kind: type[T]) -> T:
    """Decode the bytes of a sealed object.

    Raises:
        VerificationError: the object is damaged or missing.
    """
    return unseal(data or b"", kind, f"{store.location}/{name}")
