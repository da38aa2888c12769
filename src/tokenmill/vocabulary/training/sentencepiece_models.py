"""Train SentencePiece models: a .model file, or a Unigram model as tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import BYTES, Json
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.sentencepiece import ModelFile, read_model
from tokenmill.encode.words.splits import SENTENCEPIECE_SPLITS
from tokenmill.store.canonical import canonical_json
from tokenmill.vocabulary.sentencepiece.trainer import train_sentencepiece
from tokenmill.vocabulary.sentencepiece.trainer_options import DEFAULT_PIECES, SentencePieceOptions
from tokenmill.vocabulary.training.tokenizer_json import compose
from tokenmill.vocabulary.training.training_input import TrainedModel, TrainingInput, Vocabulary

COMPARED_WORDS = 2_000
USUAL_COVERAGE = 0.9995
USUAL_PIECE_CHARACTERS = 16
"""SentencePiece's defaults."""


def learn_sentencepiece(given: TrainingInput, advance: Advance) -> TrainedModel:
    """Train a .model file.

    Raises:
        UserError: the words have another split, or SentencePiece rejects the options.
        EngineError: the library failed.
    """
    options = _options(given)
    trained = train_sentencepiece(given.words, options, advance)
    pieces = [piece.text for piece in read_model(trained.data).pieces]
    special_ids = {content: pieces.index(content) for content in given.specials.contents}
    special_ids = dict(sorted(special_ids.items(), key=lambda token: token[1]))
    remarks = []
    if trained.long_words:
        remarks.append(f"{trained.long_words:,} words of over 4,096 characters were cut")
    if trained.reserved_words:
        remarks.append(f"{trained.reserved_words:,} words were cut at U+0000 or U+2585")
    vocabulary = Vocabulary(len(pieces), special_ids, {"tokenizer.model": trained.data})
    return TrainedModel([vocabulary], remarks=remarks)


def learn_unigram(given: TrainingInput, advance: Advance) -> TrainedModel:
    """Train a .model file, and convert it to a tokenizer.json.

    Both give the same ids, except for texts that the two normalizers treat differently (see
    `encode/words/sentencepiece.py`), texts that spell a control or byte piece, and segmentations
    with nearly equal scores: SentencePiece adds scores in float32 over a whole text, and the
    `tokenizers` library in float64 over a word.

    Raises:
        UserError: the words have another split, or SentencePiece rejects the options.
        EngineError: the library failed.
    """
    trained = learn_sentencepiece(given, advance)
    vocabulary = trained.vocabularies[0]
    data = vocabulary.files["tokenizer.model"]
    model = unigram_model(read_model(data))
    tokenizer = compose(given.split, model, vocabulary.special_ids, given.specials.roles)
    remarks = list(trained.remarks)
    texts = _some_words(given.words)
    if differing := len(differing_texts(data, {**tokenizer, "post_processor": None}, texts)):
        remarks.append(
            f"{differing:,} of {len(texts):,} words are encoded differently than by SentencePiece, "
            "because two segmentations have nearly the same score"
        )
    files = {"tokenizer.json": canonical_json(tokenizer)}
    return TrainedModel([replace(vocabulary, files=files)], remarks=remarks)


def unigram_model(model: ModelFile) -> Json:
    """Return the Unigram model of the `tokenizers` library for a SentencePiece model."""
    return {
        "type": "Unigram",
        "unk_id": model.unk_id,
        "vocab": [[piece.text, piece.score] for piece in model.pieces],
        "byte_fallback": model.byte_fallback,
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


def _options(given: TrainingInput) -> SentencePieceOptions:
    options, specials = given.options.vocabulary, given.specials
    rule = SENTENCEPIECE_SPLITS.get(given.split.name)
    if rule is None:
        raise UserError(
            f"{options.model} cannot be trained on words of the split {given.split.name!r}",
            why="SentencePiece splits and normalizes words itself",
            hint=f"choose --split {' or '.join(SENTENCEPIECE_SPLITS)}",
        )
    if specials.last or specials.fixed_ids:
        what = "SentencePiece numbers special tokens itself"
        raise UserError(what, hint="remove --special-at and fixed ids")
    for content in specials.contents:
        if len(content) == 1 or (options.byte_fallback and content in BYTES):
            raise UserError(
                f"{content!r} cannot be a special token",
                why="SentencePiece would never produce this piece from text",
                hint="choose one that does not occur in texts, such as '<|im_start|>'",
            )
    roles = {role: specials.roles[role] for role in DEFAULT_PIECES if role in specials.roles}
    named = set(roles.values())
    return SentencePieceOptions(
        model="bpe" if options.model == "sentencepiece-bpe" else "unigram",
        vocabulary_size=given.options.size,
        normalization=rule,
        character_coverage=options.character_coverage or USUAL_COVERAGE,
        byte_fallback=options.byte_fallback,
        split_digits=options.digits == "single",
        max_piece_characters=options.max_token_length or USUAL_PIECE_CHARACTERS,
        specials=roles,
        control_symbols=tuple(name for name in specials.contents if name not in named),
    )


def _some_words(words: WordCounts) -> list[str]:
    """Return words spread over the whole alphabet, as texts."""
    step = max(len(words) // COMPARED_WORDS, 1)
    return [words.word(i).decode().replace("▁", " ").strip() for i in range(0, len(words), step)]
