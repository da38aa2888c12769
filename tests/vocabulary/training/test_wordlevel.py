"""WordLevel against the library's trainer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.training.word_models import most_frequent_words


@given(
    st.dictionaries(st.text("aбと😀", min_size=1, max_size=3), st.integers(1, 4), min_size=1),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_words_are_those_of_the_library_in_its_order(counts, size, min_frequency):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_frequency, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator([f"{word} " * n for word, n in counts.items()], trainer)
    vocab = tokenizer.get_vocab()
    words = WordCounts.of({word.encode(): count for word, count in counts.items()})
    assert most_frequent_words(words, size, min_frequency) == sorted(vocab, key=vocab.__getitem__)


def test_counts_beyond_32_bits_are_in_order():
    words = WordCounts.of({b"a": 2**40, b"b": 2**40 + 1, b"c": 2**62})
    assert most_frequent_words(words, 3) == ["c", "b", "a"]
