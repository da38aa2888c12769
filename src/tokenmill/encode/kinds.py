"""The table of tokenizer kinds; each kind has one module in `references/`."""

from __future__ import annotations

from tokenmill.core.errors import UserError
from tokenmill.encode.engine import Reference
from tokenmill.encode.references import huggingface, python_tokenizer, sentencepiece, tiktoken
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind

KINDS: dict[str, TokenizerKind] = {
    kind.name: kind
    for kind in (huggingface.KIND, tiktoken.KIND, sentencepiece.KIND, python_tokenizer.KIND)
}
"""The kinds by name. The first one with `is_file` true reads a file."""


def load_reference(file: TokenizerFile, control_tokens: bool) -> Reference:
    """Load a tokenizer with its reference library.

    Raises:
        UserError: the library is not installed, or cannot load the tokenizer.
    """
    return KINDS[file.kind].reference(file, control_tokens)


def load_any_reference(file: TokenizerFile) -> tuple[Reference, bool]:
    """Load the reference so that it reads special tokens in texts as ordinary text, if it can.

    Some Python objects can read them only as control tokens; the returned flag is then True.

    Raises:
        UserError: the tokenizer cannot be loaded, or reads some special tokens as text and others
            as control tokens.
    """
    try:
        return load_reference(file, control_tokens=False), False
    except python_tokenizer.PolicyError as matched:
        try:
            return load_reference(file, control_tokens=True), True
        except python_tokenizer.PolicyError as read:
            raise UserError(
                "the tokenizer reads some special tokens as text and others as control tokens",
                where=matched.where,
                why=f"{matched.what}; {read.what}",
                hint="make encode treat all of them alike, or declare fewer special tokens",
            ) from read
