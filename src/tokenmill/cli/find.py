"""tokenmill find"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.parser import Command, Decoder, Json
from tokenmill.core.options import about
from tokenmill.core.values import counted, shortened

if TYPE_CHECKING:
    from tokenmill.cli.meter import Meter
    from tokenmill.load.seen import UsesOfDocuments
    from tokenmill.store.selecting.finding import Findings, FoundDocument, FoundUse

MOST_NAMED = 10
"""Sequences that are named for a document; --json has all."""


class Find(Command, kw_only=True):
    """Find documents by their text, showing progress."""

    usage: ClassVar[str] = "DATASET TEXT [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill find corpus/ "some sentence"
  tokenmill find corpus/ "some sentence" --plan best-fit-4096
  tokenmill find corpus/ "some sentence" --state state.json
  tokenmill find corpus/ "some sentence" --save found/
  tokenmill find corpus/ --regex "[\\w.]+@example\\.com"
  tokenmill find corpus/ --strings benchmark.txt --count
The text of a document is what its tokens decode to, without special tokens. If a tokenizer changes
texts, look for what they become: that of a lower-casing tokenizer is in lower case."""

    dataset: Annotated[str, about("folder of a dataset or view", positional="DATASET")]
    text: Annotated[str, about("what to find", positional="TEXT")]
    regex: Annotated[bool, about("TEXT is a regular expression, as Python has them")] = False
    strings: Annotated[bool, about("TEXT is a file: find any of its lines")] = False
    count: Annotated[bool, about("count documents and occurrences; list no documents")] = False
    limit: Annotated[
        Annotated[int, Meta(ge=0)], about("show the first N documents; --json has all")
    ] = 20
    plan: Annotated[
        str | None,
        about("also show the sequences of a plan that have it, by name or folder", metavar="PLAN"),
    ] = None
    state: Annotated[
        str | None,
        about(
            "also show when a training run gave it, from the state of its loader", metavar="FILE"
        ),
    ] = None
    save: Annotated[str | None, about("write a view of the documents found", metavar="VIEW")] = None
    tokenizer: Decoder = None
    json: Json = False

    def run(self) -> None:
        from tokenmill.cli.meter import Meter
        from tokenmill.cli.tables import fact_lines, next_text, print_json
        from tokenmill.load.seen import UsesOfDocuments
        from tokenmill.store.plan import open_plan
        from tokenmill.store.selecting.finding import Finder
        from tokenmill.store.selecting.matching import matcher_of, strings_of
        from tokenmill.store.temporary import dataset_at

        texts = strings_of(self.text) if self.strings else [self.text]
        matcher = matcher_of(texts, regex=self.regex)
        meter = Meter()
        listing = _Listing(meter, 0 if self.count else self.limit, is_json=self.json)
        with ExitStack() as stack:
            stack.callback(meter.clear)
            dataset = stack.enter_context(dataset_at(self.dataset))
            uses = None if self.state is None else UsesOfDocuments(self.state, dataset)
            finder = Finder(
                dataset,
                matcher,
                plan=None if self.plan is None else open_plan(dataset, self.plan),
                locate=None if uses is None else uses.locate,
                tell=None if self.count and uses is None else listing.tell,
                most=None if self.json or uses is not None else self.limit,
                advance=meter.advance,
                tokenizer=self.tokenizer,
            )
            found = finder.run(self.save)
            meter.clear()
            if self.json:
                values = found_values(found)
                print_json({"event": "result", **values, **listing.counts(uses)})
                return
            if self.count and self.strings:
                _print_counts(found)
            elif listing.shown:
                print()
            facts = found_facts(found, dataset.num_documents)
            print("\n".join(fact_lines([*facts, *listing.facts(uses)], 12)))
            if self.save is not None:
                command = ("tokenmill", "select", self.dataset, "--without", self.save)
                print(f"\n{next_text((*command, '--out', 'cleaned/'))}")


def _print_counts(found: Findings) -> None:
    from tokenmill.cli.tables import print_table

    rows = [
        [shortened(each.string, 60), f"{each.documents:,}", f"{each.occurrences:,}"]
        for each in found.counts
    ]
    print_table(["string", "documents", "occurrences"], rows)
    print()


