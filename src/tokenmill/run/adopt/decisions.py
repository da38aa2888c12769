"""What decides an adopted dataset: its tokenizer, its files and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.records import UInt8Array
from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.read.source import Source
from tokenmill.read.tokens.files import list_token_files, open_token_file
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.tokens.pieces import TokenFile
from tokenmill.read.units import unit_key
from tokenmill.run.agreement import identity_differences
from tokenmill.run.job import input_identity, shown
from tokenmill.run.recipe.options import EncodeOptions
from tokenmill.store.layout import token_dtype

SPECIAL, UNKNOWN = 1, 2


@dataclass(frozen=True, slots=True)
class Decisions:
    """The tokenizer, the files and the options."""

    tokenizer: TokenizerFile
    reference: Reference
    boundary: BoundaryTokens
    options: AdoptOptions
    sources: list[Source]
    dtype: np.dtype[np.integer]
    """Of shards."""
    kinds: UInt8Array
    """What each id is: SPECIAL, UNKNOWN or 0, shape (largest_id + 1,)."""

    @classmethod
    def resolve(
        cls, inputs: Sequence[str], tokenizer: object, options: AdoptOptions, encode: EncodeOptions
    ) -> Decisions:
        """Load the tokenizer, and find the files.

        Raises:
            UserError: the tokenizer or an input cannot be used.
        """
        file = require_harmless(load_tokenizer_file(tokenizer, encode.rank_encoding))
        reference = load_reference(file, control_tokens=True)
        boundary = resolve_boundary_tokens(reference, file, encode.eos, encode.pad)
        kinds = np.zeros(reference.largest_id + 1, np.uint8)
        if reference.unk_id is not None:
            kinds[reference.unk_id] = UNKNOWN
        kinds[[*reference.special_tokens.values(), boundary.eos_id, *boundary.prefix]] = SPECIAL
        dtype = token_dtype(reference.largest_id)
        return cls(file, reference, boundary, options, list_token_files(inputs), dtype, kinds)

    @property
    def identity(self) -> dict[str, Any]:
        """What a later attempt must agree with."""
        return {
            "adopt": msgspec.to_builtins(self.options),
            "tokenizer": self.tokenizer.sha256,
            "eos_id": self.boundary.eos_id,
            "pad_id": self.boundary.pad_id,
            "prefix_ids": list(self.boundary.prefix),
            "inputs": [input_identity(source) for source in self.sources],
        }

    def differences(self, stored: dict[str, Any]) -> str:
        """Return how a stored identity differs from this one; "" if it does not."""
        return shown(identity_differences(stored, self.identity, lambda _: "it was written again"))

    def open_files(self) -> dict[str, TokenFile]:
        """Return the files by the keys of their shards, after a check of their indexes.

        Raises:
            DamagedInputError: an index is damaged.
            UserError: a file cannot be read in this way.
        """
        ids = self.boundary.eos_id, self.reference.largest_id
        return {
            unit_key(source.index, 0): open_token_file(source, self.options, *ids)
            for source in self.sources
        }

    def can_share(self, file: TokenFile) -> bool:
        """Whether a shard can have the bytes of a file."""
        dtype = file.plain_dtype
        return dtype is not None and dtype.itemsize == self.dtype.itemsize
