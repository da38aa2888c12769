"""Extend or trim a tokenizer from texts or counts, and write the result to a folder, atomically.

tokenizer.json           the tokenizer, next to other files of the old one
embeddings.json          how to initialise the embedding rows (`store/embedding_plan.py`)
ids.json                 if trimmed: the new id of each old one
tokenizer.tiktoken       if a rank file was trimmed: the new ranks
extend.json, trim.json   options, figures, and the origin of the tokenizer
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.core.records import Advance
from tokenmill.encode.boundary_policy import END_OF_DOCUMENT_TOKENS
from tokenmill.encode.encodings import encoding_of
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.split_file import canonical_steps
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import Json
from tokenmill.encode.words.splits import SPLITS, Split, split_of
from tokenmill.run.pipeline import count, counting_events
from tokenmill.run.recipe.checks import make_count_recipe
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.counts.folder import CountsFolder, is_counts_folder, open_counts
from tokenmill.store.embedding_plan import IDS_NAME, PLAN_NAME, EmbeddingPlan, IdMap
from tokenmill.store.files import fsync_path, rename_flushed, storage_errors, temporary_folder
from tokenmill.store.manifest import FileEntry
from tokenmill.vocabulary.changing.base import Base, Changed, file_of, open_base, ranks_of
from tokenmill.vocabulary.changing.extend import extend
from tokenmill.vocabulary.changing.trim import renumbered_config, trim
from tokenmill.vocabulary.training.output import versions

FORMAT = "tokenmill-tokenizer-change"
VERSION = 1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The record of how a tokenizer was derived from another one."""

    format: str = FORMAT
    format_version: int = VERSION
    action: Literal["extend", "trim"]
    options: dict[str, Any]
    base: str
    """Fingerprint of the old tokenizer."""
    tokenizer: str
    """Fingerprint of the new one."""
    counts_id: str
    """The id of the word counts."""
    words: int
    occurrences: int
    figures: dict[str, int]
    versions: dict[str, str]
    files: list[FileEntry] = []
    digest: str = ""


def require_free(out: Path) -> None:
    """Raise an OutputConflictError if the folder exists."""
    if out.exists() or out.is_symlink():
        raise OutputConflictError(
            "the output folder already exists",
            where=str(out),
            hint="choose another folder, or remove this one",
        )


def write_change(out: Path, files: Mapping[str, bytes], change: Change) -> Change:
    """Write all files and the record of the change; the folder appears atomically.

    Raises:
        OutputConflictError: the folder already exists.
        StorageError: the file system refused to write.
    """
    require_free(out)
    entries = [
        FileEntry(name=name, bytes=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data))
        for name, data in sorted(files.items())
    ]
    change = sealed(msgspec.structs.replace(change, files=entries))
    all_files = {**files, f"{change.action}.json": canonical_json(change)}
    with storage_errors("write the tokenizer", out), temporary_folder(out) as temporary:
        for name, data in all_files.items():
            (temporary / name).write_bytes(data)
            fsync_path(temporary / name)
        fsync_path(temporary)
        rename_flushed(temporary, out)
    return change


CONFIG_NAME = "tokenizer_config.json"
OTHER_NAMES = ("special_tokens_map.json", "chat_template.jinja")
"""Files without ids, which are copied. Other files contain the old vocabulary."""
RANKS_NAME = "tokenizer.tiktoken"
"""Written only for a trimmed rank file. An extended one cannot always be a rank file: in a rank
file, any two tokens that spell a third are merged, so a new token may cause unwanted merges."""
MAX_CONFIG_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class TokenizerChange:
    """The result of extending or trimming a tokenizer."""

    folder: Path
    record: Change
    """The stored record. `record.figures` holds the tokens of the corpus before and after."""
    tokens: list[str]
    """New tokens in order of their ids, or removed tokens in order of removal."""


