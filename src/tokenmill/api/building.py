"""Building a dataset from flat options."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokenmill.api.datasets import Dataset
from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.run import build as _build
from tokenmill.run import build_report as _report
from tokenmill.run.recipe.checks import make_recipe, section_of
from tokenmill.run.recipe.options import Recipe

if TYPE_CHECKING:
    from tokenmill.api.options import BuildArguments
    from tokenmill.report.estimate import Estimate

Inputs = str | Path | Sequence[str | Path]


@dataclasses.dataclass(frozen=True, slots=True)
class BuildReport(_report.BuildReport):
    """What a build did."""

    opened: Dataset | None = None

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
    inputs: Inputs,
    tokenizer: str | Path | object,
    out: str | Path,
    *,
    overwrite: bool = False,
    events: _build.BuildEvents | None = None,
    **options: Unpack[BuildArguments],
) -> BuildReport:
    """Build a dataset, or resume one; options are those of the command line, with underscores.

    `tokenizer` is a name, as on the command line, or an object: of `tokenizers`, of `transformers`,
    or any with `encode(text)`.

    Raises:
        TokenmillError: see `tokenmill.errors`; the same call resumes.
    """
    made = recipe(inputs, tokenizer, out, **options)
    report = _build.build(made, tokenizer=tokenizer, overwrite=overwrite, events=events)
    values: dict[str, Any] = {
        field.name: getattr(report, field.name) for field in dataclasses.fields(report)
    }
    opened = Dataset(report.opened.folder) if report.opened else None
    return BuildReport(**{**values, "opened": opened})


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
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    values: dict[str, Any] = {
        "inputs": [str(name) for name in names],
        "tokenizer": tokenizer_name(tokenizer),
        "out": str(out),
    }
    for name, value in options.items():
        section = section_of(name)
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    return make_recipe(values)
