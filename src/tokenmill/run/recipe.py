"""The complete configuration of a build: options, YAML recipes, overrides, all problems at once.

The flags of the command line, the keys of a recipe and the keyword arguments of `tokenmill.build`
are the fields below; each is described once, here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.pack.options import PackOptions
from tokenmill.paths import local_path, read_bounded
from tokenmill.read.fields import Fields
from tokenmill.read.places.hub.names import is_hub_name
from tokenmill.store.policies import Policies
from tokenmill.suggestions import nearest

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]

MIN_MEMORY_BYTES = 512_000_000
MAX_RECIPE_BYTES = 1 << 24


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is read."""

    format: Annotated[
        Literal["auto", "jsonl", "text", "parquet", "arrow-file", "arrow-stream"],
        Meta(description="format of all inputs; auto looks at their bytes"),
    ] = "auto"
    text_field: Annotated[str, Meta(description="name or dotted path of the text")] = "text"
    id_field: Annotated[str | None, Meta(description="field kept as the document's id")] = None
    keep: Annotated[list[str], Meta(description="further fields kept in the documents table")] = []
    no_loss: Annotated[
        str | None,
        Meta(description="field with [start, stop) character ranges that carry no loss"),
    ] = None
    separator: Annotated[
        str | None, Meta(description="plain text: what separates documents (default: none)")
    ] = None
    streaming: Annotated[
        bool, Meta(description="hf:// inputs: read Parquet files where they are, keep nothing")
    ] = False
    validation: Annotated[
        Share, Meta(description="share of documents put into the validation subset, e.g. 0.1%%")
    ] = 0.0
    max_documents: Annotated[
        Positive | None, Meta(description="stop after this many documents")
    ] = None
    max_tokens: Annotated[
        Positive | None, Meta(description="stop before the document that would exceed this")
    ] = None

    @property
    def fields(self) -> Fields:
        """What is taken of each record."""
        return Fields(
            self.text_field, self.id_field, tuple(self.keep), self.no_loss, self.separator
        )


class EncodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How it is encoded."""

    engine: Annotated[str, Meta(description="auto, fastokens, gigatoken, memo or reference")] = (
        "auto"
    )
    encoding: Annotated[str, Meta(description="name of a tiktoken rank file's encoding")] = ""
    eos: Annotated[str | None, Meta(description="end-of-document token, or its id")] = None
    pad: Annotated[str | None, Meta(description="padding token for later stages")] = None
    special_tokens: Annotated[
        Literal["text", "control", "error"],
        Meta(
            description="special-token strings inside text: ordinary text, control tokens, refused"
        ),
    ] = "text"
    unknown: Annotated[
        Literal["count", "error"], Meta(description="unknown tokens: counted, or refused")
    ] = "count"


class LimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may go wrong. These may change when a build is resumed."""

    max_bad: Annotated[
        Share, Meta(description="share of records that may be rejected, e.g. 0.01%%")
    ] = 0.0001
    on_bad_file: Annotated[
        Literal["fail", "quarantine"],
        Meta(description="a damaged file fails the build at its end, or is left out of it"),
    ] = "fail"


class ResourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What it may use. These may change when a build is resumed."""

    workers: Annotated[
        Positive | None, Meta(description="processes (default: 80%% of the physical cores)")
    ] = None
    memory: Annotated[
        int | None, Meta(description="budget of all processes, e.g. 2GB (default: 1.5 GB or less)")
    ] = None
    prefetch: Annotated[NonNegative, Meta(description="units read ahead of the workers")] = 2
    cache_dir: Annotated[
        str | None,
        Meta(description="folder of downloaded hf:// files (default: that of huggingface_hub)"),
    ] = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a build depends on."""

    inputs: Annotated[list[str], Meta(min_length=1)]
    tokenizer: str
    out: str
    read: ReadOptions = ReadOptions()
    encode: EncodeOptions = EncodeOptions()
    limits: LimitOptions = LimitOptions()
    resources: ResourceOptions = ResourceOptions()
    pack: PackOptions = PackOptions()

    @property
    def policies(self) -> Policies:
        """The options that decide what is written; the manifest holds them."""
        read = msgspec.to_builtins(self.read)
        if not self.read.streaming:
            del read["streaming"]
        return msgspec.convert({"read": read, "encode": msgspec.to_builtins(self.encode)}, Policies)


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "read": ReadOptions,
    "encode": EncodeOptions,
    "limits": LimitOptions,
    "resources": ResourceOptions,
    "pack": PackOptions,
}


def section_of(option: str) -> str:
    """The section of a recipe that holds an option, "" for none; names are unique over sections."""
    found = (name for name, kind in SECTIONS.items() if option in kind.__struct_fields__)
    return next(found, "")


def make_recipe(options: Mapping[str, Any]) -> Recipe:
    """Check nested options and make a recipe of them.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    top = typing.get_type_hints(Recipe, include_extras=True)
    for key in _known_keys(options, top, "", problems):
        if key not in SECTIONS:
            values[key] = _checked(options[key], top[key], key, problems)
            continue
        section = {} if options[key] is None else options[key]
        if not isinstance(section, Mapping):
            problems.append(f"{key}: must be a section with options of its own")
            continue
        found = _section(key, section, problems)
        if not problems:
            values[key] = SECTIONS[key](**found)
    problems += [
        f"{key}: is missing" for key in ("inputs", "tokenizer", "out") if options.get(key, "") == ""
    ]
    if not problems:
        recipe = Recipe(**values)
        problems = list(_conflicts(recipe))
    if problems:
        raise _problems_error("the recipe", problems, "tokenmill build --help lists every option")
    return recipe


def make_pack_options(options: Mapping[str, Any]) -> PackOptions:
    """Check options of a plan, as a command line or a caller gives them.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    problems: list[str] = []
    found = _section("pack", options, problems)
    made = PackOptions() if problems else PackOptions(**found)
    if not problems:
        missing = made.sequence_length is None
        problems = ["pack.sequence_length: is missing"] if missing else list(made.problems())
    if problems:
        raise _problems_error("the plan", problems, "tokenmill pack --help lists every option")
    return made


