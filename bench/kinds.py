"""Test every kind of tokenizer with every engine that can encode it: exactness and speed.

Each pair runs in a fresh process on one core: once over all documents (cold), and once again
(warm). The ids of each document are compared with the reference. The tokenizers are the given ones,
and one of each kind that is trained here on the first documents.

    python bench/kinds.py --corpus corpus/*.jsonl.zst --tokenizers gpt2.json llama2.json --work WORK
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import measure

BATCH_CHARACTERS = 1 << 20
TRAINING_CHARACTERS = 3_000_000
VOCABULARY = 32_000
ONE_THREAD = {
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "FASTOKENS_BPE_THREADS": "1",
}
CACHE_BYTES = 250_000_000

UNKNOWN = "<unk>"
SPECIAL = [UNKNOWN, "<s>", "</s>"]
BERT = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]


def kinds() -> dict[str, Callable[[list[str]], Any]]:
    """What trains a tokenizer of each kind."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    from tokenmill.encode.encodings import ENCODINGS

    def trained(
        model: Any, trainer: Any, normalizer: Any = None, pre_tokenizer: Any = None
    ) -> Callable[[list[str]], Any]:
        def train(texts: list[str]) -> Any:
            tokenizer = Tokenizer(model)
            if normalizer is not None:
                tokenizer.normalizer = normalizer
            tokenizer.pre_tokenizer = pre_tokenizer
            tokenizer.train_from_iterator(texts, trainer)
            return tokenizer

        return train

    options = {"vocab_size": VOCABULARY, "show_progress": False}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    byte_level = {**options, "special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet}
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    o200k = pre_tokenizers.Split(Regex(ENCODINGS["o200k_base"].pattern), "isolated")
    digits = pre_tokenizers.Digits(individual_digits=True)
    split_digits = [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    all_bytes = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    uncased = normalizers.BertNormalizer(lowercase=True)
    cased = normalizers.BertNormalizer(lowercase=False)
    joined = normalizers.Replace(Regex(" {2,}"), " ")
    metaspace, words = pre_tokenizers.Metaspace(), pre_tokenizers.BertPreTokenizer()
    unigram = {**options, "unk_token": UNKNOWN}
    return {
        "byte-level BPE, single digits (StarCoder)": trained(
            models.BPE(),
            trainers.BpeTrainer(**byte_level),
            pre_tokenizer=pre_tokenizers.Sequence(split_digits),
        ),
        "byte-level BPE, o200k split (gpt-oss)": trained(
            models.BPE(),
            trainers.BpeTrainer(**byte_level),
            pre_tokenizer=pre_tokenizers.Sequence([o200k, bytes_only]),
        ),
        "BPE with byte fallback, Metaspace (Mistral)": trained(
            models.BPE(unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True),
            trainers.BpeTrainer(**options, special_tokens=all_bytes),
            pre_tokenizer=metaspace,
        ),
        "BPE with <unk>, Metaspace": trained(
            models.BPE(unk_token=UNKNOWN),
            trainers.BpeTrainer(**options, special_tokens=SPECIAL),
            pre_tokenizer=metaspace,
        ),
        "BPE with ends of words (GPT)": trained(
            models.BPE(unk_token=UNKNOWN, end_of_word_suffix="</w>"),
            trainers.BpeTrainer(**options, special_tokens=SPECIAL, end_of_word_suffix="</w>"),
            uncased,
            words,
        ),
        "WordPiece, uncased (BERT)": trained(
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(**options, special_tokens=BERT),
            uncased,
            words,
        ),
        "WordPiece, cased (BERT)": trained(
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(**options, special_tokens=BERT),
            cased,
            words,
        ),
        "WordLevel": trained(
            models.WordLevel(unk_token="[UNK]"),
            trainers.WordLevelTrainer(**options, special_tokens=BERT),
            normalizers.Lowercase(),
            pre_tokenizers.Whitespace(),
        ),
        "Unigram": trained(
            models.Unigram(),
            trainers.UnigramTrainer(**unigram, special_tokens=SPECIAL),
            pre_tokenizer=metaspace,
        ),
        "Unigram, NFKC, joined spaces (T5)": trained(
            models.Unigram(),
            trainers.UnigramTrainer(**unigram, special_tokens=SPECIAL),
            normalizers.Sequence([normalizers.NFKC(), joined]),
            metaspace,
        ),
        "Unigram with byte fallback": trained(
            models.Unigram(byte_fallback=True),
            trainers.UnigramTrainer(**unigram, special_tokens=all_bytes),
            pre_tokenizer=metaspace,
        ),
    }


LLAMA_2 = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}


def sentencepiece_model(kind: str, texts: list[str], path: Path, **options: bool | str) -> None:
    """A model in SentencePiece's own format."""
    import sentencepiece

    with open(path, "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in text.splitlines()),
            model_writer=writer,
            vocab_size=VOCABULARY // 4,
            model_type=kind,
            byte_fallback=True,
            input_sentence_size=50_000,
            minloglevel=2,
            **options,
        )


def train_all(corpus: list[Path], folder: Path) -> dict[str, Path]:
    """A tokenizer file of each kind, trained once."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: list[str] = []
    found = {}
    for name, train in kinds().items():
        path = folder / f"{name.split(' (')[0].replace(' ', '-').replace('/', '-')}.json"
        found[name] = path
        if not path.is_file():
            print(f"training {name}", file=sys.stderr)
            texts = texts or first_texts(corpus)
            train(texts).save(str(path))
    for kind, name, options in (
        ("bpe", "SentencePiece model, BPE", {}),
        ("bpe", "SentencePiece model, BPE (Llama 2)", LLAMA_2),
        ("unigram", "SentencePiece model, Unigram", {}),
    ):
        form = "-llama2" if options else ""
        found[name] = folder / f"sentencepiece-{kind}{form}.model"
        if not found[name].is_file():
            print(f"training {name}", file=sys.stderr)
            texts = texts or first_texts(corpus)
            sentencepiece_model(kind, texts, found[name], **options)
    return found


def documents(corpus: list[Path], every: int) -> Iterator[list[str]]:
    """Batches of about a million characters of every n-th document."""
    from tokenmill.load.text.pieces import BatchPlace, TextCorpus
    from tokenmill.read.fields import Fields

    batch: list[str] = []
    size = number = 0
    for _, found in TextCorpus([str(path) for path in corpus], Fields()).read(BatchPlace(0, 0)):
        for text in found.texts:
            number += 1
            if number % every:
                continue
            batch.append(text)
            size += len(text)
            if size >= BATCH_CHARACTERS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def first_texts(corpus: list[Path]) -> list[str]:
    """A few documents of every file, for training."""
    texts: list[str] = []
    for path in corpus:
        budget = TRAINING_CHARACTERS // len(corpus)
        for text in (text for batch in documents([path], 7) for text in batch):
            texts.append(text[:20_000])
            budget -= len(texts[-1])
            if budget <= 0:
                break
    return texts


def encode_all(options: argparse.Namespace) -> None:
    """In a process of its own: encode everything twice; store a digest of each document's ids."""
    import xxhash

    from tokenmill.encode.engine import Encoder
    from tokenmill.encode.engine_ranking import load_engine
    from tokenmill.encode.kinds import load_reference
    from tokenmill.encode.tokenizer_file import load_tokenizer_file

    file = load_tokenizer_file(options.measure[0])
    engine = load_engine(options.measure[1], file, False, CACHE_BYTES)
    encoder = Encoder(engine, load_reference(file, False).largest_id)
    batches = list(documents(options.corpus, options.every))
    encoder.encode(["compile and load what is loaded late"])
    seconds, digests = [], []
    for turn in range(1 if options.measure[1] == "reference" else 2):
        spent = 0.0
        for texts in batches:
            started = time.process_time()  # one thread, so other programs do not count
            tokens = encoder.encode(texts)
            spent += time.process_time() - started
            if not turn:
                ids, offsets = np.ascontiguousarray(tokens.ids), tokens.offsets.tolist()
                digests += [
                    xxhash.xxh3_64_intdigest(ids[start:stop].tobytes())
                    for start, stop in pairwise(offsets)
                ]
        seconds.append(spent)
    np.save(options.digests, np.array(digests, np.uint64))
    num_bytes = sum(len(text.encode()) for texts in batches for text in texts)
    print(json.dumps({"bytes": num_bytes, "seconds": seconds}))


def measured(tokenizer: Path, engine: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one engine does with one tokenizer."""
    print(f"{tokenizer.name}: {engine}", file=sys.stderr)
    digests = options.work / "digests.npy"
    command = [sys.executable, __file__, "--measure", str(tokenizer), engine]
    command += [
        "--digests",
        str(digests),
        "--every",
        str(options.every),
        "--work",
        str(options.work),
    ]
    command += ["--corpus", *map(str, options.corpus)]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}
    ).stdout
    found = json.loads(output.splitlines()[-1])
    speeds = [found["bytes"] / 1e6 / seconds for seconds in found["seconds"]]
    return {**found, "speeds": speeds, "digests": np.load(digests)}


def rows(name: str, tokenizer: Path, options: argparse.Namespace) -> Iterator[list[str]]:
    """A row for each engine that may encode a tokenizer, best first."""
    from tokenmill.encode.engine_ranking import rank_engines
    from tokenmill.encode.tokenizer_file import load_tokenizer_file

    file = load_tokenizer_file(str(tokenizer))
    reference = measured(tokenizer, "reference", options)
    slow = reference["speeds"][0]
    for place, engine in enumerate(rank_engines(file, control_tokens=False).names):
        found = reference if engine == "reference" else measured(tokenizer, engine, options)
        differing = int((found["digests"] != reference["digests"]).sum())
        exact = "is the reference" if engine == "reference" else f"{differing:,} differ"
        yield [
            name if not place else "",
            f"**{engine}**" if not place else engine,
            exact,
            *(f"{speed:.1f}" for speed in (found["speeds"] * 2)[:2]),
            f"{found['speeds'][0] / slow:.1f} x",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--tokenizers", type=Path, nargs="*", default=[])
    parser.add_argument("--work", type=Path, required=True, help="folder for what is trained")
    parser.add_argument("--every", type=int, default=1, help="take every n-th document")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        encode_all(options)
        return
    found = {path.name: path for path in options.tokenizers}
    found |= train_all(options.corpus, options.work)
    lines = [row for name, path in found.items() for row in rows(name, path, options)]
    header = ["tokenizer", "engine", "documents", "MB/s cold", "MB/s warm", "cold, ratio"]
    print(measure.machine())
    print(measure.versions(["tokenizers", "fastokens", "sentencepiece", "tiktoken"]))
    print(measure.table(header, lines))


if __name__ == "__main__":
    main()
