"""What of a dataset is compared with the reference, and what that excludes."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizer_kit import batch_of

from tokenmill.encode.exactness import AuditSample, excluded_error_rate

RANDOM = np.random.default_rng(0)


def sampled(share: float, texts: list[str], hashes: np.ndarray, size: int) -> AuditSample:
    """The sample of some texts that come in batches."""
    sample = AuditSample(share)
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        ids = batch_of(*[[len(text)] for text in part])
        sample.add(part, ids, hashes[start : start + size], with_short=start == 0)
    return sample


def test_the_same_documents_are_drawn_in_any_batches() -> None:
    texts = [str(i) for i in range(5_000)]
    hashes = RANDOM.integers(0, 2**64, len(texts), np.uint64)
    one, many = sampled(0.01, texts, hashes, 5_000), sampled(0.01, texts, hashes, 64)
    expected = [t for t, h in zip(texts, hashes, strict=True) if 2**64 - 1 - int(h) <= 0.01 * 2**64]
    assert one.num_drawn == many.num_drawn == len(expected)
    assert 30 < len(expected) < 70
    assert set(expected) <= set(one.texts)
    assert len(one.texts) <= len(expected) + 1  # a short one stands for the unit
    assert one.ids == [[len(text)] for text in one.texts]


def test_empty_and_very_long_documents_are_not_drawn() -> None:
    texts = ["", "a", "a" * 100_000, "a" * 100_001]
    sample = sampled(0.999999, texts, np.full(4, 2**63, np.uint64), 4)
    assert [len(text) for text in sample.texts] == [0, 1, 100_000]  # the first is the short one
    assert sample.num_drawn == 2


@pytest.mark.parametrize(
    ("num_equal", "rate"), [(0, 1.0), (1, 0.95), (59, 0.0495), (2_995, 0.0009997)]
)
def test_the_excluded_error_rate_is_that_of_tables(num_equal: int, rate: float) -> None:
    assert excluded_error_rate(num_equal) == pytest.approx(rate, rel=1e-3)
