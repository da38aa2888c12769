"""Classes of characters, against the tokenizers library."""

import numpy as np
import pytest
from tokenizers import Regex, normalizers

from tokenmill.encode.words import characters as module
from tokenmill.encode.words.characters import (
    CASELESS,
    LOWER,
    MARK,
    NUMBER,
    SPACE,
    UPPER,
    ask_library,
    characters,
)
from tokenmill.kernels.constants import COMPOSED, FIXED, REORDERED

CODES = [*range(0xD800), *range(0xE000, 0x110000)]


def test_the_answers_that_are_kept_are_those_of_the_library():
    """`python -m tokenmill.encode.words.characters` writes those of another version."""
    kept, asked = characters(), ask_library()
    assert np.array_equal(kept.classes, asked.classes)
    assert np.array_equal(kept.composition, asked.composition)


@pytest.mark.parametrize(
    ("regex", "bits"),
    [(r"\p{L}", UPPER | LOWER | CASELESS), (r"\p{M}|\p{N}|\s", MARK | NUMBER | SPACE)],
)
def test_every_code_point_has_the_class_that_a_regex_finds(regex, bits):
    text = "".join(map(chr, CODES))
    replaced = normalizers.Replace(Regex(regex), "\0").normalize_str(text)
    found = [a != b for a, b in zip(text, replaced, strict=True)]
    assert np.array_equal((characters().classes[CODES] & bits > 0), found)


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        *(("a", FIXED), ("é", FIXED), ("한", FIXED), ("\u0334", REORDERED), ("\u0e48", REORDERED)),
        *(("\u0301", COMPOSED), ("\u212b", COMPOSED), ("\u1161", COMPOSED), ("\u0344", COMPOSED)),
    ],
)
def test_what_nfc_does_with_a_character(character, kind):
    assert characters().composition[ord(character)] == kind


def test_another_version_of_the_library_is_asked(monkeypatch):
    monkeypatch.setattr(module.importlib.metadata, "version", lambda name: "0.0.1")
    monkeypatch.setattr(module, "ask_library", lambda: "asked")
    assert characters.__wrapped__() == "asked"
