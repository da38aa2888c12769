"""tokenmill select"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.core.options import about, make_options
from tokenmill.core.values import counted
from tokenmill.store.selecting.options import SelectOptions

if TYPE_CHECKING:
    from tokenmill.store.selecting.contained import Containment
    from tokenmill.store.selecting.select import Selected


class Select(Command, kw_only=True):
    """Choose documents, showing progress."""

    usage: ClassVar[str] = "DATASET... --out VIEW [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill select corpus/ --out german/ --where "lang = 'de' and tokens > 100"
  tokenmill select corpus/ more/ --out merged/ --dedupe exact
  tokenmill select corpus/ --out cleaned/ --without opt-out.txt
  tokenmill select corpus/ --out fair/ --without-contained gsm8k-test.jsonl
  tokenmill select corpus/ --out small/ --sample 10M"""
    sections: ClassVar[tuple[Section, ...]] = (
        Section("choice", SelectOptions, "which documents to keep; by default all of them"),
    )

    datasets: Annotated[
        Annotated[list[str], Meta(min_length=1)],
        about("folders of datasets or views; several are merged", positional="DATASET"),
    ]
    out: Annotated[str, about("folder for the view", example="view/", metavar="VIEW")]
    json: Json = False

    def run(self) -> None:
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import fact_lines, next_text, print_json
        from tokenmill.store.dataset import Dataset
        from tokenmill.store.selecting.select import select

        options = make_options(SelectOptions, self.given.get("choice", {}), "the selection")
        datasets = [Dataset(name) for name in self.datasets]
        with meter() as advance:
            done = select(datasets, self.out, options, advance)
        if self.json:
            print_json(selected_values(done))
            return
        print("\n".join(fact_lines(selected_facts(done), 12)))
        command = ("tokenmill", "pack", self.out, "--sequence-length", "4096")
        print(f"\n{next_text(command)}")


def selected_facts(done: Selected) -> Iterator[tuple[str, str]]:
    """What a view has, and what each question left out."""
    view = done.view
    yield "view", f"{view.location} (id {view.manifest.dataset_id})"
    yield "documents", f"{view.num_documents:,} of {done.of_documents:,}"
    yield "tokens", f"{view.num_tokens:,} of {done.of_tokens:,}"
    for each in done.left_out:
        count = f"{counted(each.documents, 'document')} with {counted(each.tokens, 'token')}"
        yield "left out", f"{count} by: {each.question}"
    for unknown in done.unknown:
        yield "unknown", str(unknown)
    for found in done.contained:
        yield from contained_facts(found)
    if done.matches is not None:
        yield "matches", str(done.matches)


def contained_facts(each: Containment) -> Iterator[tuple[str, str]]:
    """What documents share with the texts of a benchmark."""
    texts = f"{counted(each.texts, 'text')} of {each.file}"
    share = f"{counted(each.documents, 'document')} share {counted(each.words, 'word')} in a row"
    yield "contained", f"{share} with {each.found:,} of {texts}"
    for text, documents in each.most.items():
        yield "", f"{counted(documents, 'document')} with {text}"
    if each.too_short:
        yield "too short", each.told_too_short
    if each.slow:
        yield "slow", "the library of this tokenizer decoded each document"


def selected_values(done: Selected) -> dict[str, object]:
    """The same for JSON."""
    return {
        "view": done.view.location,
        "view_id": done.view.manifest.dataset_id,
        "documents": done.view.num_documents,
        "tokens": done.view.num_tokens,
        "of_documents": done.of_documents,
        "of_tokens": done.of_tokens,
        "left_out": done.left_out,
        "unknown_ids": done.unknown,
        "contained": done.contained,
        "matches": None if done.matches is None else str(done.matches),
    }
