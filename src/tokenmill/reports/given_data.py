"""What a run has given, as values, tables and a data statement.

The headings of the statement are those of the template of the European Commission for summaries of
training content (C(2025) 8311) where there are facts; datasheets and model cards ask for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field

from tokenmill.core.errors import one_line
from tokenmill.core.html import card, joined, table
from tokenmill.core.installed import installed_version
from tokenmill.core.tables import Cell, Fact, Number, Table, number, table_of
from tokenmill.core.values import counted

MOST_ROWS = 200
"""Rows of a table in a statement; JSON has all."""
AMOUNT = ("documents", "whole documents", "distinct tokens", "tokens")
TO_FILL_IN = (
    "provider, model and version",
    "kinds of sources: public, licensed, crawled, of users, synthetic",
    "when and how each source was acquired, and its latest date",
    "how reservations of rights (opt-outs from text and data mining) were respected",
    "how illegal content and personal data were removed",
    "data of other stages of training",
)
"""What no dataset knows."""


@dataclass(slots=True)
class Amount:
    """What was given of some documents."""

    documents: int = 0
    """Documents of which at least one token was given."""
    whole_documents: int = 0
    """Documents of which all tokens were given."""
    distinct_tokens: int = 0
    """Tokens of these documents that were given, each counted once."""
    tokens: int = 0
    """Tokens as often as they were given, without padding."""

    def add(self, counts: Sequence[int]) -> None:
        """Add other counts of the fields, in their order."""
        self.documents += counts[0]
        self.whole_documents += counts[1]
        self.distinct_tokens += counts[2]
        self.tokens += counts[3]


@dataclass(slots=True, kw_only=True)
class GivenSource:
    """A source of the run: a plan of a dataset or view."""

    name: str
    dataset: str
    """Id of the dataset or view."""
    location: str
    plan: str
    """Id of the plan."""
    plan_name: str
    options: dict[str, object]
    """How it was packed."""
    first_step: int
    """Of the first leg that has it."""
    rows: int
    epochs: float
    amount: Amount
    question: list[str]
    """How the documents of a view were chosen; empty if it is a dataset."""
    left_out: int
    """Documents that the view leaves out of its datasets."""
    left_out_tokens: int
    left_out_given: int
    """Documents that the view leaves out and the run has given, from any source."""
    taken_out: int
    """Documents that the view took out of the epoch of which the plan is the rest."""
    taken_out_tokens: int
    """Their tokens that no step had given; 0 if the plan is no rest."""


@dataclass(slots=True, kw_only=True)
class GivenInput:
    """An input of a build: a file, or a part of a data set of the Hub."""

    name: str
    dataset: str
    """Folder or bucket of the dataset that was built from it."""
    origin: str
    """Address, if it was not on the machine of the build."""
    xxh3_128: str
    """Digest of what was read."""
    amount: Amount


@dataclass(slots=True, kw_only=True)
class GivenDataset:
    """A dataset of which documents were given."""

    location: str
    dataset: str
    documents: int
    tokens: int
    tokenizer: str
    """SHA-256 of its tokenizer."""
    tokenizer_kind: str
    policies: dict[str, object]


@dataclass(slots=True, kw_only=True)
class GivenData:
    """What a run has given until a step."""

    step: int
    amount: Amount
    legs: list[tuple[int, str]]
    """First step of each leg, and its sources, shares and batch size in words."""
    sources: list[GivenSource]
    datasets: list[GivenDataset]
    inputs: list[GivenInput]
    """Those that gave something, in the order of their datasets."""
    by: str | None
    """A column of the documents tables."""
    values: dict[str, Amount] = field(default_factory=dict)
    """What was given of documents with each value of the column."""

    def statement(self) -> str:
        """Return a data statement in Markdown: what went in, from where, and what is not known."""
        total, tokenizers = self.amount, {each.tokenizer: each for each in self.datasets}
        size = f"{total.tokens:,} tokens, {total.distinct_tokens:,} of them distinct"
        taken_out = [left_out_text(each) for each in self.sources if each.question]
        by = f", counted by {self.by}" if self.by else ""
        parts = [
            "# Training data",
            f"Text that was given in training before step {self.step:,}{by}. tokenmill "
            f"{installed_version('tokenmill')} counted it from the state of the loader, the plans "
            "and the datasets. *Documents* had at least one token in a batch, *whole documents* "
            "all of them. *Distinct tokens* count each token of a document once, *tokens* as often "
            "as it was given; padding is not counted.",
            "## 1. General information",
            *_listed(
                [
                    "Modality: text",
                    f"Size: {size}, of {counted(total.documents, 'document')}",
                    *(
                        f"Tokenizer: {each.tokenizer_kind}, SHA-256 `{each.tokenizer}`"
                        for each in tokenizers.values()
                    ),
                ]
            ),
            "## 2. Data sources",
            "### Datasets",
            _table(_dataset_table(self)),
            "### Inputs",
            _table(input_table(self.inputs)),
        ]
        if self.by:
            parts += [f"### By {one_line(self.by)}", _table(value_table(self))]
        else:
            parts.append("Languages and licences: not counted; they need a kept column and `--by`.")
        parts += [
            "### In training",
            _table(source_table(self)),
            "## 3. Data processing",
            *_listed(_processing(self)),
            "### Taken out",
            *_listed(taken_out or ["nothing"]),
            "### Changes during training",
            *_listed(f"From step {first_step:,}: {text}" for first_step, text in self.legs),
            "## 4. Left to the author",
            "The datasets do not say:",
            *_listed(TO_FILL_IN),
        ]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        """Return the sums and the sources of the run, for notebooks."""
        return joined([card("Given in training", given_facts(self)), table(*source_table(self))])


def amount_cells(amount: Amount) -> list[Cell]:
    """The cells of an amount, in the order of `AMOUNT`."""
    return [number(count) for count in astuple(amount)]


def given_facts(found: GivenData) -> Iterator[Fact]:
    """What was given in sum, and how it changed."""
    amount = found.amount
    yield "given", f"{amount.tokens:,} tokens before step {found.step:,}, without padding"
    repeated = amount.tokens - amount.distinct_tokens
    yield "", f"{amount.distinct_tokens:,} of them distinct, {repeated:,} repeated"
    yield "documents", f"{amount.documents:,}, {amount.whole_documents:,} of them wholly"
    for first_step, text in found.legs:
        yield f"step {first_step:,}", text
    for source in found.sources:
        if source.question:
            yield "left out", left_out_text(source)


def left_out_text(source: GivenSource) -> str:
    """What a view leaves out, since when, and how much of it was given all the same."""
    count = (
        f"{counted(source.left_out, 'document')} with {counted(source.left_out_tokens, 'token')}"
    )
    since = f"from step {source.first_step:,} on" if source.first_step else "from the start"
    given = f"parts of {source.left_out_given:,} of them were given before or by other sources"
    if source.taken_out:
        taken = counted(source.taken_out_tokens, "token")
        given += f"; taken out of the rest of an epoch: {source.taken_out:,} with {taken}"
    return f"{source.name}, {since}: {count} by: {'; '.join(source.question)}; {given}"


def source_table(found: GivenData) -> Table:
    """The sources of the run."""
    rows: list[list[Cell]] = []
    for each in found.sources:
        names = [each.name, each.plan_name]
        rows.append([*names, number(each.rows), number(each.epochs), *amount_cells(each.amount)])
    return ["source", "plan", "rows", "epochs", *AMOUNT], rows


def input_table(inputs: Iterable[GivenInput]) -> Table:
    """The inputs of the datasets, the largest first."""
    ordered = sorted(inputs, key=lambda each: -each.amount.tokens)
    return ["input", *AMOUNT], [
        [each.origin or each.name, *amount_cells(each.amount)] for each in ordered
    ]


def value_table(found: GivenData) -> Table:
    """The values of the column, the most frequent first."""
    ordered = sorted(found.values.items(), key=lambda item: -item[1].tokens)
    return [str(found.by), *AMOUNT], [[value, *amount_cells(each)] for value, each in ordered]


def _dataset_table(found: GivenData) -> Table:
    return table_of(
        {
            "dataset": lambda each: each.location,
            "id": lambda each: f"`{each.dataset}`",
            "its documents": lambda each: number(each.documents),
            "its tokens": lambda each: number(each.tokens),
        },
        found.datasets,
    )


def _processing(found: GivenData) -> Iterator[str]:
    """How datasets were built and plans packed."""
    for each in found.datasets:
        for stage, options in each.policies.items():
            yield f"{each.location}, {stage}: {_options(options)}"
    for source in found.sources:
        plan = f"plan {source.plan_name} of {source.name}, id `{source.plan}`"
        yield f"{plan}: {_options(source.options)}"


def _options(options: object) -> str:
    if not isinstance(options, dict):
        return str(options)
    chosen = {name: value for name, value in options.items() if value not in (None, [], {})}
    return ", ".join(f"{name} {value}" for name, value in chosen.items())


def _listed(items: Iterable[str]) -> list[str]:
    return ["\n".join(f"- {_escaped(item)}" for item in items)]


def _table(table: Table) -> str:
    """A table in Markdown."""
    header, rows = table
    marks = ["---:" if isinstance(cell, Number) else "---" for cell in (rows or [header])[0]]
    lines: list[Sequence[str]] = [header, marks, *rows[:MOST_ROWS]]
    text = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
    more = len(rows) - MOST_ROWS
    return f"{text}\n\nand {more:,} more, which `--json` has" if more > 0 else text


def _escaped(text: str) -> str:
    """A text in one line that is no markup, but for code."""
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")
