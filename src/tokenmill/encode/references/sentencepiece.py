"""The reference for .model files: SentencePiece."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command, installed_version
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.encode.tokenizer_bounds import load_failures


def load_processor(file: TokenizerFile) -> Any:
    """Load a model with the library.

    Raises:
        UserError: the library is not installed, or the file is not a valid model.
    """
    try:
        import sentencepiece
    except ImportError as error:
        hint = install_command("sentencepiece")
        what = "cannot load a SentencePiece model"
        raise UserError(what, why="sentencepiece is not installed", hint=hint) from error
    processor = sentencepiece.SentencePieceProcessor()
    with load_failures(file.origin):
        processor.LoadFromSerializedProto(file.data)
    return processor


class SentencePieceReference(Reference):
    """Encodes with `sentencepiece.SentencePieceProcessor`; it never matches control tokens."""

    name = "sentencepiece"

    def __init__(self, file: TokenizerFile, control_tokens: bool) -> None:
        processor = load_processor(file)
        if control_tokens:
            raise UserError(
                "SentencePiece cannot match control tokens in texts",
                hint="use the default, --special-tokens text",
            )
        self.version = installed_version("sentencepiece")
        self._processor = processor
        size = processor.GetPieceSize()
        self.largest_id = size - 1
        self.special_tokens = {
            processor.IdToPiece(i): i for i in range(size) if processor.IsControl(i)
        }
        self.unk_id = processor.unk_id() if processor.unk_id() >= 0 else None
        adds_bos = file.config.get("add_bos_token") is True and processor.bos_id() >= 0
        self.prefix: tuple[int, ...] = (processor.bos_id(),) if adds_bos else ()
        self.suffix: tuple[int, ...] = ()

    def token_id(self, token: str) -> int | None:
        found = self._processor.PieceToId(token)
        return found if self._processor.IdToPiece(found) == token else None

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        lists = self._processor.Encode(list(texts), out_type=int, num_threads=1)
        return batch_of(lists)

    def normalize(self, text: str) -> str:
        return str(self._processor.Normalize(text))

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        found = self._processor.Encode(text, return_type="offset_mapping")
        ranges = found["offsets"]
        # If a character has several pieces, the library reports it only for the last of them.
        for i in reversed(range(len(ranges) - 1)):
            if ranges[i][0] == ranges[i][1]:
                ranges[i] = ranges[i + 1]
        pairs = np.array(ranges, np.int64).reshape(-1, 2)
        return np.array(found["ids"], np.uint32), pairs[:, 0], pairs[:, 1]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids; control tokens decode to ""."""
        return str(self._processor.Decode([int(i) for i in ids]))


def _is_model(path: Path, data: bytes) -> bool:
    return data[:1] == b"\n" or (path.suffix == ".model" and data.lstrip()[:1] != b"{")


def _components(file: TokenizerFile) -> dict[str, Any]:
    """Return the digest of the model, and its pieces, which help users compare two models."""
    processor = load_processor(file)
    pieces = range(processor.GetPieceSize())
    kinds = {"control": processor.IsControl, "unknown": processor.IsUnknown}
    return {
        "model": {"type": "sentencepiece", "sha256": hashlib.sha256(file.data).hexdigest()},
        "vocabulary": [[processor.IdToPiece(i), float(processor.GetScore(i))] for i in pieces],
        "added_tokens": {
            processor.IdToPiece(i): {"id": i, "kind": kind}
            for i in pieces
            for kind, is_kind in kinds.items()
            if is_kind(i)
        },
    }


KIND = TokenizerKind(
    name="sentencepiece",
    library="sentencepiece",
    file_name="tokenizer.model",
    is_file=_is_model,
    reference=SentencePieceReference,
    components=_components,
)
