"""The options of an export, its manifest, and the files that `datasets.load_from_disk` needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenmill.core.options import about
from tokenmill.store.manifest import FileEntry
from tokenmill.store.row_format import Labels

EXPORT_NAME = "export.json"
STATE_NAME = "state.json"
INFO_NAME = "dataset_info.json"
Format = Literal["npy", "pt", "parquet", "datasets"]
Column = Literal["input_ids", "labels", "position_ids", "attention_mask"]
IdType = Literal["int32", "uint16"]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids")
"""Default columns, without `attention_mask`: with it, transformers ignores `position_ids`."""
LABELS_LEFT_OUT = "input_ids, but -100 where position_ids is 0 and in padding"
"""What labels are that an export does not store."""


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows an export writes, and how."""

    format: Annotated[
        Format, about("npy: memory maps; pt: torch tensors; parquet; datasets: Arrow")
    ] = "parquet"
    columns: Annotated[
        Annotated[tuple[Column, ...], Meta(min_length=1)] | UnsetType,
        Meta(
            description="of input_ids, labels, position_ids, attention_mask (default: the first "
            "three; pt and parquet omit labels that repeat input_ids)",
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
        int, Meta(ge=1, description="rows per file; fewer if a file would exceed 512 MiB")
    ] = 50_000
    max_sequences: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("stop after this many rows")
    ] = None
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


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `export.json`."""

    format: str = "tokenmill-rows"
    format_version: int = 1
    dataset_id: str
    plan_id: str
    options: ExportOptions
    dtypes: dict[str, str]
    left_out: dict[str, str] | UnsetType = UNSET
    """Columns that are not stored because others say the same, and what they are."""
    pad_id: int
    num_sequences: int
    files: list[FileEntry]
    digest: str = ""


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
