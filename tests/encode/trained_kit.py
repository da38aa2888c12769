"""Tokenizers with the pipelines of published ones, trained on a few sentences in many scripts."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from encode.tokenizer_kit import BYTE_LEVEL, BYTES_ONLY, Json, added_token, as_file, sequence, split
from encode.tokenizer_kit import sentencepiece_json as llama_json
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.patterns import LLAMA3_SPLIT

SENTENCES = [
    "All human beings are born free and equal in dignity and rights; it's everyone's.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "人人生而自由，在尊严和权利上一律平等。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิ",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი.",
    "def f(x):\n    return {x: 1_000, 'y': 3.14}  # 2024\n\n\tif (a == b) {\n\t\tbreak;\n\t}\n",
    "e\u0301 cafe\u0301 ﬁne №1 😀👩\u200d👩\u200d👧 … “don't”, he'd say; we'll   see\r\n",
]
NAMES = ("gpt2", "neox", "dolma2", "llama2", "gpt2.tiktoken", "llama3.tiktoken")
JSON_NAMES = NAMES[:4]


@functools.cache
def trained(name: str) -> TokenizerFile:
    """A tokenizer with the pipeline of a published one and some hundred merges."""
    if name.endswith(".tiktoken"):
        encoding = name.removesuffix(".tiktoken")
        split_json = BYTE_LEVEL if encoding == "gpt2" else CL100K
        return TokenizerFile("tiktoken", rank_file(bpe_model(split_json)), encoding, origin=name)
    return as_file(trained_json(name))


@functools.cache
def trained_json(name: str) -> Json:
    """The same as the content of a tokenizer.json; not to be changed."""
    if name == "llama2":
        return llama2()
    model = bpe_model(CL100K if name == "dolma2" else BYTE_LEVEL)
    size = len(model["vocab"])
    contents = ["<|endoftext|>", "<|padding|>"] if name == "neox" else ["<|endoftext|>"]
    contents += ["<|im_start|>", "<|im_end|>"] if name == "dolma2" else []
    added = [added_token(content, size + i, special=True) for i, content in enumerate(contents)]
    if name == "neox":
        runs = [" " * length for length in range(24, 1, -1)]
        added += [
            added_token(run, len(added) + size + i, normalized=True) for i, run in enumerate(runs)
        ]
    return llama_json(
        model={"byte_fallback": False, "fuse_unk": False, "unk_token": None, **model},
        normalizer={"type": "NFC"} if name == "neox" else None,
        pre_tokenizer=CL100K if name == "dolma2" else BYTE_LEVEL,
        decoder=BYTE_LEVEL,
        added_tokens=added,
    )


CL100K: Json = sequence(split(LLAMA3_SPLIT), BYTES_ONLY)


def bpe_model(pre_tokenizer: Json) -> Json:
    """Vocabulary and merges of a byte-level BPE."""
    empty = {**json.loads(Tokenizer(models.BPE()).to_str()), "pre_tokenizer": pre_tokenizer}
    return _train(Tokenizer.from_str(json.dumps(empty)), pre_tokenizers.ByteLevel.alphabet())


def llama2() -> Json:
    """BPE on ▁ for spaces, with a token for each byte that no character has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    model = _train(tokenizer, [])
    # Of rare scripts nothing is known, so their bytes are used.
    rare = [token for token in model["vocab"] if any("\u0900" <= c <= "\u0e7f" for c in token)]
    tokens = [token for token in model["vocab"] if token not in rare]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in [*tokens, *"</>snukx0123456789ABCDEF"]:
        vocab.setdefault(token, len(vocab))
    merges = [pair for pair in model["merges"] if "".join(pair) in vocab]
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    decoder = {"type": "Sequence", "decoders": decoders}
    return llama_json(model={"vocab": vocab, "merges": merges}, decoder=decoder)


def _train(tokenizer: Tokenizer, alphabet: list[str]) -> Json:
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, min_frequency=1, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    return {"vocab": vocab, "merges": model["merges"]}


def rank_file(model: Json) -> bytes:
    """Tokens of a byte-level BPE and their ranks, as tiktoken keeps them."""
    of_symbol = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    lines = (
        b"%s %d" % (base64.b64encode(bytes(of_symbol[c] for c in token)), rank)
        for token, rank in model["vocab"].items()
    )
    return b"\n".join(lines) + b"\n"
