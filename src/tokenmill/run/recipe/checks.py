"""Check options from a command line, a caller or a file, and report all problems at once."""

from __future__ import annotations

import datetime
import types
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.suggestions import nearest
from tokenmill.core.valid_values import valid_values
from tokenmill.pack.options import PackOptions
from tokenmill.read.rendering.chat.conversations import LOSS_ON
from tokenmill.read.rendering.template import TextTemplate
from tokenmill.read.rendering.transform import give
from tokenmill.read.source import LOCAL, place_of
from tokenmill.read.sources import format_names, is_format
from tokenmill.run.recipe.flags import flags_error
from tokenmill.run.recipe.options import (
    MIN_MEMORY_BYTES,
    NOT_FOR_COUNTS,
    ChatOptions,
    CountRecipe,
    EncodeOptions,
    LimitOptions,
    ReadOptions,
    Recipe,
    ResourceOptions,
)
from tokenmill.run.recipe.spellings import parse_bytes, parse_length, parse_share
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.exports import ExportSection

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "read": ReadOptions,
    "chat": ChatOptions,
    "encode": EncodeOptions,
    "limits": LimitOptions,
    "resources": ResourceOptions,
    "pack": PackOptions,
}

ALL_SECTIONS: dict[str, type[msgspec.Struct]] = {**SECTIONS, "export": ExportSection}
"""All sections, including `export`, which shares option names with other sections."""


def section_of(option: str) -> str:
    """Return the section of a recipe that holds an option, or "" if none does."""
    found = (name for name, kind in SECTIONS.items() if option in kind.__struct_fields__)
    return next(found, "")


def make_recipe(options: Mapping[str, Any], command: str = "") -> Recipe:
    """Make a recipe from nested options, and check them.

    Args:
        options: options by name, with sections as mappings, as in a recipe file.
        command: the command, if the options are its flags. Messages then name flags.

    Returns:
        The recipe, for `build` and the other functions that take one.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[str] = []
    values = _nested(options, Recipe, ("inputs", "tokenizer", "out"), problems)
    if not problems:
        recipe = Recipe(**values)
        problems = list(_conflicts(recipe))
    if problems:
        hint = "tokenmill build --help-all lists every option"
        raise _problems_error("the recipe", problems, hint, command)
    return recipe


def make_count_recipe(options: Mapping[str, Any]) -> CountRecipe:
    """Check the nested options of a count.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[str] = []
    values = _nested(options, CountRecipe, ("inputs", "split", "out"), problems)
    read = options.get("read") or {}
    if isinstance(read, Mapping):
        unfit = [name for name in NOT_FOR_COUNTS if name in read]
        problems += [f"read.{name}: does not apply to word counts" for name in unfit]
    if not problems:
        recipe = CountRecipe(**values)
        problems = [
            *_shared_conflicts(recipe.inputs, recipe.read, recipe.resources),
            *_reading_conflicts(recipe.reading),
        ]
    if problems:
        hint = "tokenmill tokenizer count --help-all lists every option"
        raise _problems_error("the command", problems, hint)
    return recipe


def _nested(
    options: Mapping[str, Any],
    kind: type[msgspec.Struct],
    required: Sequence[str],
    problems: list[str],
) -> dict[str, Any]:
    """Return the checked values of options with sections."""
    values: dict[str, Any] = {}
    top = typing.get_type_hints(kind, include_extras=True)
    for key in _known_keys(options, top, "", problems):
        if key not in ALL_SECTIONS:
            values[key] = _checked(options[key], top[key], key, problems)
            continue
        section = {} if options[key] is None else options[key]
        if not isinstance(section, Mapping):
            problems.append(f"{key}: must be a section with options")
            continue
        found = _section(key, section, problems)
        if key == "export" and "out" not in section:
            problems.append("export.out: is missing")
        if not problems:
            values[key] = ALL_SECTIONS[key](**found)
    problems += [f"{key}: is missing" for key in required if options.get(key, "") == ""]
    return values


