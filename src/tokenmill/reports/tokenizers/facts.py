"""Describe a tokenizer: its components, tokens and engine."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.encode.boundary_policy import resolve_boundary_tokens
from tokenmill.encode.encodings import RankEncoding, encodings_of_ranks
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import Candidates, first_exact, load_engine, rank_engines
from tokenmill.encode.exactness import CalibrationVetoError
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import KINDS, load_any_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.sentencepiece import Normalizer, read_fields
from tokenmill.reports.tokenizers.subject import dataset_of, open_tokenizer
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype

CACHE_BYTES = 256 << 20
"""Limit of an engine's cache while it is tested."""
NORMALIZER_FIELD = 3
"""Of `ModelProto` in sentencepiece_model.proto."""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The description of a tokenizer."""

    origin: str
    kind: str
    encodings: list[str]
    """Of a rank file: the encoding that gives pattern and special tokens, then others that have the
    same ranks. Empty for all other tokenizers."""
    model: dict[str, Any]
    """Type and options of the model."""
    num_tokens: int | None
    """Entries of the vocabulary; None for a Python object, of which a digest is known."""
    largest_id: int
    token_dtype: str
    """The dtype of shards built with this tokenizer."""
    normalizer: list[str]
    """The steps as readable text."""
    pre_tokenizer: list[str]
    special_tokens: dict[str, int]
    prefix_ids: list[int]
    """Ids that its post-processor puts before a text."""
    suffix_ids: list[int]
    """Ids that its post-processor puts after a text; a build writes `eos_id` instead."""
    eos_id: int | None
    """The end-of-document token; None if a build needs `--eos`."""
    eos_reason: str
    """Where `eos_id` is from, or why there is none."""
    pad_id: int | None
    engines: list[str]
    """The engine that `auto` chooses comes first, tested as in a build; then those
    that come after it."""
    objections: dict[str, str]
    """Why the other engines may not."""
    fingerprint: str
    digests: dict[str, str]
    """SHA-256 of every component."""


def describe_tokenizer(
    tokenizer: str | Path | object, encoding: str | RankEncoding = ""
) -> TokenizerFacts:
    """Describe a tokenizer, or that of a dataset.

    Raises:
        UserError: it cannot be used.
    """
    file = open_tokenizer(tokenizer, encoding)
    reference, _ = load_any_reference(file)
    found = fingerprint_of(file)
    candidates = _tried(rank_engines(file, control_tokens=False), file, reference)
    vocabulary = found.components["vocabulary"]
    eos_id, eos_reason, pad_id = _named_tokens(reference, file, dataset_of(tokenizer))
    return TokenizerFacts(
        origin=file.origin,
        kind=file.kind,
        encodings=_encodings(file),
        model=found.components["model"],
        num_tokens=None if KINDS[file.kind].is_described else len(vocabulary),
        largest_id=reference.largest_id,
        token_dtype=token_dtype(reference.largest_id).name,
        normalizer=_in_words(_normalizer(file, found.components)),
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


def _encodings(file: TokenizerFile) -> list[str]:
    found = encodings_of_ranks(file.data) if file.kind == "tiktoken" else []
    return list(dict.fromkeys([file.encoding, *found] if file.encoding else found))


def _tried(candidates: Candidates, file: TokenizerFile, reference: Reference) -> Candidates:
    """Without the engines that do not pass the exam, as in a build, and why they do not.

    A build adds documents of its own to the exam.
    """
    vetoes: dict[str, str] = {}

    def veto(name: str, error: CalibrationVetoError) -> None:
        vetoes[name] = f"{error.what}: {error.why}"

    def load(name: str) -> Engine:
        return load_engine(name, file, False, CACHE_BYTES)

    first_exact(candidates.names, load, reference, [], veto)
    names = tuple(name for name in candidates.names if name not in vetoes)
    return replace(candidates, names=names, objections={**vetoes, **candidates.objections})


def _normalizer(file: TokenizerFile, components: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a normalizer; a .model names its rule, and has the table of it."""
    if file.kind != "sentencepiece":
        return list(components.get("normalizer", []))
    spec = dict(read_fields(file.data)).get(NORMALIZER_FIELD, b"")
    found = Normalizer.read(spec if isinstance(spec, bytes) else b"")
    if not (found.table or found.add_prefix or found.join_spaces):
        return []
    flags = {"add_dummy_prefix": found.add_prefix, "remove_extra_whitespaces": found.join_spaces}
    table = {"table": f"{len(found.table):,} bytes"} if found.table else {}
    return [{"type": found.name or "a table of its own", **table, **flags}]


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
