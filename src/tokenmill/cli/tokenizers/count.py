"""tokenmill tokenizer count"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Events, Section, Verbose
from tokenmill.core.options import Overwrite, about
from tokenmill.run.recipe.options import (
    NOT_FOR_COUNTS,
    CountInputs,
    CountOut,
    CountRecipe,
    LimitOptions,
    ReadOptions,
    ResourceOptions,
)


class Count(Command, kw_only=True):
    """Count words, showing progress."""

    usage: ClassVar[str] = "INPUT ... --split SPLIT --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer count data/*.jsonl.zst --split llama3 --out counts/
  tokenmill tokenizer count web/ code/ --split o200k --by input --min-count 2 --out counts/
  tokenmill tokenizer count corpus/ --split tokenizer.json --by language --out counts/
  tokenmill tokenizer count monday/ tuesday/ --out both/"""
    common: ClassVar[tuple[str, ...]] = (
        *("out", "split", "digits", "by", "min_count", "format", "text_field", "workers"),
        "overwrite",
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section(
            "counting",
            CountRecipe,
            "how text is split into words, and how words are counted",
            only=("split", "digits", "by", "min_count"),
        ),
        Section("read", ReadOptions, without=NOT_FOR_COUNTS),
        Section("limits", LimitOptions),
        Section("resources", ResourceOptions),
    )

    inputs: CountInputs
    out: CountOut
    overwrite: Annotated[
        Overwrite, about("replace old counts; =first deletes the old one first")
    ] = False
    verbose: Verbose = False
    json: Events = False

    def run(self) -> None:
        from tokenmill.api.counting import count_inputs
        from tokenmill.cli.count_display import COUNT
        from tokenmill.cli.display import display_for, events_for, naming_kept_units

        sections = {name: given for name, given in self.given.items() if name != "counting"}
        values: dict[str, Any] = {"inputs": self.inputs, "out": self.out, **sections}
        values |= self.given.get("counting", {})
        displayed = display_for(COUNT, json=self.json, verbose=self.verbose)
        with naming_kept_units(self.out), displayed as display:
            report = count_inputs(values, overwrite=self.overwrite, events=events_for(display))
            display.finish(report)
