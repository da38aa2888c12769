"""The reference for tokenizer.json files: Hugging Face `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.installed import installed_version
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.engine import Reference
from tokenmill.encode.references.json_components import json_components
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.encode.tokenizer_bounds import cannot_load, check_tokenizer_json, load_failures
from tokenmill.encode.tokenizer_json import read_tokenizer

CALL_CHARACTERS = 1 << 20
"""Characters per call; until it returns, the library holds several hundred bytes per character."""


class _Model(msgspec.Struct):
    """The parts of a model to look at; decoding skips the vocabulary."""

    dropout: float | None = None
    unk_token: str | None = None
    unk_id: int | None = None


class _File(msgspec.Struct):
    model: _Model


class _Sections(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw()


class HuggingFaceReference(Reference):
    """Encodes with `tokenizers.Tokenizer`, without the truncation and padding of the file."""

    name = "tokenizers"

    def __init__(self, file: TokenizerFile, control_tokens: bool) -> None:
        import tokenizers

        self.version = installed_version("tokenizers")
        with load_failures(file.origin):
            tokenizer = tokenizers.Tokenizer.from_str(file.data.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = not control_tokens
        model = msgspec.json.decode(file.data, type=_File).model
        if model.dropout:
            why = f"its dropout of {model.dropout} makes ids random"
            hint = 'set "dropout": null in tokenizer.json'
            raise UserError("the tokenizer is random", where=file.origin, why=why, hint=hint)
        self._tokenizer = tokenizer
        self.largest_id = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if self.largest_id < 0:
            raise UserError("the tokenizer has no tokens", where=file.origin)
        added = tokenizer.get_added_tokens_decoder()
        _refuse_equal_tokens(tokenizer.normalizer, added.values(), file.origin)
        self.special_tokens = {token.content: i for i, token in added.items() if token.special}
        unk = model.unk_token
        if unk is None and model.unk_id is not None:
            unk = tokenizer.id_to_token(model.unk_id)
        self.unk_id = tokenizer.token_to_id(unk) if unk else None
        self.prefix, self.suffix = _surroundings(tokenizer, file.origin)
        around = max((*self.prefix, *self.suffix), default=0)
        if around > self.largest_id:
            why = f"its post-processor adds id {around}; its largest id is {self.largest_id}"
            raise cannot_load(file.origin, why)
        # Encoding adds no special tokens anyway, but a post-processor would trim the offsets.
        tokenizer.post_processor = None

    def token_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text; long batches take several calls, to save memory."""
        arrays: list[UInt32Array] = []
        start = characters = 0
        for stop, text in enumerate(texts, 1):
            characters += len(text)
            if characters >= CALL_CHARACTERS or stop == len(texts):
                encodings = self._tokenizer.encode_batch_fast(
                    list(texts[start:stop]), add_special_tokens=False
                )
                arrays += [np.array(encoding.ids, np.uint32) for encoding in encodings]
                start, characters = stop, 0
        return batch_of(arrays)

    def normalize(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer else text

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ranges = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return np.array(encoding.ids, np.uint32), ranges[:, 0], ranges[:, 1]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def _refuse_equal_tokens(normalizer: Any, added: Iterable[Any], origin: str) -> None:
    """Refuse added tokens that the normalizer makes equal: the library picks one by chance."""
    contents: dict[str, str] = {}
    for token in added:
        if normalizer is None or not token.normalized:
            continue
        text = normalizer.normalize_str(token.content)
        first = contents.setdefault(text, token.content)
        if text and first != token.content:
            why = f"its normalizer makes the added tokens {first!r} and {token.content!r} equal"
            hint = 'set "normalized": false for one of them in tokenizer.json'
            raise UserError("the tokenizer is random", where=origin, why=why, hint=hint)


def _surroundings(tokenizer: Any, origin: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the post-processor puts before and after a text."""
    for text in _probes(tokenizer):
        with load_failures(origin, f"the tokenizer cannot encode {text[:80]!r}"):
            bare = tokenizer.encode(text, add_special_tokens=False).ids
        if bare:
            whole = tokenizer.encode(text, add_special_tokens=True).ids
            starts = range(len(whole) - len(bare) + 1)
            start = next((i for i in starts if whole[i : i + len(bare)] == bare), None)
            if start is None:
                why = "its post-processor changes the tokens of a text"
                raise cannot_load(origin, why)
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def _probes(tokenizer: Any) -> Iterator[str]:
    """Yield a letter, which most tokenizers know, then the tokens of the vocabulary."""
    yield "a"
    yield from tokenizer.get_vocab()


def _is_tokenizer_json(path: Path, data: bytes) -> bool:  # noqa: ARG001
    if data.lstrip()[:1] != b"{":
        return False
    try:
        return bytes(msgspec.json.decode(data, type=_Sections).model)[:1] == b"{"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


KIND = TokenizerKind(
    name="huggingface",
    library="tokenizers",
    file_name="tokenizer.json",
    is_file=_is_tokenizer_json,
    check=check_tokenizer_json,
    reference=HuggingFaceReference,
    components=json_components,
    json_of=lambda file, control_tokens: file.data,
    outline_of=lambda file, control_tokens: read_tokenizer(file.data),
    is_json=True,
)
