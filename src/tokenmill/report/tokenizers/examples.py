"""Examples of how tokenizers split digits, dates, code and white space."""

from __future__ import annotations

from collections.abc import Mapping

from tokenmill.encode.engine import Reference
from tokenmill.encode.token_bytes import Token

EXAMPLES = {
    "digits": "1234567 + 3.14159",
    "date": "2026-11-22T09:30",
    "code": "for i in range(10):\n        total += x[i]",
    "white space": "a  b    c\t\td\n\n\ne",
    "accents": "na\u00efve co\u00f6rdination",
    "emoji": "\U0001f469\u200d\U0001f4bb \u2764\ufe0f",
}


def cut_examples(reference: Reference, tokens: Mapping[int, Token] | None) -> dict[str, list[str]]:
    """The tokens of each example as texts; bytes that are no whole character in hex."""
    return {name: cut(text, reference, tokens) for name, text in EXAMPLES.items()}


def cut(text: str, reference: Reference, tokens: Mapping[int, Token] | None) -> list[str]:
    """The tokens of a text as texts; without a list of tokens, as the library decodes each."""
    ids = reference.encode([text]).ids.tolist()
    if tokens is None:
        return [reference.decode([i]) for i in ids]
    return [tokens[i].data.decode(errors="backslashreplace") for i in ids]
