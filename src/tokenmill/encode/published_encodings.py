"""Published tiktoken encodings: split pattern, special tokens, and the digest of the ranks.

Sources: OpenAI's encodings are in
`tiktoken_ext/openai_public.py` and, for Whisper, in `whisper/tokenizer.py`; Meta's in
`llama_models/llama3/tokenizer.py` and `llama_models/llama4/tokenizer.py`; Qwen's (the first series)
in its `tokenization_qwen.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tokenmill.encode.words.patterns import LLAMA3_SPLIT, O200K_SPLIT, QWEN2_SPLIT

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_WHISPER = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
)
"""Whisper's languages, in Whisper's order."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a rank file does not contain, for one encoding."""

    pattern: str
    num_ranks: int
    special_tokens: dict[str, int] = field(default_factory=dict)
    json_split: str | None = None
    """The equivalent split in a tokenizer.json: a regex, "" for ByteLevel's own, None if there is
    none."""
    prefix: tuple[str, ...] = ()
    """Special tokens put before every document."""
    ranks_sha256: str = ""
    """SHA-256 of the ranks as `spelled_ranks` writes them; "" if any ranks are accepted."""
    form: Literal["NFC"] | None = None
    """The Unicode form that texts are normalized to first, with Python's `unicodedata`."""


def _numbered(first: int, *groups: Iterable[str]) -> dict[str, int]:
    contents = [f"<|{name}|>" for group in groups for name in group]
    return {content: first + i for i, content in enumerate(contents)}


def _reserved(name: str, first: int, stop: int) -> list[str]:
    return [f"{name}reserved_special_token_{i}" for i in range(first, stop)]


def _llama3_specials() -> dict[str, int]:
    named = ["begin_of_text", "end_of_text", *_reserved("", 0, 2), "finetune_right_pad_id"]
    named += [*_reserved("", 2, 3), "start_header_id", "end_header_id", "eom_id", "eot_id"]
    return _numbered(128_000, named, ["python_tag"], _reserved("", 3, 248))


def _llama4_specials() -> dict[str, int]:
    basic = ["begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"]
    post_train = ["header_start", "header_end", "eom", "eot", "step"]
    post_train += [*_reserved("text_post_train_", 0, 6), "python_start", "python_end"]
    post_train += ["finetune_right_pad", *_reserved("text_post_train_", 8, 69)]
    vision = ["image_start", "image_end", *_reserved("vision_", 0, 2), "tile_x_separator"]
    vision += ["tile_y_separator", *_reserved("vision_", 2, 6), "image"]
    vision += [*_reserved("vision_", 6, 7), "patch", *_reserved("vision_", 7, 1048)]
    reasoning = _reserved("reasoning_", 0, 8)
    reasoning += ["reasoning_thinking_start", "reasoning_thinking_end"]
    named = [*basic, *post_train, *vision, *reasoning]
    return _numbered(200_000, named, _reserved("", 0, 2048 - len(named)))


def _qwen_specials() -> dict[str, int]:
    named = ["endoftext", "im_start", "im_end"]
    return _numbered(151_643, named, (f"extra_{i}" for i in range(205)))


def _whisper_specials(num_ranks: int, num_languages: int) -> dict[str, int]:
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    times = [f"{i * 0.02:.2f}" for i in range(1501)]
    begin = ["endoftext", "startoftranscript"]
    return _numbered(num_ranks, begin, _LANGUAGES.split()[:num_languages], tasks, times)


def _harmony_specials() -> dict[str, int]:
    numbered = {200_002: "return", 200_003: "constrain", 200_005: "channel", 200_006: "start"}
    numbered |= {200_007: "end", 200_008: "message", 200_012: "call"}
    names = [numbered.get(i, f"reserved_{i}") for i in range(200_000, 201_088)]
    # 200018 has two names; tiktoken decodes it to the one that its hash table visits last.
    return {**_O200K_SPECIALS, **_numbered(199_998, ["startoftext", "endoftext"], names)}


_END = "<|endoftext|>"
_FIM = {f"<|fim_{name}|>": i for i, name in enumerate(("prefix", "middle", "suffix"))}
_CL100K_SPECIALS = {
    _END: 100_257,
    **{name: 100_258 + i for name, i in _FIM.items()},
    "<|endofprompt|>": 100_276,
}
_O200K_SPECIALS = {_END: 199_999, "<|endofprompt|>": 200_018}
_R50K_RANKS = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
_P50K_RANKS = "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
_CL100K_RANKS = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_O200K_RANKS = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_LLAMA3_RANKS = "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"
_LLAMA4_RANKS = "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed"
_QWEN_RANKS = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
_WHISPER_RANKS = "f8ce6dba8329323e26218dc08e4b79a44f425420bb580dbab9784ce0f47f123e"
_BEGIN = ("<|begin_of_text|>",)


def _gpt2(num_ranks: int, specials: dict[str, int], ranks: str, pattern: str = _GPT2) -> Encoding:
    return Encoding(pattern, num_ranks, specials, json_split="", ranks_sha256=ranks)


def _o200k(num_ranks: int, specials: dict[str, int], ranks: str) -> Encoding:
    return Encoding(O200K_SPLIT, num_ranks, specials, json_split=O200K_SPLIT, ranks_sha256=ranks)


ENCODINGS = {
    "gpt2": _gpt2(50_256, {_END: 50_256}, _R50K_RANKS),
    "r50k_base": _gpt2(50_256, {_END: 50_256}, _R50K_RANKS),
    "p50k_base": _gpt2(50_280, {_END: 50_256}, _P50K_RANKS),
    "p50k_edit": _gpt2(
        50_280, {_END: 50_256, **{name: 50_281 + i for name, i in _FIM.items()}}, _P50K_RANKS
    ),
    "cl100k_base": Encoding(
        _CL100K,
        100_256,
        _CL100K_SPECIALS,
        json_split=LLAMA3_SPLIT,
        ranks_sha256=_CL100K_RANKS,
    ),
    "o200k_base": _o200k(199_998, _O200K_SPECIALS, _O200K_RANKS),
    "o200k_harmony": _o200k(199_998, _harmony_specials(), _O200K_RANKS),
    "llama3": Encoding(
        LLAMA3_SPLIT,
        128_000,
        _llama3_specials(),
        json_split=LLAMA3_SPLIT,
        prefix=_BEGIN,
        ranks_sha256=_LLAMA3_RANKS,
    ),
    "llama4": Encoding(
        O200K_SPLIT,
        200_000,
        _llama4_specials(),
        json_split=O200K_SPLIT,
        prefix=_BEGIN,
        ranks_sha256=_LLAMA4_RANKS,
    ),
    "qwen": Encoding(
        QWEN2_SPLIT,
        151_643,
        _qwen_specials(),
        json_split=QWEN2_SPLIT,
        ranks_sha256=_QWEN_RANKS,
        form="NFC",
    ),
    "whisper": _gpt2(50_257, _whisper_specials(50_257, 99), _WHISPER_RANKS, _WHISPER),
    "whisper_v3": _gpt2(50_257, _whisper_specials(50_257, 100), _WHISPER_RANKS, _WHISPER),
    "whisper_english": _gpt2(50_256, _whisper_specials(50_256, 99), _R50K_RANKS, _WHISPER),
}
"""The encodings by name. If several have the same ranks, the first one is the default."""
