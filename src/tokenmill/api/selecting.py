"""`tokenmill.select`: choose documents of datasets without copying a token."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.datasets import Dataset, opened
from tokenmill.core.options import make_options
from tokenmill.store import dataset as _store
from tokenmill.store.selecting import select as selecting
from tokenmill.store.selecting.options import SelectOptions

if TYPE_CHECKING:
    from tokenmill.api.options import SelectArguments

LOGGER = logging.getLogger(__name__)
Some = _store.Dataset | str | Path


def select(
    datasets: Some | Sequence[Some], out: str | Path, **options: Unpack[SelectArguments]
) -> Dataset:
    """Write a view: chosen documents of one or more datasets, in order, without copying a token.

    A view is used like a dataset. Several datasets are merged, and must have the same tokenizer.
    The options of `tokenmill select` are keyword arguments; without options, all documents are
    chosen.

    Args:
        datasets: a dataset or view, its folder, or a list of these.
        out: folder for the view; it must not exist.
        options: `where`, a DuckDB expression such as `"lang = 'de' and tokens > 100"`; `only` or
            `without`, a file with one id a line, or a view; `contains` or `without_contained`, a
            file of texts, and `words`, how many words in a row documents must share with one of
            them; `dedupe="exact"`; `sample`, a number of tokens; `seed` of the sample. They apply
            in this order.

    Returns:
        The opened view. Its `question` says how the documents were chosen, and `matches.jsonl` in
        its folder which documents share words with a file of texts. Ids that no document has, and
        texts with too few words, are logged as a warning.

    Raises:
        UserError: the datasets do not fit together, an option is wrong, or no document is chosen.
        OutputConflictError: `out` exists.
        VerificationError: a dataset is damaged.
    """
    several = [datasets] if isinstance(datasets, Some) else datasets
    chosen = make_options(SelectOptions, options, "the selection")
    done = selecting.select([opened(each) for each in several], out, chosen)
    for unknown in done.unknown:
        LOGGER.warning("no document has %s", unknown)
    for each in done.contained:
        if each.too_short:
            LOGGER.warning("%s", each.told_too_short)
    return Dataset(done.view.folder)
