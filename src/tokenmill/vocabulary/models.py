"""The models that can be trained: one function each, from a lesson to vocabularies."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.records import Advance
from tokenmill.vocabulary.learning import Learned, Lesson
from tokenmill.vocabulary.learning_bpe import learn_bpe
from tokenmill.vocabulary.options import Model

MODELS: dict[Model, Callable[[Lesson, Advance], Learned]] = {"bpe": learn_bpe}
LIBRARIES: dict[Model, tuple[str, ...]] = {"bpe": ("tokenizers",)}
"""What decides the bytes of the result, beside tokenmill itself."""


def learn(lesson: Lesson, advance: Advance) -> Learned:
    """Train the model that the options name."""
    return MODELS[lesson.options.vocabulary.model](lesson, advance)
