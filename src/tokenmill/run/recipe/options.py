"""The complete configuration of a build: every option, described once.

The flags of the command line, the keys of a recipe and the keyword arguments of `tokenmill.build`
are the fields below.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenmill.encode.audit_share import AUDIT_SHARE
from tokenmill.encode.encodings import RankEncoding, chosen_encoding
from tokenmill.pack.options import PackOptions
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.rendering.chat.conversations import Chat
from tokenmill.read.rendering.kinds import AnyRendering
from tokenmill.read.rendering.template import TextTemplate
from tokenmill.read.rendering.transform import Transform
from tokenmill.store.exports import ExportSection
from tokenmill.store.policies import Policies, ReadPolicies
from tokenmill.words.digits import Digits

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]

MIN_MEMORY_BYTES = 512_000_000
INPUT_GROUPS = "input"
"""What `by` says if each input is a group."""
NOT_FOR_COUNTS = ("id_field", "keep", "no_loss", "validation", "max_tokens")
"""Options of reading that say nothing about words."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: files, fields, documents."""

    format: Annotated[
        str,
        Meta(
            description="format of all inputs: auto (detects it), "
            f"{', '.join(FORMATS.built_in)}, or one of an installed package"
        ),
    ] = "auto"
    text_field: Annotated[str, Meta(description="name or dotted path of the text")] = "text"
    text_template: Annotated[
        str | None,
        Meta(description=r"text made of several fields, e.g. '{title}\n\n{body}'; {{ is a brace"),
    ] = None
    transform: Annotated[
        str | None,
        Meta(description="function that makes texts of whole records: python:MODULE:NAME"),
    ] = None
    id_field: Annotated[str | None, Meta(description="field to keep as the document's id")] = None
    keep: Annotated[
        list[str],
        Meta(
            description="another field to keep in the documents table; may be repeated; "
            "NAME? if only some records have it"
        ),
    ] = []
    no_loss: Annotated[
        str | None,
        Meta(description="field with [start, stop) character ranges to exclude from the loss"),
    ] = None
    separator: Annotated[
        str | None,
        Meta(description="plain text: string between documents (default: one document per file)"),
    ] = None
    streaming: Annotated[
        bool, Meta(description="read Parquet files of hf:// inputs without downloading them")
    ] = False
    validation: Annotated[
        Share, Meta(description="share of documents for the validation subset, e.g. 0.1%%")
    ] = 0.0
    max_documents: Annotated[
        Positive | None, Meta(description="stop after this many documents")
    ] = None
    max_tokens: Annotated[
        Positive | None, Meta(description="stop before the document that would exceed this")
    ] = None

    @property
    def fields(self) -> Fields:
        """What is taken of each record.

        Raises:
            UserError: the transform cannot be found.
        """
        keep = tuple(name.removesuffix("?") for name in self.keep)
        required = {self.id_field, self.no_loss, *self.keep}
        optional = frozenset(keep) - required
        return Fields(
            self.text_field,
            self.id_field,
            keep,
            None if self.transform else self.no_loss,
            self.separator,
            rendering=self._rendering,
            optional=optional,
        )

    @property
    def _rendering(self) -> AnyRendering | None:
        if self.transform:
            return Transform.named(self.transform, self.text_field, self.no_loss)
        return None if self.text_template is None else TextTemplate(self.text_template)


class EncodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to encode: engine, boundary tokens, special tokens."""

    engine: Annotated[
        str, Meta(description="auto, fastokens, gigatoken, native, memo, reference")
    ] = "auto"
    encoding: Annotated[str, Meta(description="encoding of a tiktoken rank file")] = ""
    pattern: Annotated[
        str | None,
        Meta(description="split pattern of a rank file of no known encoding, as tiktoken reads it"),
    ] = None
    specials_from: Annotated[
        str | None,
        Meta(description="special tokens of such a rank file: a JSON file of ids by content"),
    ] = None
    eos: Annotated[str | None, Meta(description="end-of-document token, or its id")] = None
    pad: Annotated[str | None, Meta(description="padding token for later stages")] = None
    special_tokens: Annotated[
        Literal["text", "control", "error"],
        Meta(
            description="special-token strings in text: read as text, as control tokens, or refused"
        ),
    ] = "text"
    unknown: Annotated[
        Literal["count", "error"], Meta(description="count unknown tokens, or refuse them")
    ] = "count"

    @property
    def rank_encoding(self) -> str | RankEncoding:
        """How a rank file is to be read."""
        return chosen_encoding(self.encoding, self.pattern, self.specials_from)


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Records of conversations: their kind, the chat template, and what has loss."""

    chat: Annotated[
        Chat | None,
        Meta(
            description="records are conversations: messages (role and content), or "
            "prompt-completion"
        ),
    ] = None
    chat_template: Annotated[
        str | None,
        Meta(
            description="chatml, trl (TRL's version of the tokenizer's own), a template of the "
            "tokenizer by its name, or a Jinja file (default: the tokenizer's own)"
        ),
    ] = None
    loss_on: Annotated[
        list[str],
        Meta(
            description="a role whose messages have loss, or last (turn of the assistant), or all; "
            "may be repeated (default: assistant, or the completion)"
        ),
    ] = []
    chat_date: Annotated[
        str | None, Meta(description="YYYY-MM-DD: what a template takes for today")
    ] = None


class LimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be wrong before a build fails, and how closely it is watched.

    A resumed build may change these.
    """

    max_bad: Annotated[
        Share, Meta(description="share of records that may be rejected, e.g. 0.01%%")
    ] = 0.0001
    on_bad_file: Annotated[
        Literal["fail", "quarantine"],
        Meta(description="fail the build because of a damaged file, or leave the file out"),
    ] = "fail"
    audit_share: Annotated[
        Share,
        Meta(
            description="share of documents that the reference encodes, too: one difference fails "
            "the build, e.g. 1%%"
        ),
    ] = AUDIT_SHARE


class ResourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Processes, memory and cache; a resumed build may change them."""

    workers: Annotated[
        Positive | None, Meta(description="worker processes (default: 80%% of the physical cores)")
    ] = None
    memory: Annotated[
        int | None,
        Meta(description="memory limit of all processes, e.g. 2GB (default: 1.5 GB or less)"),
    ] = None
    prefetch: Annotated[NonNegative, Meta(description="units read ahead of the workers")] = 2
    cache_dir: Annotated[
        str | None,
        Meta(
            description="folder for downloaded hf:// files (default: the cache of huggingface_hub)"
        ),
    ] = None
    scratch: Annotated[
        str | None,
        Meta(
            description="folder for files on their way to a bucket (default: the system's folder "
            "for temporary files)"
        ),
    ] = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a build, by section."""

    inputs: Annotated[list[str], Meta(min_length=1)]
    tokenizer: str
    out: str
    read: ReadOptions = ReadOptions()
    chat: ChatOptions = ChatOptions()
    encode: EncodeOptions = EncodeOptions()
    limits: LimitOptions = LimitOptions()
    resources: ResourceOptions = ResourceOptions()
    pack: PackOptions = PackOptions()
    export: ExportSection | UnsetType = UNSET

    @property
    def policies(self) -> Policies:
        """The options that change the content of a dataset; its manifest stores them."""
        read = read_policies(self.read)
        return msgspec.convert({"read": read, "encode": msgspec.to_builtins(self.encode)}, Policies)


def read_policies(read: ReadOptions) -> dict[str, Any]:
    """Options of reading by name; without those that are younger than the first datasets and at
    their defaults, so that older datasets keep their id.
    """
    values: dict[str, Any] = msgspec.to_builtins(read)
    young = {each.name for each in msgspec.structs.fields(ReadPolicies) if each.default is UNSET}
    if read.transform:
        values["transform_sha256"] = Transform.named(read.transform).sha256
    return {name: value for name, value in values.items() if value or name not in young}


def grouped_reading(read: ReadOptions, by: str | None) -> ReadOptions:
    """Options of reading that keep the field whose values are groups, and no other. What has no
    loss is passed over.
    """
    keep = [] if by is None or by == INPUT_GROUPS else [by]
    no_loss = "no_loss" if read.transform else None  # else it may not return any
    return msgspec.structs.replace(read, keep=keep, no_loss=no_loss)


class CountRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that counting words depends on."""

    inputs: Annotated[list[str], Meta(min_length=1)]
    out: str
    split: Annotated[
        str,
        Meta(
            description="how texts are cut into words: gpt2, cl100k, o200k, llama3, qwen2, ..., "
            "or the tokenizer.json of a tokenizer with another split"
        ),
    ]
    digits: Annotated[
        Digits,
        Meta(
            description="numbers: as the split has them, digit by digit, or in threes from the "
            "right, which helps arithmetic"
        ),
    ] = "keep"
    by: Annotated[
        str | None,
        Meta(
            description="count in groups: input (each INPUT), or a field of the records such as "
            "language; NAME? if only some records have it"
        ),
    ] = None
    min_count: Annotated[
        Positive, Meta(description="leave out words that occur less often in their group")
    ] = 1
    read: ReadOptions = ReadOptions()
    limits: LimitOptions = LimitOptions()
    resources: ResourceOptions = ResourceOptions()

    @property
    def reading(self) -> ReadOptions:
        """The options of reading, with the field that groups come from."""
        return grouped_reading(self.read, self.by)
