"""Command-line flags generated from the fields of the recipe, with the same defaults."""

from __future__ import annotations

import argparse
import re
import types
import typing
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec

from tokenmill.cli.parser import Parser, length, whole_number
from tokenmill.run.recipe.checks import SECTIONS, make_recipe
from tokenmill.run.recipe.files import load_recipe, override
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.recipe.tokenizer_section import recipe_options
from tokenmill.store.exports import ExportSection

LONGEST_METAVAR = 40
LENGTHS = ("sequence_length", "context_length")
"""Numbers of tokens, which may be written as 4k."""
METAVARS = {"memory": "SIZE", "max_record": "SIZE", "text_template": "TEXT"}
COMMON = (
    *("tokenizer", "out", "format", "text_field", "validation", "max_documents", "workers"),
    *("sequence_length", "config", "overwrite"),
)
"""The options in the short help."""


def add_recipe_arguments(parser: Parser, *, out: bool = True) -> None:
    """Add inputs, tokenizer and every option of every section."""
    parser.common = COMMON
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="files, folders, globs, or URLs with s3:// gs:// az:// https:// or hf://",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="TOKENIZER",
        help="tokenizer.json, its folder, .tiktoken, .model, Hub name, or python:MODULE:NAME",
    )
    if out:
        parser.add_argument(
            "--out", metavar="DIR", help="folder for the dataset, or s3://BUCKET/PREFIX"
        )
    parser.add_argument("--config", metavar="FILE", help="YAML recipe; flags override it")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="override one option of the recipe, e.g. resources.workers=8",
    )
    add_sections(parser, SECTIONS)
    group = parser.add_argument_group("export", "also write the rows of the plan as files")
    hints = typing.get_type_hints(ExportSection, include_extras=True)
    for field in msgspec.structs.fields(ExportSection):
        _add_option(group, f"export_{field.name}", hints[field.name], _default_text(field.default))


def add_overwrite(parser: Parser, what: str) -> None:
    """Add --overwrite, and --overwrite=first. Neither takes the next word, which is an input."""
    parser.add_argument(  # before the other, which the help shows
        "--overwrite=first",
        dest="overwrite",
        action="store_const",
        const="first",
        default=False,
        help=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help=f"replace {what}; =first deletes the old one first",
    )


def add_tokenizer_argument(parser: Parser) -> None:
    """Add the option that names a Python tokenizer for decoding."""
    parser.add_argument(
        "--tokenizer",
        metavar="python:MODULE:NAME",
        help="the Python tokenizer that built the dataset; not needed for other tokenizers",
    )


def add_section(
    group: argparse._ArgumentGroup, kind: type[msgspec.Struct], names: Collection[str] | None = None
) -> None:
    """Add the options of a section, or only those in `names`."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if names is None or field.name in names:
            default = field.default
            if default is True:
                group.add_argument(
                    f"--no-{field.name.replace('_', '-')}",
                    dest=field.name,
                    action="store_const",
                    const=False,
                    help=f"do not {_description(hints[field.name])}",
                )
                continue
            _add_option(group, field.name, hints[field.name], _default_text(default))


def add_sections(
    parser: Parser, sections: Mapping[str, type[msgspec.Struct]], without: Collection[str] = ()
) -> None:
    """Add a group for each section, with all options except those in `without`."""
    for section, kind in sections.items():
        summary = (kind.__doc__ or "").splitlines()[0].rstrip(".")
        group = parser.add_argument_group(section, summary[:1].lower() + summary[1:])
        add_section(group, kind, set(kind.__struct_fields__).difference(without))


def given_options(options: argparse.Namespace, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The options of a section that the command line sets."""
    values = {name: getattr(options, name, None) for name in kind.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def recipe_from(options: argparse.Namespace, command: str = "", out: str | None = None) -> Recipe:
    """Make the recipe of a command from the file of `--config` and the flags."""
    values: dict[str, Any] = load_recipe(options.config) if options.config else {}
    values = override(values, options.set)
    values = recipe_options(values, options.config or "", Recipe.__struct_fields__)
    for name in ("inputs", "tokenizer", "out"):
        if given := getattr(options, name, None):
            values[name] = given
    if out is not None:
        values.setdefault("out", out)
    for name, kind in SECTIONS.items():
        if given := given_options(options, kind):
            section = values.setdefault(name, {})
            if isinstance(section, dict):
                section.update(given)
    exporting = {name: f"export_{name}" for name in ExportSection.__struct_fields__}
    if given := {
        name: value
        for name, flag in exporting.items()
        if (value := getattr(options, flag, None)) is not None
    }:
        section = values.get("export") or {}
        if isinstance(section, dict):
            values["export"] = {**section, **given}
    return make_recipe(values, "" if options.config or options.set else command)


def _add_option(group: argparse._ArgumentGroup, name: str, hint: Any, default: str) -> None:
    description = ""
    while typing.get_origin(hint) is Annotated:
        hint, *notes = typing.get_args(hint)
        description = next((note.description for note in notes if note.description), description)
    members = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    kind = _bare(members[0])
    flag = "--" + name.replace("_", "-")
    help_text = description + default
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        metavar = "{" + ",".join(choices) + "}"
        if len(metavar) > LONGEST_METAVAR:
            metavar, help_text = "NAME", f"{description}; one of {', '.join(choices)}{default}"
        group.add_argument(flag, choices=choices, metavar=metavar, help=help_text)
    elif typing.get_origin(kind) is list:
        metavar = "VALUE=WEIGHT" if name == "weight" else "NAME"
        group.add_argument(flag, action="append", metavar=metavar, help=help_text)
    elif typing.get_origin(kind) is tuple and _bare(typing.get_args(kind)[0]) is int:
        group.add_argument(flag, type=_whole_numbers, metavar="N,N", help=help_text)
    elif typing.get_origin(kind) is tuple:
        group.add_argument(
            flag, type=lambda value: value.split(","), metavar="NAME,NAME", help=help_text
        )
    elif kind is bool:
        group.add_argument(flag, action="store_const", const=True, help=help_text)
    elif kind is int and name not in METAVARS:
        number = length if name in LENGTHS else whole_number
        group.add_argument(flag, type=number, metavar="N", help=help_text)
    else:
        metavar = "SHARE" if kind is float else METAVARS.get(name, "NAME")
        convert = with_line_ends if name in ("text_template", "separator") else str
        group.add_argument(flag, type=convert, metavar=metavar, help=help_text)


def _description(hint: Any) -> str:
    """The description of an option."""
    return next((note.description for note in hint.__metadata__ if note.description), "")


def _bare(hint: Any) -> Any:
    """A type without its annotations."""
    while typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint


def _whole_numbers(text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    return [whole_number(number) for number in text.split(",")]


def with_line_ends(text: str) -> str:
    r"""Replace `\n` by a line end, `\t` by a tab and `\\` by a backslash: shells do not."""
    meant = {r"\n": "\n", r"\t": "\t", "\\\\": "\\"}
    return re.sub(r"\\[nt\\]", lambda found: meant[found.group()], text)


def _default_text(default: Any) -> str:
    """The default value as shown in the help; empty if the option is off by default."""
    if default in (msgspec.NODEFAULT, msgspec.UNSET) or default in (None, False, "", 0, 0.0, ()):
        return ""
    return f" (default: {','.join(default) if isinstance(default, tuple) else default})"
