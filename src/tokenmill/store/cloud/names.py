"""Names of objects: s3://bucket/key, gs://bucket/key, az://container/key, https://host/path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tokenmill.core.errors import UserError
from tokenmill.core.paths import redacted

CLOUDS = ("s3", "gs", "az")
"""Schemes of stores with buckets, which can be listed and written to."""
WEB = ("http", "https")
"""Schemes of web servers, which can only be read, one object at a time."""
SCHEMES = (*CLOUDS, *WEB)

_NAME = re.compile(rf"({'|'.join(SCHEMES)})://([^/]*)(?:/(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The location of an object, or a prefix of several."""

    scheme: str
    bucket: str
    """The bucket; for web servers, the host and port."""
    key: str
    """The key without slashes at its ends; for web servers, the decoded path."""

    @classmethod
    def parse(cls, name: str) -> ObjectName:
        """Parse a location.

        Raises:
            UserError: it is not a valid location, or it contains a password or a query.
        """
        found = _NAME.fullmatch(name)
        if found is None or not found[2]:
            examples = ", ".join(f"{cloud}://BUCKET/KEY" for cloud in CLOUDS)
            why = f"locations look like {examples}"
            raise UserError("a location names no bucket or host", where=redacted(name), why=why)
        scheme, bucket, key = found[1], found[2], (found[3] or "").strip("/")
        if "@" in bucket:
            raise UserError(
                "a location must not contain a user or a password",
                where=redacted(name),
                why="locations are stored in datasets and shown in messages",
                hint="set credentials in the environment: see docs/guides/object-stores.md",
            )
        if scheme in WEB:
            if "?" in key or "#" in key:
                why = "the part after ? or # may be secret or expire, and datasets store locations"
                hint = "give the address without it, or download the file"
                raise UserError(
                    "an address must not contain a query or a fragment",
                    where=redacted(name),
                    why=why,
                    hint=hint,
                )
            key = unquote(key)
        if {"", ".", ".."} & set(key.split("/")) and key:
            why = "a part of its path is empty, '.' or '..'"
            raise UserError("this name is not valid for an object", where=redacted(name), why=why)
        return cls(scheme, bucket, key)

    def __str__(self) -> str:
        key = quote(self.key) if self.scheme in WEB else self.key
        return f"{self.store}/{key}" if key else self.store

    @property
    def store(self) -> str:
        """The bucket, or the web server: s3://bucket, https://host."""
        return f"{self.scheme}://{self.bucket}"

    def below(self, key: str) -> ObjectName:
        """Return the location of `key` relative to this one."""
        return ObjectName(self.scheme, self.bucket, f"{self.key}/{key}" if self.key else key)


def is_remote(name: object) -> bool:
    """Return whether a name begins with the scheme of an object store or a web server."""
    return str(name).partition("://")[0] in SCHEMES and "://" in str(name)
