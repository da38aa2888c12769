"""Decide which BPE tokenizers the native engine encodes exactly, without importing numba."""

from __future__ import annotations

import re

from tokenmill.encode.engines.chunks.locality import (
    Json,
    locality_objection,
    matched_tokens,
    normalizers,
    pre_tokenizers,
)
from tokenmill.encode.engines.gate import needed_bytes
from tokenmill.encode.words.patterns import (
    CLIP_SPECIALS,
    CLIP_SPLIT,
    NUMBERS,
    SCANNED_SPLITS,
    with_numbers,
)

MARK = "▁"
PREPEND: Json = {"type": "Prepend", "prepend": MARK}
MARK_SPACES: Json = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
SINGLE_DIGITS: Json = {"type": "Digits", "individual_digits": True}


def _split(pattern: str, behavior: str, invert: bool) -> Json:
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": behavior, "invert": invert}


_SPACES = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_CLIP_NORMALIZER = [{"type": "NFC"}, _SPACES, {"type": "Lowercase"}]
_GPT2: Json = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_CLIP_PATTERNS = (CLIP_SPLIT, "|".join([*map(re.escape, CLIP_SPECIALS), CLIP_SPLIT]))
_CLIP = [[_split(pattern, "Removed", True), _GPT2] for pattern in _CLIP_PATTERNS]
_FALCON = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    _GPT2,
    {"type": "Digits", "individual_digits": False},
    _split("[0-9][0-9][0-9]", "Isolated", False),
]
_SCANNED = {*SCANNED_SPLITS, *(with_numbers(s, n) for s in SCANNED_SPLITS for n in NUMBERS)}
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def bpe_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode this BPE tokenizer exactly; "" if it can."""
    model = tokenizer["model"]
    if is_byte_level(tokenizer):
        return (
            _byte_steps_objection(tokenizer)
            or _model_objection(model, suffix=True)
            or _byte_model_objection(model)
            or locality_objection(tokenizer, control_tokens)
        )
    if is_bert(tokenizer):
        return (
            _model_objection(model, suffix=True)
            or _character_model_objection(model)
            or locality_objection(tokenizer, control_tokens)
        )
    return (
        _steps_objection(tokenizer)
        or _model_objection(model)
        or _character_model_objection(model)
        or _added_objection(tokenizer, matched_tokens(tokenizer, control_tokens))
    )


def is_byte_level(tokenizer: Json) -> bool:
    """Whether a model starts from bytes instead of characters."""
    return any(step["type"] == "ByteLevel" for step in pre_tokenizers(tokenizer))


def is_bert(tokenizer: Json) -> bool:
    """Whether words are split like BERT's."""
    before = [step["type"] for step in normalizers(tokenizer)]
    found = [step["type"] for step in pre_tokenizers(tokenizer)]
    return before in ([], ["BertNormalizer"]) and found == ["BertPreTokenizer"]


def _model_objection(model: Json, *, suffix: bool = False) -> str:
    checks = {
        "a BPE without merges": "merges" not in model,
        "dropout": bool(model.get("dropout")),
        "a subword prefix": bool(model.get("continuing_subword_prefix")),
        "a word suffix": bool(model.get("end_of_word_suffix"))
        and (not suffix or bool(model.get("byte_fallback"))),
        "ignore_merges": bool(model.get("ignore_merges")),
        "tokens that share an id": len({*model["vocab"].values()}) != len(model["vocab"]),
    }
    return next((name for name, found in checks.items() if found), "")


def _character_model_objection(model: Json) -> str:
    vocab, unknown = model["vocab"], model.get("unk_token")
    falls_back = bool(model.get("byte_fallback"))
    opaque = {*_BYTES, unknown} if unknown is not None else {*_BYTES}
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    if unknown is not None and unknown not in vocab:
        return "an unknown token outside the vocabulary"
    if falls_back and not vocab.keys() >= set(_BYTES):
        return "bytes that are missing from the vocabulary"
    if falls_back and MARK not in vocab:
        return "a ▁ that is missing from the vocabulary"
    if not all(map(opaque.isdisjoint, merges)):
        return "merges of bytes or of the unknown token"
    return ""


def _byte_model_objection(model: Json) -> str:
    needed, suffix = needed_bytes(sentencepiece=False), model.get("end_of_word_suffix") or ""
    missing = not model["vocab"].keys() >= needed.union(byte + suffix for byte in needed)
    return "bytes that are missing from the vocabulary" if missing else ""


