"""Find the documents whose text contains something, and the sequences of a plan that have it.

    places ─Texts─▶ blocks of text ─Matcher─▶ occurrences ─▶ documents ─▶ segments of a plan

One pass, a block at a time. What it finds is passed on shard by shard.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from tokenmill.core.records import Advance, BoolArray, Int64Array
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan
from tokenmill.store.selecting.matching import Matcher, Occurrences
from tokenmill.store.selecting.places import Place, places_of
from tokenmill.store.selecting.texts import TextBlock, Texts
from tokenmill.store.view import write_view

CONTEXT_BYTES, MATCH_BYTES = 60, 200
"""Bytes of text that are shown on both sides of an occurrence, and of a long occurrence."""
SEGMENTS_AT_ONCE = 1 << 20


@dataclass(slots=True, kw_only=True)
class FoundUse:
    """A row of a training run that has tokens of an occurrence."""

    source: str
    """Name of the source in the run."""
    sequence: int
    """Sequence of its plan."""
    step: int | None
    """None if it is to come and not known: a mixture's steps depend on all before them."""
    epoch: int
    rank: int | None
    is_given: bool
    """Whether the step is before that of the state."""


@dataclass(slots=True, kw_only=True)
class FoundDocument:
    """A document that contains what was looked for."""

    document: int
    """Its number in the dataset."""
    source: str
    position: int
    """Byte offset in the source, or row."""
    id: str | None
    occurrences: int
    before: str
    """Text before the first occurrence."""
    match: str
    """The first occurrence; a long one is shortened."""
    after: str
    tokens: int
    """Length of the document in tokens."""
    sequences: list[int] | None = None
    """The sequences of the plan that have tokens of an occurrence; None without a plan."""
    cut: int | None = None
    """Occurrences of which no sequence has all tokens, but some have a part."""
    left_out: int | None = None
    """Occurrences of which no sequence has a token."""
    uses: list[FoundUse] | None = None
    """When a run gave the occurrences, and will until its epoch ends; None without a state."""


@dataclass(frozen=True, slots=True)
class StringCount:
    """How often a string was found."""

    string: str
    documents: int
    occurrences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a search found."""

    question: str
    """What was looked for, in words."""
    documents: list[FoundDocument]
    """In the order of the dataset; empty if they were only counted."""
    num_documents: int
    num_occurrences: int
    num_tokens: int
    """Of these documents."""
    counts: list[StringCount]
    """For each string, in the order given, without repeated ones."""
    view: Path | None
    """Folder of the view of these documents, if one was saved."""
    decoded_by_reference: bool
    """Whether the tokenizer's own library had to decode each document, which is slow."""


@dataclass(slots=True)
class _Hit:
    """A document while its text is read."""

    index: int
    shown: list[str]
    """The first occurrence, with the text around it."""
    spans: Int64Array
    """Bytes of the text that each occurrence has, shape (n, 2)."""


Locate = Callable[[Sequence[FoundDocument], Sequence[Int64Array]], None]


class Finder:
    """Searches a dataset or view once.

    Args:
        dataset: the dataset.
        matcher: what to find.
        plan: a plan of the dataset; then sequences are found, too.
        locate: called with the documents of each shard and the tokens of their occurrences.
        tell: called with the documents found in each shard; None if they need not be listed.
        most: how many documents to list; the others are counted. None: all.
        advance: called to show progress.
        tokenizer: the tokenizer, if the dataset was built with one written in Python.

    Raises:
        UserError: the Python tokenizer is missing or differs.
        VerificationError: the dataset is damaged.
    """

    def __init__(
        self,
        dataset: Dataset,
        matcher: Matcher,
        *,
        plan: Plan | None = None,
        locate: Locate | None = None,
        tell: Callable[[list[FoundDocument]], None] | None = None,
        most: int | None = None,
        advance: Advance = lambda stage, done, total: None,
        tokenizer: object = None,
    ) -> None:
        self._dataset, self._matcher, self._tell, self._advance = dataset, matcher, tell, advance
        of_plan = None if plan is None else PlanSegments(plan, dataset).locate
        self._locate = [each for each in (of_plan, locate) if each is not None]
        self._left = sys.maxsize if most is None else most
        self.texts = Texts(dataset, tokenizer)
        self.counts = np.zeros((len(matcher.strings), 2), np.int64)
        """Documents and occurrences of each string."""
        self.documents = self.tokens = 0
        """Documents with any of the strings, and their tokens."""

    def masks(self) -> Iterator[BoolArray]:
        """Search, and yield which documents of each shard were found, shape (num_documents,)."""
        total = len(self._dataset.document_numbers)
        self._dataset.announce_pass()
        for place in places_of([self._dataset]):
            mask = np.zeros(place.shard.entry.documents, np.bool_)
            hits: list[_Hit] = []
            for block in self.texts.blocks(place, place.selected):
                found = self._matcher.occurrences(block)
                owners = np.searchsorted(block.offsets, found[:, 0], "right") - 1
                mask[block.documents[owners]] = True
                strings = found[:, 2]
                once = np.unique(owners * len(self.counts) + strings) % len(self.counts)
                self.counts += np.stack(
                    [np.bincount(each, minlength=len(self.counts)) for each in (once, strings)], 1
                )
                if self._tell is not None and len(hits) < self._left:
                    hits += islice(_hits(block, found, owners), self._left - len(hits))
                done = place.first_document + int(block.documents[-1]) + 1
                self._advance("searching", done, total)
            self.documents += int(np.count_nonzero(mask))
            self.tokens += int(place.shard.lengths[mask].sum()) if mask.any() else 0
            self._left -= len(hits)
            if self._tell is not None and hits:
                self._tell(self._described(place, hits))
            place.shard.release()
            yield mask

    def run(self, save: str | Path | None) -> Findings:
        """Search, and return all but the documents; with `save`, write a view of what is found.

        Raises:
            UserError: nothing is found that can be saved, or the dataset is not on this machine.
            OutputConflictError: `save` exists.
            VerificationError: the dataset is damaged.
        """
        view = None
        if save is not None:
            view = write_view(save, [self._dataset], self.masks(), [self._matcher.question])
        else:
            deque(self.masks(), maxlen=0)
        return Findings(
            question=self._matcher.question,
            documents=[],
            num_documents=self.documents,
            num_occurrences=int(self.counts[:, 1].sum()),
            num_tokens=self.tokens,
            counts=list(map(StringCount, self._matcher.strings, *self.counts.T.tolist())),
            view=view,
            decoded_by_reference=self.texts.is_slow,
        )

    def _described(self, place: Place, hits: Sequence[_Hit]) -> list[FoundDocument]:
        shard = place.shard
        table = shard.documents(["source", "position", "id"])
        rows = table.take([hit.index for hit in hits]).to_pylist()
        found = [
            FoundDocument(
                document=place.first_document + hit.index,
                **row,
                occurrences=len(hit.spans),
                before=hit.shown[0],
                match=hit.shown[1],
                after=hit.shown[2],
                tokens=int(shard.lengths[hit.index]),
            )
            for hit, row in zip(hits, rows, strict=True)
        ]
        if self._locate:
            spans = [self.texts.tokens(shard, hit.index, hit.spans) for hit in hits]
            for locate in self._locate:
                locate(found, spans)
        return found


