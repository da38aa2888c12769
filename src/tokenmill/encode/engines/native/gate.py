"""Decide which tokenizers the native engine encodes exactly.

Every build asks, but most use another engine. So this imports no compiled code (`numba` alone takes
0.2 s).
"""

from __future__ import annotations

import math
import re

from tokenmill.core.errors import UserError
from tokenmill.encode.engines.fastokens import needed_bytes
from tokenmill.encode.engines.locality import locality_objection
from tokenmill.encode.engines.native.pipeline import pipeline_objection
from tokenmill.encode.tokenizer_json import (
    BYTES,
    MARK,
    SINGLE_DIGITS,
    Json,
    covers_text,
    matched_contents,
    matched_tokens,
    normalizers,
    pre_tokenizers,
)
from tokenmill.encode.words.patterns import (
    CLIP_SPECIALS,
    CLIP_SPLIT,
    NUMBERS,
    SCANNED_SPLITS,
    with_numbers,
)
from tokenmill.encode.words.sentencepiece import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    ModelFile,
    read_model,
)

PREPEND: Json = {"type": "Prepend", "prepend": MARK}
MARK_SPACES: Json = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


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
_AT_WORDS = (["BertPreTokenizer"], ["Whitespace"], ["WhitespaceSplit"])
_UNIGRAM_FIELDS = {"type", "unk_id", "vocab", "byte_fallback"}
_LONGEST_PIECE = 128
"""Characters. The check looks at every position in a piece; the trainer's default limit is 16."""
_LONGEST_SYMBOL = 64
"""Characters. The library finds at most this many user-defined symbols at one position."""
_SCANNED = {*SCANNED_SPLITS, *(with_numbers(s, n) for s in SCANNED_SPLITS for n in NUMBERS)}


def native_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode this tokenizer exactly; "" if it can."""
    match tokenizer["model"].get("type"):
        case "BPE":
            return _bpe_objection(tokenizer, control_tokens)
        case "Unigram":
            return _unigram_objection(tokenizer, control_tokens)
        case "WordPiece":
            return _word_piece_objection(tokenizer, control_tokens)
        case "WordLevel":
            return _word_level_objection(tokenizer, control_tokens)
        case kind:
            return f"model {kind}"


def _bpe_objection(tokenizer: Json, control_tokens: bool) -> str:
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
    opaque = {*BYTES, unknown} if unknown is not None else {*BYTES}
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    if unknown is not None and unknown not in vocab:
        return "an unknown token outside the vocabulary"
    if falls_back and not vocab.keys() >= set(BYTES):
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
    return (
        len(splits) == 1
        and splits[0]["type"] == "Split"
        and covers_text(splits[0])
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


def _unigram_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a Unigram tokenizer exactly; "" if it can."""
    return (
        locality_objection(tokenizer, control_tokens)
        or pipeline_objection(tokenizer)
        or _unigram_model_objection(tokenizer["model"])
        or ("added tokens matched in texts" if matched_contents(tokenizer, control_tokens) else "")
    )


def _unigram_model_objection(model: Json) -> str:
    # Without an unknown token, the library fails on some texts; the reference raises that error.
    if unknown := model.keys() - _UNIGRAM_FIELDS:
        return f"a Unigram model with {min(unknown)}"
    unk_id = model.get("unk_id")
    if not isinstance(unk_id, int) or not 0 <= unk_id < len(model.get("vocab") or ()):
        return "a Unigram model without an unknown token"
    return ""


def _word_piece_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a WordPiece tokenizer exactly; "" if it can."""
    kinds = [(tokenizer.get(step) or {}).get("type") for step in ("normalizer", "pre_tokenizer")]
    if kinds != ["BertNormalizer", "BertPreTokenizer"]:
        return "WordPiece with steps other than BERT's"
    if not _is_complete(tokenizer["model"]):
        return "a WordPiece model without its unknown token"
    return _texts_objection(tokenizer, control_tokens)


def _word_level_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a WordLevel tokenizer exactly; "" if it can."""
    before = [step["type"] for step in normalizers(tokenizer)]
    if before not in ([], ["Lowercase"], ["BertNormalizer"]):
        return "WordLevel with an unknown normalizer"
    if [step["type"] for step in pre_tokenizers(tokenizer)] not in _AT_WORDS:
        return "WordLevel with an unknown pre-tokenizer"
    model = tokenizer["model"]
    if model.get("unk_token") not in model.get("vocab", {}):
        return "a WordLevel model without its unknown token"
    return _texts_objection(tokenizer, control_tokens)