def make_pack_options(
    options: Mapping[str, Any], *, to_compare: bool = False, command: str = ""
) -> PackOptions:
    """Check the options of a plan from a command line or a caller.

    With `to_compare`, options of any strategy are allowed. If the options are flags of a
    `command`, messages name flags.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[str] = []
    found = _section("pack", options, problems)
    made = PackOptions() if problems else PackOptions(**found)
    if not problems:
        missing = made.sequence_length is None
        problems = (
            ["pack.sequence_length: is missing"] if missing else _objections(made, to_compare)
        )
    if problems:
        hint = "tokenmill pack --help-all lists every option"
        raise _problems_error("the plan", problems, hint, command)
    return made


def make_sections(
    kinds: Mapping[str, type[msgspec.Struct]], options: Mapping[str, Any], what: str, hint: str
) -> dict[str, Any]:
    """Check flat options from a caller or a command line, and make their sections.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[str] = []
    known = {
        name: each
        for kind in kinds.values()
        for name, each in typing.get_type_hints(kind, include_extras=True).items()
    }
    found = {
        key: _checked(options[key], known[key], key, problems)
        for key in _known_keys(options, known, "", problems)
    }
    if problems:
        raise _problems_error(what, problems, hint)
    return {
        section: kind(**{name: found[name] for name in kind.__struct_fields__ if name in found})
        for section, kind in kinds.items()
    }


def _objections(options: PackOptions, to_compare: bool = False) -> list[str]:
    """Return why no plan can be made with these options. Empty if no plan is asked for."""
    if options.sequence_length is None:
        return []
    from tokenmill.pack.strategies import (
        objections,  # loads a compiler, which encoding does without
    )

    return [*options.misplaced(to_compare=to_compare), *objections(options)]


