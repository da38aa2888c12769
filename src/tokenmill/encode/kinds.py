"""The kinds of tokenizers: one module for each in `references/`, and one line here."""

from __future__ import annotations

from tokenmill.encode.engine import Reference
from tokenmill.encode.references import huggingface, python_tokenizer, sentencepiece, tiktoken
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.errors import UserError

KINDS: dict[str, TokenizerKind] = {
    kind.name: kind
    for kind in (huggingface.KIND, tiktoken.KIND, sentencepiece.KIND, python_tokenizer.KIND)
}
"""By name; the first that takes a file has it."""


def load_reference(file: TokenizerFile, control_tokens: bool) -> Reference:
    """The library that owns the tokenizer's file.

    Raises:
        UserError: it is not installed, or cannot load the tokenizer.
    """
    return KINDS[file.kind].reference(file, control_tokens)


def load_any_reference(file: TokenizerFile) -> tuple[Reference, bool]:
    """The reference that reads special tokens in texts as text, and whether it cannot.

    Some Python objects have no option for it; such a one reads them as control tokens.

    Raises:
        UserError: it cannot be loaded, or reads some as text and others as control tokens.
    """
    try:
        return load_reference(file, control_tokens=False), False
    except python_tokenizer.PolicyError as matched:
        try:
            return load_reference(file, control_tokens=True), True
        except python_tokenizer.PolicyError as read:
            raise UserError(
                "the tokenizer reads some special tokens in a text as text and some as "
                "control tokens",
                where=matched.where,
                why=f"{matched.what}; {read.what}",
                hint="make its encode treat all of them the same way, or declare fewer tokens "
                "special",
            ) from read
