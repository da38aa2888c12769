"""The shapes of published tokenizers: steps, added tokens and flags, with a vocabulary of ours.

`docs/reference/tokenizers.md` names the engine of each.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline_kit import (
    BERT_SPLIT,
    CLIP_SPLIT,
    LOWERCASE,
    NFC,
    NFKC,
    NFKD,
    STRIP_ACCENTS,
    WHITESPACE_SPLIT,
    bert_normalizer,
    metaspace,
    normalizers,
    precompiled,
    punctuation,
    replace_regex,
)
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    as_file,
    replace,
    sentencepiece_json,
    sentencepiece_model,
    sequence,
    split,
)
from trained_kit import trained_json

from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.patterns import (
    DEEPSEEK3_SPLITS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    TEKKEN_SPLIT,
)
from tokenmill.encode.words.sentencepiece import write_field

PREPEND: Json = {"type": "Prepend", "prepend": "▁"}
MARK_SPACES = replace(" ", "▁")
GEMMA_SPLIT: Json = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
FALCON_SPLIT = sequence(
    punctuation("Contiguous"),
    BYTE_LEVEL,
    {"type": "Digits", "individual_digits": False},
    split("[0-9][0-9][0-9]"),
)
QUOTES = (replace("``", '"'), replace("''", '"'))
ALBERT_STEPS = (*QUOTES, NFKD, STRIP_ACCENTS, LOWERCASE)


def special(content: str, **flags: bool) -> Json:
    return added_token(content, 0, special=True, **flags)


def plain(content: str, **flags: bool) -> Json:
    return added_token(content, 0, **flags)


def runs(character: str, longest: int, **flags: bool) -> list[Json]:
    return [plain(character * length, **flags) for length in range(1, longest + 1)]


def with_added(tokenizer: Json, *tokens: Json) -> Json:
    """The tokenizer with these added tokens, which get the ids that the library gives them."""
    vocab = tokenizer["model"]["vocab"]
    new = [token["content"] for token in tokens if token["content"] not in vocab]
    ids = {**vocab, **{content: len(vocab) + i for i, content in enumerate(new)}}
    return {**tokenizer, "added_tokens": [{**t, "id": ids[t["content"]]} for t in tokens]}


def byte_level(pre_tokenizer: Json, *tokens: Json, normalizer: Json | None = None) -> Json:
    made = {**trained_json("gpt2"), "pre_tokenizer": pre_tokenizer, "normalizer": normalizer}
    return with_added(made, *tokens)


def whole_words(pattern: str, *tokens: Json) -> Json:
    """Words that are tokens are not built by merges."""
    made = byte_level(regex(pattern), *tokens)
    return {**made, "model": {**made["model"], "ignore_merges": True}}


def regex(*patterns: str) -> Json:
    return sequence(*map(split, patterns), BYTES_ONLY)


def marked(normalizer: Json | None, pre_tokenizer: Json | None, *tokens: Json) -> Json:
    """BPE with byte fallback, in which spaces become ▁."""
    made = {**trained_json("llama2"), "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    return with_added(made, *[special(name) for name in ("<unk>", "<s>", "</s>")], *tokens)


def unigram(*steps: Json) -> Json:
    vocab = [["<unk>", 0.0], ["▁", -2.0], ["a", -3.0], ["▁a", -4.0]]
    made = sentencepiece_json(
        normalizer=normalizers(*steps),
        pre_tokenizer=sequence(WHITESPACE_SPLIT, metaspace()),
        added_tokens=[added_token("<unk>", 0, special=True)],
    )
    return {**made, "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}}


def gemma_3() -> Json:
    whitespace = [*runs("\n", 31), *runs("▁", 31)[1:], *runs("\t", 31)]
    tags = [plain(f"<{slash}{name}>") for name in ("table", "td", "h1") for slash in ("", "/")]
    turns = [special(name) for name in ("<bos>", "<start_of_turn>", "<end_of_turn>")]
    unused = [plain(f"<unused{i}>") for i in range(20)]
    return marked(MARK_SPACES, GEMMA_SPLIT, *turns, *unused, *whitespace, *tags)


def deepseek_v3() -> Json:
    raw = [plain("<｜table｜>"), plain("<｜/table>｜"), special("<｜▁pad▁｜>")]
    normalized = [
        plain(name, normalized=True)
        for name in ("<｜User｜>", "<｜fim▁hole｜>", "<think>", "｜DSML｜")
    ]
    return byte_level(regex(*DEEPSEEK3_SPLITS), *raw, *normalized)


def modern_bert() -> Json:
    spaces = runs(" ", 24, normalized=True)[1:]
    mask = special("[MASK]", lstrip=True)
    address = plain("|||IP_ADDRESS|||", normalized=True)
    return byte_level(BYTE_LEVEL, address, *spaces, special("[CLS]"), mask, normalizer=NFC)


def clip() -> Json:
    """Like CLIP's, with the last byte of a word in a token of its own."""
    spaces = replace_regex(r"\s+", " ")
    made = byte_level(
        sequence(split(CLIP_SPLIT, "Removed", invert=True), BYTE_LEVEL),
        normalizer=normalizers(NFC, spaces, LOWERCASE),
    )
    tokens = made["model"]["vocab"]
    vocab = {token: 2 * i for token, i in tokens.items()}
    vocab |= {f"{token}</w>": 2 * i + 1 for token, i in tokens.items()}
    merges = [
        pair
        for left, right in made["model"]["merges"]
        for pair in ([left, right], [left, f"{right}</w>"])
    ]
    model = {
        **made["model"],
        "end_of_word_suffix": "</w>",
        "vocab": vocab,
        "merges": merges,
    }
    start, end = special("<|startoftext|>", normalized=True), special("<|endoftext|>")
    return with_added({**made, "model": model}, start, end)


