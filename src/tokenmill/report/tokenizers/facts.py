"""What a tokenizer is, for people: its parts in words, its tokens, and the engine for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.encode.boundary_policy import resolve_boundary_tokens
from tokenmill.encode.engine import Reference
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import KINDS, load_any_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import UserError
from tokenmill.report.tokenizers.source import dataset_of, open_tokenizer
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """A tokenizer, described."""

    origin: str
    kind: str
    model: dict[str, Any]
    """Type and options of the model."""
    num_tokens: int | None
    """Entries of the vocabulary; None for a Python object, of which a digest is known."""
    largest_id: int
    token_dtype: str
    """Of the shards that a build writes with it."""
    normalizer: list[str]
    """Each step in words."""
    pre_tokenizer: list[str]
    special_tokens: dict[str, int]
    prefix_ids: list[int]
    """What its post-processor puts before a text."""
    suffix_ids: list[int]
    """What its post-processor would put after a text; a build writes `eos_id` instead."""
    eos_id: int | None
    """The end-of-document token; None where a build has to be told."""
    eos_reason: str
    """Where `eos_id` is from, or why there is none."""
    pad_id: int | None
    engines: list[str]
    """Those that may encode it, the one first that `auto` takes."""
    objections: dict[str, str]
    """Why the other engines may not."""
    fingerprint: str
    digests: dict[str, str]
    """SHA-256 of every component."""


def describe_tokenizer(tokenizer: str | Path | object, encoding: str = "") -> TokenizerFacts:
    """What is to be said of a tokenizer; of a dataset, the one that it carries.

    Raises:
        UserError: it cannot be used.
    """
    file = open_tokenizer(tokenizer, encoding)
    reference, _ = load_any_reference(file)
    found = fingerprint_of(file)
    candidates = rank_engines(file, control_tokens=False)
    vocabulary = found.components["vocabulary"]
    eos_id, eos_reason, pad_id = _named_tokens(reference, file, dataset_of(tokenizer))
    return TokenizerFacts(
        origin=file.origin,
        kind=file.kind,
        model=found.components["model"],
        num_tokens=None if KINDS[file.kind].is_described else len(vocabulary),
        largest_id=reference.largest_id,
        token_dtype=token_dtype(reference.largest_id).name,
        normalizer=_in_words(found.components.get("normalizer", [])),
        pre_tokenizer=_in_words(found.components.get("pre_tokenizer", [])),
        special_tokens=reference.special_tokens,
        prefix_ids=list(reference.prefix),
        suffix_ids=list(reference.suffix),
        eos_id=eos_id,
        eos_reason=eos_reason,
        pad_id=pad_id,
        engines=list(candidates.names),
        objections=candidates.objections,
        fingerprint=found.value,
        digests=found.digests,
    )


def _named_tokens(
    reference: Reference, file: TokenizerFile, dataset: Dataset | None
) -> tuple[int | None, str, int | None]:
    """The end-of-document token, where it is from, and the padding token."""
    if dataset:
        entry = dataset.manifest.tokenizer
        return entry.eos_id, "the dataset", entry.pad_id
    try:
        boundary = resolve_boundary_tokens(reference, file, None, None)
    except UserError as error:
        return None, f"{error.what}; {error.why}", None
    return boundary.eos_id, boundary.eos_reason, boundary.pad_id


def _in_words(steps: list[dict[str, Any]]) -> list[str]:
    """Steps as their type and their options: "Split (pattern ..., behavior Isolated)"."""
    lines = []
    for step in steps:
        options = [f"{name} {_value(value)}" for name, value in step.items() if name != "type"]
        kind = step.get("type", "of no type")
        lines.append(f"{kind} ({', '.join(options)})" if options else kind)
    return lines


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(member)}" for name, member in value.items())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"of {len(text):,} characters"
