"""Convert a SentencePiece model to a tokenizer.json.

Both give the same ids, with a few exceptions that `train` cannot avoid:

- texts that the two normalizers treat differently, see `words/sentencepiece.py`;
- texts that spell a control or byte piece: SentencePiece splits "<s>" and "<0x41>" into characters,
  but the `tokenizers` library matches the pieces;
- Unigram: segmentations with nearly equal scores, because SentencePiece adds scores in float32 over
  a whole text, and the other library in float64 over a word;
- BPE: a piece with several splits that overlaps with itself: SentencePiece merges the leftmost one
  first, and the other library the one with the split listed first;
- user-defined symbols: SentencePiece puts its ▁ before a text that begins with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.sentencepiece import (
    BPE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    ModelFile,
    metaspace,
)

Json = dict[str, Any]


def conversion_objection(model: ModelFile) -> str:
    """Return why a model cannot be converted; "" if it can."""
    spaced = [p.text for p in model.pieces if p.type == USER_DEFINED and SPACE in p.text]
    if spaced:
        return f"the user-defined symbol {spaced[0]!r} contains a space"
    return ""


def tokenizer_json(model: ModelFile) -> Json:
    """Convert a model for the `tokenizers` library.

    Raises:
        UserError: the model cannot be converted.
    """
    if objection := conversion_objection(model):
        raise UserError("cannot convert the model to tokenizer.json", why=objection)
    steps, pre_tokenizer = _steps(model)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(model),
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": _decoder(model),
        "model": _bpe(model) if model.type == BPE else _unigram(model),
    }


def differing_texts(model: bytes, tokenizer: Json, texts: Sequence[str]) -> list[int]:
    """Return the indexes of texts that a model and its conversion encode differently."""
    files = (
        TokenizerFile("sentencepiece", model),
        TokenizerFile("huggingface", msgspec.json.encode(tokenizer)),
    )
    batches = [load_reference(file, control_tokens=False).encode(texts) for file in files]
    ours, theirs = ([part.ids for part in b.split([1] * len(texts))] for b in batches)
    return [i for i, ids in enumerate(ours) if not np.array_equal(ids, theirs[i])]


def _added_tokens(model: ModelFile) -> list[Json]:
    return [
        {
            "id": i,
            "content": piece.text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": piece.type != USER_DEFINED,
        }
        for i, piece in enumerate(model.pieces)
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _steps(model: ModelFile) -> tuple[list[Json], Json | None]:
    """Return the normalizer and the pre-tokenizer.

    If a text may begin with a space, a normalizer must add the ▁, because Metaspace adds none
    before another ▁. Llama 2 uses this form without a pre-tokenizer, so fast engines support it.
    With added tokens it must be Metaspace: a normalizer would add a ▁ after each of them.
    """
    steps, prefixed = model.normalizer.steps(), model.normalizer.add_prefix
    if any(piece.type == USER_DEFINED for piece in model.pieces):
        return steps, metaspace("first" if prefixed else "never")
    if not prefixed or model.normalizer.join_spaces:
        return steps, metaspace("always" if prefixed else "never")
    steps.append({"type": "Prepend", "prepend": SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return steps, None if model.type == BPE else metaspace("never")


def _decoder(model: ModelFile) -> Json:
    decoders: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if model.normalizer.add_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": decoders}


def _unigram(model: ModelFile) -> Json:
    return {
        "type": "Unigram",
        "unk_id": model.unk_id,
        "vocab": [[piece.text, piece.score] for piece in model.pieces],
        "byte_fallback": model.byte_fallback,
    }


def _bpe(model: ModelFile) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.unk_id].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": False,
        "vocab": {piece.text: i for i, piece in enumerate(model.pieces)},
        "merges": _merges(model),
    }


def _merges(model: ModelFile) -> list[list[str]]:
    """Return every split of every piece into two others, by the piece's score.

    SentencePiece stores no pairs: it merges any two pieces that form a third.
    """
    normal = [piece for piece in model.pieces if piece.type == NORMAL]
    known = {piece.text for piece in normal}
    merges = []
    for piece in sorted(normal, key=lambda piece: -piece.score):
        splits = [(piece.text[:k], piece.text[k:]) for k in range(1, len(piece.text))]
        merges += [[left, right] for left, right in splits if left in known and right in known]
    return merges
