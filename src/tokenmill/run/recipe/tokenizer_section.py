"""The `tokenizer` section of a configuration, shared by rows, builds and `CausalLMTokenizer`.

    tokenizer:
      tokenizer_name: gpt2
      context_length: 4096

`CausalLMTokenizer` and `tokenmill rows` use every option. `tokenmill build --config` converts the
section to a recipe, and ignores options that only affect rows, such as `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.options import OptionError, Problem, Ref, about, convert
from tokenmill.packing.options import MIN_SEQUENCE_LENGTH, REASON, Packing, PackOptions
from tokenmill.run.recipe.checks import load_recipe
from tokenmill.run.recipe.options import Recipe

SECTION = "tokenizer"
LARGEST_CONTEXT = (64 << 20) // 17
"""Batches of rows have at most 64 MiB, and a token of a row takes up to 17 bytes."""

Column = Literal[
    "input_ids", "attention_mask", "labels", "position_ids", "seq_lengths", "cu_seqlens"
]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "attention_mask", "labels")
PACKED_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids", "seq_lengths")
"""No `attention_mask`: with one, transformers models ignore `position_ids`."""


class CausalLMConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of rows and of how they are made."""

    context_length: Annotated[
        Annotated[int, Meta(ge=MIN_SEQUENCE_LENGTH, le=LARGEST_CONTEXT)] | None,
        about(
            "tokens per row, with padding and specials (default: the length of the tokenizer or "
            "of its model)",
            unit="tokens",
            reason=REASON,
        ),
    ] = None
    """Tokens per row, including special tokens and padding. If None, see `with_length`."""
    tokenizer_name: Annotated[
        str | None, about("the tokenizer: a file, a folder, or a name on the Hub")
    ] = None
    """Name or path. Can be omitted if you pass a tokenizer object."""
    text_column: Annotated[
        str | None,
        about("column with the texts (default: text, or the only string column)"),
    ] = None
    overlap: Annotated[
        int, Meta(ge=0, description="tokens that a window repeats from the previous one")
    ] = 0
    """Tokens that a window of a document shares with the previous window."""
    overlap_in_loss: Annotated[bool, about("also give labels to repeated tokens")] = True
    append_eos: Annotated[
        Literal["auto"] | bool, about("end each document with the end-of-document token")
    ] = "auto"
    """With "auto", append the token if the tokenizer has one."""
    packing: Annotated[
        Packing | None,
        about("pack several documents into a row, with this strategy"),
    ] = None
    columns: Annotated[
        tuple[Column, ...] | None,
        about(
            "columns of the rows: input_ids, attention_mask, labels, position_ids, "
            "seq_lengths, cu_seqlens"
        ),
    ] = None
    dtype: Annotated[
        Literal["int64", "int32"],
        about("type of ids, labels and positions; int32 halves the disk space"),
    ] = "int64"
    subword_regularisation: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        about("sample encodings: dropout of a BPE model, or alpha of a Unigram model"),
    ] = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="seed of subword_regularisation")] = 0
    batch_size: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        about("documents encoded at a time (default: chosen by memory and lengths)"),
    ] = None
    """Documents encoded at a time. By default 6000, or fewer if documents are large."""
    num_proc: Annotated[
        Annotated[int, Meta(ge=1, le=32)] | None,
        about("processes of a slow tokenizer (default: half the cores)"),
    ] = None
    """Processes of a slow tokenizer. By default half the cores. 1 uses only this process."""
    cache: Annotated[bool, about("reuse rows of an earlier run")] = True
    """Reuse the rows of an earlier run, and resume a run that was killed."""
    show_progress: Annotated[bool, about("show a progress bar")] = True
    verbose_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], about("level of log messages")
    ] = "INFO"

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        return self.columns or (DEFAULT_COLUMNS if self.packing is None else PACKED_COLUMNS)

    @property
    def row_length(self) -> int:
        """`context_length`, which `with_length` has set."""
        assert self.context_length is not None
        return self.context_length

    @property
    def pack_options(self) -> PackOptions:
        """The packing options. Only if `packing` is set."""
        return PackOptions(**self.pack_section)

    @property
    def pack_section(self) -> dict[str, Any]:
        """The packing options of a plan whose sequences are these rows."""
        section: dict[str, Any] = {"sequence_length": self.context_length}
        if self.packing is not None:
            section["packing"] = self.packing
        if self.overlap:
            section |= {"long_documents": "sliding-window", "overlap": self.overlap}
            section["overlap_in_loss"] = self.overlap_in_loss
        return section


