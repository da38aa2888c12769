"""Extend or trim a tokenizer from texts or counts, and write the result to a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.core.records import Advance
from tokenmill.encode.boundary_policy import END_OF_DOCUMENT_TOKENS
from tokenmill.encode.encodings import encoding_of
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.split_file import canonical_steps
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.splits import SPLITS, Split, split_of
from tokenmill.run.pipeline import CountEvents, count
from tokenmill.run.recipe.checks import make_count_recipe
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.counts.folder import CountsFolder, is_counts_folder, open_counts
from tokenmill.store.embedding_plan import IDS_NAME, PLAN_NAME, EmbeddingPlan, IdMap
from tokenmill.store.files import storage_errors, temporary_folder
from tokenmill.vocabulary.changing.base import Base, Json, file_of, open_base, ranks_of
from tokenmill.vocabulary.changing.extend import extend
from tokenmill.vocabulary.changing.record import Change, require_free, write_change
from tokenmill.vocabulary.changing.renumbering import NewIds, renumbered_config
from tokenmill.vocabulary.changing.trim import trim
from tokenmill.vocabulary.training.output import versions

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


class _Job(NamedTuple):
    """The change to make."""

    action: Literal["extend", "trim"]
    file: TokenizerFile
    out: Path
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Result:
    """A changed tokenizer before it is written."""

    document: Json
    new_ids: NewIds
    rows: Sequence[Sequence[int]]
    """Old ids of every id from `num_unchanged` on."""
    num_unchanged: int
    figures: dict[str, int]
    tokens: list[str]


def extend_file(
    file: TokenizerFile,
    on: Sequence[str],
    out: str | Path,
    *,
    add: int,
    min_frequency: int = 2,
    advance: Advance | None = None,
) -> TokenizerChange:
    """Add up to `add` tokens to a tokenizer, learned from texts or from one folder of word counts.

    Raises:
        UserError: the tokenizer is not a BPE, or the counts use another split.
        OutputConflictError: `out` already exists.
    """

    def extended(base: Base, counts: CountsFolder) -> _Result:
        """Add tokens: old ids keep their rows; a new token starts from those of its parts."""
        found = extend(base, counts.total(), add, min_frequency, advance)
        figures = {
            "ids_before": base.num_ids,
            "ids_after": base.num_ids + len(found.tokens),
            "added": len(found.tokens),
            "revived": len(found.revived),
            "tokens_before": found.tokens_before,
            "tokens_after": found.tokens_after,
            "words_left_out": found.words_left_out,
        }
        ids = range(base.num_ids)
        return _Result(found.document, ids, found.rows, base.num_ids, figures, found.tokens)

    if add < 1 or min_frequency < 1:
        raise UserError("the number of tokens to add and their frequency must be at least 1")
    options = {"add": add, "min_frequency": min_frequency}
    job = _Job("extend", file, local_path(out, "the output folder"), options)
    return _change(job, on, extended, advance)


def trim_file(
    file: TokenizerFile,
    on: Sequence[str],
    out: str | Path,
    *,
    to: int,
    advance: Advance | None = None,
) -> TokenizerChange:
    """Remove the tokens that texts or word counts need least, until `to` are left.

    Raises:
        UserError: the tokenizer is not a BPE, the counts use another split, or more than `to`
            tokens cannot be removed.
        OutputConflictError: `out` already exists.
    """

    def trimmed(base: Base, counts: CountsFolder) -> _Result:
        """Remove tokens: the others are renumbered without gaps, and keep their rows."""
        found = trim(base, counts.total(), to)
        figures = {
            "ids_before": base.num_ids,
            "ids_after": to,
            "removed": len(found.removed),
            "tokens_before": found.tokens_before,
            "tokens_after": found.tokens_after,
            "words_changed": found.words_changed,
        }
        kept = [old for old, new in enumerate(found.new_ids) if new is not None]
        unchanged = next((new for new, old in enumerate(kept) if new != old), len(kept))
        rows = [[old] for old in kept[unchanged:]]
        return _Result(found.document, found.new_ids, rows, unchanged, figures, found.removed)

    job = _Job("trim", file, local_path(out, "the output folder"), {"to": to})
    return _change(job, on, trimmed, advance)


def _change(
    job: _Job,
    on: Sequence[str],
    make: Callable[[Base, CountsFolder], _Result],
    advance: Advance | None,
) -> TokenizerChange:
    require_free(job.out)
    with contextlib.ExitStack() as stack:
        # Check given counts before anything slow; otherwise count next to the result.
        counts = open_counts(on[0]) if len(on) == 1 and is_counts_folder(on[0]) else None
        base = open_base(job.file)
        config = _config(job.file, base)
        if counts is None:
            with storage_errors("count the words", job.out):
                folder = stack.enter_context(temporary_folder(job.out))
            counts = _counted(on, _split_name(base), folder / "counts", advance)
        _require_own_words(base, counts)
        return _made(job, base, config, counts, make(base, counts))


def _made(
    job: _Job, base: Base, config: Json, counts: CountsFolder, result: _Result
) -> TokenizerChange:
    """Write a changed tokenizer."""
    new = file_of(result.document, job.file.origin)
    change = Change(
        action=job.action,
        options=job.options,
        base=fingerprint_of(job.file).value,
        tokenizer=fingerprint_of(new).value,
        counts_id=counts.counts_id,
        words=sum(map(len, counts.groups.values())),
        occurrences=sum(words.num_occurrences for words in counts.groups.values()),
        figures=result.figures,
        versions=versions("tokenizers"),
    )
    files = {"tokenizer.json": new.data, **_beside(job.file)}
    if config:
        files[CONFIG_NAME] = canonical_json(renumbered_config(config, result.new_ids))
    files |= _plans(change, base, result)
    if job.file.kind == "tiktoken" and job.action == "trim":
        files[RANKS_NAME] = ranks_of(base, result.document)
    record = write_change(job.out, files, change)
    return TokenizerChange(job.out, record, [base.shown(token) for token in result.tokens])


def _counted(
    inputs: Sequence[str], split: str, folder: Path, advance: Advance | None
) -> CountsFolder:
    """Count the words of texts as `tokenmill tokenizer count` does without options."""
    recipe = make_count_recipe({"inputs": list(inputs), "split": split, "out": str(folder)})
    events = CountEvents()
    if advance:
        events = CountEvents(
            on_progress=lambda shot: advance("counting", shot.done_bytes, shot.total_bytes)
        )
    return count(recipe, events=events).counts


def _plans(change: Change, base: Base, result: _Result) -> dict[str, bytes]:
    """Return the files that map ids and embedding rows."""
    plan = EmbeddingPlan(
        base=change.base,
        tokenizer=change.tokenizer,
        num_old_ids=base.num_ids,
        num_unchanged=result.num_unchanged,
        rows=[list(row) for row in result.rows],
    )
    files = {PLAN_NAME: canonical_json(sealed(plan))}
    if change.action == "trim":
        ids = IdMap(base=change.base, tokenizer=change.tokenizer, ids=list(result.new_ids))
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
