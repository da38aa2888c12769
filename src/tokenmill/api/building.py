"""Building a dataset from flat options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tokenmill.api.datasets import Dataset
from tokenmill.api.records import are_names, names_of, written
from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.run import build as _build
from tokenmill.run import build_report as _report
from tokenmill.run.recipe.checks import make_recipe, section_of
from tokenmill.run.recipe.options import Recipe

if TYPE_CHECKING:
    from tokenmill.api.options import BuildArguments
    from tokenmill.export.rows import ExportReport
    from tokenmill.report.estimate import Estimate

Inputs = str | Path | Sequence[str | Path]


@dataclasses.dataclass(frozen=True, slots=True)
class BuildReport(_report.BuildReport):
    """What a build did."""

    opened: Dataset | None = None
    exports: tuple[ExportReport, ...] = ()
    """Rows that the recipe asks for as files, one export a plan."""

    @property
    def dataset(self) -> Dataset:
        """The dataset, opened.

        Raises:
            UserError: it is in a bucket: `tokenmill.open(report.out, cache=...)`.
        """
        if self.opened is None:
            raise _report.in_bucket(self.out)
        return self.opened


def build(
    inputs: Inputs | Iterable[Any],
    tokenizer: str | Path | object,
    out: str | Path,
    *,
    overwrite: bool = False,
    events: _build.BuildEvents | None = None,
    **options: Unpack[BuildArguments],
) -> BuildReport:
    """Build a dataset, or resume one; options are those of the command line, with underscores.

    `inputs` are names of files, folders and the like; or records: a `datasets.Dataset`, a
    `DatasetDict` with one split or with one called "train", or an iterable of dicts or of texts.
    A list of strings holds names.

    `tokenizer` is a name, as on the command line, or an object: of `tokenizers`, of `transformers`,
    or any with `encode(text)`.

    Raises:
        TokenmillError: see `tokenmill.errors`; the same call resumes.
    """
    with _as_recipe(inputs, tokenizer, out, **options) as made:
        if made.export is not msgspec.UNSET:
            from tokenmill.api.exporting import check_export  # loads a compiler

            check_export(made)
        report = _build.build(made, tokenizer=tokenizer, overwrite=overwrite, events=events)
    values: dict[str, Any] = {
        field.name: getattr(report, field.name) for field in dataclasses.fields(report)
    }
    opened = Dataset(report.opened.folder) if report.opened else None
    exports: tuple[ExportReport, ...] = ()
    if made.export is not msgspec.UNSET:
        from tokenmill.api.exporting import export_plans  # loads a compiler

        exports = export_plans(made, report, overwrite=overwrite)
    return BuildReport(**{**values, "opened": opened, "exports": exports})


@contextmanager
def _as_recipe(
    inputs: Inputs | Iterable[Any],
    tokenizer: str | Path | object,
    out: str | Path,
    **options: Unpack[BuildArguments],
) -> Iterator[Recipe]:
    """A recipe for inputs of any kind."""
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
    """Estimate from a sample what `build` would take and give; writes nothing.

    Raises:
        TokenmillError: as for `build`.
    """
    from tokenmill.report.estimate import estimate

    return estimate(recipe(inputs, tokenizer, "(not written)", **options), tokenizer)


def recipe(
    inputs: Inputs,
    tokenizer: str | Path | object,
    out: str | Path,
    **options: Unpack[BuildArguments],
) -> Recipe:
    """A checked recipe from flat options; a tokenizer object is named by its class.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    values: dict[str, Any] = {
        "inputs": names_of(inputs),
        "tokenizer": tokenizer_name(tokenizer),
        "out": str(out),
    }
    for name, value in options.items():
        section = section_of(name)
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    return make_recipe(values)
