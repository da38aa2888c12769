"""A folder of word counts: `counts.json`, and three arrays for each group.

counts.json             what was counted, how, and the digests of all files; written last
00000.words.npy         uint8: the concatenated words of the first group
00000.offsets.npy       int64: the start of each word, and the end of the last one
00000.counts.npy        int64: occurrences of each word
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.core.paths import local_path
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.store.arrays import ArrayFile, open_listed
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.counts.merging import LeftOut, Merge, merged
from tokenmill.store.counts.runs import check_words
from tokenmill.store.digests import file_digest
from tokenmill.store.files import remove_folder, storage_errors
from tokenmill.store.manifest import Count, Counts, FileEntry, SourceEntry

COUNTS_NAME = "counts.json"
COUNTS_FORMAT = "tokenmill-counts"
COUNTS_VERSION = 1
LARGEST_GROUP = 100
"""The smallest weight of `sampling_weights`; all are scaled to it and then rounded."""
_ARRAYS = {"words": "|u1", "offsets": "<i8", "counts": "<i8"}


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One group of counts: a source, a language, or "" for everything."""

    name: str
    words: Count
    occurrences: Count
    bytes: Count
    """Bytes of all occurrences of all words."""
    left_out: LeftOut
    files: list[FileEntry]


class CountsManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of counts.json."""

    format: str = COUNTS_FORMAT
    format_version: int = COUNTS_VERSION
    counts_id: str = ""
    """Digest of the split and the groups, without the sources, in 32 hexadecimal digits."""
    split: Split
    by: str = ""
    """What words are grouped by: "", "input", or the name of a column."""
    min_count: Count = 1
    """Rarer words were omitted."""
    policies: dict[str, Any] = {}
    """The options for reading the sources."""
    totals: Counts = msgspec.field(default_factory=Counts)
    sources: list[SourceEntry] = []
    groups: list[GroupEntry] = []
    digest: str = ""


def write_counts(
    folder: Path,
    description: CountsManifest,
    groups: Mapping[str, Sequence[WordCounts]],
    left_out: Mapping[str, LeftOut] | None = None,
) -> CountsManifest:
    """Merge the runs of each group into a folder, in bounded memory.

    `description` is the manifest without groups. `left_out` are rare words that were already
    removed from the runs.

    Raises:
        StorageError: the file system fails.
    """
    with storage_errors("write the counts", folder):
        folder.mkdir(parents=True, exist_ok=True)
    entries = [
        _write_group(
            folder / f"{number:05d}",
            name,
            Merge(groups[name], min_count=description.min_count),
            (left_out or {}).get(name, LeftOut()),
        )
        for number, name in enumerate(sorted(groups))
    ]
    identity = [_behaviour(description.split), description.min_count]
    identity += [[group.name, [file.xxh3_128 for file in group.files]] for group in entries]
    counts_id = xxhash.xxh3_128_hexdigest(canonical_json(identity))
    manifest = msgspec.structs.replace(description, counts_id=counts_id, groups=entries)
    return write_sealed(folder / COUNTS_NAME, manifest)


def _write_group(stem: Path, name: str, merge: Merge, left_out: LeftOut) -> GroupEntry:
    """Write the arrays of one group: `stem`.words.npy and so on."""
    paths = {part: stem.with_name(f"{stem.name}.{part}.npy") for part in _ARRAYS}
    num_bytes = occurrences = 0
    with storage_errors("write the counts", stem.parent):
        files = {part: ArrayFile(path, _ARRAYS[part]) for part, path in paths.items()}
        try:
            files["offsets"].append(np.zeros(1, np.int64))
            for part in merge.parts():
                files["offsets"].append(part.offsets[1:] + files["words"].length)
                files["words"].append(part.data)
                files["counts"].append(part.counts)
                num_bytes += part.num_bytes
                occurrences += part.num_occurrences
            written = [file.finish() for file in files.values()]
        finally:
            for file in files.values():
                file.close()
    return GroupEntry(
        name=name,
        words=files["counts"].length,
        occurrences=occurrences,
        bytes=num_bytes,
        left_out=merge.left_out + left_out,
        files=written,
    )


class CountsFolder:
    """An opened folder of counts; the words of its groups are memory maps.

    Opening reads all files once, to check their digests and what compiled code relies on.
    """

    def __init__(self, folder: str | Path) -> None:
        """Open a folder; raises a UserError if it has no counts, VerificationError if damaged."""
        self.folder = local_path(folder, "word counts")
        path = self.folder / COUNTS_NAME
        if not path.is_file():
            hint = "create them with tokenmill tokenizer count"
            raise UserError(
                "cannot find word counts",
                where=str(folder),
                why=f"it has no {COUNTS_NAME}",
                hint=hint,
            )
        self.manifest = read_sealed(path, CountsManifest)
        self.split = self.manifest.split
        self.groups = {group.name: self._open(group, i) for i, group in enumerate(self._entries())}
        """The words of each group, by name."""

    @property
    def counts_id(self) -> str:
        """The digest of the split and the groups."""
        return self.manifest.counts_id

    @property
    def left_out(self) -> LeftOut:
        """Rare words that were omitted, over all groups."""
        return sum((group.left_out for group in self.manifest.groups), LeftOut())

    def total(self, weights: Mapping[str, int] | None = None) -> WordCounts:
        """Add up all groups, each multiplied by its weight; groups with weight 0 are omitted.

        Raises:
            UserError: a weight names an unknown group or is negative.
        """
        weights = dict.fromkeys(self.groups, 1) if weights is None else dict(weights)
        if problem := _weights_problem(weights, self.groups):
            raise UserError(problem, where=str(self.folder))
        used = [(words, weights.get(name, 1)) for name, words in self.groups.items()]
        used = [(words, weight) for words, weight in used if weight]
        if [weight for _, weight in used] == [1]:
            return used[0][0]
        return merged([words for words, _ in used], [weight for _, weight in used])

    def _entries(self) -> Iterable[GroupEntry]:
        names = [group.name for group in self.manifest.groups]
        if names != sorted(set(names)):
            raise self._damaged(self.folder / COUNTS_NAME, "its groups are not in order")
        return self.manifest.groups

    def _open(self, group: GroupEntry, number: int) -> WordCounts:
        lengths = {
            "words": max((file.bytes for file in group.files[:1]), default=0) - 128,
            "offsets": group.words + 1,
            "counts": group.words,
        }
        arrays = {}
        digests = {file.name: file.xxh3_128 for file in group.files}
        for part, dtype in _ARRAYS.items():
            name = f"{number:05d}.{part}.npy"
            path = self.folder / name
            try:
                array = open_listed(self.folder, name, group.files, (dtype,), max(lengths[part], 0))
            except ValueError as error:
                raise self._damaged(path, str(error)) from error
            if file_digest(path) != digests[name]:
                raise self._damaged(path, f"its digest differs from the one in {COUNTS_NAME}")
            # Slicing a memmap takes several times as long as slicing a plain array.
            arrays[part] = array.view(np.ndarray)
        words = WordCounts(arrays["words"], arrays["offsets"], arrays["counts"])
        if problem := check_words(words):
            raise self._damaged(self.folder / f"{number:05d}.words.npy", problem)
        return words

    def _damaged(self, path: Path, why: str) -> VerificationError:
        hint = "count again: tokenmill tokenizer count --overwrite"
        return VerificationError("word counts are damaged", where=str(path), why=why, hint=hint)


def open_counts(folder: str | Path) -> CountsFolder:
    """Open a folder of word counts.

    Raises:
        UserError: the folder has no counts.
        VerificationError: the counts are damaged.
    """
    return CountsFolder(folder)


def is_counts_folder(path: str | Path) -> bool:
    """Return whether a folder contains finished counts."""
    return (Path(path) / COUNTS_NAME).is_file()


def remove_counts(folder: Path) -> None:
    """Remove a folder of counts. If this is interrupted, what is left is not taken for counts.

    Raises:
        OSError: some of it cannot be removed.
    """
    (folder / COUNTS_NAME).unlink(missing_ok=True)
    remove_folder(folder)


def merge_counts(
    folders: Sequence[CountsFolder], folder: Path, min_count: int = 1
) -> CountsManifest:
    """Add up counts of several corpora, group by group, and omit rare words.

    The minimum count is the largest of `min_count` and the minimums of the given counts.

    Raises:
        UserError: the counts have different splits or different groups.
        OutputConflictError: the folder already contains counts.
    """
    first, *others = folders
    for other in others:
        _require_alike(first, other)
    if is_counts_folder(folder):
        raise OutputConflictError("the folder already contains word counts", where=str(folder))
    groups: dict[str, list[WordCounts]] = {}
    left_out: dict[str, LeftOut] = {}
    totals = Counts()
    for counts in folders:
        totals.add(counts.manifest.totals)
        for group in counts.manifest.groups:
            groups.setdefault(group.name, []).append(counts.groups[group.name])
            earlier = left_out.get(group.name, LeftOut())
            left_out[group.name] = earlier + group.left_out
    description = msgspec.structs.replace(
        first.manifest,
        min_count=max(min_count, *(counts.manifest.min_count for counts in folders)),
        totals=totals,
        sources=[source for counts in folders for source in counts.manifest.sources],
    )
    return write_counts(folder, description, groups, left_out)


def _require_alike(first: CountsFolder, other: CountsFolder) -> None:
    ours, theirs = first.manifest, other.manifest
    if _behaviour(ours.split) != _behaviour(theirs.split):
        names = [each.split.name or "unnamed" for each in (ours, theirs)]
        why = f"the splits are {' and '.join(names)}"
        what = "cannot add up counts of different splits"
    elif ours.by != theirs.by:
        why = f"one is grouped by {ours.by or 'nothing'}, the other by {theirs.by or 'nothing'}"
        what = "cannot add up counts with different groups"
    else:
        return
    where = f"{first.folder} and {other.folder}"
    raise UserError(what, where=where, why=why, hint="count one of them again")


def _behaviour(split: Split) -> list[Any]:
    """Return the properties of a split that determine the words; its name does not."""
    return [*split.steps.values(), split.byte_level]


def _weights_problem(weights: Mapping[str, int], groups: Mapping[str, WordCounts]) -> str:
    for name, weight in weights.items():
        if name not in groups:
            return f"cannot find the group {name!r}; the groups are {', '.join(map(repr, groups))}"
        if weight < 0:
            return f"the weight of {name!r} must not be negative"
    return ""


def sampling_weights(
    group_bytes: Mapping[str, int], alpha: float, premiums: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Return whole weights of groups, so that weighted counts stay exact; 1 without bytes.

    A weight of 3 is the same as repeating the text of the group three times. Languages are sampled
    in proportion to p^alpha instead of their share p, which favors small languages (mBERT 0.7,
    arXiv 1810.04805's repository; XLM-R 0.3, arXiv 1911.02116). With byte premiums (Arnett et al.,
    arXiv 2403.00686), shares refer to content instead of bytes.

    `premiums` are the bytes for the same content relative to one language; missing ones are 1.
    With `alpha` 1, all weights are equal; with 0, all groups count the same.
    """
    premiums = premiums or {}
    content = {name: size / premiums.get(name, 1.0) for name, size in group_bytes.items() if size}
    if not content or alpha == 1:
        return dict.fromkeys(group_bytes, 1)
    # p^alpha / p: how often the text of a group is repeated.
    total = sum(content.values())
    repeats = {name: (size / total) ** (alpha - 1) for name, size in content.items()}
    least = min(repeats.values())
    weights = {name: round(LARGEST_GROUP * repeat / least) for name, repeat in repeats.items()}
    return {name: weights.get(name, 1) for name in group_bytes}
