"""`tokenmill recipe`: a recipe to edit, and the JSON Schema of recipes for editors."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import NODEFAULT, UNSET

from tokenmill.cli.parser import Command
from tokenmill.cli.recipe_command import RECIPE_SECTIONS
from tokenmill.core.options import Option, about, options_of
from tokenmill.core.values import is_struct
from tokenmill.run.recipe.options import Recipe as RecipeOptions

SCHEMA_FILE = "tokenmill-recipe.schema.json"
HEAD = f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
# With the line above, editors complete and check this file once you have run
#   tokenmill recipe schema > {SCHEMA_FILE}
# Every option is here. To set one of a section, remove the # before it and before its section.
# Then: tokenmill build --config recipe.yaml

"""


class Recipe(Command, kw_only=True):
    """Prints a file."""

    usage: ClassVar[str] = "{init,schema}"
    examples: ClassVar[str] = """\
examples:
  tokenmill recipe init > recipe.yaml
  tokenmill recipe schema > tokenmill-recipe.schema.json"""

    action: Annotated[
        Literal["init", "schema"],
        about(
            "init: print a recipe with every option, commented out at its default; "
            "schema: print the JSON Schema of recipes",
            example="init",
            positional="ACTION",
        ),
    ]

    def run(self) -> None:
        """Print the file."""
        if self.action == "init":
            print(HEAD + "\n".join(_recipe_lines()))
        else:
            print(json.dumps(recipe_schema(), indent=2))


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema of recipe files: also of texts such as "2GB" and "0.1%" for numbers."""
    schema: dict[str, Any] = msgspec.json.schema(RecipeOptions)
    kinds: list[type[msgspec.Struct]] = [RecipeOptions, *(each.kind for each in RECIPE_SECTIONS)]
    for kind in kinds:
        found = schema["$defs"][kind.__name__]
        found["additionalProperties"] = False
        if not found["required"]:
            found["type"] = ["object", "null"]  # a section may be empty
        for option in options_of(kind).values():
            place = found["properties"][option.name]
            place.pop("default", None)  # an editor would insert a whole section
            is_text = "unit" in option.extra or float in option.kinds or option.item is not None
            others = ["string"] * is_text + ["null"] * (option.default is UNSET)
            if others and not is_struct(option.kind):
                text = place.pop("description", option.description)
                either = [place, *({"type": each} for each in others)]
                found["properties"][option.name] = {"anyOf": either, "description": text}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _recipe_lines() -> Iterator[str]:
    """All options as YAML; those of sections are commented out, with # and no space."""
    sections = {section.name: section.kind for section in RECIPE_SECTIONS}
    for name, option in options_of(RecipeOptions).items():
        if name not in sections:
            yield from _option_lines(option, "")
            continue
        yield f"\n# {(sections[name].__doc__ or '').splitlines()[0]}\n#{name}:"
        for inner in options_of(sections[name]).values():
            yield from _option_lines(inner, "  ")


def _option_lines(option: Option, indent: str) -> Iterator[str]:
    text = f"{option.description}{'; required' if indent and option.is_required else ''}"
    for line in textwrap.wrap(text, 96, break_on_hyphens=False):
        yield f"{indent}# {line}"
    yield f"{'#' if indent else ''}{indent}{option.name}: {_value(option)}".rstrip()


def _value(option: Option) -> str:
    """The default, or the example of an option that must be given, as YAML."""
    if option.is_required and option.examples:
        example = option.examples[0]
        return json.dumps(example if option.item is None else [example])
    if option.default is NODEFAULT:  # an empty list
        return "[]"
    return json.dumps(None if option.default is UNSET else option.default)
