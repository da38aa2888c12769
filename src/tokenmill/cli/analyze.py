"""tokenmill analyze"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.cli.shapes import Quantity, ShapeOptions, shape_from
from tokenmill.cli.tables import length_lines, print_facts, print_json, print_table
from tokenmill.cli.terminal import fitted
from tokenmill.core.errors import UserError
from tokenmill.core.options import about, make_options
from tokenmill.packing.costs import SHAPES
from tokenmill.run.recipe.checks import SECTIONS

if TYPE_CHECKING:
    from tokenmill.packing.costs import ModelShape
    from tokenmill.reports.lengths.analysis import Analysis

READING = ("read", "chat", "encode")
"""Sections of a recipe that decide how documents are read and encoded."""
WITHOUT = {"id_field", "keep", "no_loss", "validation", "max_documents", "max_tokens"}
"""Options of these sections that do not change lengths, or limit how much is read."""


class Analyze(Command, kw_only=True):
    """Compare sequence lengths."""

    usage: ClassVar[str] = "(DATASET | INPUT ... --tokenizer TOKENIZER) [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill analyze corpus/ --model 7b
  tokenmill analyze data/*.jsonl.zst --tokenizer gpt2 --sequence-lengths 1024,4096,16384
  tokenmill analyze corpus/ --layers 24 --hidden-size 2048 --tokens-per-batch 4M --csv"""
    common: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "sequence_lengths", "model", "parameters", "tokens_per_batch"),
        *("activation_memory", "csv"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("shape", ShapeOptions),
        *(Section(name, SECTIONS[name], without=WITHOUT) for name in READING),
    )

    inputs: Annotated[
        list[str],
        about("folder of a dataset, or inputs as for build", positional="CORPUS"),
    ]
    tokenizer: Annotated[
        str | None,
        about("as for build; only if CORPUS is not a dataset", metavar="TOKENIZER"),
    ] = None
    sequence_lengths: Annotated[
        tuple[int, ...] | None,
        about("lengths to compare (default: 512 to 32768, doubling)", unit="tokens", metavar="N,N"),
    ] = None
    model: Annotated[
        str | None,
        about("a published model: 7b, llama-3-8b, gpt2, ... (default: llama-2-7b)", known=SHAPES),
    ] = None
    parameters: Annotated[
        Quantity | None,
        about("a model shaped like Llama with N parameters without the vocabulary: 1.3B, 350M"),
    ] = None
    tokens_per_batch: Annotated[
        Quantity | None,
        about("tokens in a global batch, e.g. 4M (default: 524288)"),
    ] = None
    activation_memory: Annotated[
        str | None,
        about(
            "memory that a device has left for activations and logits, e.g. 24GB; "
            "shows how many rows fit",
            metavar="SIZE",
        ),
    ] = None
    seed: Annotated[int, about("seed of the sample (default: 0)")] = 0
    json: Json = False
    csv: Annotated[bool, about("the result as CSV, one line per length")] = False

    def run(self) -> None:
        from tokenmill.api.analysis import analyze
        from tokenmill.cli.meter import meter

        asked: dict[str, Any] = {"model": self._shape(), "sequence_lengths": self.sequence_lengths}
        if self.tokens_per_batch is not None:
            asked["tokens_per_batch"] = round(self.tokens_per_batch)
        asked = {name: value for name, value in asked.items() if value is not None}
        for name in READING:
            asked |= self.given.get(name, {})
        with meter() as advance:
            found = analyze(
                self.inputs,
                self.tokenizer,
                activation_memory=self.activation_memory,
                seed=self.seed,
                advance=advance,
                **asked,
            )
        if self.json:
            print_json(found)
        elif self.csv:
            from tokenmill.reports.lengths.analysis import csv_lines

            print(csv_lines(found), end="")
        else:
            _print(found)

    def _shape(self) -> str | ModelShape | None:
        """The model given by its name, its sizes or its parameters; None for the default."""
        from tokenmill.packing.costs import shape_of_size

        sizes = make_options(ShapeOptions, self.given.get("shape", {}), "the model")
        spelled = shape_from(sizes, self.model)
        if self.parameters is None:
            if spelled is None and sizes.hidden_size is not None:
                raise UserError("the shape of a model needs --hidden-size and --layers")
            return spelled or self.model
        if spelled or self.model or sizes.hidden_size is not None:
            raise UserError(
                "--parameters, --model and the sizes of a model cannot be combined",
                hint="give one",
            )
        return shape_of_size(self.parameters)


def _print(found: Analysis) -> None:
    """Print the whole analysis."""
    from tokenmill.reports.lengths import tables

    print_facts([*found.facts(), *tables.model_facts(found)])
    print("", *length_lines(found.histogram), "", sep="\n")
    for table in (tables.percentile_table, tables.row_table, tables.cost_table):
        print_table(*table(found))
        print()
    print_facts([("note", f"{name}: {text}") for name, text in tables.notes(found)])
    star = " (*)" if found.recommendation.fits else ""
    print(fitted(f"\nrecommended: {found.recommendation.headline}{star}"))
    for reason in found.recommendation.reasons:
        print(fitted(f"- {reason}"))
