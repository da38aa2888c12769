"""Views: documents of one or more datasets, chosen and put in order without copying a token.

    view.json       written last, with its own digest: the parents and their ids, what was asked,
                    and how many documents and tokens each shard keeps
    selection.bin   one bit for each document of each shard, in order, each shard's bits compressed
                    (zlib) on their own
    matches.jsonl   only if documents were compared with a benchmark: those that share words with
                    its texts
    plans/          plans of the view, as in a dataset

A view has the shards of its parents, one parent after the other. Documents keep the numbers that
they have there, and those that are not chosen have none of the view's tokens. So plans, states and
provenance of a view work like those of a dataset. A view of a view names the datasets behind it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import BoolArray
from tokenmill.store.canonical import canonical_json, read_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.manifest import Count, Counts, FileEntry, Manifest, ShardEntry, SourceEntry
from tokenmill.store.policies import Policies

VIEW_NAME = "view.json"
SELECTION_NAME = "selection.bin"
MATCHES_NAME = "matches.jsonl"
VIEW_FORMAT = "tokenmill-view"
VIEW_VERSION = 1


class ParentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that a view takes documents from."""

    place: str
    """Its folder, relative to that of the view."""
    dataset_id: str


class SelectedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a view keeps of one shard or of one source."""

    documents: Count
    tokens: Count


class SelectedShard(SelectedEntry, frozen=True, kw_only=True):
    """What a view keeps of one shard, and where its bits are."""

    bytes: Count
    """Size of its compressed bits in `selection.bin`."""


class ViewManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of view.json."""

    format: str = VIEW_FORMAT
    format_version: int = VIEW_VERSION
    view_id: str
    """Digest of the parents' ids and of the selection, in 32 hexadecimal digits."""
    parents: list[ParentEntry]
    question: list[str]
    """What was asked, in words: how the documents were chosen, step by step."""
    sources: list[SelectedEntry]
    """What is kept of each source, of all parents in order."""
    shards: list[SelectedShard]
    """What is kept of each shard, of all parents in order."""
    file: FileEntry
    matches: FileEntry | msgspec.UnsetType = msgspec.UNSET
    """The documents that share words with texts of a benchmark, if that was asked."""
    digest: str = ""


