"""tokenmill diff"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Json
from tokenmill.core.options import about
from tokenmill.core.values import counted

if TYPE_CHECKING:
    from tokenmill.reports.difference import ChangedSource, Difference

MOST_NAMED = 10
"""Sources that are named in a line; --json has all."""


class Diff(Command, kw_only=True):
    """Compare two datasets by their manifests."""

    usage: ClassVar[str] = "A B [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill diff corpus/ corpus-2/
  tokenmill diff corpus/ german/ --json
exit codes: 0 if they are equal, 1 if they differ, 2 or more after an error"""

    one: Annotated[str, about("folder of a dataset or view, or s3://BUCKET/PREFIX", positional="A")]
    other: Annotated[str, about("what to compare with it", positional="B")]
    json: Json = False

    def run(self) -> int:
        import msgspec

        from tokenmill.cli.tables import fact_lines, print_json
        from tokenmill.reports.difference import compare_datasets
        from tokenmill.store.temporary import dataset_at

        with dataset_at(self.one) as one, dataset_at(self.other) as other:
            found = compare_datasets(one, other)
        if self.json:
            print_json({"equal": found.equal, **msgspec.to_builtins(found)})
        else:
            print("\n".join(fact_lines(difference_facts(found), 12)))
        return 0 if found.equal else 1


def difference_facts(found: Difference) -> Iterator[tuple[str, str]]:
    """What differs between two datasets, and their sizes."""
    if found.equal:
        yield "equal", f"both are dataset {found.ids[0]}"
    for name, pair in (("documents", found.documents), ("tokens", found.tokens)):
        more = pair[1] - pair[0]
        yield name, f"{pair[0]:,} and {pair[1]:,} ({more:+,})" if more else f"{pair[0]:,} in both"
    for label, names in (("added", found.added), ("gone", found.gone)):
        if names:
            yield label, _named(names)
    if found.changed:
        yield "changed", _named([_changed(each) for each in found.changed])
    differing = [("tokenizer", found.tokenizer), ("option", found.policies)]
    for label, name, (before, after) in [(x, *each) for x, y in differing for each in y.items()]:
        yield label, f"{name}: {before} and {after}"
    for label, question in zip(("first is", "second is"), found.questions, strict=True):
        if question:
            yield label, "; ".join(question)
    if not found.equal:
        yield "ids", " and ".join(found.ids)


def _named(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > MOST_NAMED else ""
    return f"{counted(len(names), 'source')}: {', '.join(names[:MOST_NAMED])}{more}"


def _changed(source: ChangedSource) -> str:
    documents, tokens = _sizes(source.documents), _sizes(source.tokens)
    return f"{source.name} ({documents} documents, {tokens} tokens)"


def _sizes(pair: tuple[int, int]) -> str:
    return f"{pair[0]:,} and {pair[1]:,}" if pair[0] != pair[1] else f"{pair[0]:,}"
