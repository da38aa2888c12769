"""After which tokens a text may be cut: a table over the vocabulary, from the tokenizer itself."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tokenmill.run.stored_reference import open_reference
from tokenmill.store.dataset import Dataset

# Closing marks may follow the end of a sentence; so may white space, which a token often holds.
_ENDS = {
    "sentence": re.compile(r"""[.!?…。！？।؟۔][)\]"'”’»」』]*\s*$|\n\s*$"""),
    "line": re.compile(r"\n\s*$"),
    "paragraph": re.compile(r"\n[^\S\n]*\n\s*$"),
}


def boundary_table(dataset: Dataset, kind: str) -> npt.NDArray[np.bool_]:
    """Shape (largest id + 1,): whether the text of a token ends a sentence, line or paragraph.

    The end of a line also ends a sentence, that of a paragraph a line. Boundaries that only two
    tokens make together are not seen.
    """
    reference = open_reference(dataset)
    pattern = _ENDS[kind]
    texts = (reference.decode([token]) for token in range(reference.largest_id + 1))
    return np.fromiter((pattern.search(text) is not None for text in texts), np.bool_)
