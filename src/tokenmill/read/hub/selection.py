"""Which files of a data set an input means."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from tokenmill.errors import UserError
from tokenmill.read.hub.client import HubClient, HubFile
from tokenmill.read.hub.names import HubName
from tokenmill.read.hub.refusals import MissingEntryError

SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".txt")
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
MAX_SHOWN = 20

_MAGIC = re.compile(r"[*?\[]")
_NUMBERING = re.compile(r"[-_.]?\d[\d_.-]*(?:-of-\d+)?(?:-[0-9a-f]{16})?$")


def choose_files(client: HubClient, name: HubName, commit: str) -> list[HubFile]:
    """The files that a name stands for at a commit, sorted by path.

    A path is a file, a folder or a glob. A data set without a path is taken whole if its Parquet
    files are of one configuration and one split, by the names of folders and files.

    Raises:
        UserError: there is no such file, or it is not clear which ones are meant.
    """
    if not name.path:
        files = _of_kind(client.files_in(name, commit, "", recursive=True), ".parquet")
        return _only_group(name, files)
    if _MAGIC.search(name.path):
        found = client.files_in(name, commit, _fixed_folder(name.path), recursive=True)
        pattern = name.path.split("/")
        return _some(name, [file for file in found if _matches(file.path.split("/"), pattern)])
    try:
        files = client.files_in(name, commit, name.path, recursive=True)
    except MissingEntryError:
        folder = name.path.rpartition("/")[0]
        found = client.files_in(name, commit, folder, recursive=False)
        return _some(name, [file for file in found if file.path == name.path])
    return _of_one_kind(name, files)


def _some(name: HubName, files: list[HubFile]) -> list[HubFile]:
    if not files:
        why = f"no file of the data set is called {name.path!r}"
        hint = f"look at https://huggingface.co/datasets/{name.repo}/tree/{name.revision}"
        raise UserError("an input does not exist", where=str(name), why=why, hint=hint)
    return files


def kind_of(path: str) -> str:
    """The suffix that tells the format of a file's records, "" where it is none of ours."""
    for compression in COMPRESSIONS:
        path = path.removesuffix(compression)
    return next((suffix for suffix in SUFFIXES if path.endswith(suffix)), "")


def _of_kind(files: Sequence[HubFile], kind: str) -> list[HubFile]:
    return [file for file in files if kind_of(file.path) == kind]


def _of_one_kind(name: HubName, files: Sequence[HubFile]) -> list[HubFile]:
    """The files of a folder whose suffixes are known; two kinds may hold the same documents."""
    kinds = sorted({kind_of(file.path) for file in files} - {""})
    if len(kinds) > 1:
        choices = [replace(name, path=f"{name.path}/**/*{kind}") for kind in kinds]
        raise _unclear(name, f"the folder holds {' and '.join(kinds)} files", choices)
    if not kinds:
        why = f"it holds no file that ends in {', '.join(SUFFIXES)}"
        raise UserError("a folder holds no records", where=str(name), why=why)
    return _of_kind(files, kinds[0])


def _only_group(name: HubName, files: Sequence[HubFile]) -> list[HubFile]:
    """All files, where their folders and names tell of one configuration and one split."""
    if not files:
        raise UserError(
            "the data set has no Parquet files",
            where=str(name),
            hint=f"name a folder, file or glob in it, as in {name}/PATH; or take the Hub's own "
            f"conversion: {replace(name, revision='refs/convert/parquet')}",
        )
    groups: dict[tuple[str, str], list[str]] = {}
    for file in files:
        folder, _, last = file.path.rpartition("/")
        stem = _NUMBERING.sub("", last.removesuffix(".parquet"))
        groups.setdefault((folder, stem), []).append(file.path)
    if len(groups) > 1:
        folders = [folder for folder, _ in groups]
        choices = [
            replace(name, path=_path_of(folder, paths, folders))
            for (folder, _), paths in groups.items()
        ]
        raise _unclear(name, f"it has {len(groups)} configurations or splits", choices)
    return list(files)


def _path_of(folder: str, paths: Sequence[str], folders: Sequence[str]) -> str:
    """What names these files and no others: their folder, the one file, or a glob."""
    if folder and sum(f"{other}/".startswith(f"{folder}/") for other in folders) == 1:
        return folder
    if len(paths) == 1:
        return paths[0]
    common = os.path.commonprefix(paths)  # noqa: RUF071 - of characters, not of folders
    return common.rstrip("0123456789") + "*.parquet"


def _unclear(name: HubName, why: str, choices: Sequence[HubName]) -> UserError:
    shown = [str(choice) for choice in choices[:MAX_SHOWN]]
    more = [f"... and {len(choices) - MAX_SHOWN} more"] * (len(choices) > MAX_SHOWN)
    return UserError(
        "it is not clear which files of the data set are meant",
        where=str(name),
        why="\n       ".join([f"{why}:", *shown, *more]),
        hint=f"name one or several of them: tokenmill build '{shown[0]}' ...",
    )


def _fixed_folder(pattern: str) -> str:
    """The folder in which all matches of a glob lie: "a/b" for "a/b/c*/d"."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if _MAGIC.search(part))
    return "/".join(parts[:first])


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """A glob as shells know it: * stays in its folder, ** is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[count:], pattern[1:]) for count in range(len(parts) + 1))
    found = bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0])
    return found and _matches(parts[1:], pattern[1:])