def load_recipe(path: str | Path) -> dict[str, Any]:
    """The options in a YAML file.

    Raises:
        UserError: the file cannot be read, or is not a YAML mapping.
    """
    import yaml

    try:
        data = read_bounded(local_path(path, "the recipe"), MAX_RECIPE_BYTES, "the recipe")
        options = yaml.safe_load(data.decode())
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UserError("cannot read the recipe", where=str(path), why=str(error)) from error
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        why = "it must be a mapping of options"
        raise UserError("the recipe is no recipe", where=str(path), why=why)
    return options


def override(options: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Options with each "a.b=value" assignment applied; values are read as YAML."""
    import yaml

    result = {
        key: dict(value) if isinstance(value, dict) else value for key, value in options.items()
    }
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *section, key = name.strip().split(".")
        if not equals or len(section) > 1:
            why = f"got {assignment!r}"
            raise UserError("--set takes key=value or section.key=value", why=why)
        if section and result.get(section[0]) is None:
            result[section[0]] = {}
        place = result[section[0]] if section else result
        if not isinstance(place, dict):
            raise UserError("--set names an option inside an option", why=f"got {assignment!r}")
        try:
            place[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError("--set has a value that is not YAML", why=str(error)) from error
    return result


def parse_bytes(value: str) -> int:
    """A size such as "2GB", "512 MiB" or "1000", in bytes.

    Raises:
        ValueError: it is none of these.
    """
    units = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
    text = value.strip().upper().removesuffix("B")
    binary = text.endswith("I")
    text = text.removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in units and text[-1:] else (text, "")
    scale = 1024 ** list(units).index(unit) if binary else units[unit]
    try:
        return int(float(number) * scale)
    except (ValueError, OverflowError) as error:  # "inf" overflows
        raise ValueError("a size is a number such as 2GB or 512MiB") from error


def parse_share(value: str) -> float:
    """A share such as "0.1%" or "0.001".

    Raises:
        ValueError: it is neither.
    """
    text = value.strip()
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _section(name: str, options: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The checked values of a section."""
    hints = typing.get_type_hints(SECTIONS[name], include_extras=True)
    return {
        key: _checked(options[key], hints[key], f"{name}.{key}", problems)
        for key in _known_keys(options, hints, f"{name}.", problems)
    }


def _problems_error(what: str, problems: list[str], hint: str) -> UserError:
    number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    return UserError(f"{what} has {number}", why="\n       ".join(problems), hint=hint)


def _known_keys(
    options: Mapping[str, Any], known: Mapping[str, Any], prefix: str, problems: list[str]
) -> list[str]:
    names = {name: f"{prefix}{name}" for name in known}
    if not prefix:
        fields = ((section, SECTIONS[section].__struct_fields__) for section in SECTIONS)
        names |= {name: f"{section}.{name}" for section, inside in fields for name in inside}
    for key in options:
        if key not in known:
            close = names.get(nearest(str(key), names))
            hint = f"; did you mean {close}?" if close else ""
            problems.append(f"{prefix}{key}: unknown option{hint}")
    return [key for key in options if key in known]


def _checked(value: Any, kind: Any, name: str, problems: list[str]) -> Any:
    """`value` as the field's type; YAML spellings of sizes, shares, ids and names are read."""
    try:
        if isinstance(value, str):
            if name == "resources.memory":
                value = parse_bytes(value)
            elif _base(kind) is float:
                value = parse_share(value)
            elif typing.get_origin(_base(kind)) is list:
                value = [value]
        elif isinstance(value, Path) or (type(value) is int and _base(kind) is str):
            value = str(value)
        elif isinstance(value, (list, tuple)):
            value = [str(item) if isinstance(item, Path) else item for item in value]
        return msgspec.convert(value, kind)
    except ValueError as error:
        why = str(error).split(" - at")[0]
        problems.append(f"{name}: got {value!r}; {why[:1].lower()}{why[1:]}")
        return None


def _base(kind: Any) -> Any:
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return _base(kind)
    return kind


def _conflicts(recipe: Recipe) -> typing.Iterator[str]:
    yield from recipe.pack.problems()
    if recipe.pack.sequence_length is None and recipe.pack != PackOptions():
        yield "pack.sequence_length: is missing, and the other options of a plan need it"
    columns = {"source", "position", "id", "subset"}
    kept = {name for field in recipe.read.keep for name in (field, f"column.{field}")}
    for option in ("separate_by", "weight_by"):
        name = getattr(recipe.pack, option)
        if name is not None and name not in columns | kept:
            yield f"pack.{option}: {name!r} is not kept; add it to read.keep"
    memory = recipe.resources.memory
    if memory is not None and memory < MIN_MEMORY_BYTES:
        yield f"resources.memory: got {memory}; must be at least {MIN_MEMORY_BYTES} bytes (512 MB)"
    if recipe.read.streaming and not any(map(is_hub_name, recipe.inputs)):
        yield "read.streaming: is for inputs on the Hub, whose names begin with hf://"
    if recipe.read.separator == "":
        yield "read.separator: must not be empty"
    text = recipe.read.text_field
    for name in recipe.read.fields.extra:
        if f"{text}.".startswith(f"{name}."):
            yield f"read: {name!r} holds the text itself, which cannot be kept beside its tokens"
    reserved = [name for name in recipe.read.fields.extra if not name]
    if reserved or not recipe.read.text_field:
        yield "read: a field name is empty"
