"""The command line's verbs as functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenmill.report.estimate import Estimate
from tokenmill.report.estimate import estimate as _estimate
from tokenmill.report.inspect import DocumentView, view_document
from tokenmill.report.verify import Verification, verify
from tokenmill.run.build import BuildEvents, BuildReport
from tokenmill.run.build import build as _build
from tokenmill.run.recipe import Recipe, load_recipe, make_recipe, section_of
from tokenmill.store.dataset import Dataset


def build(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    events: BuildEvents | None = None,
    **options: Any,
) -> BuildReport:
    """Build a dataset, or resume one; options are those of the command line, with underscores.

    Raises:
        TokenmillError: see `tokenmill.errors`; the same call resumes.
    """
    return _build(recipe(inputs, tokenizer, out, **options), overwrite=overwrite, events=events)


def estimate(
    inputs: str | Path | Sequence[str | Path], tokenizer: str | Path, **options: Any
) -> Estimate:
    """What `build` would take and give, from a sample; writes nothing."""
    return _estimate(recipe(inputs, tokenizer, "(not written)", **options))


def recipe(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path,
    out: str | Path,
    **options: Any,
) -> Recipe:
    """A checked recipe from flat options.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    values: dict[str, Any] = {
        "inputs": [str(name) for name in names],
        "tokenizer": str(tokenizer),
        "out": str(out),
    }
    for name, value in options.items():
        section = section_of(name)
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    return make_recipe(values)


def open(folder: str | Path) -> Dataset:
    """A dataset on disk, with the manifest and all sizes checked."""
    return Dataset(folder)


__all__ = [
    "BuildEvents",
    "BuildReport",
    "Dataset",
    "DocumentView",
    "Estimate",
    "Recipe",
    "Verification",
    "build",
    "estimate",
    "load_recipe",
    "make_recipe",
    "open",
    "recipe",
    "verify",
    "view_document",
]
