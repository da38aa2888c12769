"""Find steps of a tokenizer that may take endless time or memory, and try them in a child process.

The time and memory of known steps grow linearly with the text. An unknown regular expression may
backtrack forever, and replacements may make a text a thousand times longer. A library call cannot
be interrupted. So a child process loads such a tokenizer and encodes the calibration texts, and is
killed if it takes too long or too much memory.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec

from tokenmill.core.child import Child, ChildEnded, Limits, Parent, Program
from tokenmill.encode.encodings import EXPLICIT, encoding_of
from tokenmill.encode.exactness import MAX_SHOWN_CHARACTERS, hostile_texts
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_bounds import cannot_load
from tokenmill.encode.tokenizer_json import Json, normalizers, pre_tokenizers, with_library
from tokenmill.encode.words.patterns import KNOWN_PATTERNS

Step = tuple[str, Callable[[str], object]]

MAX_GROWTH = 64
"""How many characters harmless steps may make of one. Byte level makes up to 4, NFKC 18."""
MAX_WORD_CHARACTERS = 1_000
"""The time of WordPiece grows with the square of the word length; published models allow 200."""

_KNOWN_RANK_PATTERNS = KNOWN_PATTERNS.union(known.pattern for known in ENCODINGS.values())

PROBE_SECONDS = 60.0
PROBE_BYTES = 2_000_000_000
BYTES_A_BYTE = 50
"""Memory allowed per byte of the file; the library needs 15 to load it (measured)."""
DONE = ""
"""The last message of the child; the others say what it tries next."""
PROGRAM = Program(module=__name__, task="tries a tokenizer", replies=str, stderr="discarded")


class _Model(msgspec.Struct):
    max_input_chars_per_word: int = 0


class _Steps(msgspec.Struct):
    """The parts to look at; decoding skips the vocabulary."""

    model: _Model
    normalizer: Json | None = None
    pre_tokenizer: Json | None = None
    added_tokens: list[Json] | None = None


def steps_before_model(file: TokenizerFile) -> list[Step]:
    """Return the normalizer and the pre-tokenizer of a tokenizer.json, as named functions."""
    if not KINDS[file.kind].is_json:
        return []
    tokenizer = _read(file)
    library = with_library(tokenizer, pre_tokenizers(tokenizer))
    found: list[Step] = []
    if library.normalizer is not None:
        found.append(("normalizer", library.normalizer.normalize_str))
    if library.pre_tokenizer is not None:
        found.append(("pre-tokenizer", library.pre_tokenizer.pre_tokenize_str))
    return found


def unknown_step(file: TokenizerFile) -> str:
    """Return what may take a tokenizer endless time or memory; "" if all its steps are known.

    Such steps come from a tokenizer.json, or from the pattern that a user gives for a rank file.
    """
    if file.encoding == EXPLICIT and encoding_of(file).pattern not in _KNOWN_RANK_PATTERNS:
        return "an unknown regular expression"
    if not KINDS[file.kind].is_json:
        return ""
    try:
        tokenizer = _read(file)
        growth = 1.0
        for step in normalizers(tokenizer) + pre_tokenizers(tokenizer):
            pattern = step.get("pattern") or {}
            if pattern.get("Regex", "") not in KNOWN_PATTERNS | {""}:
                return f"an unknown regular expression in {step['type']}"
            growth *= max(_growth(step), 1.0)
        if growth > MAX_GROWTH:
            return "steps that can make texts much longer"
        if tokenizer["model"]["max_input_chars_per_word"] > MAX_WORD_CHARACTERS:
            return "a WordPiece model without a limit on word length"
        if _removes_added_token(tokenizer):  # runs the normalizer, whose steps are known by now
            return "an added token that its normalizer removes"
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # a Rust panic is not an Exception
        return "a step that cannot be read"
    return ""


def _read(file: TokenizerFile) -> Json:
    tokenizer: Json = msgspec.to_builtins(msgspec.json.decode(file.data, type=_Steps))
    return tokenizer


def _removes_added_token(tokenizer: Json) -> bool:
    """Whether an added token normalizes to "", which `tokenizers` would match endlessly."""
    added = tokenizer["added_tokens"] or []
    contents = [token["content"] for token in added if token.get("normalized")]
    if not contents or tokenizer["normalizer"] is None:
        return "" in contents
    normalizer = with_library(tokenizer, []).normalizer
    return any(not normalizer.normalize_str(content) for content in contents)


def _growth(step: Json) -> float:
    """Return how many characters a step can make of one."""
    match step["type"]:
        case "ByteLevel":
            return 4
        case "Prepend":
            return len(step["prepend"])
        case "Replace":
            return len(step["content"]) / max(len(step["pattern"].get("String", "")), 1)
        case "Precompiled":
            # The table holds the size of a trie, the trie, and zero-terminated strings.
            table = base64.b64decode(step["precompiled_charsmap"] or "")
            strings = table[4 + int.from_bytes(table[:4], "little") :]
            return max(map(len, strings.split(b"\0"))) / 4
    return 1


class _Request(msgspec.Struct):
    """What the child process receives."""

    kind: str
    data: bytes
    encoding: str
    rank_encoding: bytes
    texts: list[str] | None


def require_harmless(file: TokenizerFile) -> TokenizerFile:
    """Return the tokenizer, after a trial in a child process if it has an unknown step.

    Raises:
        UserError: loading it, or encoding a short text, takes too long or too much memory.
    """
    if why := probe(file):
        hint = "use a tokenizer from a source that you trust"
        raise cannot_load(file.origin, why, hint)
    return file


def probe(file: TokenizerFile, texts: Sequence[str] | None = None) -> str:
    """Return how a tokenizer fails on texts, by default those of the calibration; "" if it passes.

    Errors that the library raises are ignored, because this process will get them too.
    """
    unknown = unknown_step(file)
    if not unknown:
        return ""
    allowed = PROBE_BYTES + BYTES_A_BYTE * len(file.data)
    request = _Request(
        kind=file.kind,
        data=file.data,
        encoding=file.encoding,
        rank_encoding=file.rank_encoding,
        texts=None if texts is None else list(texts),
    )
    child = Child(PROGRAM)
    child.send(request)
    place = "at its start"
    last = time.monotonic() + PROBE_SECONDS
    try:
        while (left := last - time.monotonic()) > 0:
            found, _ = child.receive(Limits(left, allowed))
            if found == DONE:
                return ""
            place = found
        failure = "took too long"
    except ChildEnded as error:
        failure = "took too long" if error.limit == "time" else error.why.removeprefix("it ")
    finally:
        child.end()
    return f"it has {unknown}, and a trial {failure}: {place}"


def main() -> None:
    """Run in the child: name each step and text, then try it."""
    parent = Parent(_Request)
    request, _ = parent.receive()
    file = TokenizerFile(
        request.kind, request.data, request.encoding, rank_encoding=request.rank_encoding
    )
    with contextlib.suppress(BaseException):  # the main process will get the same error
        _try(file, request.texts, parent)
    parent.send(DONE)


def _try(file: TokenizerFile, texts: Sequence[str] | None, parent: Parent) -> None:
    parent.send("loading it")
    reference = load_reference(file, control_tokens=False)
    parent.send("normalizer on characters of every kind")
    texts = hostile_texts(reference) if texts is None else texts
    steps = [*steps_before_model(file), ("tokenizer", lambda text: reference.encode([text]))]
    for text in texts:
        shown = repr(text[:MAX_SHOWN_CHARACTERS])
        for name, step in steps:
            parent.send(f"{name} on {shown}")
            with contextlib.suppress(BaseException):  # a Rust panic is not an Exception
                step(text)
