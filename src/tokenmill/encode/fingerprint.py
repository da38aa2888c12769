"""The fingerprint of a tokenizer: equal where the same text gets the same ids from it.

But for one case: Unigram scores are compared to the nearest float32, because the library's own
saving changes their last digits. Two tokenizers whose scores differ by less may have one
fingerprint, and give a text for which two ways to cut it are as close as that other ids.

It does not depend on the engine, on the library's version, or on how the file is spelled (see
`references/json_components.py`). Each component has a SHA-256 of its own, so that two tokenizers
can be compared without either at hand. The number behind `tm` is the version of this definition:

    digest of a component    sha256 of its canonical JSON
    fingerprint              "tm1:" + sha256 of the canonical JSON of {component: digest}
    canonical JSON           json.dumps(value, sort_keys=True, separators=(",", ":"))

Floats are spelled as Python's `repr` spells a double.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import UserError

VERSION = "tm1"
_quoted = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A tokenizer's identity, with what it was made of."""

    kind: str
    """Of the file; what tokenizers of different kinds are made of cannot be compared."""
    value: str
    """As it is recorded and compared: "tm1:" and 64 hexadecimal digits."""
    digests: dict[str, str]
    """SHA-256 of every component, in hexadecimal."""
    components: dict[str, Any]


def fingerprint_of(file: TokenizerFile) -> Fingerprint:
    """The fingerprint of a tokenizer of any kind.

    Raises:
        UserError: the file is not what its kind promises.
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
    """The one spelling of a value; vocabularies and merges take a quarter of `json.dumps`' time."""
    if type(value) is dict and {*map(type, value.values())} <= {int}:
        keys = sorted(value)
        entries = zip(map(_quoted, keys), map(value.__getitem__, keys), strict=True)
        return "{" + ",".join([f"{key}:{i}" for key, i in entries]) + "}"
    if type(value) is list and all(type(item) is list and len(item) == 2 for item in value):
        words = [*itertools.chain.from_iterable(value)]
        if {*map(type, words)} <= {str}:
            quoted = map(_quoted, words)
            pairs = [f"[{left},{right}]" for left, right in zip(quoted, quoted, strict=True)]
            return "[" + ",".join(pairs) + "]"
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