def bert_without_type() -> Json:
    """As old files have it: the library knows the type by the fields."""
    model = {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
    }
    made = sentencepiece_json(
        normalizer=bert_normalizer(), pre_tokenizer=BERT_SPLIT, added_tokens=[]
    )
    return with_added({**made, "model": model}, special("[UNK]"))


def mistral_model() -> TokenizerFile:
    """A SentencePiece model in which pieces have equal scores."""
    tied = [
        write_field(1, text.encode()) + write_field(2, -7000.0) + write_field(3, 1)
        for text in ("xq", "qx")
    ]
    made = sentencepiece_model(
        "bpe",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    )
    data = made + b"".join(write_field(1, piece) for piece in tied)
    return TokenizerFile("sentencepiece", data, origin="tokenizer.model")


def phi_3() -> Json:
    turns = [special(name, rstrip=True) for name in ("<|user|>", "<|end|>")]
    return marked(normalizers(PREPEND, MARK_SPACES), None, plain("</s>", rstrip=True), *turns)


SHAPES: dict[str, Callable[[], Json | TokenizerFile]] = {
    "ALBERT": lambda: unigram(*ALBERT_STEPS, precompiled()),
    "BERT (also without `model.type`)": bert_without_type,
    "Claude (2023)": lambda: byte_level(BYTE_LEVEL, special("<EOT>"), normalizer=NFKC),
    "CLIP": clip,
    "DeepSeek V3": deepseek_v3,
    "Falcon": lambda: byte_level(FALCON_SPLIT, special(">>TITLE<<"), special("<|endoftext|>")),
    "Gemma 3": gemma_3,
    "gpt-oss": lambda: whole_words(O200K_SPLIT, special("<|return|>")),
    "Llama 3": lambda: whole_words(LLAMA3_SPLIT, special("<|begin_of_text|>")),
    "Llama 4": lambda: whole_words(O200K_SPLIT, special("<|header_start|>")),
    "Mistral (`tokenizer.json`)": lambda: marked(None, metaspace("first", split=False)),
    "Mistral (`.model`)": mistral_model,
    "Mistral Nemo": lambda: whole_words(TEKKEN_SPLIT, special("[INST]")),
    "ModernBERT": modern_bert,
    "phi-2": lambda: byte_level(BYTE_LEVEL, *runs(" ", 31, normalized=True)[1:]),
    "Phi-3": phi_3,
    "Qwen 3": lambda: byte_level(regex(QWEN2_SPLIT), plain("<think>"), normalizer=NFC),
    "T5": lambda: unigram(precompiled()),
    "XLM-R": lambda: unigram(precompiled()),
    "XLNet": lambda: unigram(*QUOTES, NFKD, STRIP_ACCENTS, precompiled()),
}


def published(name: str) -> TokenizerFile:
    """The shape of a published tokenizer."""
    made = SHAPES[name]()
    return made if isinstance(made, TokenizerFile) else as_file(made)
