"""`tokenmill.build` and `tokenmill.estimate`: a dataset from keyword arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tokenmill.api.datasets import Dataset, dataset_card
from tokenmill.api.records import are_names, names_of, written
from tokenmill.core.errors import UserError
from tokenmill.core.options import Overwrite
from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.reports.space import checking_space
from tokenmill.run import pipeline as _pipeline
from tokenmill.run.recipe.checks import by_section, make_recipe, naming_arguments
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.tasks import encode as _encode

if TYPE_CHECKING:
    from tokenmill.api.options import BuildArguments
    from tokenmill.load.export.rows.exporting import ExportReport
    from tokenmill.reports.estimate import Estimate

Inputs = str | Path | Sequence[str | Path]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class BuildReport(_encode.BuildReport):
    """The result of a build: counts, timings, the dataset and its plans."""

    opened: Dataset | None = None
    """The dataset, or None if it is in a bucket."""
    exports: tuple[ExportReport, ...] = ()
    """The exported rows, one entry per plan, if the recipe asks for an export."""

    @property
    def dataset(self) -> Dataset:
        """The dataset that was built, open for reading.

        Raises:
            UserError: the dataset is in a bucket. Open it with
                `tokenmill.open(report.out, cache=...)`.
        """
        if self.opened is None:
            hint = "tokenmill.open(report.out, cache=...)"
            raise UserError("the dataset is in a bucket", where=self.out, hint=hint)
        return self.opened

    def _repr_html_(self) -> str:
        """Return a table and the lengths of up to 65,536 documents, for notebooks."""
        took = f"{self.run.seconds.get('wall', 0.0):,.1f} s with {self.run.engine}"
        return dataset_card("Build", self.manifest, self.out, self.opened, took)


def build(
    inputs: Inputs | Iterable[Any],
    tokenizer: str | Path | object,
    out: str | Path,
    *,
    overwrite: Overwrite = False,
    events: _pipeline.BuildEvents | None = None,
    **options: Unpack[BuildArguments],
) -> BuildReport:
    """Encode a corpus into a dataset. If a build was interrupted, the same call resumes it.

    The options of `tokenmill build` are keyword arguments, with underscores instead of hyphens.

    Args:
        inputs: files, folders, globs or URLs; or records: a `datasets.Dataset`, a `DatasetDict`
            with a single split or one called "train", or an iterable of dicts or texts. A list
            of strings is a list of names, not of texts.
        tokenizer: a path or a Hub name as on the command line; or an object from `tokenizers`,
            from `transformers`, or any object with `encode(text)`.
        out: folder of the dataset, or a bucket prefix such as `s3://bucket/corpus`.
        overwrite: replace an existing dataset once the new one is complete. "first" removes it at
            the start, for want of disk space.
        events: callbacks that report progress.
        options: the options of `tokenmill build`.

    Returns:
        Counts, timings and the dataset, which `report.dataset` opens.

    Raises:
        UserError: an option, an input or the tokenizer cannot be used.
        OutputConflictError: `out` holds something else, or another build is writing to it.
        InputChangedError: an interrupted build cannot resume because its inputs, tokenizer or
            options changed.
        DataError: more records are bad than `max_bad` allows.
        EngineError: the encoding engine failed or differs from the reference tokenizer.
        StorageError: a file could not be read or written.
    """
    with _as_recipe(inputs, tokenizer, out, **options) as made:
        if made.export is not msgspec.UNSET:
            from tokenmill.api.exporting import check_export  # loads a compiler

            check_export(made)
        checked = checking_space(events or _pipeline.BuildEvents(), tokenizer)
        report = _pipeline.build(made, tokenizer=tokenizer, overwrite=overwrite, events=checked)
        assert isinstance(report, _encode.BuildReport)  # only agents depart
    values: dict[str, Any] = {
        field.name: getattr(report, field.name) for field in dataclasses.fields(report)
    }
    opened = Dataset(report.opened.folder) if report.opened else None
    exports: tuple[ExportReport, ...] = ()
    if made.export is not msgspec.UNSET:
        from tokenmill.api.exporting import export_plans  # loads a compiler

        exports = export_plans(made, report, overwrite=bool(overwrite))
    return BuildReport(**{**values, "opened": opened, "exports": exports})


@contextmanager
def _as_recipe(
    inputs: Inputs | Iterable[Any],
    tokenizer: str | Path | object,
    out: str | Path,
    **options: Unpack[BuildArguments],
) -> Iterator[Recipe]:
    """Yield the recipe of a build; records are first written to a temporary file."""
    if are_names(inputs):
        yield recipe(inputs, tokenizer, out, **options)  # type: ignore[arg-type]
        return
    made = recipe("(records)", tokenizer, out, **options)
    fields = None if made.chat.chat is not None else made.read.fields  # its template says which
    limit, cache_dir = made.read.max_documents, made.resources.cache_dir
    with written(inputs, fields, made.out, cache_dir, limit) as names:  # type: ignore[arg-type]
        yield msgspec.structs.replace(made, inputs=names)


def estimate(
    inputs: Inputs, tokenizer: str | Path | object, **options: Unpack[BuildArguments]
) -> Estimate:
    """Estimate tokens, disk space, time and memory of a build from a sample. Writes nothing.

    Options are those of `build`.

    Args:
        inputs: files, folders, globs or URLs, as for `build`.
        tokenizer: as for `build`.
        options: as for `build`.

    Raises:
        UserError: an option, an input or the tokenizer cannot be used.
        DataError: no input can be read.
    """
    from tokenmill.reports.estimate import estimate

    return estimate(recipe(inputs, tokenizer, "(not written)", **options), tokenizer)


def recipe(
    inputs: Inputs,
    tokenizer: str | Path | object,
    out: str | Path,
    **options: Unpack[BuildArguments],
) -> Recipe:
    """Return a checked recipe from the keyword arguments of `build`, without building it.

    Args:
        inputs: as for `build`, but names only.
        tokenizer: as for `build`. The recipe stores the class name of a tokenizer object.
        out: as for `build`.
        options: as for `build`.

    Raises:
        UserError: at least one option is wrong. The message lists all problems.
    """
    values = {
        "inputs": names_of(inputs),
        "tokenizer": tokenizer_name(tokenizer),
        "out": str(out),
        **by_section(options),
    }
    with naming_arguments():
        return make_recipe(values)
