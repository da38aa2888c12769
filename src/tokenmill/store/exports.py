"""The options of exports and their manifests, and the files that `datasets.load_from_disk` needs.

An export writes either rows of a plan or whole documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenmill.core.options import Problem, Ref, about
from tokenmill.store.canonical import read_sealed
from tokenmill.store.manifest import FileEntry
from tokenmill.store.row_format import Labels

EXPORT_NAME = "export.json"
STATE_NAME = "state.json"
INFO_NAME = "dataset_info.json"
Format = Literal["npy", "pt", "parquet", "datasets", "mds"]
"""Formats of rows."""
DocumentFormat = Literal["megatron", "nanogpt"]
"""Formats of documents."""
Layout = Literal["documents", "trl", "llama-factory", "bridge"]
Order = Literal["plan", "corpus", "shuffled"]
DocumentOrder = Literal["corpus", "shuffled"]
Column = Literal["input_ids", "labels", "position_ids", "attention_mask"]
IdType = Literal["int32", "uint16"]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids")
"""Default columns, without `attention_mask`: with it, transformers ignores `position_ids`."""
LAYOUT_FORMATS: dict[Layout, tuple[Format, ...]] = {
    "documents": ("datasets", "parquet"),
    "trl": ("datasets", "parquet"),
    "llama-factory": ("datasets",),
    "bridge": ("parquet",),
}
"""The formats of each layout, its default first."""
LABELS_LEFT_OUT = "input_ids, but -100 where position_ids is 0 and in padding"
"""What labels are that an export does not store."""


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows an export writes, and how."""

    format: Annotated[
        Format | UnsetType,
        about(
            "npy: memory maps; pt: torch tensors; parquet; datasets: Arrow; mds: MosaicML "
            "(default: parquet, or what the layout needs)"
        ),
    ] = UNSET
    """Unset means the default; the manifest has the format."""
    layout: Annotated[
        Layout | UnsetType,
        about(
            "rows as a fine-tuning tool reads them: documents (axolotl), trl, llama-factory, "
            "or bridge (Megatron Bridge)"
        ),
    ] = UNSET
    """Unset means rows of equal length with `columns`."""
    columns: Annotated[
        Annotated[tuple[Column, ...], Meta(min_length=1)] | UnsetType,
        Meta(
            description="of input_ids, labels, position_ids, attention_mask (default: the first "
            "three, mds: input_ids; pt, parquet: no labels that repeat input_ids)",
            examples=["input_ids", "position_ids"],
        ),
    ] = UNSET
    """Unset means the default; the manifest lists the columns."""
    with_labels: Annotated[
        bool | UnsetType,
        about("also write the labels that pt and parquet omit"),
    ] = UNSET
    labels: Labels = "aligned"
    sequences_per_file: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        about("rows per file (default: 50,000, or fewer to keep files under 512 MiB, mds: 64 MiB)"),
    ] = UNSET
    """Unset means the default; the manifest has the number."""
    max_sequences: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("stop after this many rows")
    ] = None
    order: Annotated[
        Order | UnsetType,
        about("shuffled (default), plan, or corpus: by the first document of each row"),
    ] = UNSET
    """Unset means shuffled."""
    seed: Annotated[int, Meta(ge=0, description="seed of the row order")] = 0
    order_by: Annotated[
        str | None,
        about("sort rows in bands: by length, depth or a column of documents"),
    ] = None
    bands: Annotated[
        int, Meta(ge=1, description="number of bands of --order-by; each is shuffled")
    ] = 100
    dtype: Annotated[
        IdType | UnsetType,
        about(
            "dtype of input_ids (default: int32; pt and parquet: uint16 if all ids "
            "are below 65,536)"
        ),
    ] = UNSET
    """dtype of input_ids; unset means int32 in a manifest."""