class _Listing:
    """Prints documents as they are found, and counts those that a run gave."""

    def __init__(self, meter: Meter, limit: int, *, is_json: bool) -> None:
        self._meter, self._is_json = meter, is_json
        self._most = sys.maxsize if is_json and limit else limit
        self.shown = self.given = self.to_come = 0

    def tell(self, found: list[FoundDocument]) -> None:
        """Take the documents of a shard."""
        from tokenmill.cli.tables import print_json

        self._meter.clear()
        for each in found:
            self.given += any(use.is_given for use in each.uses or [])
            self.to_come += any(not use.is_given for use in each.uses or [])
            if self.shown == self._most:
                continue
            self.shown += 1
            if self._is_json:
                print_json({"event": "document", **asdict(each)})
            else:
                print("\n".join(document_lines(each)))

    def counts(self, uses: UsesOfDocuments | None) -> dict[str, int]:
        """How many documents a run gave, and will."""
        return {} if uses is None else {"given": self.given, "to_come": self.to_come}

    def facts(self, uses: UsesOfDocuments | None) -> Iterator[tuple[str, str]]:
        """The same in words."""
        if uses is not None:
            yield "given", f"{counted(self.given, 'document')} before step {uses.step:,}"
            yield "to come", f"{counted(self.to_come, 'document')} in the present epoch"


def document_lines(found: FoundDocument) -> Iterator[str]:
    """Where a document is, and the text around the first occurrence."""
    from tokenmill.cli.terminal import BOLD, fitted, painted, use_colour
    from tokenmill.core.errors import one_line

    name = "" if found.id is None else f", id {found.id}"
    parts = [f"document {found.document}, {found.source}, position {found.position:,}{name}"]
    parts.append(counted(found.occurrences, "occurrence"))
    if found.sequences is not None:
        more = ", ..." if len(found.sequences) > MOST_NAMED else ""
        names = ", ".join(map(str, found.sequences[:MOST_NAMED]))
        parts.append(f"sequences {names}{more}" if names else "in no sequence")
        parts += [f"{found.cut:,} cut"] if found.cut else []
        parts += [f"{found.left_out:,} in no sequence"] if found.left_out and names else []
    yield fitted(one_line("; ".join(parts)))
    match = one_line(found.match)
    match = painted(match, BOLD) if use_colour() else f"⟦{match}⟧"
    yield f"    {one_line(found.before)}{match}{one_line(found.after)}"
    for is_given, begin in ((True, "given at"), (False, "to come at")):
        uses = [use for use in found.uses or [] if use.is_given == is_given]
        known = [use for use in uses if use.step is not None]
        texts = [one_line(use_text(use)) for use in known[:MOST_NAMED]]
        texts += ["..."] if len(known) > MOST_NAMED else []
        if len(known) < len(uses):
            texts.append(
                f"steps of a mixture that are not known yet, in {len(uses) - len(known)} rows"
            )
        if texts:
            yield fitted(f"    {begin} {', '.join(texts)}")
    if found.uses == []:
        yield "    not given, nor to come in the present epoch"


def use_text(use: FoundUse) -> str:
    """The step, source, epoch and rank of a row."""
    step = f"step {use.step:,}"
    rank = "" if use.rank is None else f", rank {use.rank}"
    return f"{step} ({use.source}, epoch {use.epoch}{rank})"


def found_facts(found: Findings, num_documents: int) -> Iterator[tuple[str, str]]:
    """What was found, in sum."""
    yield "documents", f"{found.num_documents:,} of {num_documents:,}, {found.question}"
    yield "occurrences", f"{found.num_occurrences:,}"
    yield "tokens", f"{found.num_tokens:,} in these documents"
    if found.decoded_by_reference:
        yield "slow", "the tokenizer's own library decoded each document"
    if found.view is not None:
        yield "view", str(found.view)


def found_values(found: Findings) -> dict[str, object]:
    """The same for JSON."""
    return {
        "question": found.question,
        "documents": found.num_documents,
        "occurrences": found.num_occurrences,
        "tokens": found.num_tokens,
        "strings": found.counts,
        "decoded_by_reference": found.decoded_by_reference,
        "view": None if found.view is None else str(found.view),
    }
