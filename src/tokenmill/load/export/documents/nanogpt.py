"""Documents as nanoGPT reads them: `train.bin` and `val.bin`, token ids without a header."""

from __future__ import annotations

import logging

from tokenmill.load.export.documents.format import Format
from tokenmill.load.export.documents.selection import Selection, Stretch

LOGGER = logging.getLogger(__name__)
NAMES = {"train": "train", "validation": "val"}


def _by_subset(selection: Selection) -> list[Stretch]:
    """One file for each subset; warns if nanoGPT would miss one."""
    for subset, name in NAMES.items():
        if subset not in selection.subsets:
            text = "nanoGPT needs %s.bin, but the dataset has no %s documents"
            LOGGER.warning(text, name, subset)
    return [s for name in selection.subsets for s in selection.stretches(name, NAMES[name])]


NANOGPT = Format(_by_subset)
