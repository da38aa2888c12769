"""Selection of the files of a dataset that an input stands for."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from tokenmill.core.errors import UserError
from tokenmill.core.globs import fixed_folder, is_glob, matches
from tokenmill.read.places.hub.client import MissingEntryError, files_in
from tokenmill.read.places.hub.names import HubFile, HubName

RULES = 2
"""Version of the rules below. Listings are cached, so raise it if the rules change."""
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".txt")
FURTHER_SUFFIXES = (".csv", ".tsv", ".wet")
"""Suffixes of files that only count in folders without others; they often are notes."""
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
MAX_SHOWN = 20

_NUMBERING = re.compile(
    r"(?:^[\d_.-]*\d{4,}|[-_.]?\d{4,}|[-_.]?\d+-of-\d+)(?:-[0-9a-f]{16})?\.parquet$"
)
"""The numbering of the parts of one split. Shorter numbers may be versions."""


def choose_files(name: HubName, commit: str) -> list[HubFile]:
    """Return the files that a name stands for at a commit, sorted by path.

    A path is a file, a folder or a glob. Without a path, the Parquet files of the dataset are used
    if their names show only one configuration and one split.

    Raises:
        UserError: no file matches, or the choice is ambiguous.
    """
    if not name.path:
        return _only_group(name, files_in(name, commit, "", recursive=True))
    if is_glob(name.path):
        found = files_in(name, commit, fixed_folder(name.path), recursive=True)
        return _some(name, taken_by(name.path, found))
    try:
        files = files_in(name, commit, name.path, recursive=True)
    except MissingEntryError:
        folder, found = name.path.rpartition("/")[0], []
        with contextlib.suppress(MissingEntryError):  # the folder is only a guess
            found = files_in(name, commit, folder, recursive=False)
        return _some(name, [file for file in found if file.path == name.path])
    return _of_one_kind(name, files)


def _some(name: HubName, files: list[HubFile]) -> list[HubFile]:
    if not files:
        why = f"the dataset has no file or folder {name.path!r}"
        hint = f"see https://huggingface.co/datasets/{name.repo}/tree/{name.revision}"
        raise UserError("an input does not exist", where=str(name), why=why, hint=hint)
    return files


def kind_of(path: str) -> str:
    """Return the suffix of a record format, or "" if the suffix is unknown."""
    for compression in COMPRESSIONS:
        path = path.removesuffix(compression)
    known = (*SUFFIXES, *FURTHER_SUFFIXES)
    return next((suffix for suffix in known if path.endswith(suffix)), "")


def _of_records(files: Sequence[HubFile]) -> list[HubFile]:
    """Return the files with known suffixes."""
    found = [file for file in files if kind_of(file.path)]
    return [file for file in found if kind_of(file.path) in SUFFIXES] or found


def suffix_of(path: str) -> str:
    """Return the suffix with compression: ".json.gz" for "en/c4-train.00000.json.gz"."""
    kind = kind_of(path)
    return path[path.rindex(kind) :] if kind else PurePosixPath(path).suffix


def taken_by(path: str, files: Sequence[HubFile]) -> list[HubFile]:
    """Return the files of a listing that match a glob, are in a folder, or are the path."""
    if is_glob(path):
        pattern = path.split("/")
        return [file for file in files if matches(file.path.split("/"), pattern)]
    below = _of_records([file for file in files if file.path.startswith(f"{path}/")])
    return below or [file for file in files if file.path == path]


def _of_one_kind(name: HubName, files: Sequence[HubFile]) -> list[HubFile]:
    """Return the files of a folder, of one kind only: two kinds may have the same documents."""
    kinds: dict[str, list[HubFile]] = {}
    for file in _of_records(files):
        kinds.setdefault(kind_of(file.path), []).append(file)
    if len(kinds) > 1:
        groups = [kinds[kind] for kind in sorted(kinds)]
        raise _unclear(
            name, f"the folder contains {' and '.join(sorted(kinds))} files", groups, files
        )
    if not kinds:
        why = f"no file in it ends in {', '.join((*SUFFIXES, *FURTHER_SUFFIXES))}"
        raise UserError("a folder contains no files with records", where=str(name), why=why)
    return next(iter(kinds.values()))


def _only_group(name: HubName, files: Sequence[HubFile]) -> list[HubFile]:
    """Return all Parquet files, if their names show one configuration and one split."""
    groups: dict[tuple[str, str], list[HubFile]] = {}
    for file in files:
        if kind_of(file.path) == ".parquet":
            folder, _, last = file.path.rpartition("/")
            groups.setdefault((folder, _NUMBERING.sub("", last)), []).append(file)
    if not groups:
        raise UserError(
            "the dataset has no Parquet files",
            where=str(name),
            hint=f"name a folder, file or glob in it, as in {name}/PATH; or use the Hub's own "
            f"conversion: {replace(name, revision='refs/convert/parquet')}",
        )
    if len(groups) > 1:
        why = f"it has {len(groups)} configurations or splits"
        raise _unclear(name, why, list(groups.values()), files)
    return next(iter(groups.values()))


def _unclear(
    name: HubName, why: str, groups: Sequence[Sequence[HubFile]], files: Sequence[HubFile]
) -> UserError:
    """Return an error with suggestions: names that select one group each."""
    choices = [
        [str(replace(name, path=path)) for path in _paths_of(group, files)]
        for group in groups[:MAX_SHOWN]
    ]
    shown = [" ".join(choice) for choice in choices]
    more = [f"... and {len(groups) - MAX_SHOWN} more"] * (len(groups) > MAX_SHOWN)
    first = " ".join(f"'{one}'" for one in choices[0])
    return UserError(
        "cannot tell which files of the dataset to read",
        where=str(name),
        why="\n       ".join([f"{why}:", *shown, *more]),
        hint=f"name one or more of them, or a folder or glob: tokenmill build {first} ...",
    )


def _paths_of(group: Sequence[HubFile], files: Sequence[HubFile]) -> list[str]:
    """Return paths and globs that together select exactly these files of a listing."""
    wanted = [file.path for file in group]
    for paths in _proposals(wanted) if len(wanted) > 1 else _proposals(wanted)[:1]:
        taken = [file.path for path in paths for file in taken_by(path, files)]
        if sorted(taken) == sorted(wanted):
            return paths
    return [glob.escape(path) for path in wanted]


def _proposals(paths: Sequence[str]) -> list[list[str]]:
    """Return candidates for paths and globs of these files, shortest first."""
    folder = os.path.commonpath([path.rpartition("/")[0] for path in paths])
    below = f"{glob.escape(folder)}/**" if folder else "**"
    common = os.path.commonprefix(paths)  # noqa: RUF071 - of characters, not of folders
    start = glob.escape(common.rstrip("0123456789"))
    suffixes = sorted(set(map(suffix_of, paths)))
    return [
        [folder],
        [f"{start}*{suffix}" for suffix in suffixes],
        [f"{start}[0-9]*{suffix}" for suffix in suffixes],
        [f"{below}/*{suffix}" for suffix in suffixes],
        sorted({re.sub(r"\d", "[0-9]", glob.escape(path)) for path in paths}),
    ]
