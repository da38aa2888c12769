"""Choose documents of datasets and write them as a view.

    where, only, without,    one pass, a shard at a time
    (without-)contain(s|ed)
      ─▶ exact duplicates    8 bytes a document; then reads those that may be equal
      ─▶ sample              16 bytes for each document that is left

Without duplicates and samples, the result of the first pass goes straight into the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from tokenmill.core.records import Advance, BoolArray
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.benchmark import Benchmark
from tokenmill.store.selecting.contained import Contained, Containment
from tokenmill.store.selecting.duplicates import Duplicates
from tokenmill.store.selecting.expression import Where
from tokenmill.store.selecting.listed import Ids, UnknownIds, by_name
from tokenmill.store.selecting.options import SelectOptions
from tokenmill.store.selecting.places import Place, places_of
from tokenmill.store.selecting.sample import sample
from tokenmill.store.view import require_alike, write_view
from tokenmill.store.view_manifest import MATCHES_NAME

DUPLICATES = "without exact duplicates"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a question left out."""

    question: str
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Selected:
    """A view and what was left out of it, as returned by `select`."""

    view: Dataset
    of_documents: int
    """Documents of all datasets together."""
    of_tokens: int
    left_out: list[LeftOut]
    unknown: list[UnknownIds]
    contained: list[Containment]
    matches: Path | None
    """The file with the documents that share words with a benchmark."""


class Filter(Protocol):
    """A question that each document answers by itself."""

    @property
    def question(self) -> str:
        """What is asked, in words."""

    def mask(self, place: Place, asked: BoolArray) -> BoolArray:
        """Return which documents of a shard to keep, shape (num_documents,).

        Documents that are not asked for are left out anyway.
        """

    def finish(self) -> None:
        """Close files, or raise an error if no document could answer."""


def select(
    datasets: Sequence[Dataset],
    out: str | Path,
    options: SelectOptions,
    advance: Advance = lambda stage, done, total: None,
) -> Selected:
    """Write a view of the chosen documents of datasets or views.

    Raises:
        UserError: the datasets do not fit together, an option is wrong, or nothing is chosen.
        OutputConflictError: `out` exists.
    """
    require_alike(datasets)
    choice = _Choice(datasets, options, advance)
    question = [*choice.left_out] or ["all documents"]
    note = choice.write_matches_to if choice.contained else None
    folder = write_view(out, datasets, choice.masks(), question, note)
    unknown = (each.unknown() for each in choice.filters if isinstance(each, Ids))
    return Selected(
        view=Dataset(folder),
        of_documents=sum(dataset.num_documents for dataset in datasets),
        of_tokens=sum(dataset.num_tokens for dataset in datasets),
        left_out=[LeftOut(name, *counts) for name, counts in choice.left_out.items()],
        unknown=[each for each in unknown if each is not None],
        contained=[each.report() for each in choice.contained],
        matches=folder / MATCHES_NAME if choice.contained else None,
    )


class _Choice:
    """Makes the masks of a view, and counts what each question leaves out."""

    def __init__(
        self, datasets: Sequence[Dataset], options: SelectOptions, advance: Advance
    ) -> None:
        self._options, self._advance = options, advance
        self._places = list(places_of(datasets))
        self._num_documents = sum(len(dataset.document_numbers) for dataset in datasets)
        self.filters: list[Filter] = []
        if options.where is not None:
            self.filters.append(Where(options.where, datasets))
        if options.only is not None:
            self.filters.append(by_name(options.only, keeps=True))
        if options.without is not None:
            self.filters.append(by_name(options.without, keeps=False))
        names = ((options.contains, True), (options.without_contained, False))
        self.contained = [
            Contained(Benchmark(name, options.words), datasets, keeps=keeps)
            for name, keeps in names
            if name is not None
        ]
        self.filters += self.contained
        questions = [each.question for each in self.filters]
        questions += [DUPLICATES] if options.dedupe else []
        questions += [self._sample] if options.sample else []
        self.left_out = dict.fromkeys(questions, (0, 0))
        """Documents and tokens that each question has left out."""

    @property
    def _sample(self) -> str:
        return f"a sample of {self._options.sample:,.0f} tokens with seed {self._options.seed}"

    def write_matches_to(self, file: BinaryIO) -> None:
        """Set the file for documents that share words with a benchmark."""
        for each in self.contained:
            each.file = file

    def masks(self) -> Iterator[BoolArray]:
        """Yield which documents of each shard to keep, shape (num_documents,) each."""
        options, advance = self._options, self._advance
        if not options.dedupe and not options.sample:
            yield from (mask for _, mask in self._filtered())
            return
        chosen = np.zeros(self._num_documents, np.bool_)
        duplicates = Duplicates(self._places) if options.dedupe else None
        for place, mask in self._filtered():
            chosen[place.documents] = mask
            if duplicates is not None:
                duplicates.add(place, mask)
            place.shard.release()
        if duplicates is not None:
            self.left_out[DUPLICATES] = duplicates.drop_from(chosen, advance)
            del duplicates  # its keys take more memory than anything else
        if options.sample:
            size = round(options.sample)
            left_out = sample(self._places, chosen, size, options.seed, advance)
            self.left_out[self._sample] = left_out
        yield from (chosen[place.documents] for place in self._places)

    def _filtered(self) -> Iterator[tuple[Place, BoolArray]]:
        """Yield each shard with what the filters keep of it."""
        for place in self._places:
            mask = place.selected
            for each in self.filters:
                kept = mask & each.mask(place, mask)
                lost = mask & ~kept
                documents, tokens = self.left_out[each.question]
                documents += int(np.count_nonzero(lost))
                tokens += int(place.shard.lengths[lost].sum())
                self.left_out[each.question] = documents, tokens
                mask = kept
            yield place, mask
            self._advance("choosing documents", place.documents.stop, self._num_documents)
        for each in self.filters:
            each.finish()
