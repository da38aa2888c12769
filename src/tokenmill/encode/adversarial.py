"""Fixed strings that are likely to break engines; every machine tries the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterable

NUM_STRINGS = 3_000

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
