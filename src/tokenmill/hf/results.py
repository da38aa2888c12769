"""Where the rows of a dataset are kept, so that an unchanged run finds them again."""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from tokenmill.hf.writing import row_features
from tokenmill.paths import local_path

if TYPE_CHECKING:
    from datasets import Dataset

RULES_VERSION = 2
"""Raised whenever the same dataset and configuration would give other rows."""


def fingerprint(dataset: Dataset, identity: dict[str, Any]) -> str:
    """Of the rows, as `datasets` names every state of a dataset: 16 hexadecimal digits."""
    key = {"dataset": dataset._fingerprint, "rules": RULES_VERSION, **identity}
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode(key, order="sorted"))


def subclass_fingerprint(owner: object, base: type, inherited: Collection[str]) -> str:
    """Of what a subclass adds to `base`: the source of its classes, and its own attributes.

    `inherited` names the attributes of `base`. Random where a source is not known, or an attribute
    cannot be pickled.
    """
    from datasets.fingerprint import Hasher, generate_random_fingerprint

    state = {name: value for name, value in vars(owner).items() if name not in inherited}
    code: list[Any] = [kind for kind in type(owner).__mro__ if kind not in (base, object)]
    code += [value for value in state.values() if isinstance(value, types.FunctionType)]
    try:
        # What can be imported is pickled by its name alone.
        sources = [_source(part) for part in code]
        return str(Hasher.hash((type(owner), sources, state)))
    except Exception:  # whatever the user's objects raise
        return str(generate_random_fingerprint())


def _source(part: Any) -> str:
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        if part.__module__ == "__main__":  # of a console or a notebook: its code is pickled
            return ""
        raise


def result_path(dataset: Dataset, name: str, cache_dir: str | Path | None) -> Path:
    """The file for the rows with the fingerprint `name`.

    As `dataset.map` places it: beside the dataset's own files; for datasets in memory, and where
    caching is disabled, under another name each time in a folder that lives as long as the process.
    """
    from datasets import is_caching_enabled
    from datasets.fingerprint import (
        generate_random_fingerprint,
        get_temporary_cache_files_directory,
    )

    if cache_dir is not None:
        return local_path(cache_dir, "cache_dir") / f"cache-{name}.arrow"
    if is_caching_enabled() and dataset.cache_files:
        return Path(dataset.cache_files[0]["filename"]).parent / f"cache-{name}.arrow"
    unique = f"cache-{generate_random_fingerprint()}.arrow"
    return Path(get_temporary_cache_files_directory()) / unique


def open_result(path: Path, dataset: Dataset, name: str) -> Dataset:
    """The rows as a dataset of the same split, with `name` as its fingerprint."""
    from datasets import Dataset

    info = dataset.info.copy()
    info.features = row_features()
    result = Dataset.from_file(str(path), info=info, split=dataset.split)
    result._fingerprint = name
    return result
