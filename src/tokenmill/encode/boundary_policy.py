"""Determine the ids before and after each document; an ambiguous one is an error, never a guess."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile

END_OF_DOCUMENT_TOKENS = (
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<EOD>",
    "<eod>",
    "<|endofdocument|>",
    "<｜end▁of▁sentence｜>",
    "[SEP]",
)
"""Names of the end-of-document token in published tokenizers."""


@dataclass(frozen=True, slots=True)
class BoundaryTokens:
    """The ids before and after every document."""

    prefix: tuple[int, ...]
    """The ids that the tokenizer's post-processor puts before a text."""
    eos_id: int
    """The end-of-document token."""
    eos_reason: str
    """What named the end-of-document token; shown to the user."""
    pad_id: int | None
    """The padding token for later stages; None if neither the user nor the tokenizer names one."""


def resolve_boundary_tokens(
    reference: Reference, file: TokenizerFile, eos: str | None, pad: str | None
) -> BoundaryTokens:
    """Determine the tokens around a document from the options and the tokenizer.

    Raises:
        UserError: there is no end-of-document token, or there are several candidates.
    """
    pad_name = pad or configured_token(file, "pad_token")
    pad_id = _known_id(reference, pad_name, "--pad") if pad_name else None
    eos_id, reason = resolve_eos(reference, file, eos)
    return BoundaryTokens(reference.prefix, eos_id, reason, pad_id)


def resolve_eos(
    reference: Reference, file: TokenizerFile, eos: str | None = None
) -> tuple[int, str]:
    """Return the id of the end-of-document token, and what named it.

    In this order: the option, the tokenizer's configuration, the only known special token.

    Raises:
        UserError: there is no end-of-document token, or there are several candidates.
    """
    if eos is not None:
        return _known_id(reference, eos, "--eos"), "--eos"
    if name := configured_token(file, "eos_token"):
        return _known_id(reference, name, "tokenizer_config.json"), "the tokenizer's config"
    specials = reference.special_tokens
    found = known_ends(reference)
    if len(found) == 1:
        return specials[found[0]], "the only known end-of-document token among its special tokens"
    candidates = ", ".join(found or sorted(specials)[:12]) or "none: it has no special tokens"
    raise UserError(
        "cannot tell which token ends a document",
        where=file.origin,
        why=f"candidates: {candidates}",
        hint="choose one with --eos TOKEN",
    )


def known_ends(reference: Reference) -> list[str]:
    """Return the special tokens in `END_OF_DOCUMENT_TOKENS`."""
    return [name for name in END_OF_DOCUMENT_TOKENS if name in reference.special_tokens]


def _known_id(reference: Reference, token: str, where: str) -> int:
    # A number is read as an id, although most vocabularies also have tokens for digits.
    found = reference.special_tokens.get(token)
    if found is None and token.isdecimal():
        found = int(token) if int(token) <= reference.largest_id else None
    elif found is None:
        found = reference.token_id(token)
    if found is None:
        specials = ", ".join(sorted(reference.special_tokens)[:12]) or "none"
        why = f"its special tokens are: {specials}"
        raise UserError(f"the tokenizer has no token {token!r}", where=where, why=why)
    return found


def configured_token(file: TokenizerFile, key: str) -> str | None:
    """Return a token from the tokenizer's configuration, such as `pad_token`."""
    value = file.config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None
