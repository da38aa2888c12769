"""The bytes and the kind of each token in a vocabulary.

Vocabularies spell text differently: byte-level ones (GPT-2) map bytes to characters, SentencePiece
writes a space as U+2581 and single bytes as <0xHH>, WordPiece marks tokens inside words with ##.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from tokenmill.encode.encodings import bytes_by_symbol, encoding_of, parse_ranks
from tokenmill.encode.references.json_components import json_components
from tokenmill.encode.references.sentencepiece import load_processor
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import MARK, Json

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True)
class Token:
    """One entry of a vocabulary."""

    data: bytes
    """The token's text in UTF-8; for a special token, its content."""
    is_special: bool = False
    """Whether it is a control token."""
    is_added: bool = False
    """Whether it is matched in texts before the model runs; special tokens often are too."""
    is_fallback: bool = False
    """Whether it is a single byte, <0xHH>, for characters outside the vocabulary."""
    spelling: str = ""
    """The entry in the vocabulary; "" if unknown."""

    @property
    def is_plain(self) -> bool:
        """Whether the model itself produces it."""
        return not (self.is_special or self.is_added)

    @property
    def is_fragment(self) -> bool:
        """Whether its bytes are not valid UTF-8 on their own."""
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return True
        return False


def tokens_of(file: TokenizerFile) -> dict[int, Token] | None:
    """Return every token by id; None for a Python object, which may not list its tokens."""
    found = _BY_KIND.get(file.kind)
    return None if found is None else found(file)


def byte_level_tokens(file: TokenizerFile) -> dict[int, bytes]:
    """Return the bytes of every token by id; {} if the vocabulary is not one over bytes.

    It also is {} if a normalizer can move text: then the tokens of a text, joined, could be equal
    to it, and nevertheless be elsewhere in it.
    """
    if file.kind == "huggingface":
        parts = json_components(file)
        is_byte_level = any(step["type"] == "ByteLevel" for step in parts["pre_tokenizer"])
        if not is_byte_level or any(step["type"] != "NFC" for step in parts["normalizer"]):
            return {}
    elif file.kind != "tiktoken":
        return {}
    return {i: token.data for i, token in (tokens_of(file) or {}).items()}


def _of_rank_file(file: TokenizerFile) -> dict[int, Token]:
    tokens = {i: Token(data) for data, i in parse_ranks(file.data, file.origin).items()}
    for content, i in encoding_of(file).special_tokens.items():
        tokens.setdefault(i, Token(content.encode(), is_special=True))
    return tokens


def _of_sentencepiece(file: TokenizerFile) -> dict[int, Token]:
    processor = load_processor(file)
    tokens = {}
    for i in range(processor.GetPieceSize()):
        piece = processor.IdToPiece(i)
        special = processor.IsControl(i) or processor.IsUnknown(i)
        fallback = processor.IsByte(i)
        tokens[i] = _spaced(piece, special=special, fallback=fallback)
    return tokens


def _of_json(file: TokenizerFile) -> dict[int, Token]:
    parts = json_components(file)
    vocabulary = parts["vocabulary"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: i for i, (piece, _) in reversed(list(enumerate(vocabulary)))}
    read = _reading(parts, msgspec.json.decode(file.data).get("decoder"))
    tokens = {i: read(spelling) for spelling, i in vocabulary.items()}
    for content, added in parts["added_tokens"].items():
        tokens[added["id"]] = Token(
            content.encode(), is_special=added["special"], is_added=True, spelling=content
        )
    return tokens


def _reading(parts: Json, decoder: Json | None) -> Callable[[str], Token]:
    """Return a function that reads a vocabulary entry of a tokenizer.json."""
    steps = [*parts["normalizer"], *parts["pre_tokenizer"], *_steps(decoder)]
    if any(step.get("type") == "ByteLevel" for step in steps):
        values = bytes_by_symbol()
        return lambda spelling: _byte_level(spelling, values)
    model = parts["model"]
    if model["type"] == "WordPiece":
        mark = model.get("continuing_subword_prefix", "##")
        return lambda spelling: Token(spelling.removeprefix(mark).encode(), spelling=spelling)
    fallback = bool(model.get("byte_fallback"))
    return lambda spelling: _spaced(spelling, fallback=fallback)


def _steps(decoder: Json | None) -> Iterator[Json]:
    if decoder:
        yield decoder
        for step in decoder.get("decoders", ()):
            yield from _steps(step)


def _byte_level(spelling: str, values: dict[str, int]) -> Token:
    """Read a token in GPT-2's alphabet; one with other characters is taken literally."""
    try:
        return Token(bytes(values[symbol] for symbol in spelling), spelling=spelling)
    except KeyError:
        return Token(spelling.encode(), spelling=spelling)


def _spaced(spelling: str, *, special: bool = False, fallback: bool = True) -> Token:
    """Read a token in SentencePiece's spelling."""
    if fallback and (found := _BYTE_TOKEN.fullmatch(spelling)):
        return Token(bytes([int(found[1], 16)]), is_fallback=True, spelling=spelling)
    data = spelling.replace(MARK, " ").encode()
    return Token(data, is_special=special, spelling=spelling)


_BY_KIND: dict[str, Callable[[TokenizerFile], dict[int, Token]]] = {
    "huggingface": _of_json,
    "tiktoken": _of_rank_file,
    "sentencepiece": _of_sentencepiece,
}
