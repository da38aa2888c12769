"""tiktoken: the reference for rank files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.boundaries import batch_of
from tokenmill.encode.encodings import (
    ENCODINGS,
    nearest_encoding,
    parse_ranks,
    ranks_to_json,
)
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.encode.tokenizer_bounds import load_failures
from tokenmill.errors import UserError
from tokenmill.records import Int64Array, TokenBatch, UInt32Array


class TiktokenReference(Reference):
    """`tiktoken.Encoding`, with pattern and special tokens from the table of known encodings."""

    name = "tiktoken"

    def __init__(self, file: TokenizerFile, control_tokens: bool) -> None:
        try:
            import tiktoken
        except ImportError as error:
            hint = "pip install 'tokenmill[tiktoken]'"
            raise UserError("tiktoken rank files need tiktoken", hint=hint) from error
        self.version = importlib.metadata.version("tiktoken")
        known = ENCODINGS[file.encoding]
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
        self.special_tokens = specials
        self.largest_id = max([*ranks.values(), *specials.values()])
        self.unk_id: int | None = None
        self.prefix = tuple(specials[name] for name in known.prefix)
        self.suffix: tuple[int, ...] = ()

    def token_id(self, token: str) -> int | None:
        try:
            return self._encoding.encode_single_token(token)
        except KeyError:
            return None

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self._control_tokens:
            lists = self._encoding.encode_batch(list(texts), num_threads=1, allowed_special="all")
        else:
            lists = self._encoding.encode_ordinary_batch(list(texts), num_threads=1)
        return batch_of(lists)

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        ids = self.encode([text]).ids
        pieces = self._encoding.decode_tokens_bytes(ids.tolist())
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        data = np.frombuffer(text.encode(), np.uint8)
        # The character that each byte belongs to: continuation bytes start none.
        character = np.cumsum((data & 0xC0) != 0x80) - 1
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        if not len(ids):
            return ids, starts[:0], ends
        return ids, character[starts], character[ends - 1] + 1

    def decode(self, ids: Sequence[int]) -> str:
        return self._encoding.decode(list(ids))


def _is_rank_file(path: Path, data: bytes) -> bool:  # noqa: ARG001
    """By its first line, because Llama 3's is called tokenizer.model."""
    first_line = data.split(b"\n", 1)[0].split()
    return len(first_line) == 2 and first_line[1].isdigit()


def _known_encoding(path: Path, encoding: str, data: bytes) -> str:
    name = encoding or path.stem
    if name not in ENCODINGS:
        raise UserError(
            f"{name!r} is not a known encoding",
            where=str(path),
            why="a rank file holds neither its split pattern nor its special tokens",
            hint="name the file after its encoding, or give --encoding: one of "
            f"{', '.join(ENCODINGS)}{nearest_encoding(name)}",
        )
    num_ranks = sum(1 for line in data.split(b"\n") if line.strip())
    if num_ranks != ENCODINGS[name].num_ranks:
        why = f"it has {num_ranks} ranks; {name} has {ENCODINGS[name].num_ranks}"
        raise UserError(f"the rank file is not {name}", where=str(path), why=why)
    return name


def _components(file: TokenizerFile) -> dict[str, Any]:
    """A rank file with what its encoding's name stands for; bytes are spelled in Latin-1."""
    encoding, ranks = ENCODINGS[file.encoding], parse_ranks(file.data)
    taken = set(ranks.values())
    specials = {name: i for name, i in encoding.special_tokens.items() if i not in taken}
    return {
        "model": {"type": "tiktoken"},
        "vocabulary": {token.decode("latin-1"): rank for token, rank in ranks.items()},
        "pre_tokenizer": [{"type": "Split", "pattern": {"Regex": encoding.pattern}}],
        "added_tokens": {name: {"id": i, "special": True} for name, i in specials.items()},
    }


def _json_of(file: TokenizerFile, control_tokens: bool) -> bytes | None:
    return None if control_tokens else ranks_to_json(file.data, ENCODINGS[file.encoding])


KIND = TokenizerKind(
    name="tiktoken",
    library="tiktoken",
    file_name="tokenizer.tiktoken",
    is_file=_is_rank_file,
    encoding_of=_known_encoding,
    reference=TiktokenReference,
    components=_components,
    json_of=_json_of,
)
