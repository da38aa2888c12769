"""The bytes of a tokenizer, and what tokenmill can do with each kind of tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.encode.engine import Reference


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """The bytes of a tokenizer and how to read them."""

    kind: str
    """A key of `KINDS` in `kinds.py`."""
    data: bytes
    """The file; for kind `python`, a description that identifies the object."""
    encoding: str = ""
    """tiktoken only: the name of a known encoding, or `explicit`."""
    config_data: bytes = b""
    """The bytes of tokenizer_config.json, if there is one."""
    origin: str = ""
    """Where the tokenizer came from; shown in messages."""
    config: dict[str, Any] = field(default_factory=dict)
    """The configuration: eos_token, chat_template and so on."""
    tokenizer: Any = field(default=None, repr=False, compare=False)
    """python only: the object; None if only a dataset's description is available."""
    source: str = ""
    """python only: how another process creates the object; "" if the user passed an object."""
    reason: str = ""
    """python only: why the object encodes texts itself, instead of its fast backend."""
    rank_encoding: bytes = b""
    """tiktoken only: pattern and special tokens of an `explicit` encoding, as JSON."""
    commit: str = ""
    """For models on the Hub: the commit of the files."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the file; for rank files, together with the encoding's name or definition."""
        return hashlib.sha256(self.data + self.encoding.encode() + self.rank_encoding).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerKind:
    """How tokenmill handles one kind of tokenizer. To add a kind, add an instance to `kinds.py`."""

    name: str
    """The name that datasets store."""
    library: str
    """The library that defines the ids; its version is recorded in the manifest."""
    file_name: str
    """The file's name in the `tokenizer/` folder of a dataset and in the folders users name."""
    is_file: Callable[[Path, bytes], bool]
    """Returns whether a file with this path and content is of this kind."""
    check: Callable[[bytes, str], None] = lambda data, origin: None
    """Raises a UserError if the content cannot be used safely."""
    encoding_of: Callable[[Path, str, bytes], str] | None = None
    """Returns the name of a rank file's encoding; its second argument is the user's choice. None
    for kinds without encodings."""
    reference: Callable[[TokenizerFile, bool], Reference]
    """Loads the reference library; the flag says whether control tokens in texts are matched."""
    components: Callable[[TokenizerFile], dict[str, Any]]
    """Returns what the fingerprint is computed from; see `references/json_components.py`."""
    json_of: Callable[[TokenizerFile, bool], bytes | None] = lambda file, control_tokens: None
    """Returns an equivalent tokenizer.json for fast engines, or None if there is none."""
    outline_of: Callable[[TokenizerFile, bool], dict[str, Any] | None] = lambda file, control: None
    """Returns that tokenizer.json decoded; a long vocabulary may be missing."""
    is_json: bool = False
    """Whether the file is a tokenizer.json."""
    is_slow: bool = False
    """Whether a megabyte takes seconds, so that work units and batches must be small."""
    is_described: bool = False
    """Whether a dataset stores only a description, so that users must pass the tokenizer."""
    may_vary: bool = False
    """Whether ids may depend on more than the text; then even the reference is audited."""
