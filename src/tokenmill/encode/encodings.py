"""Encodings of tiktoken rank files: the split pattern and special tokens that the files lack."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.encode.published_encodings import ENCODINGS, Encoding
from tokenmill.encode.tokenizer_bounds import MAX_STEP_CHARACTERS, cannot_load, check_ids

if TYPE_CHECKING:
    from tokenmill.encode.tokenizer import TokenizerFile

EXPLICIT = "explicit"
"""The encoding's name if the user gives the pattern and special tokens."""
RANK_ENCODING_NAME = "rank_encoding.json"
"""The file next to a rank file that stores its `RankEncoding`."""
MAX_SPECIALS_BYTES = 1 << 24


class RankEncoding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The split pattern and special tokens of a tiktoken rank file.

    Pass it as `encoding` if tokenmill does not recognise the rank file by its ranks.
    """

    pattern: str
    """The split pattern: a regular expression in tiktoken's dialect."""
    special_tokens: dict[str, int] = {}
    """The special tokens: ids by content."""

    def data(self) -> bytes:
        """Return the canonical JSON form, which datasets store and digests cover."""
        by_id = sorted(self.special_tokens.items(), key=lambda item: item[1])
        return msgspec.json.format(
            msgspec.json.encode(RankEncoding(self.pattern, dict(by_id))), indent=2
        )

    @classmethod
    def read(cls, data: bytes, origin: str = "") -> RankEncoding:
        """Read what `data` returned.

        Raises:
            UserError: `data` is not an encoding, or is damaged.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(
                "cannot read the encoding of the rank file", where=origin, why=str(error)
            ) from error

    def check(self, ranks: dict[bytes, int], num_bytes: int, origin: str) -> None:
        """Raise a UserError if this encoding does not fit the ranks."""
        if not self.pattern or len(self.pattern) > MAX_STEP_CHARACTERS:
            why = f"it has {len(self.pattern):,} characters; allowed: 1 to {MAX_STEP_CHARACTERS:,}"
            raise UserError("cannot use the split pattern", where=origin, why=why)
        if any("\ud800" <= character <= "\udfff" for character in self.pattern):
            why = "it is not valid UTF-8"
            raise UserError("cannot use the split pattern", where=origin, why=why)
        check_ids(list(self.special_tokens.items()), num_bytes, origin)
        taken = {i: repr(token) for token, i in ranks.items()}
        for content, i in self.special_tokens.items():
            if not content:
                raise cannot_load(origin, "a special token is empty")
            if i in taken:
                raise cannot_load(origin, f"special token {content!r} has the id of {taken[i]}")
            taken[i] = repr(content)


def chosen_encoding(
    encoding: str = "", pattern: str | None = None, specials_from: str | Path | None = None
) -> str | RankEncoding:
    """Return the encoding that the options choose for a rank file.

    Returns:
        The name of an encoding, "" to recognise it by the ranks, or the pattern with the special
        tokens of a JSON file like `{"<|endoftext|>": 50256}`.

    Raises:
        UserError: the options contradict each other, or the file cannot be read.
    """
    if pattern is None and specials_from is None:
        return encoding
    if pattern is None:
        hint = "add --pattern"
        raise UserError("--specials-from also needs --pattern", hint=hint)
    if encoding:
        why = "a known encoding already has a pattern"
        raise UserError("cannot combine --encoding with --pattern", why=why)
    if specials_from is None:
        return RankEncoding(pattern)
    path = local_path(specials_from, "the file of special tokens")
    data = read_bounded(path, MAX_SPECIALS_BYTES, "the file of special tokens")
    try:
        return RankEncoding(pattern, msgspec.json.decode(data, type=dict[str, int]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = 'the file must hold one JSON object, such as {"<|endoftext|>": 50256}'
        what = "cannot read the special tokens"
        raise UserError(what, where=str(path), why=str(error), hint=hint) from error


def encoding_of(file: TokenizerFile) -> Encoding:
    """Return the encoding of a rank file."""
    return _given(file.rank_encoding) if file.encoding == EXPLICIT else ENCODINGS[file.encoding]


@functools.lru_cache(maxsize=8)
def _given(data: bytes) -> Encoding:
    given = RankEncoding.read(data)
    splits = {known.pattern: known.json_split for known in ENCODINGS.values()}
    return Encoding(given.pattern, 0, given.special_tokens, splits.get(given.pattern))


def encodings_of_ranks(data: bytes, origin: str = "") -> list[str]:
    """Return the names of the known encodings with exactly these ranks, in the table's order.

    Raises:
        UserError: see `parse_ranks`.
    """
    count = sum(1 for line in data.split(b"\n") if line.strip())
    digests = {known.ranks_sha256 for known in ENCODINGS.values() if known.num_ranks == count}
    if not digests - {""}:
        return []
    found = {hashlib.sha256(data).hexdigest()}
    if not digests & found:
        found.add(hashlib.sha256(spelled_ranks(parse_ranks(data, origin))).hexdigest())
    return [name for name, known in ENCODINGS.items() if known.ranks_sha256 in found]


def spelled_ranks(ranks: dict[bytes, int]) -> bytes:
    """Return ranks in the canonical form that digests use: like published files, sorted by rank."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ordered)


def parse_ranks(data: bytes, origin: str = "") -> dict[bytes, int]:
    """Parse a rank file: one "base64 rank" pair a line.

    "=" spells the empty token, which Whisper's file has.

    Returns:
        The rank of each token.

    Raises:
        UserError: a line is not such a pair, a rank is out of bounds, a token has two ranks,
            two tokens share a rank, or a byte has no rank.
    """
    pairs: list[tuple[bytes, int]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if fields := line.split():
            try:
                token, rank = fields
                text = b"" if token == b"=" else base64.b64decode(token, validate=True)
                pairs.append((text, int(rank)))
            except ValueError as error:
                why = f"line {number}, {line[:80]!r}: {error}"
                raise cannot_load(origin, why) from error
    check_ids(pairs, len(data), origin)
    ranks = dict(pairs)
    if len(ranks) != len(pairs):
        raise cannot_load(origin, "a token has two ranks")
    if len(set(ranks.values())) != len(ranks):
        raise cannot_load(origin, "two tokens have the same rank")
    if bare := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise cannot_load(origin, f"byte {bare[0]:#04x} has no rank")
    return ranks


def byte_symbols() -> list[str]:
    """Return the printable character for each byte, as in byte-level vocabularies (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    symbols = {byte: chr(byte) for byte in printable}
    symbols |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def bytes_by_symbol() -> dict[str, int]:
    """Return the byte of each character in `byte_symbols`."""
    return {symbol: byte for byte, symbol in enumerate(byte_symbols())}
