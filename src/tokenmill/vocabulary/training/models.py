"""The models that can be trained, with the function that trains each."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.core.records import Advance
from tokenmill.vocabulary.training.bpe_models import learn_bpe
from tokenmill.vocabulary.training.lesson import Learned, Lesson
from tokenmill.vocabulary.training.options import OF_SENTENCEPIECE, Model
from tokenmill.vocabulary.training.sentencepiece_models import learn_sentencepiece, learn_unigram
from tokenmill.vocabulary.training.word_models import learn_whole_words, learn_word_pieces

MODELS: dict[Model, Callable[[Lesson, Advance], Learned]] = {
    "bpe": learn_bpe,
    "wordpiece": learn_word_pieces,
    "wordlevel": learn_whole_words,
    "unigram": learn_unigram,
    "sentencepiece-bpe": learn_sentencepiece,
    "sentencepiece-unigram": learn_sentencepiece,
}
LIBRARIES: dict[Model, tuple[str, ...]] = {
    **dict.fromkeys(MODELS, ("numba", "tokenizers")),
    **dict.fromkeys(OF_SENTENCEPIECE, ("numba", "sentencepiece", "tokenizers")),
}
"""Libraries with a recorded version, in addition to tokenmill's own."""


def learn(lesson: Lesson, advance: Advance) -> Learned:
    """Train the model that the options name."""
    return MODELS[lesson.options.vocabulary.model](lesson, advance)
