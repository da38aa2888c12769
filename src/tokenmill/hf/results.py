"""Where the rows of a dataset are stored, so that an unchanged run finds them again."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.hf.columns import RowFormat
from tokenmill.hf.encoding import Sampling
from tokenmill.hf.rows_folder import RowsFolder
from tokenmill.hf.windows import WindowRule
from tokenmill.run.recipe.tokenizer_section import DEFAULT_COLUMNS

if TYPE_CHECKING:
    from datasets import Dataset, Features

RULES_VERSION = 2
"""Increased whenever the same dataset and configuration would give other rows."""


def fingerprint(dataset: Dataset, identity: dict[str, Any]) -> str:
    """The fingerprint of the rows in the format of `datasets`: 16 hexadecimal digits."""
    key = {"dataset": dataset._fingerprint, "rules": RULES_VERSION, **identity}
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode(key, order="sorted"))


def identity_of_rows(
    rule: WindowRule, form: RowFormat, packing: str | None, sampling: Sampling | None
) -> dict[str, Any]:
    """All options that decide how documents become rows. Newer ones are absent at their default."""
    windows = dataclasses.asdict(rule)
    younger = {
        "overlap_in_loss": None if windows.pop("overlap_in_loss") else False,
        "columns": None if form.columns == DEFAULT_COLUMNS else form.columns,
        "dtype": None if form.dtype == "int64" else form.dtype,
        "packing": packing,
        "sampling": None if sampling is None else dataclasses.asdict(sampling),
    }
    known = {name: value for name, value in younger.items() if value is not None}
    return {"windows": windows, **known}


def subclass_fingerprint(owner: object, base: type, inherited: Collection[str]) -> str:
    """A fingerprint of what a subclass adds to `base`: the source of its classes, its attributes.

    `inherited` names the attributes of `base`. Random where a source is not known, or an attribute
    cannot be pickled.
    """
    from datasets.fingerprint import Hasher, generate_random_fingerprint

    state = {name: value for name, value in vars(owner).items() if name not in inherited}
    code: list[Any] = [kind for kind in type(owner).__mro__ if kind not in (base, object)]
    code += [value for value in state.values() if isinstance(value, types.FunctionType)]
    try:
        # Importable classes are pickled by name only, so their source is added.
        sources = [_source(part) for part in code]
        return str(Hasher.hash((type(owner), sources, state)))
    except Exception:  # user objects can raise anything
        return str(generate_random_fingerprint())


def _source(part: Any) -> str:
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        if part.__module__ == "__main__":  # from a console or a notebook: its code is pickled
            return ""
        raise


class ResultPlace:
    """Where the rows of a call are stored: in the cache of `datasets`, or in the user's folder.

    Raises:
        UserError: both `cache_dir` and `out` are given.
    """

    def __init__(
        self, cache_dir: str | Path | None, out: str | Path | None, *, overwrite: bool
    ) -> None:
        if cache_dir is not None and out is not None:
            raise UserError("cache_dir and out cannot be combined", why="rows are stored only once")
        self._cache_dir = cache_dir
        self._folder = None if out is None else RowsFolder(out, overwrite=overwrite)

    def refuse_stream(self) -> None:
        """Raise a UserError if rows of an iterable dataset are to be stored in a folder."""
        if self._folder is not None:
            hint = "iterate over the rows, or load the dataset without streaming"
            why = "rows of an iterable dataset are made as they are read"
            raise UserError("out cannot be used with an iterable dataset", why=why, hint=hint)

    def close(self) -> None:
        """Record that all splits are complete."""
        if self._folder is not None:
            self._folder.close()

    def path(self, dataset: Dataset, split: str | None, name: str) -> Path:
        """The file for the rows with the fingerprint `name`.

        As `dataset.map` places it: next to the dataset's own files; for datasets in memory, and
        where caching is disabled, under another name each time in a folder that lives as long as
        the process.
        """
        from datasets import is_caching_enabled
        from datasets.fingerprint import (
            generate_random_fingerprint,
            get_temporary_cache_files_directory,
        )

        if self._folder is not None:
            return self._folder.path(split, name)
        if self._cache_dir is not None:
            return local_path(self._cache_dir, "cache_dir") / f"cache-{name}.arrow"
        if is_caching_enabled() and dataset.cache_files:
            return Path(dataset.cache_files[0]["filename"]).parent / f"cache-{name}.arrow"
        unique = f"cache-{generate_random_fingerprint()}.arrow"
        return Path(get_temporary_cache_files_directory()) / unique

    def open(self, path: Path, dataset: Dataset, name: str, features: Features) -> Dataset:
        """Open the rows as a dataset of the same split, with `name` as its fingerprint."""
        from datasets import Dataset

        info = dataset.info.copy()
        info.features = features
        result = Dataset.from_file(str(path), info=info, split=dataset.split)
        result._fingerprint = name
        if self._folder is not None:
            split = None if dataset.split is None else str(dataset.split)
            self._folder.finish(path, name, features, split)
        return result
