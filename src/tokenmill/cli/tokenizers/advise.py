"""tokenmill tokenizer advise"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.cli.shapes import Quantity, ShapeOptions, shape_from
from tokenmill.core.options import OptionError, Problem, about, make_options
from tokenmill.packing.costs import SHAPES

if TYPE_CHECKING:
    from tokenmill.vocabulary.advice.advise import SizeCosts, VocabularyAdvice


class Advise(Command, kw_only=True):
    """Recommend a vocabulary size."""

    usage: ClassVar[str] = "(--parameters N | --compute FLOPS | --model NAME) [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer advise --parameters 1.3B
  tokenmill tokenizer advise --parameters 1.3B --on counts/
  tokenmill tokenizer advise --model llama-3-8b --compute 1e24 --on counts/
  tokenmill tokenizer advise --hidden-size 2048 --layers 24 --tied --sizes 32000,64000"""
    common: ClassVar[tuple[str, ...]] = ("parameters", "compute", "model", "on", "sizes", "tied")
    sections: ClassVar[tuple[Section, ...]] = (Section("shape", ShapeOptions),)

    parameters: Annotated[
        Quantity | None,
        about("parameters without embedding and output matrix: 1.3B, 350M"),
    ] = None
    compute: Annotated[
        Quantity | None,
        about("FLOPs of training: 1e21", metavar="FLOPS"),
    ] = None
    model: Annotated[
        str | None, about("a published model: llama-3-8b, gpt2, ...", known=SHAPES)
    ] = None
    on: Annotated[
        str | None,
        about("folder of word counts: also measure this corpus", metavar="COUNTS"),
    ] = None
    weight: Annotated[
        list[str],
        about("count a group N times instead of once; may be repeated", metavar="GROUP=N"),
    ] = []
    sizes: Annotated[tuple[int, ...], about("more sizes to show")] = ()
    tied: Annotated[bool | None, about("whether input and output share one matrix")] = None
    sequence_length: Annotated[
        int,
        about("sequence length for the FLOPs of attention", unit="tokens"),
    ] = 4096
    multiple: Annotated[int, about("round the recommendation up to a multiple of N")] = 128
    json: Json = False

    def run(self) -> None:
        from tokenmill.api.tokenizers import advise_vocabulary
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import print_json

        sizes = make_options(ShapeOptions, self.given.get("shape", {}), "the model")
        shape = shape_from(sizes, self.model, tied=bool(self.tied))
        with meter() as advance:
            advice = advise_vocabulary(
                model=self.model or shape,
                parameters=self.parameters,
                compute=self.compute,
                hidden_size=None if shape else sizes.hidden_size,
                tied=self.tied,
                on=self.on,
                weights=dict(map(_weight, self.weight)) or None,
                sizes=self.sizes,
                sequence_length=self.sequence_length,
                multiple=self.multiple,
                advance=advance,
            )
        if self.json:
            print_json(_values(advice))
        else:
            _print(advice)


def _weight(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not number.isdecimal():
        problem = Problem("weight", "got {!r}; must be GROUP=N with a whole number", text)
        raise OptionError("the command", [problem])
    return name, int(number)


def _print(advice: VocabularyAdvice) -> None:
    from tokenmill.cli.tables import print_facts, print_table
    from tokenmill.cli.terminal import fitted

    print_facts(list(_facts(advice)))
    print()
    print_table(*_costs(advice))
    print()
    for reason in advice.reasons:
        print(fitted(f"- {reason}"))


def _facts(advice: VocabularyAdvice) -> Iterator[tuple[str, str]]:
    model = advice.model
    name = f"{model.shape.name}, " if model.shape else ""
    yield (
        "model",
        f"{name}{model.parameters:,} parameters without the vocabulary, hidden size "
        f"{model.hidden_size:,}, {'one matrix' if model.tied else 'two matrices'}",
    )
    for assumption in model.assumptions:
        yield "assumed", assumption
    if advice.corpus is not None:
        corpus = advice.corpus
        yield "corpus", f"{corpus.num_characters:,} characters, {corpus.num_bytes:,} bytes"
    for approach in advice.approaches:
        mark = "" if approach.followed else " (shown for comparison; not in the recommendation)"
        yield approach.name, f"{approach.size:,}: {approach.explanation}{mark}"
    yield "recommended", f"{advice.recommended:,} (from {advice.lowest:,} to {advice.highest:,})"


def _costs(advice: VocabularyAdvice) -> tuple[list[str], list[list[str]]]:
    """The table with one line for each size."""
    measured = advice.corpus is not None
    header = ["vocabulary", "tokens/char"]
    if measured:
        header += ["bytes/token", "tokens", "FLOPs to read"]
    header += ["same text", "embeddings", "share", "loss"]
    return header, [_row(costs, advice, measured) for costs in advice.sizes]


def _row(costs: SizeCosts, advice: VocabularyAdvice, measured: bool) -> list[str]:
    star = " *" if costs.size == advice.recommended else ""
    row = [f"{costs.size:,}{star}", f"{costs.tokens_per_character:.4f}"]
    if measured:
        row += [
            "-" if costs.bytes_per_token is None else f"{costs.bytes_per_token:.3f}",
            "-" if costs.tokens is None else f"{costs.tokens:,}",
            "-" if costs.flops is None else f"{costs.flops:.3e}",
        ]
    return [
        *row,
        f"{costs.relative_flops:.3f}",
        f"{costs.embedding_parameters / 1e6:,.1f} M",
        f"{costs.embedding_share:.1%}",
        f"+{costs.added_loss:.4f}",
    ]


def _values(advice: VocabularyAdvice) -> dict[str, Any]:
    """The advice for JSON, without the curve of lengths."""
    import dataclasses

    values = dataclasses.asdict(dataclasses.replace(advice, corpus=None))
    if advice.corpus is not None:
        names = ("left_out_bytes", "smallest_size", "largest_size")
        sizes = {"characters": advice.corpus.num_characters, "bytes": advice.corpus.num_bytes}
        values["corpus"] = sizes | {name: getattr(advice.corpus, name) for name in names}
    return values
