"""Damaged tokenizer files, loaded and asked to encode as a build does.

What a library fails on while it encodes is the encoder's to name; a file that kills the process is
the probe's to find.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import random
import resource
from pathlib import Path
from typing import Any

import fuzz_kit

from encode.tokenizer_kit import byte_level_json, sentencepiece_json, sentencepiece_model
from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.encode import tokenizer_file
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Encoder
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer_file import load_tokenizer_file

TEXTS = adversarial_texts([])[::50]
MOST_BYTES = 4 << 30
VALUES: list[Any] = [None, True, -1, 0, 1 << 31, 1 << 64, 1e308, "", "a", "\0", [], {}, [[]]]
STEPS: list[Any] = [
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "b"},
    {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": True},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
    {"type": "Digits", "individual_digits": True},
    {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["b", -2.0]]},
    {"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0, "##b": 1}},
]


@functools.cache
def seeds() -> dict[str, bytes]:
    """A tokenizer of every kind."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"abc", " é".encode()]
    ranks = (b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    return {
        "bytes/tokenizer.json": json.dumps(byte_level_json()).encode(),
        "pieces/tokenizer.json": json.dumps(sentencepiece_json()).encode(),
        "ranks/gpt2.tiktoken": b"".join(ranks),
        "bpe/tokenizer.model": sentencepiece_model("bpe"),
        "unigram/tokenizer.model": sentencepiece_model("unigram"),
    }


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Of most JSON, change values; of other files, bytes."""
    if not data.startswith(b"{") or rng.random() < 0.3:
        return fuzz_kit.mutate(rng, data)
    tokenizer = json.loads(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        holder, key = rng.choice(_places(tokenizer))
        # Copies: an object must not come to stand inside itself.
        same = [value for value in (*VALUES, *STEPS) if type(value) is type(holder[key])]
        value = rng.choice(same or VALUES if rng.random() < 0.8 else VALUES)
        holder[key] = copy.deepcopy(value)
    return json.dumps(tokenizer).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of nested objects and lists; of large ones, some."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    found = []
    for key in keys[:12] + keys[-3:]:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            found += _places(value[key])
    return found


def check(name: str, data: bytes, folder: Path) -> str:
    """Load a file and encode with every engine that it may have."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    # A rank file is refused for its number of ranks before anything else is looked at.
    tokenizer_file._known_encoding = lambda *_: "gpt2"  # type: ignore[assignment]
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    try:
        file = load_tokenizer_file(path)
        reference = load_reference(file, False)
        fingerprint_of(file)
        names = rank_engines(file, False).names
    except TokenmillError:
        return "refused"
    outcome = "read"
    for engine in names:
        try:
            loaded = load_engine(engine, file, False, 1 << 26)
            Encoder(loaded, reference.largest_id).encode(TEXTS)
        except EngineError:
            outcome = "failed on a text"
    return outcome
