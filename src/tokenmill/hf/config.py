"""The YAML schema of `CausalLMTokenizer`, with all problems of a configuration at once."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.hf.windows import CELL_BYTES
from tokenmill.run.recipe.files import load_recipe
from tokenmill.suggestions import nearest

MAX_WRITE_BYTES = 64 << 20
"""Output is written in batches that are never larger; so no row may be."""
SECTION = "tokenizer"


class CausalLMConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `tokenizer` of a configuration."""

    context_length: Annotated[int, Meta(ge=1, le=MAX_WRITE_BYTES // CELL_BYTES)]
    """Tokens of a row, special tokens and padding included."""
    tokenizer_name: str | None = None
    """Name or path; may be left out where a tokenizer is passed."""
    overlap: Annotated[int, Meta(ge=0)] = 0
    """Tokens that a window of a document shares with the one before."""
    append_eos: Literal["auto"] | bool = "auto"
    """End each document with the end-of-document token; auto: if the tokenizer has one."""
    batch_size: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Documents encoded at a time; None: 6000, or fewer where these would be large."""
    num_proc: Annotated[int, Meta(ge=1, le=32)] | None = None
    """Processes of a slow tokenizer; None: half the cores. 1: everything in this process."""
    show_progress: bool = True
    verbose_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


def make_config(config: CausalLMConfig | Mapping[str, Any] | str | Path) -> CausalLMConfig:
    """A configuration from the path of a YAML file, a mapping, or the struct itself.

    The options stand under `tokenizer`, and other sections of such a file are not read; a mapping
    without that section holds the options themselves.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    if isinstance(config, CausalLMConfig):
        options: Any = msgspec.to_builtins(config)  # msgspec checks no values in a constructor
    elif isinstance(config, Mapping):
        options = config.get(SECTION, config)
    else:
        options = load_recipe(config).get(SECTION)
    if not isinstance(options, Mapping):
        why = f"it must have a section `{SECTION}` with the options"
        raise UserError("the configuration is not a mapping", where=_origin(config), why=why)
    problems: list[str] = []
    values = _values(options, problems)
    if not problems and values.get("overlap", 0) >= values["context_length"]:
        problems.append(
            f"overlap: got {values['overlap']}; must be less than context_length, "
            f"which is {values['context_length']}"
        )
    if problems:
        number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise UserError(
            f"the configuration has {number}",
            where=_origin(config),
            why="\n       ".join(problems),
            hint="docs/hugging-face.md describes every option",
        )
    return CausalLMConfig(**values)


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
            problems.append(f"{key}: got {value!r}; {why[:1].lower()}{why[1:]}")
    if "context_length" not in options:
        problems.append("context_length: is missing")
    return values


def _origin(config: object) -> str:
    return str(config) if isinstance(config, (str, Path)) else ""
