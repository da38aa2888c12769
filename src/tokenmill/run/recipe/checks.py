"""Read recipes from files, and make them from options: all problems are reported at once."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.options import UNKNOWN, OptionError, Problem, Ref, convert, missing, options_of
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.core.suggestions import nearest
from tokenmill.packing.options import PackOptions, warn_of_short_sequences
from tokenmill.read.per_input import parted
from tokenmill.read.rendering.chat.conversations import LOSS_ON
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.read.rendering.transform import give
from tokenmill.read.source import LOCAL, place_of
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
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.exports import ExportSection, layout_problems

MAX_RECIPE_BYTES = 1 << 24
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "read": ReadOptions,
    "chat": ChatOptions,
    "encode": EncodeOptions,
    "limits": LimitOptions,
    "resources": ResourceOptions,
    "pack": PackOptions,
}
"""The sections of a recipe without `export`, which shares option names with the others."""
ALL_OPTIONS = "tokenmill {} --help-all lists every option"
KEEP, TEMPLATE = Ref("read.keep"), Ref("read.text_template")


def section_of(option: str) -> str:
    """Return the section of a recipe that holds an option, or "" if none does."""
    found = (name for name, kind in SECTIONS.items() if option in kind.__struct_fields__)
    return next(found, "")


def by_section(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as a recipe holds them: by section."""
    nested: dict[str, Any] = {}
    for name, value in options.items():
        section = section_of(name)
        place = nested.setdefault(section, {}) if section else nested
        place[name] = value
    return nested


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Let errors about options name keyword arguments: options without their sections."""

    def argument(path: str) -> str:
        section, _, name = path.rpartition(".")
        return name if section in SECTIONS else path

    try:
        yield
    except OptionError as error:
        raise error.renamed(argument) from None


def make_recipe(options: Mapping[str, Any], where: str = "") -> Recipe:
    """Make a recipe from nested options, and check them.

    Args:
        options: options by name, with sections as mappings, as in a recipe file.
        where: the file that holds them, for messages.

    Returns:
        The recipe, for `build` and the other functions that take one.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[Problem] = []
    recipe = convert(Recipe, _with_transform(options), "", problems)
    problems = _misplaced(problems)
    if recipe is not None:
        problems += _conflicts(recipe)
    if recipe is None or problems:
        raise OptionError("the recipe", problems, where=where, hint=ALL_OPTIONS.format("build"))
    return recipe


def make_count_recipe(options: Mapping[str, Any]) -> CountRecipe:
    """Check the nested options of a count.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    read = options.get("read")
    problems = [
        Problem(f"read.{name}", "does not apply to word counts")
        for name in NOT_FOR_COUNTS
        if isinstance(read, Mapping) and name in read
    ]
    recipe = convert(CountRecipe, _with_transform(options), "", problems)
    if recipe is not None:
        problems += _shared_conflicts(recipe.inputs, recipe.read, recipe.resources)
        problems += _reading_conflicts(recipe.reading)
    if recipe is None or problems:
        raise OptionError("the count", problems, hint=ALL_OPTIONS.format("tokenizer count"))
    return recipe


def make_pack_options(options: Mapping[str, Any], *, to_compare: bool = False) -> PackOptions:
    """Check the options of a plan from a command line or a caller.

    With `to_compare`, options of any strategy are allowed.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[Problem] = []
    made = convert(PackOptions, options, "pack", problems)
    if made is not None and made.sequence_length is None:
        problems.append(missing("pack.sequence_length"))
    elif made is not None:
        problems += _objections(made, to_compare)
    if made is None or problems:
        raise OptionError("the plan", problems, hint=ALL_OPTIONS.format("pack"))
    return made


def load_recipe(path: str | Path, what: str = "the recipe") -> dict[str, Any]:
    """Read the options in a YAML file, without checking them.

    Args:
        path: the file.
        what: the name of the file's contents in errors.

    Raises:
        UserError: the file cannot be read, or does not hold a YAML mapping.
    """
    from tokenmill.run.recipe.yaml_text import parse_yaml

    data = read_bounded(local_path(path, what), MAX_RECIPE_BYTES, what)
    options = parse_yaml(data, f"cannot read {what}", str(path))
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        why = "it must consist of lines such as option: value"
        hint = "tokenmill recipe init prints a recipe to start from"
        raise UserError(f"{what} is not a mapping of options", where=str(path), why=why, hint=hint)
    return options