def _byte_steps_objection(tokenizer: Json) -> str:
    """Return why `words/scanning.py` cannot split texts into the words; "" if it can."""
    is_clip = splits_like_clip(tokenizer)
    if normalizers(tokenizer) not in ([], [{"type": "NFC"}], [{"type": "NFKC"}]) and not is_clip:
        return "a normalizer"
    if is_clip or splits_like_falcon(tokenizer):
        return ""
    *splits, byte_level = pre_tokenizers(tokenizer)
    uses_regex = byte_level["type"] == "ByteLevel" and bool(byte_level.get("use_regex", True))
    scanned = splits in ([], [SINGLE_DIGITS]) if uses_regex else _is_scanned(splits)
    if byte_level["type"] != "ByteLevel" or not scanned:
        return "a split without compiled code"
    return "a prefix space" if byte_level.get("add_prefix_space", True) else ""


def splits_like_clip(tokenizer: Json) -> bool:
    """Whether texts are normalized and split like CLIP's: in lower case, without white space."""
    return normalizers(tokenizer) == _CLIP_NORMALIZER and _for_ids(tokenizer) in _CLIP


def splits_like_falcon(tokenizer: Json) -> bool:
    """Whether texts are split like Falcon's: at punctuation, and digits by three."""
    return _for_ids(tokenizer) == _FALCON


def _for_ids(tokenizer: Json) -> list[Json]:
    """Return the pre-tokenizers, without what affects only offsets, and with defaults."""
    found = []
    for step in pre_tokenizers(tokenizer):
        defaults = {"use_regex": True} if step["type"] == "ByteLevel" else {}
        found.append({k: v for k, v in (defaults | step).items() if k != "trim_offsets"})
    return found


def _is_scanned(splits: list[Json]) -> bool:
    # Both options do the same, because the patterns match every character.
    covering = {("Isolated", False), ("Removed", True)}
    return (
        len(splits) == 1
        and splits[0]["type"] == "Split"
        and (splits[0].get("behavior"), bool(splits[0].get("invert"))) in covering
        and splits[0]["pattern"].get("Regex") in _SCANNED
    )


def _steps_objection(tokenizer: Json) -> str:
    """Return why the steps before the model are not supported; "" if they are."""
    before, steps = normalizers(tokenizer), pre_tokenizers(tokenizer)
    for step in before:
        if step not in (PREPEND, MARK_SPACES):
            return f"normalizer {step['type']}"
    if before.count(PREPEND) > 1:
        return "two prefixes"
    marks_spaces = MARK_SPACES in before
    if any(map(_splits_at_spaces, steps)) and marks_spaces:  # no spaces are left to split at
        steps = [step for step in steps if not _splits_at_spaces(step)]
    metaspaces = metaspaces_of(tokenizer)
    if steps != metaspaces or len(steps) > 1:
        return f"pre-tokenizer {' + '.join(step['type'] for step in steps)}"
    if PREPEND in before and not (marks_spaces or metaspaces):
        return "a prefix other than a space"
    return ""


def metaspaces_of(tokenizer: Json) -> list[Json]:
    """Return the Metaspace steps, which turn spaces into ▁."""
    return [
        step
        for step in pre_tokenizers(tokenizer)
        if step["type"] == "Metaspace"
        and step.get("replacement") == MARK
        and step.get("prepend_scheme") in {"always", "first", "never"}
    ]


def _splits_at_spaces(step: Json) -> bool:
    """Whether a pre-tokenizer only splits at spaces, like Gemma's."""
    return step["type"] == "Split" and step["pattern"] == {"String": " "} and not step.get("invert")


def prefixes_texts(tokenizer: Json) -> bool:
    """Whether a ▁ is put before texts, and so perhaps before the text after an added token."""
    schemes = [step.get("prepend_scheme") for step in metaspaces_of(tokenizer)]
    return PREPEND in normalizers(tokenizer) or any(scheme != "never" for scheme in schemes)


def is_plain(token: Json) -> bool:
    """Whether an added token matches raw text, whatever is beside it."""
    return not any(map(token.get, ("normalized", "lstrip", "rstrip", "single_word")))


def _added_objection(tokenizer: Json, tokens: list[Json]) -> str:
    if not prefixes_texts(tokenizer):
        tokens = [token for token in tokens if not is_plain(token)]
    blank = any(not token["content"].replace(MARK, " ").strip() for token in tokens)
    return "an added token of only spaces" if blank else ""
