"""Tables of the tokens after which a text can be cut, derived from the tokenizer."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tokenmill.encode.engine import Reference
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import open_reference

# Closing marks may follow the end of a sentence; so may white space, which a token often holds.
_ENDS = {
    "sentence": re.compile(r"""[.!?…。！？।؟۔][)\]"'”’»」』]*\s*$|\n\s*$"""),
    "line": re.compile(r"\n\s*$"),
    "paragraph": re.compile(r"\n[^\S\n]*\n\s*$"),
}
_BLANK_LINE = re.compile(r"[^\S\n]*\n\s*")

Table = npt.NDArray[np.bool_]


def boundary_tables(dataset: Dataset, kind: str) -> tuple[Table, Table, Table]:
    """Return three tables of shape (largest id + 1,) that find boundaries after one or two tokens.

    The first is true of tokens whose text ends a sentence, line or paragraph. Many tokenizers
    part the two line ends of a paragraph: a token that ends a line (the second table) and a blank
    one (the third) end a paragraph together. The end of a line also ends a sentence, that of a
    paragraph a line.
    """
    reference = open_reference(dataset)
    texts = [_text_of(reference, token) for token in range(reference.largest_id + 1)]
    ends = np.array([_ENDS[kind].search(text) is not None for text in texts], np.bool_)
    opens, closes = np.zeros_like(ends), np.zeros_like(ends)
    if kind == "paragraph":
        opens = np.array([_ENDS["line"].search(text) is not None for text in texts], np.bool_)
        closes = np.array([_BLANK_LINE.fullmatch(text) is not None for text in texts], np.bool_)
    return ends, opens, closes


def _text_of(reference: Reference, token: int) -> str:
    """The text of a token; "" for unused ids, which cl100k has."""
    try:
        return reference.decode([token])
    except KeyError:
        return ""
