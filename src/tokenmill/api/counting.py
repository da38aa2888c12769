"""`tokenmill.count_words`: count words in files or a dataset's sources, or add up counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tokenmill.api.building import Inputs
from tokenmill.api.records import names_of
from tokenmill.core.errors import UserError
from tokenmill.core.options import Overwrite
from tokenmill.encode.split_file import find_split
from tokenmill.encode.words.splits import Digits, with_digits
from tokenmill.run.recipe.checks import by_section, make_count_recipe, naming_arguments
from tokenmill.run.recipe.options import ReadOptions
from tokenmill.run.workspace import Workspace, is_finished
from tokenmill.store.dataset import Dataset
from tokenmill.store.view_manifest import VIEW_NAME

if TYPE_CHECKING:
    from tokenmill.api.options import CountArguments
    from tokenmill.read.source import Source
    from tokenmill.run.pipeline import CountEvents
    from tokenmill.run.tasks.count import CountReport


def count_words(
    inputs: Inputs,
    out: str | Path,
    *,
    split: str | None = None,
    digits: Digits = "keep",
    overwrite: Overwrite = False,
    events: CountEvents | None = None,
    **options: Unpack[CountArguments],
) -> CountReport:
    """Count the words of a corpus into a folder. If interrupted, the same call resumes.

    The options of `tokenmill tokenizer count` are keyword arguments.

    Args:
        inputs: files, folders or URLs as for `build`; or one dataset, to count its sources the way
            it read them; or several folders of counts, to add them up.
        out: folder for the counts.
        split: where words end: the name of a known split such as "gpt2" or "llama3", or a
            tokenizer to take the split from.
        digits: how runs of digits are split.
        overwrite: replace existing counts, as for `build`.
        events: callbacks that report progress.
        options: the options of `tokenmill tokenizer count`, with underscores.

    Raises:
        UserError: an option or an input cannot be used.
        OutputConflictError: `out` holds something else.
        InputChangedError: an interrupted count cannot resume because inputs or options changed.
        DataError: more records are bad than `max_bad` allows.
        StorageError: a file could not be read or written.
    """
    values: dict[str, Any] = {"inputs": names_of(inputs), "out": str(out)}
    values |= {"digits": digits} if split is None else {"digits": digits, "split": split}
    values |= by_section(options)
    with naming_arguments():
        return count_inputs(values, overwrite=overwrite, events=events)


def count_inputs(
    values: dict[str, Any], *, overwrite: Overwrite = False, events: CountEvents | None = None
) -> CountReport:
    """Count words as `count_words` does, from options nested by section.

    Raises:
        TokenmillError: as `count_words`.
    """
    from tokenmill.run.pipeline import count  # loads a compiler
    from tokenmill.store.counts.folder import is_counts_folder

    inputs = values.get("inputs") or []
    counted = [name for name in inputs if is_counts_folder(name)]
    datasets = [
        name
        for name in inputs
        if is_finished(Workspace(Path(name))) or Path(name, VIEW_NAME).is_file()
    ]
    if counted:
        return _merge(values, counted, overwrite)
    sources = None
    if datasets:
        if len(inputs) > 1 or values.get("read"):
            raise UserError(
                "a dataset cannot be combined with other inputs or reading options",
                where=datasets[0],
                why="its sources are counted the way the dataset read them",
                hint="leave those out, or give the source files instead of the dataset",
            )
        sources, read = sources_of_dataset(datasets[0])
        recipe = msgspec.structs.replace(make_count_recipe(values), read=read)
    else:
        recipe = make_count_recipe(values)
    return count(recipe, sources=sources, overwrite=overwrite, events=events)


def sources_of_dataset(folder: str) -> tuple[list[Source], ReadOptions]:
    """The sources that a dataset was built from, without those left out, and how to read them.

    Raises:
        UserError: a source was moved, or its size changed.
        VerificationError: the dataset is damaged.
    """
    from tokenmill.reports.comparison import find_kept_sources, read_options

    dataset = Dataset(folder)
    policies, manifest = dataset.policies.read, dataset.manifest
    limited = policies.max_documents is not None or policies.max_tokens is not None
    read = msgspec.structs.replace(
        read_options(dataset),
        **dict.fromkeys(("id_field", "no_loss", "max_tokens")),
        keep=[],
        validation=0.0,
        max_documents=manifest.totals.documents if limited else None,
    )
    return find_kept_sources(dataset, lambda *_: None), read


def _merge(values: Mapping[str, Any], counted: list[str], overwrite: Overwrite) -> CountReport:
    from tokenmill.run.pipeline import merge

    inputs = values["inputs"]
    if len(counted) < len(inputs):
        other = next(name for name in inputs if name not in counted)
        raise UserError(
            "folders of counts and texts cannot be combined",
            where=f"{counted[0]} holds counts, {other} does not",
            hint="count the texts first, then add up all folders of counts",
        )
    if values.get("by") or values.get("read"):
        what = "counts cannot be regrouped or read again"
        why = "--by and the reading options only apply when words are counted"
        hint = "leave out --by and the reading options"
        raise UserError(what, where=counted[0], why=why, hint=hint)
    if not values.get("out"):
        raise UserError("--out is missing", hint="name the folder for the sum")
    name = values.get("split")
    split = with_digits(find_split(name), values.get("digits", "keep")) if name else None
    return merge(
        inputs,
        values["out"],
        split=split,
        min_count=values.get("min_count", 1),
        overwrite=overwrite,
    )
