"""How the tokenizers library classifies each character: letter, digit, space, and so on.

Its regex engine, its own code and Python follow different versions of Unicode, so the classes are
measured with the library for every code point. This takes 3 s, so the results for one version are
stored next to this module; other versions are measured once per process.
`python -m tokenmill.encode.words.characters` writes the results.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.resources
import zlib
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill.core.records import UInt8Array
from tokenmill.kernels.constants import COMPOSED, REORDERED

NUM_CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
MEASURED = "characters.json"
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""The characters with Unicode's property White_Space."""

UPPER, LOWER, CASELESS, MARK, NUMBER, SPACE, SYMBOL, DIGIT = (1 << bit for bit in range(8))
"""Bits of a class: Lu and Lt; Ll; Lm and Lo; M; N; white space; P and S, all as in regexes; and the
characters that the pre-tokenizer `Digits` splits off."""
_REGEXES = {
    UPPER: r"[\p{Lu}\p{Lt}]",
    LOWER: r"\p{Ll}",
    CASELESS: r"[\p{Lm}\p{Lo}]",
    MARK: r"\p{M}",
    NUMBER: r"\p{N}",
    SPACE: r"\s",
    SYMBOL: r"[\p{P}\p{S}]",
}


class Characters(NamedTuple):
    """Classes and NFC behaviour of all code points, each of shape (NUM_CODE_POINTS,)."""

    classes: UInt8Array
    composition: UInt8Array


class _Measured(msgspec.Struct):
    tokenizers: str
    """Version of the tokenizers library."""
    classes: bytes
    composition: bytes
    """Both fields: lengths of runs (uint32, little-endian) and values (uint8), deflated."""


@functools.cache
def characters() -> Characters:
    """Return the characters of the installed library."""
    path = importlib.resources.files("tokenmill.encode.words") / MEASURED
    measured = msgspec.json.decode(path.read_bytes(), type=_Measured)
    if measured.tokenizers != importlib.metadata.version("tokenizers"):
        return ask_library()
    return Characters(_unpacked(measured.classes), _unpacked(measured.composition))


def ask_library() -> Characters:
    """Measure the characters of the installed library one by one."""
    return Characters(_ask_classes(), _ask_composition())


def _ask_classes() -> UInt8Array:
    from tokenizers import Regex, normalizers, pre_tokenizers

    classes = np.zeros(NUM_CODE_POINTS, np.uint8)
    pattern = "|".join(f"{regex}+" for regex in _REGEXES.values())
    runs = _runs(pre_tokenizers.Split(Regex(pattern), "isolated"))
    first = "".join(chr(start) for start, _ in runs)
    for bit, regex in _REGEXES.items():
        replaced = normalizers.Replace(Regex(regex), "\0").normalize_str(first)
        for (start, stop), before, after in zip(runs, first, replaced, strict=True):
            if before != after:
                classes[start:stop] |= bit
    digits = pre_tokenizers.Digits(individual_digits=False)
    for start, stop in _runs(digits):
        if len(digits.pre_tokenize_str(f"a{chr(start)}a")) > 1:
            classes[start:stop] |= DIGIT
    return classes


def _runs(pre_tokenizer: object, step: int = 1 << 11) -> list[tuple[int, int]]:
    """Return the [first, stop) ranges of code points that a pre-tokenizer does not split."""
    runs = []
    for first in range(0, NUM_CODE_POINTS, step):  # surrogates fill exactly one step
        if first not in SURROGATES:
            text = "".join(map(chr, range(first, first + step)))
            pieces = pre_tokenizer.pre_tokenize_str(text)  # type: ignore[attr-defined]
            runs += [(first + start, first + stop) for _, (start, stop) in pieces]
    return runs


def _ask_composition() -> UInt8Array:
    from tokenizers import normalizers

    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    codes = [code for code in range(NUM_CODE_POINTS) if code not in SURROGATES]
    between, low, high = (
        "\n",
        "\u0334",
        "\u0345",
    )  # marks of classes 1 and 240, the lowest and the highest
    alone = [chr(code) for code in codes if chr(code) != between]

    def made(normalizer: object, before: str, after: str) -> list[str]:
        text = between.join(before + character + after for character in alone)
        return normalizer.normalize_str(text).split(between)  # type: ignore[attr-defined,no-any-return]

    apart = made(nfd, "", "")
    later = {part for parts in apart for part in parts[1:]}
    answers = zip(
        alone, made(nfc, "", ""), apart, made(nfd, "", low), made(nfd, high, ""), strict=True
    )
    composition = np.zeros(NUM_CODE_POINTS, np.uint8)
    for character, composed, parts, before_low, after_high in answers:
        if composed != character or character in later:
            composition[ord(character)] = COMPOSED
        elif parts == character and (
            before_low != character + low or after_high != high + character
        ):
            composition[ord(character)] = REORDERED
    return composition


def _packed(values: UInt8Array) -> bytes:
    edges = np.flatnonzero(np.diff(values, prepend=~values[:1], append=~values[-1:]))
    lengths = np.diff(edges).astype("<u4")
    return zlib.compress(lengths.tobytes() + values[edges[:-1]].tobytes(), 9)


def _unpacked(packed: bytes) -> UInt8Array:
    data = zlib.decompress(packed)
    size = len(data) // 5
    return np.repeat(
        np.frombuffer(data, np.uint8, size, 4 * size), np.frombuffer(data, "<u4", size)
    )


def write_measured(path: str) -> None:
    """Write the measured classes to a file."""
    found = ask_library()
    version = importlib.metadata.version("tokenizers")
    kept = _Measured(version, _packed(found.classes), _packed(found.composition))
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(kept) + b"\n")


if __name__ == "__main__":
    write_measured(str(importlib.resources.files("tokenmill.encode.words") / MEASURED))
