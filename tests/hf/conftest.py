"""What all tests of this folder share."""

from __future__ import annotations

import pytest

from tokenmill.encode import exactness


@pytest.fixture(autouse=True)
def short_exam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a tokenizer is what takes the time of these tests."""
    monkeypatch.setattr(exactness, "adversarial_texts", lambda special_tokens: ["a", "\n\n b"])
