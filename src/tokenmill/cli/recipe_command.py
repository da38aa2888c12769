"""The flags of a recipe: inputs, tokenizer and every option of every section."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Section
from tokenmill.core.options import about
from tokenmill.run.recipe.checks import SECTIONS, load_recipe, make_recipe, override
from tokenmill.run.recipe.options import Inputs, Recipe, TokenizerName
from tokenmill.run.recipe.tokenizer_section import recipe_options
from tokenmill.store.exports import ExportSection

RECIPE_SECTIONS = (
    *(Section(name, kind) for name, kind in SECTIONS.items()),
    Section("export", ExportSection, "also write the rows of the plan as files", prefix="export-"),
)


class RecipeCommand(Command, kw_only=True):
    """A command with a recipe: from a file, from flags, or from both."""

    common: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "out", "format", "text_field", "validation", "max_documents", "workers"),
        *("sequence_length", "config", "overwrite"),
    )
    sections: ClassVar[tuple[Section, ...]] = RECIPE_SECTIONS

    inputs: Inputs = []
    tokenizer: TokenizerName | None = None
    config: Annotated[
        str | None,
        about("YAML recipe; flags override it", metavar="FILE"),
    ] = None
    set: Annotated[
        list[str],
        about("override one option of the recipe, e.g. resources.workers=8", metavar="A.B=C"),
    ] = []

    def recipe(self, out: str | None = None) -> Recipe:
        """Make the recipe; `out` is its output unless the file names another.

        Raises:
            UserError: the file cannot be read, or an option is wrong.
        """
        values: dict[str, Any] = load_recipe(self.config) if self.config else {}
        values = override(values, self.set) if self.set else values
        for name in (*SECTIONS, "export"):
            section = values.get(name) or {}
            if name in self.given and isinstance(section, dict):
                values[name] = {**section, **self.given[name]}
        if self.tokenizer and isinstance(values.get("tokenizer"), dict):
            values["tokenizer"]["tokenizer_name"] = self.tokenizer
        values = recipe_options(values, self.config or "", partial(print, file=sys.stderr))
        own = {"inputs": self.inputs, "tokenizer": self.tokenizer, "out": out}
        values |= {name: value for name, value in own.items() if value}
        return make_recipe(values, self.config or "")
