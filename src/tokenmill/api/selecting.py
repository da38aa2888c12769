"""`tokenmill.select` and `find`: choose documents of datasets, or find them by their text."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokenmill.api.datasets import Dataset, opened
from tokenmill.core.options import make_options
from tokenmill.store import dataset as _store
from tokenmill.store.plan import Plan, chosen_plan
from tokenmill.store.selecting import select as selecting
from tokenmill.store.selecting.finding import Finder, Findings, FoundDocument
from tokenmill.store.selecting.matching import matcher_of
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


def find(
    dataset: _store.Dataset | str | Path,
    strings: str | Sequence[str],
    *,
    regex: bool = False,
    count: bool = False,
    plan: Plan | str | Path | None = None,
    state: Mapping[str, Any] | str | Path | None = None,
    save: str | Path | None = None,
    tokenizer: object = None,
) -> Findings:
    """Find the documents whose text contains a string, across the borders of tokens.

    The text of a document is what its tokens decode to, without special tokens. If a tokenizer
    changes texts, for example to lower case, the changed text is searched. Occurrences of a string
    do not overlap, and none crosses from one document into the next.

    Args:
        dataset: a dataset or view, or its folder.
        strings: a string, or several: documents with any of them are found.
        regex: the string is a regular expression of Python's `re`, and is matched against the text
            of each document.
        count: only count, and list no documents.
        plan: a plan, its name or its folder: also find the sequences that have the occurrences.
        state: the state of a loader, or a JSON file with one: also find the rows of its run that
            have the occurrences, with their steps.
        save: folder for a view of the documents; it must not exist.
        tokenizer: the tokenizer, if the dataset was built with one written in Python.

    Raises:
        UserError: a string is empty, the regular expression or the plan is wrong, or there is
            nothing to save.
        OutputConflictError: `save` exists.
        VerificationError: the dataset is damaged.
    """
    from tokenmill.load.seen import UsesOfDocuments

    source = opened(dataset)
    matcher = matcher_of([strings] if isinstance(strings, str) else strings, regex=regex)
    documents: list[FoundDocument] = []
    finder = Finder(
        source,
        matcher,
        plan=None if plan is None else chosen_plan(source, plan),
        locate=None if state is None else UsesOfDocuments(state, source).locate,
        tell=None if count else documents.extend,
        tokenizer=tokenizer,
    )
    return replace(finder.run(save), documents=documents)
