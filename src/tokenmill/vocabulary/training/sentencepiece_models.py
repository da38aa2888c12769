"""Train SentencePiece models: a .model file, or a Unigram model as tokenizer.json."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.sentencepiece import read_model
from tokenmill.encode.words.splits import SENTENCEPIECE_SPLITS
from tokenmill.vocabulary.sentencepiece.conversion import differing_texts, tokenizer_json
from tokenmill.vocabulary.sentencepiece.trainer import train_sentencepiece
from tokenmill.vocabulary.sentencepiece.trainer_options import NO_ID, SentencePieceOptions
from tokenmill.vocabulary.training.options import Role
from tokenmill.vocabulary.training.tokenizer_json import BYTE_TOKENS, post_processor, spelled
from tokenmill.vocabulary.training.training_input import TrainedModel, TrainingInput, Vocabulary

COMPARED_WORDS = 2_000
_ID_ROLES: tuple[Role, ...] = ("unk", "bos", "eos", "pad")
"""The roles in SentencePiece; all other special tokens are control symbols."""


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

    Raises:
        UserError: the words have another split, or SentencePiece rejects the options.
        EngineError: the library failed.
    """
    learned = learn_sentencepiece(given, advance)
    vocabulary = learned.vocabularies[0]
    data = vocabulary.files["tokenizer.model"]
    tokenizer = tokenizer_json(read_model(data))
    tokenizer["post_processor"] = post_processor(
        given.split, tokenizer["model"], vocabulary.special_ids, given.specials.roles
    )
    texts = _some_words(given.words)
    remarks = list(learned.remarks)
    if differing := len(differing_texts(data, tokenizer, texts)):
        remarks.append(
            f"{differing:,} of {len(texts):,} words are encoded differently than by SentencePiece, "
            "because two segmentations have nearly the same score"
        )
    files = {"tokenizer.json": spelled(tokenizer)}
    return TrainedModel([replace(vocabulary, files=files)], remarks=remarks)


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
        if len(content) == 1 or (options.byte_fallback and content in BYTE_TOKENS):
            raise UserError(
                f"{content!r} cannot be a special token",
                why="SentencePiece would never produce this piece from text",
                hint="choose one that does not occur in texts, such as '<|im_start|>'",
            )
    ids = {role: i for i, role in enumerate(r for r in _ID_ROLES if r in specials.roles)}
    named = {specials.roles[role] for role in ids}
    defaults = SentencePieceOptions(model="bpe", vocabulary_size=0)
    coverage, longest = options.character_coverage, options.max_token_length
    made = SentencePieceOptions(
        model="bpe" if options.model == "sentencepiece-bpe" else "unigram",
        vocabulary_size=given.options.size,
        normalization=rule,
        character_coverage=defaults.character_coverage if coverage is None else coverage,
        byte_fallback=options.byte_fallback,
        split_digits=options.digits == "single",
        max_piece_characters=longest or defaults.max_piece_characters,
        control_symbols=tuple(name for name in specials.contents if name not in named),
    )
    pieces = {f"{role}_piece": specials.roles[role] for role in ids}
    numbers = {f"{role}_id": ids.get(role, NO_ID) for role in _ID_ROLES}
    return replace(made, **pieces, **numbers)  # type: ignore[arg-type]


def _some_words(words: WordCounts) -> list[str]:
    """Return words spread over the whole alphabet, as texts."""
    step = max(len(words) // COMPARED_WORDS, 1)
    return [words.word(i).decode().replace("▁", " ").strip() for i in range(0, len(words), step)]