def _hits(block: TextBlock, found: Occurrences, owners: Int64Array) -> Iterator[_Hit]:
    """Yield the documents that have occurrences; `owners` are their indices in the block."""
    edges = np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()
    for a, b in pairwise(edges):
        first, last = block.offsets[owners[a] : owners[a] + 2].tolist()
        start, stop = found[a, :2].tolist()
        parts = (
            (max(start - CONTEXT_BYTES, first), start),
            (start, min(stop, start + MATCH_BYTES)),
            (stop, min(stop + CONTEXT_BYTES, last)),
        )
        texts = [block.data[i:j].tobytes().decode(errors="ignore") for i, j in parts]
        yield _Hit(int(block.documents[owners[a]]), texts, found[a:b, :2] - first)


class PlanSegments:
    """Finds the sequences of a plan that have certain tokens.

    What a trained model saw of them, and when, follows from the numbers of the sequences alone.
    """

    def __init__(self, plan: Plan, dataset: Dataset) -> None:
        plan.check_dataset(dataset)
        plan.check_offsets()
        self._plan = plan
        chunks = [plan.documents[at : at + SEGMENTS_AT_ONCE] for at in self._chunks()]
        self._ranges = [(int(chunk.min()), int(chunk.max())) for chunk in chunks]
        """The lowest and the highest document in each chunk of segments."""

    def _chunks(self) -> range:
        return range(0, len(self._plan.documents), SEGMENTS_AT_ONCE)

    def locate(self, found: Sequence[FoundDocument], spans: Sequence[Int64Array]) -> None:
        """Set the sequences of some documents, in order, given the tokens of their occurrences."""
        numbers = np.array([each.document for each in found])
        for each, answer in zip(found, self.sequences(numbers, spans), strict=True):
            each.sequences, each.left_out, each.cut = answer

    def sequences(
        self, numbers: Int64Array, spans: Sequence[Int64Array]
    ) -> Iterator[tuple[list[int], int, int]]:
        """Yield the sequences of each document, and how many occurrences are left out and cut.

        Args:
            numbers: numbers of the documents, ascending.
            spans: tokens of the occurrences in each document, shape (n, 2).
        """
        plan = self._plan
        segments = np.concatenate(
            [
                at + np.flatnonzero(np.isin(plan.documents[at : at + SEGMENTS_AT_ONCE], numbers))
                for at, (lowest, highest) in zip(self._chunks(), self._ranges, strict=True)
                if lowest <= numbers[-1] and highest >= numbers[0]
            ]
            or [np.empty(0, np.int64)]
        )
        segments = segments[np.argsort(plan.documents[segments], kind="stable")]
        edges = np.searchsorted(plan.documents[segments], [numbers, numbers + 1])
        for tokens, (a, b) in zip(spans, edges.T.tolist(), strict=True):
            own = segments[a:b]
            starts = np.asarray(plan.starts[own], np.int64)
            stops = starts + plan.lengths[own]
            # Shape (num_occurrences, num_segments).
            touches = (tokens[:, :1] < stops) & (tokens[:, 1:] > starts)
            whole = (tokens[:, :1] >= starts) & (tokens[:, 1:] <= stops)
            touched = own[touches.any(axis=0)]
            sequences = np.unique(np.searchsorted(plan.offsets, touched, side="right") - 1)
            is_touched = touches.any(axis=1)
            left_out = int(np.count_nonzero(~is_touched))
            cut = int(np.count_nonzero(is_touched & ~whole.any(axis=1)))
            yield sequences.tolist(), left_out, cut
