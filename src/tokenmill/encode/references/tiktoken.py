"""The reference for rank files: tiktoken.

tiktoken silently drops text that the split pattern does not match. So with a user's pattern, the
number of bytes of every text is checked. Some encodings normalize texts to NFC first, with Python's
`unicodedata`.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command, installed_version
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.core.suggestions import nearest
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.encodings import (
    EXPLICIT,
    encoding_of,
    encodings_of_ranks,
    parse_ranks,
)
from tokenmill.encode.engine import Reference, TextError
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.rank_json import outline_of_ranks, ranks_to_json
from tokenmill.encode.spans import places_of
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.encode.tokenizer_bounds import load_failures

_VARIED = "".join(map(chr, range(128))) + " é 漢字 😀\u2028"


class TiktokenReference(Reference):
    """Encodes with `tiktoken.Encoding`; pattern and special tokens come from the encoding."""

    name = "tiktoken"

    def __init__(self, file: TokenizerFile, control_tokens: bool) -> None:
        try:
            import tiktoken
        except ImportError as error:
            hint = install_command("tiktoken")
            what = "cannot load a tiktoken rank file"
            raise UserError(what, why="tiktoken is not installed", hint=hint) from error
        self.version = installed_version("tiktoken")
        known = encoding_of(file)
        ranks = parse_ranks(file.data, file.origin)
        taken = set(ranks.values())
        specials = {name: i for name, i in known.special_tokens.items() if i not in taken}
        with load_failures(file.origin):
            self._encoding = tiktoken.Encoding(
                file.encoding,
                pat_str=known.pattern,
                mergeable_ranks=ranks,
                special_tokens=specials,
            )
        self._control_tokens = control_tokens
        self._composes = known.form == "NFC"
        self._lengths: Int64Array | None = None
        if file.encoding == EXPLICIT:
            self._lengths = _byte_lengths(ranks, specials)
            self.may_refuse = True
        self.special_tokens = specials
        self.largest_id = max([*ranks.values(), *specials.values()])
        self.unk_id: int | None = None
        self.prefix = tuple(specials[name] for name in known.prefix)
        self.suffix: tuple[int, ...] = ()
        try:
            with load_failures(
                file.origin, "the split pattern fails on a text, perhaps on an empty match"
            ):
                self.encode([_VARIED])
        except TextError as error:
            raise UserError(
                error.what, where=file.origin, why=error.why, hint=error.hint
            ) from error

    def token_id(self, token: str) -> int | None:
        try:
            return self._encoding.encode_single_token(token)
        except KeyError:
            return None

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        tokens = self._encoded(composed(texts) if self._composes else texts)
        if self._lengths is not None:
            self._require_all(texts, tokens)
        return tokens

    def _encoded(self, texts: Sequence[str]) -> TokenBatch:
        if self._control_tokens:
            lists = self._encoding.encode_batch(list(texts), num_threads=1, allowed_special="all")
        else:
            lists = self._encoding.encode_ordinary_batch(list(texts), num_threads=1)
        return batch_of(lists)

    def _require_all(self, texts: Sequence[str], tokens: TokenBatch) -> None:
        """Raise a TextError for the first text that the pattern does not match completely."""
        assert self._lengths is not None
        ends = np.concatenate([[0], np.cumsum(self._lengths[tokens.ids])])[tokens.offsets]
        for text, found in zip(texts, np.diff(ends).tolist(), strict=True):
            if found != (size := len(text.encode())):
                error = TextError(
                    "the split pattern does not match every character of a text",
                    where=f"text {text[:80]!r}",
                    why=f"its tokens cover {found:,} of {size:,} bytes",
                    hint=r"make the pattern match every character, for example: append |\s+|.",
                )
                error.text = text
                raise error

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        if not self._composes:
            return self._with_offsets(text)
        normal, first, behind = composed_with_places(text)
        ids, starts, stops = self._with_offsets(normal)
        return ids, first[starts], behind[stops - 1]

    def _with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        ids = self._encoded([text]).ids
        return ids, *places_of(self._encoding.decode_tokens_bytes(ids.tolist()), text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._encoding.decode(list(ids))


def _is_rank_file(path: Path, data: bytes) -> bool:  # noqa: ARG001
    """Detect a rank file by its first line, because Llama 3's is called tokenizer.model."""
    first_line = data.split(b"\n", 1)[0].split()
    return len(first_line) == 2 and first_line[1].isdigit()


