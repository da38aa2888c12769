"""The fingerprint of a tokenizer: equal fingerprints mean equal ids for every text.

One exception: Unigram scores are rounded to float32, because the library changes their last digits
when it saves a file. Two tokenizers with scores that differ by less share a fingerprint, although
they may segment a text differently if two segmentations are nearly tied.

The fingerprint does not depend on the engine, on the library's version, or on how the file is
spelled (see `references/json_components.py`). Each component has its own SHA-256, so you can
compare two tokenizers without their files. The number after `tm` is the version of this definition:

    digest of a component    sha256 of its canonical JSON
    fingerprint              "tm1:" + sha256 of the canonical JSON of {component: digest}
    canonical JSON           json.dumps(value, sort_keys=True, separators=(",", ":"))

Floats are spelled as Python's `repr` spells a double.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile

VERSION = "tm1"
_quoted = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A tokenizer's identity, with the components it is computed from."""

    kind: str
    """The tokenizer's kind; components of different kinds are not comparable."""
    value: str
    """The fingerprint itself: "tm1:" and 64 hexadecimal digits."""
    digests: dict[str, str]
    """SHA-256 of every component, in hexadecimal."""
    components: dict[str, Any]
    """The components by name."""


def fingerprint_of(file: TokenizerFile) -> Fingerprint:
    """Return the fingerprint of a tokenizer of any kind.

    Raises:
        UserError: the file cannot be read as a tokenizer of its kind.
    """
    components = _components_of(file)
    digests = {name: _sha256(value) for name, value in components.items()}
    return Fingerprint(file.kind, f"{VERSION}:{_sha256(digests)}", digests, components)


def _components_of(file: TokenizerFile) -> dict[str, Any]:
    try:
        return KINDS[file.kind].components(file)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, UserError):
            raise
        why = f"{type(error).__name__}: {error}"
        raise UserError("cannot read the tokenizer", where=file.origin, why=why) from error


def _sha256(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Return `json.dumps(value, sort_keys=True, separators=(",", ":"))`.

    The fast path spells vocabularies in half of the time.
    """
    if type(value) is dict and {*map(type, value.values())} <= {int}:
        keys = sorted(value)
        entries = zip(map(_quoted, keys), map(value.__getitem__, keys), strict=True)
        return "{" + ",".join([f"{key}:{i}" for key, i in entries]) + "}"
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
