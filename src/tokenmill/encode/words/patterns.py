"""Regular expressions of published tokenizers, each known to terminate on any text."""

from __future__ import annotations

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN3_5_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_SPLIT = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DIGIT_GROUPS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
"""Groups of three from the right, as numbers are written: 1 234 567 (arXiv 2402.14903)."""
TEKKEN_SPLIT = O200K_SPLIT.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
DEEPSEEK3_SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
CLIP_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
CLIP_SPECIALS = ("<|startoftext|>", "<|endoftext|>")
"""Some files of CLIP have these as further alternatives of the split."""
JOINED_SPACES = frozenset({" {2,}", r"\s+", r"\s{2,}|[\n\r\t]"})
"""Patterns of normalizers that replace several spaces with one."""
FIRST_SPACE, LAST_SPACE = r"\A ", r" \z"
"""Patterns of normalizers that strip spaces. Spaces were joined before, so matches are short."""
NUMBERS = (r"\p{N}", DIGIT_GROUPS)
"""Other patterns for numbers in published splits."""
SCANNED_SPLITS = (LLAMA3_SPLIT, QWEN3_5_SPLIT, O200K_SPLIT, TEKKEN_SPLIT)
"""Splits that compiled scanners support, with any pattern for numbers."""


def with_numbers(split: str, number: str) -> str:
    """Return a split with another pattern for numbers."""
    return split.replace(r"|\p{N}{1,3}|", r"|\p{N}|").replace(r"|\p{N}|", f"|{number}|")


KNOWN_PATTERNS = JOINED_SPACES.union(
    (FIRST_SPACE, LAST_SPACE),
    (LLAMA3_SPLIT, QWEN2_SPLIT, QWEN3_5_SPLIT, O200K_SPLIT, TEKKEN_SPLIT, DIGIT_GROUPS),
    (split.replace(r"\p{N}{1,3}", DIGIT_GROUPS) for split in (LLAMA3_SPLIT, O200K_SPLIT)),
    DEEPSEEK3_SPLITS,
)
"""Patterns that are safe to run. A tokenizer with any other pattern is first tried in a separate
process (`probe.py`). Fast engines only get patterns from this list."""
