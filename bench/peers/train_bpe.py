"""Train a BPE vocabulary with another trainer: `python train_bpe.py NAME INPUT --out tokens.json`.

INPUT is JSON Lines with the field "text", compressed with zstd; for gigabpe, which reads files by
lines, plain text. The tokens of all merges are written in their order, as Latin-1 strings of bytes.
Runs in an environment of its own; needs the command `zstd`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Iterator

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def texts(path: str) -> Iterator[str]:
    with subprocess.Popen(["zstd", "-dc", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)["text"]


def unspelled(tokens: list[str]) -> list[bytes]:
    """Byte-level tokens as bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + index): byte for index, byte in enumerate(others)}
    return [bytes(byte_of[character] for character in token) for token in tokens]


def with_tokenizers(path: str, size: int) -> list[bytes]:
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts(path), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return unspelled(["".join(merge) for merge in merges])


def with_gigabpe(path: str, size: int) -> list[bytes]:
    import gigabpe

    _, merges = gigabpe.train_bpe([path], size, pretokenizer="bytelevel")
    return unspelled(["".join(merge) for merge in merges])


def with_rustbpe(path: str, size: int) -> list[bytes]:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(texts(path), size, pattern=GPT2)
    ranks = sorted(tokenizer.get_mergeable_ranks(), key=lambda entry: entry[1])
    return [bytes(token) for token, _ in ranks[256:]]


def with_bpeasy(path: str, size: int) -> list[bytes]:
    import bpeasy

    ranks = bpeasy.train_bpe(texts(path), GPT2, 1 << 20, size)
    return [token for token, _ in sorted(ranks.items(), key=lambda entry: entry[1])[256:]]


def with_sentencepiece(path: str, size: int) -> list[bytes]:
    import io

    import sentencepiece

    model = io.BytesIO()
    lines = (line for text in texts(path) for line in text.splitlines())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        vocab_size=size,
        model_type="bpe",
        character_coverage=0.9995,
        byte_fallback=True,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(i).replace("▁", " ").encode() for i in range(259, size)]


TRAINERS: dict[str, Callable[[str, int], list[bytes]]] = {
    "tokenizers": with_tokenizers,
    "gigabpe": with_gigabpe,
    "rustbpe": with_rustbpe,
    "bpeasy": with_bpeasy,
    "sentencepiece": with_sentencepiece,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=TRAINERS)
    parser.add_argument("input")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    tokens = TRAINERS[options.name](options.input, options.vocabulary)
    with open(options.out, "w") as out:
        json.dump([token.decode("latin-1") for token in tokens], out)


if __name__ == "__main__":
    main()