def _section(name: str, options: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the checked values of a section."""
    hints = typing.get_type_hints(ALL_SECTIONS[name], include_extras=True)
    if callable(function := options.get("transform")):
        options = {**options, "transform": give(function)}
    return {
        key: _checked(options[key], hints[key], f"{name}.{key}", problems)
        for key in _known_keys(options, hints, f"{name}.", problems)
    }


def _problems_error(what: str, problems: list[str], hint: str, command: str = "") -> UserError:
    if command:
        return flags_error(command, problems, ALL_SECTIONS)
    number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    return UserError(f"{what} has {number}", why="\n       ".join(problems), hint=hint)


def _known_keys(
    options: Mapping[str, Any], known: Mapping[str, Any], prefix: str, problems: list[str]
) -> list[str]:
    names = {name: f"{prefix}{name}" for name in known}
    if known.keys() >= SECTIONS.keys():
        fields = ((section, SECTIONS[section].__struct_fields__) for section in SECTIONS)
        names |= {name: f"{section}.{name}" for section, inside in fields for name in inside}
    for key in options:
        if key not in known:
            close = names.get(nearest(str(key), names))
            hint = f"; did you mean {close}?" if close else ""
            problems.append(f"{prefix}{key}: unknown option{hint}")
    return [key for key in options if key in known]


def _checked(value: Any, kind: Any, name: str, problems: list[str]) -> Any:
    """Convert a value to the field's type. Reads YAML spellings of sizes, shares and ids."""
    try:
        value = _spelled(value, kind, name)
        if typing.get_origin(_base(kind)) is Literal and isinstance(value, str):
            _check_choice(value, typing.get_args(_base(kind)))
        found = msgspec.convert(value, kind)
        if name == "read.format" and not is_format(found):
            raise ValueError(f"must be one of {', '.join(format_names())}")
        return found
    except ValueError as error:
        why = str(error).split(" - at")[0]
        if isinstance(error, msgspec.ValidationError) and (allowed := valid_values(kind)):
            why = f"must be {allowed}"
        problems.append(f"{name}: got {value!r}; {why[:1].lower()}{why[1:]}")
        return None


def _spelled(value: Any, kind: Any, name: str) -> Any:
    """Convert spellings of a value to the types of options."""
    if isinstance(value, str):
        if name in ("resources.memory", "read.max_record"):
            return parse_bytes(value)
        if name == "pack.sequence_length":
            return parse_length(value)
        if _base(kind) is float:
            return parse_share(value)
        return [value] if typing.get_origin(_base(kind)) is list else value
    if isinstance(value, Path) or (type(value) is int and _base(kind) is str):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [str(item) if isinstance(item, Path) else item for item in value]
    return value


def _check_choice(value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        close = nearest(value, choices)
        hint = f"; did you mean {close}?" if close else ""
        raise ValueError(f"must be one of {', '.join(choices)}{hint}")


def _base(kind: Any) -> Any:
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return _base(kind)
    return kind


def _conflicts(recipe: Recipe) -> typing.Iterator[str]:
    yield from _objections(recipe.pack)
    if recipe.pack.sequence_length is None and recipe.pack != PackOptions():
        yield "pack.sequence_length: is missing; the other pack options need it"
    if recipe.export is not msgspec.UNSET:
        yield from _export_conflicts(recipe, recipe.export)
    columns = {"source", "position", "id", "subset"}
    kept = {name for field in recipe.read.fields.keep for name in (field, f"column.{field}")}
    for option in ("separate_by", "weight_by"):
        name = getattr(recipe.pack, option)
        if name is not None and name not in columns | kept:
            yield f"pack.{option}: {name!r} is not kept; add it to read.keep"
    yield from _shared_conflicts(recipe.inputs, recipe.read, recipe.resources)
    yield from _reading_conflicts(recipe.read)
    yield from _chat_conflicts(recipe.chat, recipe.read)


def _export_conflicts(recipe: Recipe, export: ExportSection) -> typing.Iterator[str]:
    if recipe.pack.sequence_length is None:
        yield "pack.sequence_length: is missing; an export needs a plan"
    rows = local_path(export.out, "the folder of the rows")
    if not is_remote(recipe.out) and Path(recipe.out).resolve().is_relative_to(rows.resolve()):
        yield f"export.out: {export.out!r} is or contains the folder of the dataset"


def _chat_conflicts(chat: ChatOptions, read: ReadOptions) -> typing.Iterator[str]:
    if chat.chat is None:
        for name in ("chat_template", "loss_on", "chat_date"):
            if getattr(chat, name):
                yield f"chat.{name}: can only be given with chat.chat"
        return
    for name in ("text_template", "transform", "no_loss", "separator"):
        if getattr(read, name):
            yield f"read.{name}: cannot be given for conversations"
    yield from _role_conflicts(chat.loss_on)
    if chat.chat_date is not None:
        try:
            datetime.date.fromisoformat(chat.chat_date)
        except ValueError:
            yield f"chat.chat_date: got {chat.chat_date!r}; must be a date as YYYY-MM-DD"
    if chat.chat == "prompt-completion" and chat.chat_template:
        yield "chat.chat_template: only for messages, not for prompt-completion"
    if chat.chat == "prompt-completion" and chat.loss_on not in ([], ["all"]):
        yield "chat.loss_on: for prompt-completion, must be all or omitted (completion only)"


def _role_conflicts(loss_on: Sequence[str]) -> typing.Iterator[str]:
    for name in ("all", "last"):
        if name in loss_on and len(set(loss_on)) > 1:
            yield f"chat.loss_on: {name} cannot be combined with other roles"
    for role in loss_on:
        meant = "" if role in LOSS_ON or not role.isalpha() else nearest(role, LOSS_ON)
        if meant:
            yield f"chat.loss_on: got {role!r}; did you mean {meant!r}?"


def _shared_conflicts(
    inputs: Sequence[str], read: ReadOptions, resources: ResourceOptions
) -> typing.Iterator[str]:
    memory = resources.memory
    if memory is not None and memory < MIN_MEMORY_BYTES:
        yield f"resources.memory: got {memory}; must be at least {MIN_MEMORY_BYTES} bytes (512 MB)"
    if read.streaming and all(place_of(name) == LOCAL for name in inputs):
        yield "read.streaming: only applies to remote inputs such as hf://..."


def _reading_conflicts(read: ReadOptions) -> typing.Iterator[str]:
    if read.separator == "":
        yield "read.separator: must not be empty"
    text = "" if read.transform else read.text_field
    if read.text_template is not None:
        if read.transform:
            yield "read.transform: cannot be combined with read.text_template"
        text = ""
        TextTemplate(read.text_template).parts()
        if read.text_field != "text":
            yield "read.text_template: cannot be combined with read.text_field"
    for name, count in Counter(read.fields.keep).items():
        if count > 1:
            yield f"read.keep: {name!r} is named twice"
    for name in read.fields.extra:
        if text and f"{text}.".startswith(f"{name}."):
            yield f"read: {name!r} holds the text, which cannot be kept as a column"
    reserved = [name for name in read.fields.extra if not name]
    if reserved or not read.text_field:
        yield "read: a field name is empty"
