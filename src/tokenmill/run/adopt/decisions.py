"""What decides an adopted dataset: its tokenizer, its files and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tokenmill.core.errors import DataError, TokenmillError
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
from tokenmill.run.adopt.shards import Rules
from tokenmill.run.agreement import identity_differences
from tokenmill.run.job import input_identity
from tokenmill.run.recipe.options import EncodeOptions
from tokenmill.store.layout import token_dtype


@dataclass(frozen=True, slots=True)
class Decisions:
    """The tokenizer, the files and the options."""

    file: TokenizerFile
    reference: Reference
    boundary: BoundaryTokens
    options: AdoptOptions
    sources: list[Source]

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
        return cls(file, reference, boundary, options, list_token_files(inputs))

    @property
    def identity(self) -> dict[str, Any]:
        """What a later attempt must agree with."""
        return {
            "adopt": msgspec.to_builtins(self.options),
            "tokenizer": self.file.sha256,
            "eos_id": self.boundary.eos_id,
            "pad_id": self.boundary.pad_id,
            "prefix_ids": list(self.boundary.prefix),
            "inputs": [input_identity(source) for source in self.sources],
        }

    @property
    def rules(self) -> Rules:
        """What ids must be."""
        return Rules(self.reference, self.boundary, token_dtype(self.reference.largest_id))

    def differences(self, stored: dict[str, Any]) -> list[str]:
        """Return how a stored identity differs from this one."""
        return identity_differences(stored, self.identity, lambda index: "it was written again")

    def open(self, source: Source) -> TokenFile:
        """Open a file, and check its index."""
        boundary, largest_id = self.boundary, self.reference.largest_id
        return open_token_file(source, self.options, boundary.eos_id, largest_id)

    def size(self, source: Source) -> tuple[int, bool]:
        """Return the bytes that the ids of a file take in a shard, and whether it can share them.

        Raises:
            DamagedInputError: its index is damaged.
            UserError: it cannot be read in this way.
        """
        file, rules = self.open(source), self.rules
        return file.num_tokens * rules.dtype.itemsize, rules.fits(file)

    def decoded(self, ids: Sequence[int]) -> str:
        """Return the text of some ids; "" if the tokenizer cannot decode.

        Raises:
            DataError: it has no token for one of them.
        """
        if not self.reference.can_decode:
            return ""
        try:
            return self.reference.decode(ids)
        except TokenmillError:
            raise
        except Exception as error:  # libraries raise KeyError, IndexError and others
            why = f"{type(error).__name__}: {error}"
            hint = "give the tokenizer that encoded the files"
            raise DataError("cannot decode the first document", why=why, hint=hint) from error