def change_file(
    file: TokenizerFile,
    on: Sequence[str],
    out: str | Path,
    options: dict[str, int],
    advance: Advance = lambda stage, done, total: None,
) -> TokenizerChange:
    """Extend or trim a tokenizer, for texts or for one folder of word counts.

    `options` are `add` and `min_frequency`, to add tokens, or `to`, the number of tokens to keep.

    Raises:
        UserError: the tokenizer is not a BPE, the counts use another split, or no token can be
            added or removed.
        OutputConflictError: `out` already exists.
    """
    if min(options.get("add", 1), options.get("min_frequency", 1)) < 1:
        raise UserError("the number of tokens to add and their frequency must be at least 1")
    out = local_path(out, "the output folder")
    require_free(out)
    with contextlib.ExitStack() as stack:
        # Check given counts before anything slow; otherwise count next to the result.
        counts = open_counts(on[0]) if len(on) == 1 and is_counts_folder(on[0]) else None
        base = open_base(file)
        config = _config(file, base)
        if counts is None:
            with storage_errors("count the words", out):
                folder = stack.enter_context(temporary_folder(out))
            asked = {"inputs": list(on), "split": _split_name(base), "out": str(folder / "counts")}
            counts = count(make_count_recipe(asked), events=counting_events(advance)).counts
        _require_own_words(base, counts)
        if "to" in options:
            changed = trim(base, counts.total(), options["to"])
        else:
            changed = extend(
                base, counts.total(), options["add"], options["min_frequency"], advance
            )
        new = file_of(changed.document, file.origin)
        change = Change(
            action="trim" if "to" in options else "extend",
            options=options,
            base=fingerprint_of(file).value,
            tokenizer=fingerprint_of(new).value,
            counts_id=counts.counts_id,
            words=sum(map(len, counts.groups.values())),
            occurrences=sum(words.num_occurrences for words in counts.groups.values()),
            figures=changed.figures,
            versions=versions("tokenizers"),
        )
        files = {"tokenizer.json": new.data, **_beside(file)}
        if config:
            files[CONFIG_NAME] = canonical_json(renumbered_config(config, changed.new_ids))
        files |= _plans(change, base, changed)
        if file.kind == "tiktoken" and change.action == "trim":
            files[RANKS_NAME] = ranks_of(base, changed.document)
        record = write_change(out, files, change)
    return TokenizerChange(out, record, [base.shown(token) for token in changed.tokens])


def _plans(change: Change, base: Base, changed: Changed) -> dict[str, bytes]:
    """Return the files that map ids and embedding rows."""
    plan = EmbeddingPlan(
        base=change.base,
        tokenizer=change.tokenizer,
        num_old_ids=base.num_ids,
        num_unchanged=changed.num_unchanged,
        rows=changed.rows,
    )
    files = {PLAN_NAME: canonical_json(sealed(plan))}
    if change.action == "trim":
        ids = IdMap(base=change.base, tokenizer=change.tokenizer, ids=list(changed.new_ids))
        files[IDS_NAME] = canonical_json(sealed(ids))
    return files


def _config(file: TokenizerFile, base: Base) -> Json:
    """Return the tokenizer_config.json next to a tokenizer, after checking its ids.

    A rank file gets one with the known begin and end tokens of its encoding.
    """
    if file.kind == "tiktoken":
        ends = [name for name in END_OF_DOCUMENT_TOKENS if name in base.added]
        named = {"bos_token": encoding_of(file).prefix, "eos_token": ends}
        tokens = {key: found[0] for key, found in named.items() if len(found) == 1}
        return {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    if not file.config_data:
        return {}
    config: Json = msgspec.json.decode(file.config_data, type=dict)
    added = config.get("added_tokens_decoder") or {}
    if not isinstance(added, dict):
        raise UserError(f"{CONFIG_NAME} has no table of added tokens", where=file.origin)
    for token_id, token in added.items():
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or str(base.tokens.get(content)) != token_id:
            raise UserError(
                f"{CONFIG_NAME} gives {content!r} the id {token_id}, but tokenizer.json does not",
                where=file.origin,
                hint="load and save the tokenizer with transformers to make its files consistent",
            )
    return config


def _beside(file: TokenizerFile) -> dict[str, bytes]:
    """Return other files next to a local tokenizer, which are copied unchanged."""
    path = Path(file.origin)
    folder = path if path.is_dir() else path.parent
    found = [folder / name for name in OTHER_NAMES if path.exists() and (folder / name).is_file()]
    what = "a tokenizer's configuration"
    return {path.name: read_bounded(path, MAX_CONFIG_BYTES, what) for path in found}


def _own_splits(base: Base) -> list[Split]:
    """Return the splits that give the same words as the tokenizer, the best one last."""
    own = split_of(base.document)
    return [own, SPLITS["metaspace"]] if _is_spaced_by_normalizer(own) else [own]


def _split_name(base: Base) -> str:
    """Return the value for `tokenmill tokenizer count --split` that matches the tokenizer."""
    best = canonical_steps(_own_splits(base)[-1])
    equal = (name for name, split in SPLITS.items() if canonical_steps(split) == best)
    return next(equal, base.origin)


def _require_own_words(base: Base, counts: CountsFolder) -> None:
    """Raise a UserError if the words were counted with another split than the tokenizer's."""
    found = canonical_steps(counts.split)
    if any(found == canonical_steps(split) for split in _own_splits(base)):
        return
    raise UserError(
        "the words were not split like the tokenizer splits them",
        where=str(counts.folder),
        why=f"they were counted with the split {counts.split.name or 'of another tokenizer'}",
        hint=f"tokenmill tokenizer count INPUTS --split {_split_name(base)} --out OTHER_COUNTS",
    )


def _is_spaced_by_normalizer(split: Split) -> bool:
    """Whether the normalizer adds the ▁ and no pre-tokenizer splits words, as in Llama 2.

    No merge of such a tokenizer joins a word and the ▁ after it, so words can be counted alone.
    """
    steps = canonical_steps(split)["normalizer"]
    types = [(step["type"], step.get("prepend") or step.get("content")) for step in steps]
    return split.pre_tokenizer is None and types == [("Prepend", "▁"), ("Replace", "▁")]
