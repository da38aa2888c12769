"""All options of a build, each described once.

The fields below define the flags of the command line, the keys of a recipe, and the keyword
arguments of `tokenmill.build`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenmill.core.options import about
from tokenmill.encode.encodings import RankEncoding, chosen_encoding
from tokenmill.encode.words.splits import SPLITS, SPLITS_BY_MODEL, Digits
from tokenmill.packing.options import PackOptions
from tokenmill.read.fields import MAX_RECORD_BYTES, AnyRendering, Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.per_input import PerInput
from tokenmill.read.rendering.chat.conversations import Chat
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.read.rendering.transform import Transform
from tokenmill.read.source import AUTO, Source
from tokenmill.read.sources import format_names
from tokenmill.store.exports import ExportSection
from tokenmill.store.policies import Policies, ReadPolicies

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]

Inputs = Annotated[
    list[str],
    Meta(
        min_length=1,
        description="files, folders, globs, or URLs with s3:// gs:// az:// https:// or hf://",
        examples=["data/*.jsonl"],
        extra={"positional": "INPUT"},
    ),
]
CountInputs = Annotated[
    list[str],
    Meta(
        min_length=1,
        description="files, folders, globs, hf:// URLs; a dataset, for its sources; or folders of "
        "counts",
        extra={"positional": "INPUT"},
    ),
]
TokenizerName = Annotated[
    str,
    about(
        "tokenizer.json, its folder, .tiktoken, .model, Hub name, or python:MODULE:NAME",
        example="tokenizer.json",
        metavar="TOKENIZER",
    ),
]
Out = Annotated[
    str,
    about("folder for the dataset, or s3://BUCKET/PREFIX", example="corpus/", metavar="DIR"),
]
CountOut = Annotated[str, about("folder for the counts", metavar="DIR")]
EncodingName = Annotated[str, about("encoding of a tiktoken rank file: cl100k_base, llama3, ...")]
SplitPattern = Annotated[
    str | None, about("split pattern of a rank file with an unknown encoding", metavar="REGEX")
]
SpecialsFile = Annotated[
    str | None,
    about("special tokens of such a rank file: a JSON file with ids by content", metavar="FILE"),
]
DigitRule = Annotated[
    Digits,
    about(
        "numbers: leave them to the split, cut them into single digits, or into groups of three "
        "from the right, which helps arithmetic"
    ),
]

MIN_MEMORY_BYTES = 512_000_000
INPUT_GROUPS = "input"
"""The value of `by` that makes each input a group."""
NOT_FOR_COUNTS = ("id_field", "keep", "no_loss", "validation", "max_tokens")
"""Reading options that do not apply to word counts."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of reading: files, fields and documents."""

    format: Annotated[
        list[str] | str,
        about(
            f"auto (detects it), {', '.join(FORMATS.built_in)}, or that of a package; "
            "GLOB=NAME for some inputs",
            metavar="NAME",
            names=format_names,
        ),
    ] = AUTO
    text_field: Annotated[
        list[str] | str,
        about(
            "name or dotted path of the text, or GLOB=NAME for some inputs; may be repeated",
            metavar="NAME",
        ),
    ] = "text"
    text_template: Annotated[
        str | None,
        about(r"text built from fields, e.g. '{title}\n\n{body}'; {{ is a brace", unit="escaped"),
    ] = None
    transform: Annotated[
        str | None,
        about("function that turns whole records into texts: python:MODULE:NAME"),
    ] = None
    id_field: Annotated[str | None, about("field to keep as the document's id")] = None
    keep: Annotated[
        list[str],
        about(
            "another field to keep in the documents table; may be repeated; "
            "NAME? if only some records have it"
        ),
    ] = []
    no_loss: Annotated[
        str | None,
        about("field with [start, stop) character ranges to exclude from the loss"),
    ] = None
    separator: Annotated[
        str | None,
        about(
            r"plain text: string between documents, e.g. '\n---\n' "
            "(default: one document per file)",
            unit="escaped",
        ),
    ] = None
    max_record: Annotated[
        Annotated[int, Meta(ge=1024)] | None,
        about(
            "longest record, e.g. 200MiB; a longer one is rejected, except in tables "
            "(default: 64 MiB)",
            unit="bytes",
        ),
    ] = None
    streaming: Annotated[
        bool, about("read Parquet files of hf:// inputs without downloading them")
    ] = False
    validation: Annotated[
        Share, about("share of documents for the validation subset, e.g. 0.1%")
    ] = 0.0
    max_documents: Annotated[Positive | None, about("stop after this many documents")] = None
    max_tokens: Annotated[
        Positive | None, about("stop before the document that exceeds this many tokens")
    ] = None

    def __post_init__(self) -> None:
        for name in ("format", "text_field"):  # datasets have always stored a single one as a text
            choice = getattr(self, name)
            if not isinstance(choice, str) and len(choice) == 1 and "=" not in choice[0]:
                msgspec.structs.force_setattr(self, name, choice[0])

    @property
    def per_input(self) -> PerInput:
        """The formats and text fields, which can differ between inputs."""
        return PerInput(self.format, self.text_field)

    @property
    def text(self) -> str:
        """The text field of inputs that match no pattern."""
        return self.per_input.text

    @property
    def fields(self) -> Fields:
        """The fields to read from each record.

        Raises:
            UserError: the transform cannot be found.
        """
        keep = tuple(name.removesuffix("?") for name in self.keep)
        required = {self.id_field, self.no_loss, *self.keep}
        optional = frozenset(keep) - required
        return Fields(
            self.text,
            self.id_field,
            keep,
            None if self.transform else self.no_loss,
            self.separator,
            rendering=self._rendering,
            optional=optional,
            max_record=self.max_record or MAX_RECORD_BYTES,
        )

    @property
    def _rendering(self) -> AnyRendering | None:
        if self.transform:
            return Transform.named(self.transform, self.text, self.no_loss)
        return None if self.text_template is None else TextTemplate(self.text_template)


class EncodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of encoding: engine, boundary tokens and special tokens."""

    engine: Annotated[str, about("auto, fastokens, native, memo, reference")] = "auto"
    encoding: EncodingName = ""
    pattern: SplitPattern = None
    specials_from: SpecialsFile = None
    eos: Annotated[str | None, about("end-of-document token, or its id")] = None
    pad: Annotated[str | None, about("padding token for later stages")] = None
    special_tokens: Annotated[
        Literal["text", "control", "error"],
        about(
            "special-token strings in the text: encode them as text or as control tokens, or fail"
        ),
    ] = "text"
    unknown: Annotated[Literal["count", "error"], about("count unknown tokens, or fail")] = "count"

    @property
    def rank_encoding(self) -> str | RankEncoding:
        """The encoding of a rank file: a name, or its parts."""
        return chosen_encoding(self.encoding, self.pattern, self.specials_from)


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of conversations: their form, the chat template, and the tokens with loss."""

    chat: Annotated[
        Chat | None,
        about("records are conversations: messages (role and content), or prompt-completion"),
    ] = None
    chat_template: Annotated[
        str | None,
        about(
            "chatml, trl (TRL's training version of the tokenizer's template), the "
            "name of a template of the tokenizer, or a Jinja file (default: the tokenizer's "
            "template)"
        ),
    ] = None
    loss_on: Annotated[
        list[str],
        about(
            "role with loss on its messages, or last (the last assistant turn), or "
            "all; may be repeated (default: assistant, or the completion)"
        ),
    ] = []
    chat_date: Annotated[
        str | None, about("date that the template uses as today, as YYYY-MM-DD")
    ] = None


class LimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on bad input, and the share of audited documents.

    You can change these when you resume a build.
    """

    max_bad: Annotated[Share, about("share of records that may be rejected, e.g. 0.01%")] = 0.0001
    on_bad_file: Annotated[
        Literal["fail", "quarantine"],
        about("what to do about a damaged file: fail the build, or leave the file out"),
    ] = "fail"
    audit_share: Annotated[
        Share | None,
        about(
            "share of documents to encode with the reference as well, e.g. 1%; a "
            "difference fails the build (default: 0.05%, of small inputs more)"
        ),
    ] = None


class ResourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of processes, memory, folders and metrics.

    You can change these when you resume a build.
    """

    workers: Annotated[
        Positive | None, about("worker processes (default: 80% of the physical cores)")
    ] = None
    memory: Annotated[
        int | None,
        about("memory limit of all processes, e.g. 2GB (default: 1.5 GB or less)", unit="bytes"),
    ] = None
    prefetch: Annotated[NonNegative, about("units read ahead of the workers")] = 2
    cache_dir: Annotated[
        str | None,
        about("folder for downloaded hf:// files (default: the cache of huggingface_hub)"),
    ] = None
    scratch: Annotated[
        str | None,
        about(
            "folder for files before they are uploaded to a bucket (default: the "
            "system's temporary folder)"
        ),
    ] = None
    metrics: Annotated[
        str | None,
        about("file of metrics for Prometheus, such as corpus.prom", metavar="FILE"),
    ] = None
    patience: Annotated[
        Annotated[float, Meta(ge=1, le=3600)] | None,
        about(
            "seconds after which others take over the work of a silent agent (default: 6 to 60, "
            "more for more input); more on slow file systems",
            metavar="SECONDS",
        ),
    ] = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a build, by section."""

    inputs: Inputs
    tokenizer: TokenizerName
    out: Out
    read: ReadOptions = ReadOptions()
    chat: ChatOptions = ChatOptions()
    encode: EncodeOptions = EncodeOptions()
    limits: LimitOptions = LimitOptions()
    resources: ResourceOptions = ResourceOptions()
    pack: PackOptions = PackOptions()
    export: ExportSection | UnsetType = UNSET

    @property
    def policies(self) -> Policies:
        """The options that affect the content of a dataset. Its manifest stores them."""
        read = read_policies(self.read)
        return msgspec.convert({"read": read, "encode": msgspec.to_builtins(self.encode)}, Policies)


def read_policies(read: ReadOptions) -> dict[str, Any]:
    """Return the options of reading by name.

    Options that the first version did not have are left out at their defaults, so that older
    datasets keep their id.
    """
    values: dict[str, Any] = msgspec.to_builtins(read)
    young = {each.name for each in msgspec.structs.fields(ReadPolicies) if each.default is UNSET}
    if read.transform:
        values["transform_sha256"] = Transform.named(read.transform).sha256
    return {name: value for name, value in values.items() if value or name not in young}


def grouped_reading(read: ReadOptions, by: str | None) -> ReadOptions:
    """Return options of reading that keep only the field with the groups.

    Ranges without loss are ignored.
    """
    keep = [] if by is None or by == INPUT_GROUPS else [by]
    no_loss = "no_loss" if read.transform else None  # otherwise a transform must not return ranges
    return msgspec.structs.replace(read, keep=keep, no_loss=no_loss)


class CountRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a count, by section."""

    inputs: CountInputs
    out: CountOut
    split: Annotated[
        str,
        about(
            "how texts are split into words, by name or like a tokenizer.json. For "
            f"{SPLITS_BY_MODEL}",
            known=SPLITS,
        ),
    ]
    digits: DigitRule = "keep"
    by: Annotated[
        str | None,
        about(
            "count in groups: input (each INPUT), or a field of the records such as "
            "language; NAME? if only some records have it"
        ),
    ] = None
    min_count: Annotated[
        Positive, about("leave out words that occur less often in their group")
    ] = 1
    read: ReadOptions = ReadOptions()
    limits: LimitOptions = LimitOptions()
    resources: ResourceOptions = ResourceOptions()

    @property
    def reading(self) -> ReadOptions:
        """The options of reading, with the field of the groups."""
        return grouped_reading(self.read, self.by)


class MeasureRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The texts and the options of a measurement."""

    sources: Sequence[Source]
    """Files that are ready to read."""
    fields: Fields
    words: str
    """The rule that cuts texts into words."""
    sequence_lengths: tuple[int, ...]
    groups: tuple[str, ...] = ()
    """The group of each source. Empty if groups do not come from sources."""
    column: str = ""
    """The kept column with the groups. "" if groups do not come from the documents."""
    resources: ResourceOptions = ResourceOptions()
    out: str = ""
    """The folder of working files."""
    inputs: list[str] = []
    read: ReadOptions = ReadOptions()
    limits: LimitOptions = LimitOptions()