@dataclass(slots=True)
class Selection:
    """The chosen documents of the shards of a view."""

    path: Path
    entries: Sequence[SelectedShard]
    counts: Sequence[int]
    """All documents of each shard, chosen or not."""
    _starts: list[int] = field(init=False)
    """Where the bits of each shard begin."""

    def __post_init__(self) -> None:
        self._starts = list(accumulate((each.bytes for each in self.entries), initial=0))

    def mask(self, number: int) -> BoolArray:
        """Which documents of a shard are chosen, shape (num_documents,).

        Raises:
            VerificationError: the file does not hold what the view says.
        """
        entry, count = self.entries[number], self.counts[number]
        size = -(-count // 8)
        try:
            with self.path.open("rb") as file:
                file.seek(self._starts[number])
                bits = zlib.decompressobj().decompress(file.read(entry.bytes), size + 1)
        except (OSError, zlib.error) as error:
            raise damaged_view(self.path, str(error)) from error
        found = np.unpackbits(np.frombuffer(bits, np.uint8), count=min(count, 8 * len(bits)))
        if len(bits) != size or int(found.sum()) != entry.documents:
            raise damaged_view(self.path, f"the bits of shard {number} are not those of the view")
        return found.astype(np.bool_)


def damaged_view(path: Path, why: str) -> VerificationError:
    """The error for a view that contradicts itself or its parents."""
    hint = "make the view again: tokenmill select"
    return VerificationError("a view is damaged", where=str(path), why=why, hint=hint)


def read_view(folder: Path) -> ViewManifest:
    """Read a view and compare the digest of its selection.

    Raises:
        UserError: it has another version of the format.
        VerificationError: it is damaged.
    """
    view = read_sealed(folder / VIEW_NAME, ViewManifest)
    path = folder / SELECTION_NAME
    known = FileEntry(name=SELECTION_NAME, bytes=view.file.bytes, xxh3_128=view.file.xxh3_128)
    if view.file != known or not path.is_file() or path.stat().st_size != known.bytes:
        raise damaged_view(path, "the selection is missing, or has another size")
    if file_digest(path) != known.xxh3_128:
        raise damaged_view(path, "the digest of the selection differs")
    if sum(shard.bytes for shard in view.shards) != known.bytes or not view.parents:
        raise damaged_view(folder / VIEW_NAME, "its shards do not make up the selection")
    for parent in view.parents:
        if PurePath(parent.place).is_absolute() or "\0" in parent.place:
            raise damaged_view(folder / VIEW_NAME, f"a parent has the place {parent.place!r}")
    if view.matches is not msgspec.UNSET:
        path = folder / MATCHES_NAME
        if view.matches.name != MATCHES_NAME:
            raise damaged_view(folder / VIEW_NAME, f"its matches are in {view.matches.name!r}")
        if not path.is_file() or path.stat().st_size != view.matches.bytes:
            raise damaged_view(path, "the matches are missing, or have another size")
    if view.view_id != view_id(view.parents, known.xxh3_128):
        raise damaged_view(folder / VIEW_NAME, "its id does not follow from its content")
    return view


def check_matches(folder: Path) -> None:
    """Raise a VerificationError if a view has matches, and they have another digest."""
    known = read_view(folder).matches
    if known is not msgspec.UNSET and file_digest(folder / MATCHES_NAME) != known.xxh3_128:
        raise damaged_view(folder / MATCHES_NAME, "the digest of the matches differs")


def view_id(parents: Sequence[ParentEntry], digest: str) -> str:
    """The id of a view, from the ids of its parents and the digest of its selection."""
    ids = [parent.dataset_id for parent in parents]
    return xxhash.xxh3_128_hexdigest(canonical_json([ids, digest]))


def joined_manifest(parents: Sequence[Manifest], view: ViewManifest, where: Path) -> Manifest:
    """What the manifest of a view would be: the shards of its parents, and its own counts.

    Raises:
        VerificationError: the view has other shards or sources than its parents.
    """
    first = parents[0]
    shards: list[ShardEntry] = []
    sources: list[SourceEntry] = []
    for parent in parents:
        shards += (_renumbered(shard, len(sources)) for shard in parent.shards)
        sources += parent.sources
    kept = (len(view.shards), len(view.sources))
    if kept != (len(shards), len(sources)):
        raise damaged_view(where / VIEW_NAME, "its parents have other shards or sources")
    for parent in parents[1:]:
        for problem in differences(first, parent):
            raise damaged_view(where / VIEW_NAME, f"its parents do not fit together: {problem}")
    counted = [_counted(*pair) for pair in zip(sources, view.sources, strict=True)]
    totals = Counts()
    for source in counted:
        totals.add(source.counts)
    documents = sum(shard.documents for shard in view.shards)
    tokens = sum(shard.tokens for shard in view.shards)
    if (documents, tokens) != (totals.documents, totals.tokens) or not documents:
        raise damaged_view(where / VIEW_NAME, "the counts of its shards and sources differ")
    return msgspec.structs.replace(
        first,
        dataset_id=view.view_id,
        policies=_joined_policies(parents),
        totals=totals,
        sources=counted,
        shards=shards,
        rejected=[],
    )


def _renumbered(shard: ShardEntry, first_source: int) -> ShardEntry:
    extents = [
        msgspec.structs.replace(extent, source=extent.source + first_source)
        for extent in shard.extents
    ]
    return msgspec.structs.replace(shard, extents=extents)


def _counted(source: SourceEntry, kept: SelectedEntry) -> SourceEntry:
    """A source with the counts of a view; bytes are in proportion to tokens."""
    counts = source.counts
    num_bytes = round(counts.document_bytes * kept.tokens / max(counts.tokens, 1))
    return msgspec.structs.replace(
        source,
        counts=Counts(
            records=kept.documents,
            record_bytes=num_bytes,
            documents=kept.documents,
            document_bytes=num_bytes,
            tokens=kept.tokens,
        ),
    )


def _joined_policies(parents: Sequence[Manifest]) -> dict[str, Any]:
    """The policies of the first parent; a validation subset or a kept field is that of any."""
    policies = parents[0].policies
    kept = [name for parent in parents for name in parent.policies["read"].get("keep", [])]
    if len(set(kept)) > len(policies["read"].get("keep", [])):
        policies = {**policies, "read": {**policies["read"], "keep": list(dict.fromkeys(kept))}}
    shares = [parent.policies["read"].get("validation", 0.0) for parent in parents]
    if any(shares):
        policies = {**policies, "read": {**policies["read"], "validation": max(shares)}}
    return policies


def differences(first: Manifest, other: Manifest) -> list[str]:
    """What keeps two datasets out of one view: their tokens mean different things."""
    pairs = zip(_meaning(first).items(), _meaning(other).values(), strict=True)
    return [f"{name}: {one} and {two}" for (name, one), two in pairs if one != two]


def _meaning(manifest: Manifest) -> dict[str, object]:
    """What decides how tokens are read, by the names that messages use."""
    tokenizer = manifest.tokenizer
    policies = msgspec.convert(manifest.policies, Policies)
    return {
        "tokenizer": tokenizer.sha256,
        "largest id": tokenizer.largest_id,
        "tokens that begin a document": tokenizer.prefix_ids,
        "token that ends a document": tokenizer.eos_id,
        "padding": tokenizer.pad_id,
        "special tokens in texts": policies.encode.special_tokens,
        "ranges without loss": policies.has_no_loss,
    }
