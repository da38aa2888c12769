"""Where the rows of a dataset are stored, so that an unchanged run finds them again.

In the cache of `datasets`, or in a folder of the user's that `datasets.load_from_disk` opens:

    out/dataset_dict.json                 of a DatasetDict
    out/train/rows-0123456789abcdef.arrow
    out/train/state.json, dataset_info.json

The name of a file holds the fingerprint of its rows, so a later run knows its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import types
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.paths import local_path
from tokenmill.hf.columns import RowFormat
from tokenmill.hf.encoding import Sampling
from tokenmill.hf.rows import WindowRule
from tokenmill.run.recipe.tokenizer_section import DEFAULT_COLUMNS
from tokenmill.store.exports import INFO_NAME, STATE_NAME, state_of
from tokenmill.store.files import unfinished_beside, write_atomically

if TYPE_CHECKING:
    from datasets import Dataset, Features

RULES_VERSION = 2
"""Increased whenever the same dataset and configuration would give other rows."""
SPLITS = "dataset_dict.json"
DESCRIPTIONS = (STATE_NAME, INFO_NAME)
"""Describe the rows of a split."""


def fingerprint(dataset: Dataset, identity: dict[str, Any]) -> str:
    """The fingerprint of the rows in the format of `datasets`: 16 hexadecimal digits."""
    key = {"dataset": dataset._fingerprint, "rules": RULES_VERSION, **identity}
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode(key, order="sorted"))


def identity_of_rows(
    rule: WindowRule, form: RowFormat, packing: str | None, sampling: Sampling | None
) -> dict[str, Any]:
    """All options that decide how documents become rows; some are absent at their default."""
    windows = dataclasses.asdict(rule)
    optional = {
        "overlap_in_loss": None if windows.pop("overlap_in_loss") else False,
        "columns": None if form.columns == DEFAULT_COLUMNS else form.columns,
        "dtype": None if form.dtype == "int64" else form.dtype,
        "packing": packing,
        "sampling": None if sampling is None else dataclasses.asdict(sampling),
    }
    known = {name: value for name, value in optional.items() if value is not None}
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
    """Where the rows of a call are stored.

    Raises:
        UserError: both `cache_dir` and `out` are given.
    """

    def __init__(
        self, cache_dir: str | Path | None, out: str | Path | None, *, overwrite: bool
    ) -> None:
        if cache_dir is not None and out is not None:
            raise UserError("cache_dir and out cannot be combined", why="rows are stored only once")
        self._cache_dir, self._overwrite = cache_dir, overwrite
        self._out = None if out is None else local_path(out, "out")
        self._splits: list[str] = []

    def refuse_stream(self) -> None:
        """Raise a UserError if rows of an iterable dataset are to be stored in a folder."""
        if self._out is not None:
            hint = "iterate over the rows, or load the dataset without streaming"
            why = "rows of an iterable dataset are made as they are read"
            raise UserError("out cannot be used with an iterable dataset", why=why, hint=hint)

    def path(self, dataset: Dataset, split: str | None, name: str) -> Path:
        """The file for the rows with the fingerprint `name`.

        Without a folder, as `dataset.map` places it: next to the dataset's own files; for datasets
        in memory, and where caching is disabled, under another name each time in a folder that
        lives as long as the process.

        Raises:
            OutputConflictError: the folder holds something else.
        """
        from datasets import is_caching_enabled
        from datasets.fingerprint import (
            generate_random_fingerprint,
            get_temporary_cache_files_directory,
        )

        if self._out is not None:
            return self._path_below(self._out, split, name)
        if self._cache_dir is not None:
            return local_path(self._cache_dir, "cache_dir") / f"cache-{name}.arrow"
        if is_caching_enabled() and dataset.cache_files:
            return Path(dataset.cache_files[0]["filename"]).parent / f"cache-{name}.arrow"
        unique = f"cache-{generate_random_fingerprint()}.arrow"
        return Path(get_temporary_cache_files_directory()) / unique

    def _path_below(self, out: Path, split: str | None, name: str) -> Path:
        folder = out if split is None else out / split
        path = folder / f"rows-{name}.arrow"
        others = [] if self._overwrite else list(_others(folder, path))
        if split is not None:
            self._splits.append(split)
            if (out / STATE_NAME).exists() and not self._overwrite:
                others.append(out / STATE_NAME)
        if others:
            raise OutputConflictError(
                "the folder is not empty",
                where=str(folder),
                why=f"it holds {others[0].name}, which belongs to another dataset or configuration",
                hint="choose another folder, or replace its content with --overwrite (force=True)",
            )
        return path

    def open(self, path: Path, dataset: Dataset, name: str, features: Features) -> Dataset:
        """Open the rows as a dataset of the same split, with `name` as its fingerprint."""
        from datasets import Dataset

        info = dataset.info.copy()
        info.features = features
        result = Dataset.from_file(str(path), info=info, split=dataset.split)
        result._fingerprint = name
        if self._out is not None:
            for other in _others(path.parent, path):
                if other.name.startswith(("rows-", ".rows-")):  # rows that these replace
                    shutil.rmtree(other) if other.is_dir() else other.unlink()
            split = None if dataset.split is None else str(dataset.split)
            described = msgspec.json.encode({"features": features.to_dict()})
            write_atomically(path.parent / INFO_NAME, described)
            write_atomically(path.parent / STATE_NAME, state_of([path.name], name, split))
        return result

    def close(self) -> None:
        """Record that all splits are complete, and remove the rows that they replace."""
        if self._out is None:
            return
        splits = self._out / SPLITS
        if self._overwrite and self._splits:
            _remove_rows(self._out)
        elif self._overwrite and splits.exists():
            listed = _splits_of(splits)
            splits.unlink()
            for folder in [found for found in self._out.iterdir() if found.name in listed]:
                _remove_rows(folder)
        if self._splits:
            write_atomically(splits, msgspec.json.encode({"splits": self._splits}))


def _splits_of(path: Path) -> list[str]:
    """The splits listed in a file; none if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])["splits"]
    except (msgspec.DecodeError, KeyError):
        return []


def _remove_rows(folder: Path) -> None:
    """Remove the rows of a split, and its folder if that is empty afterwards."""
    for rows in folder.glob("rows-*.arrow"):
        rows.unlink()
        for name in DESCRIPTIONS:
            (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _others(folder: Path, path: Path) -> Iterator[Path]:
    """The files in a folder other than the rows in `path` and their description."""
    own = {path, unfinished_beside(path)}
    for found in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_left = found.name.startswith(f".{path.name}.") and found.name.endswith(".tmp")
        if found not in own and found.name not in DESCRIPTIONS and not is_left:
            yield found
