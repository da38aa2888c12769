"""Resolve and check a count before it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tokenmill.core.errors import EngineError
from tokenmill.encode.probe import probe
from tokenmill.encode.split_file import as_tokenizer_file, find_split
from tokenmill.encode.splitters import LIBRARY, word_splitters
from tokenmill.encode.words.splits import Split, with_digits
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import end_idle_parsers
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import commits_of, list_by_input
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, cut_units
from tokenmill.run.commit.identity import InputIdentity, deciding_libraries, versions
from tokenmill.run.machine.resources import Resources
from tokenmill.run.recipe.options import (
    INPUT_GROUPS,
    NOT_FOR_COUNTS,
    CountRecipe,
    read_policies,
)
from tokenmill.run.start.agreement import Start
from tokenmill.run.start.contents import Contents
from tokenmill.run.start.inputs import (
    input_identity,
    ready_sources,
    refuse_output_inside,
    sample_texts,
)


class CountIdentity(msgspec.Struct, kw_only=True):
    """The start of a count. A later attempt must agree with it."""

    commits: dict[str, str] | UnsetType = UNSET
    """The commits of remote data sets with names that can move, such as branches."""
    inputs: list[InputIdentity]
    split: Split
    by: str | None
    groups: list[str]
    min_count: int
    policies: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class CountResolution:
    """A recipe, resolved as far as possible before anything is downloaded."""

    recipe: CountRecipe
    split: Split
    sources: list[Source]
    groups: list[str]
    """The group of each source. Empty if groups do not come from inputs."""

    @property
    def fields(self) -> Fields:
        """The fields to read from each record."""
        return self.recipe.reading.fields

    @property
    def policies(self) -> dict[str, Any]:
        """The options of reading that affect the counts."""
        read = read_policies(self.recipe.read)
        read.setdefault("streaming", False)  # counts have always recorded it
        return {name: value for name, value in read.items() if name not in NOT_FOR_COUNTS}


@dataclass(frozen=True, slots=True)
class CountPreparation(CountResolution):
    """A resolved recipe with sources that are ready to read."""

    splitters: tuple[str, ...]
    """Names of splitters, best first."""
    resources: Resources
    items: list[Unit | Stream]
    sample: list[str]
    """Documents of the inputs, for calibration."""

    @property
    def num_bytes(self) -> int:
        """The size of all inputs on disk, in bytes."""
        return sum(source.num_bytes for source in self.sources)


def resolve_count(
    recipe: CountRecipe, sources: Sequence[Source] | None, access: Access
) -> CountResolution:
    """Find the split, and the sources unless they are given. Downloads and writes nothing.

    Raises:
        UserError: the recipe asks for something impossible.
    """
    split = with_digits(find_split(recipe.split), recipe.digits)
    if sources is None:
        sources, names = list_with_groups(recipe.inputs, recipe.read.format, access)
    else:
        names = [source.name for source in sources]
    refuse_output_inside(sources, recipe.out)
    groups = names if recipe.by == INPUT_GROUPS else []
    return CountResolution(recipe, split, list(sources), groups)


def list_with_groups(
    inputs: Sequence[str], file_format: str, access: Access
) -> tuple[list[Source], list[str]]:
    """Return the sources like `list_sources`, and the group name of each source's input."""
    by_input = list_by_input(inputs, file_format, access)
    labels = group_names(inputs)
    names = [name for name, found in zip(labels, by_input, strict=True) for _ in found]
    return [source for of_input in by_input for source in of_input], names


def group_names(inputs: Sequence[str]) -> list[str]:
    """Return the group name of each input: its last part, such as "web" for "/data/web/".

    Inputs with the same last part get their full names. The last part is the same on every
    machine, even if the folders above it differ.
    """
    short = [name.rstrip("/").rpartition("/")[2] or name for name in inputs]
    return [
        name if short.count(label) > 1 else label for name, label in zip(inputs, short, strict=True)
    ]


def prepare_count(
    resolution: CountResolution, access: Access, resources: Resources, *, in_process: bool
) -> CountPreparation:
    """Download remote inputs, and read the first records of the inputs.

    Raises:
        UserError: the recipe asks for something impossible.
        TokenmillError: a file cannot be fetched.
    """
    recipe, fields = resolution.recipe, resolution.fields
    sources = ready_sources(resolution.sources, fields, recipe.read.format, recipe.out, access)
    sample = sample_texts(sources, fields)
    if why := probe(as_tokenizer_file(resolution.split), sample):
        hint = "remove the document, or use another split"
        raise EngineError("the split fails on a document", why=why, hint=hint)
    if not in_process:
        end_idle_parsers()  # each worker has its own
    return CountPreparation(
        recipe=recipe,
        split=resolution.split,
        sources=sources,
        groups=resolution.groups,
        splitters=word_splitters(resolution.split),
        resources=resources,
        items=list(cut_units(sources, fields, choose_unit_bytes(sources))),
        sample=sample,
    )


def count_identity(resolution: CountResolution) -> CountIdentity:
    """Return the identity that a resumed count must agree with."""
    recipe = resolution.recipe
    return CountIdentity(
        commits=commits_of(resolution.sources) or UNSET,
        inputs=[input_identity(source) for source in resolution.sources],
        split=resolution.split,
        by=recipe.by,
        groups=resolution.groups,
        min_count=recipe.min_count,
        policies=resolution.policies,
        versions=versions(),
    )


def start_of_count(resolution: CountResolution, on_compare: Callable[[Source], None]) -> Start:
    """Return the start of a count, for comparison with the output folder."""
    sources = resolution.sources

    def deciding(splitter: str) -> frozenset[str]:
        compiled = frozenset() if splitter == LIBRARY else frozenset({"numba", "python"})
        return deciding_libraries("huggingface", "", sources) | compiled

    return Start(
        noun="count",
        identity=count_identity(resolution),
        inputs=resolution.recipe.inputs,
        deciding=deciding,
        contents=Contents(sources, resolution.fields, choose_unit_bytes(sources), on_compare),
    )
