"""`tokenmill.find`: the documents whose text contains something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.api.datasets import opened
from tokenmill.load.found import UsesOfDocuments
from tokenmill.store import dataset as _store
from tokenmill.store.plan import Plan, chosen_plan
from tokenmill.store.selecting.finding import Finder, Findings, FoundDocument
from tokenmill.store.selecting.matching import matcher_of


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
