"""Known tiktoken encodings: what a rank file leaves out, and the same split for a tokenizer.json.

Patterns and special tokens are those that OpenAI publishes in `tiktoken_ext/openai_public.py` and
Meta in Llama 3's `tokenizer.py`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import msgspec

from tokenmill.encode.tokenizer_bounds import cannot_load, check_ids
from tokenmill.suggestions import nearest
from tokenmill.words.patterns import LLAMA3_SPLIT, O200K_SPLIT

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Split pattern, special tokens and size of a published encoding."""

    pattern: str
    num_ranks: int
    special_tokens: dict[str, int] = field(default_factory=dict)
    json_split: str | None = None
    """The split for a tokenizer.json: a regex, "" for ByteLevel's own, None where none is equal."""
    prefix: tuple[str, ...] = ()


def _llama3_specials() -> dict[str, int]:
    named = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1"]
    named += ["finetune_right_pad_id", "reserved_special_token_2", "start_header_id"]
    named += ["end_header_id", "eom_id", "eot_id", "python_tag"]
    named += [f"reserved_special_token_{i}" for i in range(3, 248)]
    return {f"<|{name}|>": 128_000 + i for i, name in enumerate(named)}


_END = "<|endoftext|>"
_CL100K_SPECIALS = {
    _END: 100_257,
    "<|fim_prefix|>": 100_258,
    "<|fim_middle|>": 100_259,
    "<|fim_suffix|>": 100_260,
    "<|endofprompt|>": 100_276,
}
ENCODINGS = {
    "gpt2": Encoding(_GPT2, 50_256, {_END: 50_256}, json_split=""),
    "r50k_base": Encoding(_GPT2, 50_256, {_END: 50_256}, json_split=""),
    "p50k_base": Encoding(_GPT2, 50_280, {_END: 50_256}, json_split=""),
    "cl100k_base": Encoding(_CL100K, 100_256, _CL100K_SPECIALS, json_split=LLAMA3_SPLIT),
    "o200k_base": Encoding(O200K_SPLIT, 199_998, {_END: 199_999, "<|endofprompt|>": 200_018}),
    "llama3": Encoding(
        LLAMA3_SPLIT,
        128_000,
        _llama3_specials(),
        json_split=LLAMA3_SPLIT,
        prefix=("<|begin_of_text|>",),
    ),
}


def nearest_encoding(name: str) -> str:
    """A hint with the known name that is closest, if any is."""
    close = nearest(name, ENCODINGS)
    return f" (did you mean {close}?)" if close else ""


def parse_ranks(data: bytes, origin: str = "") -> dict[bytes, int]:
    """Token bytes to rank, from a rank file: one "base64 rank" pair a line.

    Raises:
        UserError: a line is not such a pair, a rank is out of bounds, a token has two ranks,
            two tokens share a rank, or a byte has none.
    """
    pairs: list[tuple[bytes, int]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if fields := line.split():
            try:
                token, rank = fields
                pairs.append((base64.b64decode(token, validate=True), int(rank)))
            except ValueError as error:
                why = f"line {number}, {line[:80]!r}: {error}"
                raise cannot_load(origin, why) from error
    check_ids(pairs, len(data), origin)
    ranks = dict(pairs)
    if len(ranks) != len(pairs):
        raise cannot_load(origin, "a token has two ranks")
    if len(set(ranks.values())) != len(ranks):
        raise cannot_load(origin, "two tokens have the same rank")
    if bare := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise cannot_load(origin, f"byte {bare[0]:#04x} has no rank")
    return ranks


def ranks_to_json(data: bytes, encoding: Encoding) -> bytes | None:
    """A tokenizer.json that encodes ordinary text as the rank file does, for engines that read one.

    Every way to split a token into two known ones becomes a merge; `ignore_merges` covers tokens
    that no merge reaches. None where the split has no equal in tokenizer.json.
    """
    if encoding.json_split is None:
        return None
    ranks = parse_ranks(data)
    symbols = byte_symbols()

    def spell(token: bytes) -> str:
        return "".join(symbols[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(ranks[a], ranks[b], a, b) for a, b in pairs if a in ranks and b in ranks]
        merges += [(rank, *order) for order in sorted(known)]
    merges.sort(key=lambda merge: merge[:3])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    pre_tokenizer: dict[str, object] = {**byte_level, "use_regex": True}
    if encoding.json_split:
        pattern = {"Regex": encoding.json_split}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        members = [split, {**byte_level, "use_regex": False}]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": members}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": {spell(token): rank for token, rank in ranks.items()},
        "merges": [[spell(a), spell(b)] for *_, a, b in merges],
    }
    keys = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer")
    values: tuple[object, ...] = ("1.0", None, None, [], None, pre_tokenizer)
    head = dict(zip(keys, values, strict=True))
    decoder = {**byte_level, "use_regex": True}
    return msgspec.json.encode({**head, "post_processor": None, "decoder": decoder, "model": model})


def byte_symbols() -> list[str]:
    """The printable character that spells each byte in byte-level vocabularies (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    symbols = {byte: chr(byte) for byte in printable}
    symbols |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def bytes_by_symbol() -> dict[str, int]:
    """The byte that each of `byte_symbols` stands for."""
    return {symbol: byte for byte, symbol in enumerate(byte_symbols())}