def override(options: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the options with each "a.b=value" assignment applied. Values are read as YAML."""
    from tokenmill.run.recipe.yaml_text import parse_yaml

    result = {
        key: dict(value) if isinstance(value, dict) else value for key, value in options.items()
    }
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *section, key = name.strip().split(".")
        got = f"got {assignment!r}"
        if not equals or len(section) > 1:
            raise UserError("--set takes key=value or section.key=value", why=got)
        if section and result.get(section[0]) is None:
            result[section[0]] = {}
        place = result[section[0]] if section else result
        if not isinstance(place, dict):
            raise UserError("--set cannot set an option inside an option", why=got)
        what = "the value of --set is not valid YAML"
        place[key] = parse_yaml(value.encode(), what, f"--set {assignment!r}")
    return result


def _with_transform(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the name of a transform that is given as a function."""
    read = options.get("read")
    if not isinstance(read, Mapping) or not callable(function := read.get("transform")):
        return options
    return {**options, "read": {**read, "transform": give(function)}}


def _misplaced(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems that say where options belong that are in a wrong section."""
    found, moved = [], set()
    for each in problems:
        section, _, name = each.option.rpartition(".")
        home = section_of(name)
        if section and each.text.startswith(UNKNOWN) and (home or name in options_of(Recipe)):
            moved.add(name)
            place = f"to the section {home}" if home else "at the top level"
            each = Problem(each.option, f"{name!r} belongs {place}")
        found.append(each)
    return [each for each in found if each.option not in moved]


def _objections(options: PackOptions, to_compare: bool = False) -> list[Problem]:
    """Return why no plan can be made with these options. Empty if no plan is asked for.

    A warning tells of short sequences here, once for all plans of a build and before it begins.
    """
    if options.sequence_length is None:
        return []
    warn_of_short_sequences(options.length)
    from tokenmill.packing.strategies import (
        objections,  # loads a compiler, which encoding does without
    )

    return [*options.misplaced(to_compare=to_compare), *objections(options)]


def _conflicts(recipe: Recipe) -> Iterator[Problem]:
    yield from _objections(recipe.pack)
    if recipe.pack.sequence_length is None and recipe.pack != PackOptions():
        yield missing("pack.sequence_length", "; the other pack options need it")
    if recipe.export is not msgspec.UNSET:
        yield from _export_conflicts(recipe, recipe.export)
    columns = {"source", "position", "id", "subset"}
    kept = {name for field in recipe.read.fields.keep for name in (field, f"column.{field}")}
    for option in ("separate_by", "weight_by"):
        name = getattr(recipe.pack, option)
        if name is not None and name not in columns | kept:
            yield Problem(f"pack.{option}", "{!r} is not kept; add it to {}", name, KEEP)
    yield from _shared_conflicts(recipe.inputs, recipe.read, recipe.resources)
    yield from _reading_conflicts(recipe.read)
    yield from _chat_conflicts(recipe.chat, recipe.read)


def _export_conflicts(recipe: Recipe, export: ExportSection) -> Iterator[Problem]:
    yield from layout_problems(export, "export.")
    if recipe.pack.sequence_length is None:
        yield missing("pack.sequence_length", "; an export needs a plan")
    rows = local_path(export.out, "the folder of the rows")
    if not is_remote(recipe.out) and Path(recipe.out).resolve().is_relative_to(rows.resolve()):
        yield Problem("export.out", "{!r} is or contains the folder of the dataset", export.out)


def _chat_conflicts(chat: ChatOptions, read: ReadOptions) -> Iterator[Problem]:
    if chat.chat is None:
        for name in ("chat_template", "loss_on", "chat_date"):
            if getattr(chat, name):
                yield Problem(f"chat.{name}", "can only be given with {}", Ref("chat.chat"))
        return
    for name in ("text_template", "transform", "no_loss", "separator"):
        if getattr(read, name):
            yield Problem(f"read.{name}", "cannot be given for conversations")
    yield from _role_conflicts(chat.loss_on)
    if chat.chat_date is not None:
        try:
            datetime.date.fromisoformat(chat.chat_date)
        except ValueError:
            rule = "got {!r}; must be a date as YYYY-MM-DD"
            yield Problem("chat.chat_date", rule, chat.chat_date)
    if chat.chat == "prompt-completion" and chat.chat_template:
        yield Problem("chat.chat_template", "only for messages, not for prompt-completion")
    if chat.chat == "prompt-completion" and chat.loss_on not in ([], ["all"]):
        rule = "for prompt-completion, must be all or omitted (completion only)"
        yield Problem("chat.loss_on", rule)


def _role_conflicts(loss_on: Sequence[str]) -> Iterator[Problem]:
    for name in ("all", "last"):
        if name in loss_on and len(set(loss_on)) > 1:
            yield Problem("chat.loss_on", f"{name} cannot be combined with other roles")
    for role in loss_on:
        meant = "" if role in LOSS_ON or not role.isalpha() else nearest(role, LOSS_ON)
        if meant:
            yield Problem("chat.loss_on", "got {!r}; did you mean {!r}?", role, meant)


def _shared_conflicts(
    inputs: Sequence[str], read: ReadOptions, resources: ResourceOptions
) -> Iterator[Problem]:
    memory = resources.memory
    if memory is not None and memory < MIN_MEMORY_BYTES:
        rule = f"got {memory}; must be at least {MIN_MEMORY_BYTES} bytes (512 MB)"
        yield Problem("resources.memory", rule)
    if read.streaming and all(place_of(name) == LOCAL for name in inputs):
        yield Problem("read.streaming", "only applies to remote inputs such as hf://...")


def _reading_conflicts(read: ReadOptions) -> Iterator[Problem]:
    if read.separator == "":
        yield Problem("read.separator", "must not be empty")
    yield from _per_input_conflicts(read)
    own = [name for _, name in parted(read.text_field)[1]]
    texts = [] if read.transform else [read.text, *own]
    if read.text_template is not None:
        if read.transform:
            yield Problem("read.transform", "cannot be combined with {}", TEMPLATE)
        texts = []
        TextTemplate(read.text_template).parts()
        if read.text_field != "text":
            yield Problem("read.text_field", "cannot be combined with {}", TEMPLATE)
    yield from _field_conflicts(read, texts)


def _per_input_conflicts(read: ReadOptions) -> Iterator[Problem]:
    for name in ("format", "text_field"):
        plain, patterns = parted(getattr(read, name))
        if "" in plain or not (plain or patterns):
            yield Problem(f"read.{name}", "must not be empty")
        if len(plain) > 1:
            rule = "got {}; only one can be for all inputs, write GLOB=NAME for some"
            yield Problem(f"read.{name}", rule, " and ".join(plain))
        if not all(glob and value for glob, value in patterns):
            yield Problem(f"read.{name}", "a pattern is GLOB=NAME, such as '*.csv=body'")
    if read.transform and not isinstance(read.text_field, str):
        rule = "patterns cannot be combined with {}"
        yield Problem("read.text_field", rule, Ref("read.transform"))


def _field_conflicts(read: ReadOptions, texts: Sequence[str]) -> Iterator[Problem]:
    for name, count in Counter(read.fields.keep).items():
        if count > 1:
            yield Problem("read.keep", "{!r} is named twice", name)
    for name in read.fields.extra:
        by_name = (each for each in ("id_field", "no_loss") if getattr(read, each) == name)
        option = f"read.{next(by_name, 'keep')}"
        if any(f"{text}.".startswith(f"{name}.") for text in texts if text):
            yield Problem(option, "{!r} holds the text, which cannot be kept as a column", name)
        if not name:
            yield Problem(option, "a field name is empty")