def _byte_lengths(ranks: dict[bytes, int], specials: dict[str, int]) -> Int64Array:
    """Return the number of bytes of each token; shape (largest id + 1,)."""
    pieces = {**{i: token for token, i in ranks.items()}}
    pieces |= {i: content.encode() for content, i in specials.items()}
    lengths = np.zeros(max(pieces) + 1, np.int64)
    lengths[list(pieces)] = [len(piece) for piece in pieces.values()]
    return lengths


def _known_encoding(path: Path, encoding: str, data: bytes) -> str:
    """Return the encoding of a file: the user's choice, or by its name, or by its ranks."""
    fitting = encodings_of_ranks(data, str(path))
    named = encoding or (path.stem if path.stem in ENCODINGS else "")
    if not named and fitting:
        return fitting[0]
    name = named or path.stem
    if name not in ENCODINGS:
        close = nearest(name, ENCODINGS)
        guess = f" (did you mean {close}?)" if close else ""
        raise UserError(
            f"{name!r} is not a known encoding",
            where=str(path),
            why="a rank file contains neither its split pattern nor its special tokens",
            hint="add --pattern and --specials-from; or add --encoding, or name the file after its "
            f"encoding, one of {', '.join(ENCODINGS)}{guess}",
        )
    known = ENCODINGS[name]
    num_ranks = sum(1 for line in data.split(b"\n") if line.strip())
    if num_ranks != known.num_ranks:
        why = f"it has {num_ranks} ranks; {name} has {known.num_ranks}"
    elif known.ranks_sha256 and name not in fitting:
        why = f"it has as many ranks as {name}, but different ones"
    else:
        return name
    hint = f"use --encoding {fitting[0]}" if fitting else "add --pattern and --specials-from"
    raise UserError(f"the rank file is not {name}", where=str(path), why=why, hint=hint)


def _components(file: TokenizerFile) -> dict[str, Any]:
    """Return the components of a rank file and its encoding; bytes are spelled in Latin-1."""
    encoding, ranks = encoding_of(file), parse_ranks(file.data)
    taken = set(ranks.values())
    specials = {name: i for name, i in encoding.special_tokens.items() if i not in taken}
    return {
        "model": {"type": "tiktoken"},
        "vocabulary": {token.decode("latin-1"): rank for token, rank in ranks.items()},
        **({"normalizer": [{"type": encoding.form}]} if encoding.form else {}),
        "pre_tokenizer": [{"type": "Split", "pattern": {"Regex": encoding.pattern}}],
        "added_tokens": {name: {"id": i, "special": True} for name, i in specials.items()},
    }


KIND = TokenizerKind(
    name="tiktoken",
    library="tiktoken",
    file_name="tokenizer.tiktoken",
    is_file=_is_rank_file,
    encoding_of=_known_encoding,
    reference=TiktokenReference,
    components=_components,
    json_of=lambda file, control_tokens: (
        None if control_tokens else ranks_to_json(file.data, encoding_of(file), fill=True)
    ),
    outline_of=lambda file, control_tokens: (
        None if control_tokens else outline_of_ranks(encoding_of(file))
    ),
)


def composed(texts: Sequence[str]) -> list[str]:
    """Return the texts in NFC."""
    return [unicodedata.normalize("NFC", text) for text in texts]


def composed_with_places(text: str) -> tuple[str, Int64Array, Int64Array]:
    """Return a text in NFC, and the original characters behind each of its characters.

    Returns:
        The text, and two arrays of shape (len(text in NFC),): the first original character, and
        one past the last. If several characters change together, each result refers to all.
    """
    if unicodedata.is_normalized("NFC", text):
        places = np.arange(len(text), dtype=np.int64)
        return text, places, places + 1
    edges = [0, *(i for i in range(1, len(text)) if _begins(text[i])), len(text)]
    parts: list[str] = []
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in itertools.pairwise(edges):
        part = unicodedata.normalize("NFC", text[start:stop])
        kept = part == text[start:stop]
        parts.append(part)
        starts += range(start, stop) if kept else [start] * len(part)
        stops += range(start + 1, stop + 1) if kept else [stop] * len(part)
    return "".join(parts), np.array(starts, np.int64), np.array(stops, np.int64)


@functools.lru_cache(maxsize=4096)
def _begins(character: str) -> bool:
    """Whether a character never changes together with the one before it."""
    first = unicodedata.normalize("NFD", character)[0]
    return unicodedata.combining(first) == 0 and first not in _followers()


@functools.cache
def _followers() -> frozenset[str]:
    """Return the characters that can compose with the one before them."""
    vowels, finals = range(0x1161, 0x1176), range(0x11A8, 0x11C3)  # of Hangul
    found = {chr(code) for code in (*vowels, *finals)}
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)
