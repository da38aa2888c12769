"""Which ids stand around a document: shown before a run, recorded, and never guessed."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import UserError

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
"""Names under which published tokenizers carry their end-of-document token."""


@dataclass(frozen=True, slots=True)
class BoundaryTokens:
    """Ids put around every document."""

    prefix: tuple[int, ...]
    """What the tokenizer's own post-processor puts before a text."""
    eos_id: int
    eos_reason: str
    pad_id: int | None
    """For later stages; None where neither the user nor the tokenizer names one."""


def resolve_boundary_tokens(
    reference: Reference, file: TokenizerFile, eos: str | None, pad: str | None
) -> BoundaryTokens:
    """The tokens around a document, from the options, the configuration, or the table above.

    Raises:
        UserError: no end-of-document token can be named, or several could be.
    """
    pad_name = pad or configured_token(file, "pad_token")
    pad_id = _known_id(reference, pad_name, "--pad") if pad_name else None
    eos_id, reason = resolve_eos(reference, file, eos)
    return BoundaryTokens(reference.prefix, eos_id, reason, pad_id)


def resolve_eos(
    reference: Reference, file: TokenizerFile, eos: str | None = None
) -> tuple[int, str]:
    """The id of the end-of-document token, and who named it.

    Raises:
        UserError: no token can be named, or several could be.
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
    """The special tokens that are known to end documents."""
    return [name for name in END_OF_DOCUMENT_TOKENS if name in reference.special_tokens]


def _known_id(reference: Reference, token: str, where: str) -> int:
    # A number is an id: most vocabularies hold digits as tokens, and no one means those.
    found = reference.special_tokens.get(token)
    if found is None and token.isdecimal():
        found = int(token) if int(token) <= reference.largest_id else None
    elif found is None:
        found = reference.token_id(token)
    if found is None:
        specials = ", ".join(sorted(reference.special_tokens)[:12]) or "none"
        why = f"the tokenizer's special tokens are: {specials}"
        raise UserError(f"the tokenizer has no token {token!r}", where=where, why=why)
    return found


def configured_token(file: TokenizerFile, key: str) -> str | None:
    """What the configuration beside a tokenizer says of `pad_token` and the like."""
    value = file.config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None
