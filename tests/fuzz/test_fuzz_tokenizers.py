"""Random damage to tokenizer files: each one loads and encodes, or is refused with a typed error.

Children try the files, so that a crash or an endless call is seen. What a library fails on while it
encodes is the encoder's to name; a file that kills the process is the probe's to find.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_kit import SOAK_SECONDS

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
CHILD_SECONDS = 280
CHILD_BYTES = 4 << 30
VALUES: list[Any] = [None, True, -1, 0, 1 << 31, 1 << 64, 1e308, "", "a", "\0", [], {}, [[]]]


def damaged_json(source: random.Random) -> bytes:
    """One of two tokenizers, some of whose values are others."""
    tokenizer = source.choice([byte_level_json, sentencepiece_json])()
    steps = [
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "b"},
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": True},
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "Digits", "individual_digits": True},
        {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["b", -2.0]]},
        {"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0, "##b": 1}},
    ]
    for _ in range(source.choice([1, 1, 2, 4])):
        place = source.choice(_places(tokenizer))
        holder, key = place
        # Copies: an object must not come to stand inside itself.
        same = [value for value in (*VALUES, *steps) if type(value) is type(holder[key])]
        value = source.choice(same or VALUES if source.random() < 0.8 else VALUES)
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


def damaged_bytes(data: bytes, source: random.Random) -> bytes:
    """Bytes changed, left out, doubled, or cut off at the end."""
    found = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 5, 30])):
        place = source.randrange(len(found))
        size = source.choice([1, 2, 50, 1_000])
        match source.randrange(5):
            case 0:
                found[place] = source.randrange(256)
            case 1:
                found[place] ^= 1 << source.randrange(8)
            case 2:
                del found[place : place + size]
            case 3:
                found[place:place] = found[place : place + size]
            case _:
                found = found[: place + 1]
        found = found or bytearray(b"\n")
    return bytes(found)


def rank_lines() -> bytes:
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"abc", " é".encode()]
    lines = (b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    return b"".join(lines)


MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "tokenizer.json": damaged_json,
    "damaged/tokenizer.json": lambda source: damaged_bytes(
        json.dumps(byte_level_json()).encode(), source
    ),
    "gpt2.tiktoken": lambda source: damaged_bytes(rank_lines(), source),
    "bpe/tokenizer.model": lambda source: damaged_bytes(sentencepiece_model("bpe"), source),
    "unigram/tokenizer.model": lambda source: damaged_bytes(sentencepiece_model("unigram"), source),
}


def try_file(path: Path) -> str:
    """How a file fares; any error that is not typed is raised."""
    try:
        file = load_tokenizer_file(path)
        reference = load_reference(file, False)
        fingerprint_of(file)
        names = rank_engines(file, False).names
    except TokenmillError as error:
        return type(error).__name__
    outcome = "loaded"
    for name in names:
        try:
            engine = load_engine(name, file, False, 1 << 26)
            Encoder(engine, reference.largest_id).encode(TEXTS)
        except EngineError:
            outcome = "failed on a text"
    return outcome


def run_child(folder: Path, name: str, seed: int, num_files: int) -> str:
    """Try some files in a process; how it ended, "" for well. The last file stays in the folder."""
    (folder / name).parent.mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(folder), name, str(seed), str(num_files)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "RUST_BACKTRACE": "0"}
    child = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=CHILD_SECONDS
    )
    end = f"seed {seed}: exit code {child.returncode}: {child.stderr[-500:]}"
    return end if child.returncode else ""


def in_child(folder: Path, name: str, seed: int, num_files: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_BYTES, CHILD_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A rank file is refused for its number of ranks before anything else is looked at.
    tokenizer_file._known_encoding = lambda *_: "gpt2"  # type: ignore[assignment]
    source, outcomes = random.Random(seed), Counter[str]()
    for _ in range(num_files):
        (folder / name).write_bytes(MAKERS[name](source))
        outcomes[try_file(folder / name)] += 1
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_tokenizer_file_is_refused_or_encodes(tmp_path: Path, name: str) -> None:
    assert run_child(tmp_path, name, seed=0, num_files=20) == ""


@pytest.mark.soak
def test_damaged_tokenizer_files_for_minutes(tmp_path: Path) -> None:
    stop, seed = time.monotonic() + SOAK_SECONDS, time.time_ns()
    totals = {name: Counter[str]() for name in MAKERS}
    while time.monotonic() < stop:
        for name in MAKERS:
            assert run_child(tmp_path, name, seed, num_files=200) == "", tmp_path / name
            totals[name].update(json.loads((tmp_path / "outcomes.json").read_text()))
        seed += 1
    for name, outcomes in totals.items():
        print(name, dict(outcomes))


if __name__ == "__main__":
    in_child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
