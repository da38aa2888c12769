"""`tokenmill.adopt`: a dataset from token files that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenmill.api.datasets import Dataset
from tokenmill.api.records import names_of
from tokenmill.core.options import Overwrite, make_options
from tokenmill.core.records import Advance
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.run.adopt import adopting as _adopting
from tokenmill.run.recipe.options import EncodeOptions

if TYPE_CHECKING:
    from tokenmill.read.tokens.options import Boundaries


def adopt(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path | object,
    out: str | Path,
    *,
    boundaries: Boundaries = "auto",
    append_eos: bool = False,
    column: str = "input_ids",
    dtype: Literal["auto", "uint8", "uint16", "uint32"] = "auto",
    eos: str | None = None,
    pad: str | None = None,
    encoding: str = "",
    overwrite: Overwrite = False,
    advance: Advance = lambda stage, done, total: None,
) -> Dataset:
    """Make a dataset of token files that another tool wrote, without encoding anything.

    Files whose bytes can be used as they are share them with the dataset, as clones or hard links:
    do not write to them afterwards. If it was interrupted, the same call resumes.

    Args:
        inputs: Megatron's pairs (`.bin` or prefix), `.npy` of OLMo, `.ds` of datatrove, `.bin` of
            nanoGPT, Parquet, Arrow or `datasets.save_to_disk` folders with lists of ids.
        tokenizer: the tokenizer that encoded them: a path, a Hub name or an object.
        out: folder of the dataset.
        boundaries: where documents end: "index" (an index, or the end of a row) or "eos" (after
            each EOS). "auto" is the first of these that a file has.
        append_eos: append an EOS to documents that do not end with one.
        column: column of ids in Parquet and Arrow.
        dtype: of files without a header; "auto" as their tools choose it for the vocabulary.
        eos: the end-of-document token or its id, if the tokenizer does not say.
        pad: the padding token for later stages.
        encoding: the encoding of a tiktoken rank file.
        overwrite: replace an existing dataset once the new one is complete.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        UserError: an option or an input cannot be used.
        OutputConflictError: `out` holds something else.
        InputChangedError: an interrupted call cannot resume, because files or options changed.
        DataError: a file is damaged, an id is not in the vocabulary, or documents have no EOS.
        StorageError: the disk is too small, or fails.
    """
    chosen = {"boundaries": boundaries, "append_eos": append_eos, "column": column, "dtype": dtype}
    report = _adopting.adopt(
        names_of(inputs),
        tokenizer,
        str(out),
        make_options(AdoptOptions, chosen, "the arguments"),
        EncodeOptions(eos=eos, pad=pad, encoding=encoding),
        overwrite=overwrite,
        advance=advance,
    )
    return Dataset(report.dataset.folder)
