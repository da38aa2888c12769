"""Load the dataset that `tokenmill rows` names, from a path or the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenmill.core.errors import DataError, UserError
from tokenmill.core.installed import install_command

FILES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".txt", ".arrow", ".gz", ".zst")
"""Suffixes of names that are not those of datasets on the Hub."""


def load(
    name: str, *, subset: str | None = None, split: str | None = None, revision: str | None = None
) -> Any:
    """Load a `Dataset` if a split is named, else a `DatasetDict`.

    Args:
        name: a folder that `save_to_disk` wrote, a folder of files, a file, or a name on the Hub.
        subset: of a dataset of the Hub: what `load_dataset` calls its configuration.
        split: e.g. "train", or "train[:1%]".
        revision: of a dataset of the Hub.

    Raises:
        UserError: the dataset, the split or the file does not exist.
        DataError: its files cannot be read.
    """
    try:
        import datasets
    except ImportError as error:
        what, hint = "the package datasets is not installed", install_command("hf")
        raise UserError(what, why=str(error), hint=hint) from error

    path = Path(name).expanduser()
    try:
        if any((path / saved).is_file() for saved in ("dataset_dict.json", "state.json")):
            return _chosen(datasets.load_from_disk(str(path)), split, name)
        if path.is_file():  # the suffix says how to read it
            folder, files = str(path.absolute().parent), {"train": path.name}
            return datasets.load_dataset(folder, data_files=files, split=split)
        if not path.exists() and (name.startswith(("/", ".", "~")) or path.suffix in FILES):
            raise UserError("cannot load the dataset", where=name, why="no such file or folder")
        place = str(path) if path.is_dir() else name
        return datasets.load_dataset(place, subset, split=split, revision=revision)
    except datasets.exceptions.DatasetGenerationError as error:
        why = str(error.__cause__ or error)
        raise DataError("cannot read the dataset", where=name, why=why) from error
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, UserError):
            raise
        why = str(error).partition("\n")[0]
        hint = "--dataset takes a file, a folder, or the name of a dataset on the Hub"
        raise UserError("cannot load the dataset", where=name, why=why, hint=hint) from error


def _chosen(dataset: Any, split: str | None, name: str) -> Any:
    """Return a split of a saved dataset.

    Raises:
        UserError: it has none of that name.
    """
    if split is None:
        return dataset
    splits = list(dataset) if isinstance(dataset, dict) else [str(dataset.split)]
    if split not in splits:
        why = f"its splits are {', '.join(splits)}"
        raise UserError(f"the dataset has no split {split!r}", where=name, why=why)
    return dataset[split] if isinstance(dataset, dict) else dataset
