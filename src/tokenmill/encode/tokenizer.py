"""A tokenizer as bytes, and what a kind of tokenizer can do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.encode.engine import Reference


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A tokenizer's bytes and what they are."""

    kind: str
    """A name in the table of `kinds.py`."""
    data: bytes
    """python only: a description, by which the object is known again."""
    encoding: str = ""
    """tiktoken only: the name in the table that gives pattern and special tokens, or `explicit`."""
    config_data: bytes = b""
    origin: str = ""
    """Where it came from, for people."""
    config: dict[str, Any] = field(default_factory=dict)
    tokenizer: Any = field(default=None, repr=False, compare=False)
    """python only: the object; None if a dataset's description was read."""
    source: str = ""
    """python only: what makes it once more in another process; "" for an object as it is."""
    reason: str = ""
    """python only: why the object itself encodes, although it has a fast tokenizer behind it."""
    rank_encoding: bytes = b""
    """tiktoken only: of an `explicit` encoding, pattern and special tokens as JSON."""
    commit: str = ""
    """Of a model on the Hub only: the commit that its files are of."""

    @property
    def sha256(self) -> str:
        """Digest of the tokenizer's bytes and, for rank files, of the encoding's name, or of what
        the user gave in its place.
        """
        return hashlib.sha256(self.data + self.encoding.encode() + self.rank_encoding).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerKind:
    """What tokenmill does with tokenizers of one kind. A new kind is one of these in `kinds.py`."""

    name: str
    """As datasets store it."""
    library: str
    """What defines its ids, as named among the versions of a build."""
    file_name: str
    """In the `tokenizer/` folder of a dataset, and in folders that users name."""
    is_file: Callable[[Path, bytes], bool]
    """Whether a file with this path and content is of the kind."""
    check: Callable[[bytes, str], None] = lambda data, origin: None
    """Raises a UserError if the content cannot be used safely."""
    encoding_of: Callable[[Path, str, bytes], str] | None = None
    """The name of a file's encoding, given the one that the user names; None: it has none."""
    reference: Callable[[TokenizerFile, bool], Reference]
    """Loads the library that owns the file; the flag says whether control tokens in texts count."""
    components: Callable[[TokenizerFile], dict[str, Any]]
    """What a fingerprint is made of; see `references/json_components.py`."""
    json_of: Callable[[TokenizerFile, bool], bytes | None] = lambda file, control_tokens: None
    """An equal tokenizer.json for fast engines, or None if there is no equal."""
    outline_of: Callable[[TokenizerFile, bool], dict[str, Any] | None] = lambda file, control: None
    """The same, decoded, for a look at its steps; a long vocabulary may be left out."""
    is_json: bool = False
    """Whether the file is a tokenizer.json, whose steps and merges can be used one by one."""
    is_slow: bool = False
    """Whether a megabyte takes seconds: units and batches are small then."""
    is_described: bool = False
    """Whether a dataset keeps a description alone, so that users must hand the tokenizer over."""
    may_vary: bool = False
    """Whether answers may depend on more than the text: even the reference is audited."""