def load_section(path: str | Path) -> dict[str, Any]:
    """Return the unchecked options of the section in a YAML file, ignoring other sections.

    Raises:
        UserError: the file cannot be read, or does not have the section.
    """
    found = load_recipe(path, "the configuration")
    if not isinstance(found.get(SECTION), Mapping):
        raise UserError(
            f"the configuration has no section `{SECTION}` with options",
            where=str(path),
            why=f"it has {', '.join(found) or 'nothing'}",
            hint=f"write the options below `{SECTION}:`, indented",
        )
    return dict(found[SECTION])


def check_section(options: Mapping[str, Any], where: str = "") -> CausalLMConfig:
    """Return a configuration from the options of a section.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    problems: list[Problem] = []
    config = convert(CausalLMConfig, options, "", problems)
    if config is not None:
        problems += _conflicts(config)
    if config is None or problems:
        hint = "docs/guides/hugging-face.md describes every option"
        raise OptionError("the configuration", problems, where=where, hint=hint)
    return config


def with_length(
    config: CausalLMConfig, tokenizer: object, where: str, tell: Callable[[str], None]
) -> CausalLMConfig:
    """Return a configuration with a `context_length`; if it is the tokenizer's own, tell so.

    Raises:
        UserError: no length is known, or another option does not fit this length.
    """
    from tokenmill.encode.tokenizer_file import own_length  # imports NumPy

    if config.context_length is not None:
        return config
    length, source = own_length(tokenizer)
    if not length:
        raise UserError(
            "context_length is missing",
            where=where,
            why="the tokenizer has no model_max_length, nor a config.json that sets a length",
            hint="add context_length: 4096 to the YAML, or --context-length 4096 to tokenmill rows",
        )
    tell(f"context_length {length:,}, from {source}")
    return check_section({**msgspec.structs.asdict(config), "context_length": length}, where)


def recipe_options(
    options: dict[str, Any], where: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Convert the options of a file with a `tokenizer` section to the options of a recipe.

    Other files are returned unchanged. Sections that a recipe does not have, such as `model`, are
    ignored: they belong to other tools. So are options that only affect rows, such as `columns`.
    `tell` is for `with_length`.

    Raises:
        UserError: at least one option is wrong, or a build does not support it.
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
            f"a build does not support {' and '.join(names)}",
            where=where,
            why="a dataset ends each document with an end-of-document token, and never samples",
            hint="use tokenmill rows --config, or tokenmill.text_loader for sampling",
        )
    result = {name: options[name] for name in Recipe.__struct_fields__ if name in options}
    tokenizer = config.tokenizer_name or ""
    if tokenizer and "sequence_length" not in (result.get("pack") or {}):
        config = with_length(config, tokenizer, where, tell)
    sections = {"pack": config.pack_section}
    if config.text_column is not None:
        sections["read"] = {"text_field": config.text_column}
    if config.columns is not None and result.get("export"):
        sections["export"] = {"columns": list(config.columns)}
    for name, section in sections.items():
        own = result.get(name) or {}
        result[name] = {**section, **own} if isinstance(own, Mapping) else own
    result[SECTION] = tokenizer
    return result


def _conflicts(config: CausalLMConfig) -> Iterator[Problem]:
    length = config.context_length
    if length is not None and config.overlap >= length:
        rule = f"got {config.overlap}; must be less than {{}}, which is {length}"
        yield Problem("overlap", rule, Ref("context_length"))
    if config.columns is not None:
        if "input_ids" not in config.columns:
            yield Problem("columns", "input_ids is missing")
        if len(set(config.columns)) < len(config.columns):
            yield Problem("columns", "a name is given twice")
    if config.packing is not None and length is not None and config.overlap < length:
        from tokenmill.packing.strategies import objections  # loads a compiler

        for problem in objections(config.pack_options):
            name = problem.option.removeprefix("pack.")
            yield Problem(name, problem.text, *problem.values)