def _texts_objection(tokenizer: Json, control_tokens: bool) -> str:
    if objection := locality_objection(tokenizer, control_tokens):
        return objection
    matched = matched_contents(tokenizer, control_tokens)
    return "added tokens matched in texts" if matched else ""


def _is_complete(model: Json) -> bool:
    prefix, most = map(model.get, ("continuing_subword_prefix", "max_input_chars_per_word"))
    known = model.get("unk_token") in model.get("vocab", {})
    return known and isinstance(prefix, str) and isinstance(most, int)


def sentencepiece_objection(model: bytes) -> str:
    """Return why native cannot encode a SentencePiece model exactly; "" if it can.

    Texts can be cut into chunks if only pieces can span a cut. So the model must not have a table
    of characters or join spaces (`identity` without `remove_extra_whitespaces`, like Llama 2's).

    Unigram models are left to the library, which adds scores in float32 over the whole text: a near
    tie in one word is decided by the rounding of all words before it. Of 431 documents in many
    languages, 21 % had such a word, and these held 90 % of the bytes (16,000 pieces).
    """
    try:
        found = read_model(model)
        return (
            _pieces_objection(found)
            or _model_file_objection(found)
            or ("" if found.type == BPE else f"a model of type {found.type}")
        )
    except (UserError, ValueError) as error:
        return f"an unreadable model ({error})"


def parts_of(text: str, known: set[str]) -> list[tuple[str, str]]:
    """Return the pairs of known pieces that BPE can merge to a piece."""
    splits = ((text[:i], text[i:]) for i in range(1, len(text)))
    return [pair for pair in splits if known.issuperset(pair)]


def _pieces_objection(model: ModelFile) -> str:
    pieces = model.pieces
    normal = {piece.text for piece in pieces if piece.type == NORMAL}
    named = {piece.text for piece in pieces if piece.type == BYTE}
    symbols = {piece.text for piece in pieces if piece.type == USER_DEFINED}
    characters = {character for text in normal for character in text}
    checks = {
        "two sets of trainer or normalizer options": model.repeats_options,
        "a piece of an unsupported type": any(
            piece.type not in {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE} for piece in pieces
        ),
        "pieces with equal texts": len({piece.text for piece in pieces}) < len(pieces),
        "a piece that is too long": any(len(piece.text) > _LONGEST_PIECE for piece in pieces),
        "a user-defined symbol that is too long": any(
            len(symbol) > _LONGEST_SYMBOL for symbol in symbols
        ),
        "two unknown pieces": sum(piece.type == UNKNOWN for piece in pieces) != 1,
        "an empty piece": any(not piece.text or "\0" in piece.text for piece in pieces),
        "a control token of one character": any(
            len(piece.text) == 1 and piece.type not in {NORMAL, USER_DEFINED} for piece in pieces
        ),
        "bytes that are missing": named != (set(BYTES) if model.byte_fallback else set()),
        "a ▁ that is missing from the pieces": MARK not in normal | symbols,
        "a piece with a character outside the pieces": not normal | symbols >= characters,
        "a score that is not a finite number": not all(
            math.isfinite(piece.score) for piece in pieces
        ),
    }
    return next((name for name, found in checks.items() if found), "")


def _model_file_objection(model: ModelFile) -> str:
    if not model.marks_starts:
        return "spaces that do not become a ▁ before a word"
    if model.normalizer.table:
        return "a normalizer with a table of characters"
    if model.normalizer.join_spaces:
        return "remove_extra_whitespaces"
    return ""
