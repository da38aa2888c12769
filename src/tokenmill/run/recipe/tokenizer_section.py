"""The section `tokenizer` of a configuration: one schema for rows, builds and `CausalLMTokenizer`.

    tokenizer:
      tokenizer_name: gpt2
      context_length: 4096

`CausalLMTokenizer` and `tokenmill rows` take all of it. `tokenmill build --config` turns it into a
recipe; what is about rows alone, such as `columns`, says nothing about a dataset and is left out.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.pack.options import Packing, PackOptions
from tokenmill.run.recipe.files import load_recipe
from tokenmill.suggestions import nearest

SECTION = "tokenizer"
LARGEST_CONTEXT = (64 << 20) // 17
"""Rows are written in batches of 64 MiB at most, and a token of a row may take 17 bytes."""

Column = Literal[
    "input_ids", "attention_mask", "labels", "position_ids", "seq_lengths", "cu_seqlens"
]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "attention_mask", "labels")
PACKED_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids", "seq_lengths")
"""No `attention_mask`: beside one, models of transformers do not look at `position_ids`."""


class CausalLMConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What rows are like, and how they are made."""

    context_length: Annotated[
        int,
        Meta(ge=1, le=LARGEST_CONTEXT, description="tokens of a row, with padding and specials"),
    ]
    """Tokens of a row, special tokens and padding included."""
    tokenizer_name: Annotated[
        str | None, Meta(description="file, folder, or name on the Hub, of the tokenizer")
    ] = None
    """Name or path; may be left out where a tokenizer is passed."""
    text_column: Annotated[
        str | None,
        Meta(description="column of the texts (default: text, or the only one of strings)"),
    ] = None
    overlap: Annotated[
        int, Meta(ge=0, description="tokens that a window repeats from the one before")
    ] = 0
    """Tokens that a window of a document shares with the one before."""
    overlap_in_loss: Annotated[bool, Meta(description="give repeated tokens a label again")] = True
    append_eos: Annotated[
        Literal["auto"] | bool, Meta(description="end each document with the end-of-document token")
    ] = "auto"
    """auto: if the tokenizer has such a token."""
    packing: Annotated[
        Packing | None,
        Meta(description="put several documents into a row, by a packing strategy"),
    ] = None
    columns: Annotated[
        tuple[Column, ...] | None,
        Meta(
            description="columns of the rows: input_ids, attention_mask, labels, position_ids, "
            "seq_lengths, cu_seqlens"
        ),
    ] = None
    dtype: Annotated[
        Literal["int64", "int32"],
        Meta(description="type of ids, labels and positions; int32 halves the disk"),
    ] = "int64"
    subword_regularisation: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="sample encodings: the dropout of a BPE model, the alpha of a Unigram one",
        ),
    ] = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="of subword_regularisation")] = 0
    batch_size: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="documents encoded at a time (default: chosen by memory and lengths)"),
    ] = None
    """Documents encoded at a time; None: 6000, or fewer where these would be large."""
    num_proc: Annotated[
        Annotated[int, Meta(ge=1, le=32)] | None,
        Meta(description="processes of a slow tokenizer (default: half the cores)"),
    ] = None
    """Processes of a slow tokenizer; None: half the cores. 1: everything in this process."""
    cache: Annotated[bool, Meta(description="use rows of an earlier run again")] = True
    """Open the rows of an earlier run again, and resume one that was killed."""
    show_progress: Annotated[bool, Meta(description="show how far the run has come")] = True
    verbose_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], Meta(description="what the log holds")
    ] = "INFO"

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        return self.columns or (DEFAULT_COLUMNS if self.packing is None else PACKED_COLUMNS)

    @property
    def pack_options(self) -> PackOptions:
        """How rows are packed, where they are."""
        assert self.packing is not None
        if not self.overlap:
            return PackOptions(sequence_length=self.context_length, packing=self.packing)
        return PackOptions(
            sequence_length=self.context_length,
            packing=self.packing,
            long_documents="sliding-window",
            overlap=self.overlap,
            overlap_in_loss=self.overlap_in_loss,
        )


def load_section(path: str | Path) -> dict[str, Any]:
    """The options of the section in a YAML file, unchecked; other sections are not read.

    Raises:
        UserError: the file cannot be read, or has no such section.
    """
    found = load_recipe(path, "the configuration")
    options = found.get(SECTION)
    if options is None:
        raise UserError(
            f"the configuration has no section `{SECTION}`",
            where=str(path),
            why=f"it has {', '.join(found) or 'nothing'}",
            hint=f"write the options below `{SECTION}:`, indented",
        )
    if not isinstance(options, Mapping):
        raise _not_a_mapping(str(path))
    return dict(options)


