"""Checks of a manifest before its numbers are used.

The digest of a manifest detects damage but not malice: anyone can write a manifest with a valid
digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.paths import is_safe_path
from tokenmill.store.canonical import unseal
from tokenmill.store.digests import num_blocks
from tokenmill.store.files import leads_out
from tokenmill.store.layout import index_bytes, token_dtype
from tokenmill.store.manifest import MANIFEST_NAME, FileEntry, Manifest, ShardEntry, TokenizerEntry
from tokenmill.store.policies import Policies

SHARD_PARTS = ("bin", "idx", "xxh3", "parquet")
TOKENIZER_KINDS = ("huggingface", "tiktoken", "sentencepiece", "python")


def find_manifest(data: bytes | None, location: str) -> tuple[bytes, Manifest]:
    """Return the bytes of a manifest and the checked manifest.

    Raises:
        UserError: there is none, or it has another format version.
        VerificationError: it is damaged, or a number or a name breaks a rule of the format.
    """
    if data is None:
        why, hint = "it has no manifest.json", "check the name; only a finished build has one"
        raise UserError("cannot find a dataset", where=location, why=why, hint=hint)
    where = f"{location}/{MANIFEST_NAME}"
    manifest = unseal(data, Manifest, where)
    check_manifest(manifest, where)
    return data, manifest


def check_manifest(manifest: Manifest, where: str) -> None:
    """Check that ids are in the vocabulary, and that counts agree with each other.

    No file is read; only the sizes in the manifest are compared.

    Raises:
        VerificationError: a number or a name breaks a rule of the format.
    """
    for problem in _problems(manifest):
        raise VerificationError(
            "the manifest is inconsistent",
            where=where,
            why=problem,
            hint="do not use this dataset; get a new copy from its source",
        )


def check_file_names(location: str, files: Iterable[FileEntry]) -> None:
    """Raise a VerificationError for a name that is not a file in a folder of a dataset.

    This keeps downloads and copies of a dataset from overwriting other files.
    """
    for file in files:
        folder = file.name.partition("/")[0]
        is_reserved = folder in (file.name, "plans", "work") or folder.startswith(".")
        if not is_safe_path(file.name) or is_reserved:
            raise leads_out(location, file.name)


def _problems(manifest: Manifest) -> Iterator[str]:
    yield from _tokenizer_problems(manifest.tokenizer, manifest.token_dtype)
    try:
        msgspec.convert(manifest.policies, Policies)
    except msgspec.ValidationError as error:
        yield f"policies: {error}"
    itemsize = np.dtype(manifest.token_dtype).itemsize
    for number, shard in enumerate(manifest.shards):
        if problem := _shard_problem(shard, itemsize, len(manifest.sources)):
            yield f"shard {number}: {problem}"
    totals = manifest.totals
    documents = sum(shard.documents for shard in manifest.shards)
    tokens = sum(shard.tokens for shard in manifest.shards)
    if (documents, tokens) != (totals.documents, totals.tokens):
        yield (
            f"totals has {totals.documents} documents and {totals.tokens} tokens; "
            f"the shards have {documents} and {tokens}"
        )
    names = [file.name for file in manifest.files]
    if len(set(names)) < len(names):
        yield f"the file {Counter(names).most_common(1)[0][0]!r} is named twice"


def _tokenizer_problems(tokenizer: TokenizerEntry, dtype: str) -> Iterator[str]:
    largest = tokenizer.largest_id
    if tokenizer.kind not in TOKENIZER_KINDS:
        yield f"tokenizer.kind must be one of {', '.join(TOKENIZER_KINDS)}, got {tokenizer.kind!r}"
    if dtype != token_dtype(largest).name:
        right = token_dtype(largest).name
        yield f"token_dtype is {dtype!r}, but ids up to {largest} (largest_id) need {right}"
    boundary = {"eos_id": tokenizer.eos_id, "pad_id": tokenizer.pad_id or 0}
    boundary |= {"prefix_ids": max(tokenizer.prefix_ids, default=0)}
    for name, found in boundary.items():
        if found > largest:
            yield f"tokenizer.{name} is {found}, but the largest id is {largest}"


def _are_parts(names: list[str]) -> bool:
    """Return whether the names are the files of one shard, in order."""
    split = [name.rpartition(".") for name in names]
    stems = {stem for stem, _, _ in split[:3]}  # of the documents table, another folder
    return tuple(part for _, _, part in split) == SHARD_PARTS and len(stems) == 1


def _shard_problem(shard: ShardEntry, itemsize: int, num_sources: int) -> str:
    """Return what is wrong with a shard's entry, or "" if nothing is."""
    if not _are_parts([file.name for file in shard.files]):
        found = ", ".join(file.name for file in shard.files) or "none"
        return f"it must have one .bin, .idx, .xxh3 and .parquet file; its files are {found}"
    if not 1 <= shard.documents <= shard.tokens:
        return f"it cannot have {shard.documents} documents and {shard.tokens} tokens"
    ids, index, digests, _ = shard.files
    token_bytes, index_size = shard.tokens * itemsize, index_bytes(shard.documents)
    digest_bytes = 8 * (num_blocks(token_bytes) + num_blocks(index_size))
    expected = token_bytes, index_size, digest_bytes
    if (ids.bytes, index.bytes, digests.bytes) != expected:
        found = f"{ids.bytes}, {index.bytes} and {digests.bytes}"
        return (
            f"its .bin, .idx and .xxh3 have {found} bytes; {shard.documents} documents with "
            f"{shard.tokens} tokens need {', '.join(map(str, expected))}"
        )
    if any(extent.source >= num_sources for extent in shard.extents):
        return f"it names a source that is not among the {num_sources} sources"
    return ""
