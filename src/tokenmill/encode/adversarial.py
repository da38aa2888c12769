"""Strings that are likely to break engines: fixed ones, and others chosen for a tokenizer.

Every machine with the same tokenizer and the same version of `tokenizers` tries the same ones.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable

NUM_STRINGS = 3_000
NUM_MIXES = 500
OF_EACH_CLASS = 2
_RANGES = (
    *((0x0, 0x3400, 1), (0x3400, 0xA000, 61), (0xA000, 0xAC00, 1), (0xAC00, 0xF900, 61)),
    *((0xF900, 0x10000, 1), (0x10000, 0x20000, 61)),
)
"""First, stop and step of the characters to choose from; ideographs, Hangul, private and rare ones
are sampled."""
_SEPARATOR = "\u1200"
"""A letter without case that no published normalizer changes or composes."""
_BROKEN = (("n", "\u0301"), ("\u304b", "\u3099"), ("<", "\u0338"), ("e\u0301", "\u0323"))
"""Pairs that compose, and marks that are reordered, unless a character keeps them apart."""

_SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 28, 29, 30, 31, 32, 133, 160, 0x1680, 0x180E)]
_SPACES += [
    chr(c) for c in (*range(0x2000, 0x200E), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF)
]
_ATOMS = [
    *_SPACES,
    *("\r\n", "\n\n", "\x00", "  ", "   ", "\t\t", " " * 17, "\n" * 9),
    *("'s", "'S", "'\u017f", "''s", "'re", "'LL", "\u2019s", "don't", "I'M"),
    *("a", "the", " of", "Hello", "WORLD", "camelCase", "snake_case", "x1y2", "über", "naïve"),
    *("0", "7", "42", "2024", "1234567", "3.14", "1,000", "\u0661\u0662", "\u00bd", "\u2167"),
    *("!", "?!", "...", "->", "==", "//", "/*", "*/", "</", "<|", "|>", "{}", "();", "$", "@", "#"),
    *(
        "e\u0301",
        "\u00e9",
        "a\u0323\u0307",
        "a\u0307\u0323",
        "\u212b",
        "\u1100\u1161\u11a8",
        "\uac01",
    ),
    *("Привет", "мир", "γλώσσα", "עברית", "العربية", "हिन्दी", "ไทย", "မြန်မာ", "ქართული"),
    *("中文", "你好", "日本語", "カタカナ", "한국어", "\U00020000", "\U0002b740"),
    *("😀", "👩\u200d👩\u200d👧", "🇩🇪", "1\ufe0f\u20e3", "🏴\U000e0067\U000e0062", "\U0001f1e6"),
    *("\ufffd", "\uffff", "\ue000", "\U0010ffff", "\u200b", "\u200d", "\u2060"),
    *("http://a.b/c?d=e&f", "user@example.com", "C:\\dir", "0xDEADBEEF", "a" * 40, "=" * 33),
    *(
        "def f(x):\n    return x",
        "    if (a) {\n\t\tb();\n    }",
        "SELECT * FROM t;",
        "<s>",
        "</s>",
    ),
]


def adversarial_texts(special_tokens: Iterable[str]) -> list[str]:
    """Return the fixed strings: each atom alone, doubled and between letters, then random mixes."""
    specials = sorted(special_tokens)[:64]
    atoms = [*_ATOMS, *specials, *(token[:-1] for token in specials)]
    texts = [text for atom in atoms for text in (atom, atom * 2, f"a{atom}b", f" {atom} ")]
    source = random.Random(20240229)  # noqa: S311 - a fixed choice, not a secret
    while len(texts) < NUM_STRINGS:
        texts.append("".join(source.choices(atoms, k=source.randint(2, 12))))
    return texts


def texts_of_classes(normalize: Callable[[str], str]) -> list[str]:
    """Return pairs, triples and longer texts of characters that a tokenizer treats differently.

    A class has characters of the same kind and the same length in UTF-8 that `normalize`, the
    tokenizer's own normalizer, treats alike: drops, keeps, or changes to the same kind of text.
    """
    source = random.Random(20261123)  # noqa: S311 - a fixed choice, not a secret
    drawn = [
        character
        for members in _classes(normalize)
        for character in source.sample(members, min(len(members), OF_EACH_CLASS))
    ]
    texts = [f"{first}{c}{mark}" for c in drawn for first, mark in _BROKEN]
    alphabet = [*drawn, *(part for pair in _BROKEN for part in pair)]
    return texts + ["".join(source.choices(alphabet, k=2 + i % 3)) for i in range(NUM_MIXES)]


def _classes(normalize: Callable[[str], str]) -> list[list[str]]:
    from tokenmill.encode.words.characters import SURROGATES, characters  # its imports take 60 ms

    codes = [code for each in _RANGES for code in range(*each) if code not in SURROGATES]
    every = [chr(code) for code in codes if chr(code) != _SEPARATOR]
    images = normalize(_SEPARATOR.join(every)).split(_SEPARATOR)
    if len(images) != len(every):  # the separator is not kept; its Unicode class is left
        images = every
    classes, composition = (values.tobytes() for values in characters())
    found = defaultdict(list)

    def kind(text: str) -> tuple[int, ...]:
        if not text:
            return ()
        return classes[ord(text[-1])], composition[ord(text[-1])], len(text[:2])

    for character, image in zip(every, images, strict=True):
        changed = image != character and kind(image)
        found[kind(character), len(character.encode()), changed].append(character)
    return list(found.values())