def _not_a_mapping(where: str) -> UserError:
    why = f"it must have a section `{SECTION}` with the options"
    return UserError("the configuration is not a mapping", where=where, why=why)


def check_section(options: Any, where: str = "") -> CausalLMConfig:
    """A configuration from the options of a section.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    if not isinstance(options, Mapping):
        raise _not_a_mapping(where)
    problems: list[str] = []
    values = _values(options, problems)
    if not problems:
        problems += _conflicts(CausalLMConfig(**values))
    if problems:
        number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise UserError(
            f"the configuration has {number}",
            where=where,
            why="\n       ".join(problems),
            hint="docs/guides/causal-lm-tokenizer.md describes every option",
        )
    return CausalLMConfig(**values)


def recipe_options(options: dict[str, Any], where: str, known: Iterable[str]) -> dict[str, Any]:
    """The options of a recipe, of a file whose `tokenizer` is a section; others stay as they are.

    Sections that a recipe does not have, such as `model`, are left out: they are somebody else's.
    What is about rows alone (`columns`, `batch_size`, ...) says nothing about a dataset.

    Raises:
        UserError: one or several options are wrong, or a build cannot do what they say.
    """
    if not isinstance(options.get(SECTION), Mapping):
        return options
    config = check_section(options[SECTION], where)
    refused = {
        "append_eos: false": config.append_eos is False,
        "subword_regularisation": config.subword_regularisation is not None,
    }
    if names := [name for name, is_set in refused.items() if is_set]:
        raise UserError(
            f"a build cannot do what {' and '.join(names)} says",
            where=where,
            why="a dataset ends each document with an end-of-document token, and samples nothing",
            hint="tokenmill rows --config takes this section; tokenmill.text_loader samples",
        )
    result = {name: value for name, value in options.items() if name in known}
    pack: dict[str, Any] = {"sequence_length": config.context_length}
    if config.packing is not None:
        pack["packing"] = config.packing
    if config.overlap:
        pack |= {
            "long_documents": "sliding-window",
            "overlap": config.overlap,
            "overlap_in_loss": config.overlap_in_loss,
        }
    sections = {"pack": pack}
    if config.text_column is not None:
        sections["read"] = {"text_field": config.text_column}
    if config.columns is not None and result.get("export"):
        sections["export"] = {"columns": list(config.columns)}
    for name, section in sections.items():
        own = result.get(name) or {}
        result[name] = {**section, **own} if isinstance(own, Mapping) else own
    result[SECTION] = config.tokenizer_name or ""
    return result


def _values(options: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    known = typing.get_type_hints(CausalLMConfig, include_extras=True)
    values = {}
    for key, value in options.items():
        if key not in known:
            close = nearest(str(key), known)
            hint = f"; did you mean {close}?" if close else ""
            problems.append(f"{key}: unknown option{hint}")
            continue
        try:
            plain = str(value) if isinstance(value, Path) else value
            values[key] = msgspec.convert(plain, known[key])
        except msgspec.ValidationError as error:
            why = str(error).split(" - at")[0]
            problems.append(f"{key}: got {value!r}; {why[:1].lower()}{why[1:]}{_hint(plain, key)}")
    if "context_length" not in options:
        problems.append("context_length: is missing")
    return values


def _hint(value: Any, key: str) -> str:
    """The values that an option takes, where these are names."""
    if not (choices := list(_choices(typing.get_type_hints(CausalLMConfig)[key]))):
        return ""
    given = value if isinstance(value, (list, tuple)) else [value]
    wrong = next((name for name in given if name not in choices), None)
    close = nearest(str(wrong), choices)
    return f"; did you mean {close}?" if close else f"; must be one of {', '.join(choices)}"


def _choices(kind: Any) -> Iterator[str]:
    if typing.get_origin(kind) is Literal:
        yield from typing.get_args(kind)
    elif typing.get_origin(kind) in (typing.Union, types.UnionType, tuple):
        for part in typing.get_args(kind):
            yield from _choices(part)


def _conflicts(config: CausalLMConfig) -> Iterator[str]:
    if config.overlap >= config.context_length:
        yield (
            f"overlap: got {config.overlap}; must be less than context_length, "
            f"which is {config.context_length}"
        )
    if config.columns is not None:
        if "input_ids" not in config.columns:
            yield "columns: input_ids is missing"
        if len(set(config.columns)) < len(config.columns):
            yield "columns: a name is given twice"
    if config.packing is not None and config.overlap < config.context_length:
        from tokenmill.pack.strategy import objections  # loads a compiler

        yield from (problem.removeprefix("pack.") for problem in objections(config.pack_options))
