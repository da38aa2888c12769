"""Compare SentencePiece models trained on word counts, on texts, and Hugging Face's Unigram.

Every contender is a separate process that reads the same lines and writes a tokenizer. To train on
counts, it first counts the words with the split of the model. The comparison covers the pieces, and
the number of tokens for held-out lines.

    python bench/sentencepiece_counts.py --corpus corpus/*.jsonl.zst --megabytes 9 --vocabulary 8000
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure

MAX_LINE_BYTES = 16_384
CONTENDERS = {
    "bpe: sentencepiece, texts": ("bpe", "texts"),
    "bpe: tokenmill, counts": ("bpe", "counts"),
    "unigram: sentencepiece, texts": ("unigram", "texts"),
    "unigram: tokenmill, counts, seeds by count": ("unigram", "counts"),
    "unigram: tokenizers, texts": ("unigram", "tokenizers"),
}


def lines_of(paths: list[str], num_bytes: int) -> list[str]:
    """Lines of documents, some from each file, none longer than SentencePiece can take."""
    from tokenmill.load.text.pieces import BatchPlace, TextCorpus
    from tokenmill.read.fields import Fields

    def some(path: str) -> Iterator[str]:
        left = num_bytes // len(paths)
        for _, batch in TextCorpus([path], Fields()).read(BatchPlace(0, 0)):
            for text in batch.texts:
                for line in filter(None, text.split("\n")):
                    size = len(line.encode())
                    if size <= MAX_LINE_BYTES:
                        yield line
                        left -= size
                if left <= 0:
                    return

    return [line for path in paths for line in some(path)]


def counted(lines: list[str], options: Any) -> Any:
    from tokenmill.encode.splitters import load_splitter, word_splitters
    from tokenmill.encode.words.table import WordTable

    table = WordTable()
    splitter = load_splitter(options.split, word_splitters(options.split)[0], 1 << 28)
    for first in range(0, len(lines), 10_000):
        splitter.count(lines[first : first + 10_000], table)
    return table.take()


def from_texts(lines: list[str], options: Any) -> bytes:
    import sentencepiece

    arguments = options.trainer_arguments() | {"normalization_rule_name": options.normalization}
    del arguments["add_dummy_prefix"], arguments["remove_extra_whitespaces"]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=written,
        minloglevel=2,
        max_sentence_length=MAX_LINE_BYTES,
        **arguments,
    )
    return written.getvalue()


def from_counts(lines: list[str], options: Any) -> bytes:
    from tokenmill.vocabulary.sentencepiece.trainer import train_sentencepiece

    return train_sentencepiece(counted(lines, options), options).data


def with_tokenizers(lines: list[str], options: Any) -> bytes:
    from tokenizers import Tokenizer, trainers

    steps = {
        "version": "1.0",
        "normalizer": options.split.normalizer,
        "pre_tokenizer": options.split.pre_tokenizer,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]},
    }
    tokenizer = Tokenizer.from_str(json.dumps(steps))
    trainer = trainers.UnigramTrainer(
        vocab_size=options.vocabulary_size,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer.to_str().encode()


def contend(options: argparse.Namespace) -> None:
    """In the child: train one tokenizer, and write it."""
    from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions

    model, how = CONTENDERS[options.contender]
    wanted = SentencePieceOptions(model=model, vocabulary_size=options.vocabulary)
    lines = lines_of(options.corpus, options.megabytes * 1_000_000)
    if how == "texts":
        data = from_texts(lines, wanted)
    elif how == "tokenizers":
        data = with_tokenizers(lines, wanted)
    else:
        data = from_counts(lines, wanted)
    Path(options.out).write_bytes(data)


def judged(data: bytes, held_out: list[str]) -> tuple[set[str], int]:
    """Pieces, and tokens of the lines held out."""
    if data[:1] == b"{":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(data.decode())
        batch = tokenizer.encode_batch_fast(held_out, add_special_tokens=False)
        return set(tokenizer.get_vocab()), sum(len(each.ids) for each in batch)
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = {processor.id_to_piece(i) for i in range(len(processor))}
    return pieces, sum(map(len, processor.encode(held_out, num_threads=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", nargs="+", required=True, help="the last file is held out")
    parser.add_argument("--megabytes", type=int, default=9)
    parser.add_argument("--vocabulary", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--leave-out", default="none", help="contenders with this in their names")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        contend(options)
        return
    *training, held_out = options.corpus
    names = [name for name in CONTENDERS if options.leave_out not in name]
    lines = lines_of([held_out], 2_000_000)
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, str(i)) for i, name in enumerate(names)}

        def command(name: str) -> list[str]:
            own = ["--contender", name, "--out", str(files[name]), "--corpus", *training]
            sizes = ["--megabytes", str(options.megabytes), "--vocabulary", str(options.vocabulary)]
            return [sys.executable, __file__, *own, *sizes]

        runs = measure.interleave(
            {name: lambda name=name: measure.run(command(name)) for name in names}, options.rounds
        )
        found = {name: judged(path.read_bytes(), lines) for name, path in files.items()}
        same = {name: path.read_bytes() for name, path in files.items()}
    versions = {each: importlib.metadata.version(each) for each in ("sentencepiece", "tokenizers")}
    print(f"{platform.machine()}, {options.megabytes} MB, {options.vocabulary} pieces, {versions}")
    print("| trainer | CPU s | wall s | peak MB | pieces unlike the first | held-out tokens |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in names:
        first = next(other for other in names if other.split(":")[0] == name.split(":")[0])
        seconds = statistics.median(run.cpu_seconds for run in runs[name])
        wall = measure.median_seconds(runs[name])
        peak = max(run.peak_bytes for run in runs[name]) / 1e6
        unlike = len(found[name][0] - found[first][0])
        bytes_equal = ", same file" if name != first and same[name] == same[first] else ""
        tokens, base = found[name][1], found[first][1]
        print(
            f"| {name} | {seconds:.1f} | {wall:.1f} | {peak:.0f} | {unlike}{bytes_equal} "
            f"| {tokens:,} ({tokens / base - 1:+.2%}) |"
        )


if __name__ == "__main__":
    main()