class ExportSection(ExportOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write the rows of the plan as files: the options of tokenmill export."""

    out: Annotated[str, Meta(min_length=1, description="folder of the rows", examples=["rows/"])]

    @property
    def options(self) -> ExportOptions:
        """The options without the folder."""
        names = ExportOptions.__struct_fields__
        return ExportOptions(**{name: getattr(self, name) for name in names})


def layout_problems(options: ExportOptions, section: str = "") -> Iterator[Problem]:
    """What contradicts the layout; `section` precedes the names of options, such as "export."."""
    if options.layout is UNSET:
        return
    layout = Ref(f"{section}layout")
    given = {
        "columns": options.columns is not UNSET,
        "with_labels": options.with_labels,
        "labels": options.labels == "next",
        "dtype": options.dtype is not UNSET,
    }
    for name in (name for name, is_given in given.items() if is_given):
        rule = "next cannot" if name == "labels" else "cannot"
        rule += " be combined with {} {}"
        yield Problem(f"{section}{name}", rule, layout, options.layout)
    formats = LAYOUT_FORMATS[options.layout]
    if options.format and options.format not in formats:
        rule = "got {}; {} {} is written as {}"
        names = " or ".join(formats)
        yield Problem(f"{section}format", rule, options.format, layout, options.layout, names)


class DocumentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an export writes documents."""

    format: Annotated[
        DocumentFormat,
        about("megatron: .bin and .idx pairs; nanogpt: train.bin and val.bin"),
    ] = "megatron"
    order: Annotated[DocumentOrder, about("order of documents: corpus or shuffled")] = "corpus"
    seed: Annotated[int, Meta(ge=0, description="seed of the shuffled order")] = 0
    file_size: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        about("least size of a .bin file, e.g. 20GB (default: 10GB)", unit="bytes"),
    ] = UNSET
    index_only: Annotated[
        bool, about("write .idx files over the token files of the dataset, and copy no token")
    ] = False


MDS_NAMES = {"input_ids": "tokens"}
"""Names of columns that are others in MDS: llm-foundry's dataset reads `tokens`."""


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `export.json`."""

    format: str = "tokenmill-rows"
    format_version: int = 1
    dataset_id: str
    dataset_place: str | UnsetType = UNSET
    """Folder of the dataset, relative to that of the rows; unset if it is in a bucket."""
    plan_id: str
    plan_place: str | UnsetType = UNSET
    """Folder of the plan, like `dataset_place`."""
    options: ExportOptions
    dtypes: dict[str, str]
    left_out: dict[str, str] | UnsetType = UNSET
    """Columns that are not stored because others say the same, and what they are."""
    pad_id: int
    num_sequences: int
    num_rows: int | UnsetType = UNSET
    """Rows in the files, if a sequence becomes several."""
    files: list[FileEntry]
    digest: str = ""

    @property
    def stored_dtypes(self) -> dict[str, str]:
        """The dtypes by the names that columns have in the files."""
        names = MDS_NAMES if self.options.format == "mds" else {}
        return {names.get(name, name): dtype for name, dtype in self.dtypes.items()}


class DocumentFile(msgspec.Struct, frozen=True, kw_only=True):
    """One token file of an export of documents."""

    name: str
    """Without extension."""
    subset: str
    documents: int
    tokens: int


class DocumentsManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `export.json` of an export of documents."""

    format: str = "tokenmill-documents"
    format_version: int = 1
    dataset_id: str
    dataset_place: str | UnsetType = UNSET
    """Folder of the dataset, relative to that of the files; unset if it is in a bucket."""
    options: DocumentOptions
    dtype: str
    eos_id: int
    """The token that ends each document."""
    parts: list[DocumentFile] = []
    arguments: dict[str, str] = {}
    """What to give to trainers, by their names."""
    links: dict[str, str] = {}
    """Links to token files of the dataset, by name; only with `index_only`."""
    files: list[FileEntry] = []
    digest: str = ""

    @property
    def num_documents(self) -> int:
        """Documents in all files."""
        return sum(part.documents for part in self.parts)


AnyManifest = ExportManifest | DocumentsManifest


def read_export(folder: Path) -> AnyManifest:
    """Read the manifest of an export.

    Raises:
        UserError: it has another version of the format.
        VerificationError: it is missing or damaged.
    """
    path = folder / EXPORT_NAME
    if path.is_file():
        with path.open("rb") as file:
            if b'"tokenmill-documents"' in file.read(64):
                return read_sealed(path, DocumentsManifest)
    return read_sealed(path, ExportManifest)


def state_of(names: Sequence[str], fingerprint: str, split: str | None = None) -> bytes:
    """Return the content of `state.json` for the Arrow files `names`, in that order."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    return msgspec.json.encode(state)
