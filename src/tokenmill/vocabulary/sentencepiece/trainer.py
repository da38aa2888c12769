"""Train a SentencePiece model from word counts.

The library reads each word once with its count (`input_format=tsv`), without normalization, so that
words stay exactly as counted. Then the normalizer that the words were counted with is added to the
model. A BPE model is byte for byte what the library trains from texts with these words. A Unigram
model is not, because the library counts unique words as if each occurred twice when it looks for
seeds; `seeds.py` finds better ones.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.child import Child, ChildEnded, Parent, Program
from tokenmill.core.errors import EngineError, TokenmillError, UserError
from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.sentencepiece import published
from tokenmill.vocabulary.sentencepiece.seeds import Seeds, find_seeds
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions
from tokenmill.vocabulary.sentencepiece.trainer_words import (
    MAX_WORD_CHARACTERS,
    SpelledWords,
    spelled,
)

_MAX_UNITS = 1 << 30
"""The library counts twice the characters and words in 32 bits."""
_LINES_SHOWN = 3
_MERGED = re.compile(r" merges=(\d+) ")
_PRUNED = re.compile(r" EM sub_iter=\d+ size=(\d+) ")
_IS_REMARK = re.compile(r"I\d{4} |WARNING: All log messages")
"""Lines of the library's log that only report progress."""
_TOO_LARGE = re.compile(r"Vocabulary size too high \((\d+)\).*<= (\d+)")
_TOO_SMALL = re.compile(r"smaller than required_chars. (\d+) vs (\d+)")


class _Train(msgspec.Struct):
    """To the process: train a model from files in a folder."""

    folder: str
    arguments: dict[str, Any]


class _Trained(msgspec.Struct, tag="trained"):
    """From the process: the folder has a file `model`."""


class _Refused(msgspec.Struct, tag="refused"):
    """From the process: what the library says."""

    message: str


_Reply = _Trained | _Refused


_PROGRAM = Program(
    module=__name__,
    task="trains a SentencePiece model",
    replies=_Reply,
    stderr="piped",
)


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A trained model, and the words that were changed for the library."""

    data: bytes
    """The model file; the same for the same words and options."""
    long_words: int
    """Occurrences of words that were cut after every 4,096 characters."""
    reserved_words: int
    """Occurrences of words that were cut at U+0000 or U+2585 (▅), which no piece can contain."""


def train_sentencepiece(
    words: WordCounts,
    options: SentencePieceOptions,
    advance: Advance = lambda stage, done, total: None,
) -> SentencePieceModel:
    """Train a model on words counted with `options.split`, in a separate process.

    Words may contain spaces or ▁. The temporary folder needs about twice the size of the unique
    words.

    Raises:
        UserError: sentencepiece is not installed; the words give fewer pieces, or have more
            characters, than the vocabulary size; or the options contradict each other.
        EngineError: the library failed.
    """
    options.check()
    normalizer = options.normalizer
    if not len(words):
        raise UserError("there are no words to train on")
    ready = spelled(words)
    seeds = Seeds([], words.counts[:0], 0)
    if options.model == "unigram":
        seeds = find_seeds(ready.words, options)
    with tempfile.TemporaryDirectory(prefix="tokenmill-sentencepiece-") as name:
        order = _prepare(Path(name), ready, seeds, options)
        _run(order, options, len(seeds.pieces), advance)
        data = (Path(name) / "model").read_bytes()
    return SentencePieceModel(
        data=published(data, normalizer.message(), ready.spellings),
        long_words=ready.long_words,
        reserved_words=ready.reserved_words,
    )


def _prepare(
    folder: Path, ready: SpelledWords, seeds: Seeds, options: SentencePieceOptions
) -> _Train:
    with open(folder / "words.tsv", "wb") as file:
        file.writelines(ready.lines())
    arguments: dict[str, object] = {
        **options.trainer_arguments(),
        "input": "words.tsv",
        "input_format": "tsv",
        "max_sentence_length": 4 * MAX_WORD_CHARACTERS,
        "minloglevel": 0,
    }
    if options.model == "unigram":
        with open(folder / "seeds.tsv", "wb") as file:
            file.writelines(seeds.lines())
        arguments["seed_sentencepieces_file"] = "seeds.tsv"
        if len(ready.words.data) + len(ready.words) > _MAX_UNITS:
            arguments["train_extremely_large_corpus"] = True
    return _Train(str(folder), arguments)


def _run(order: _Train, options: SentencePieceOptions, num_seeds: int, advance: Advance) -> None:
    """Run the trainer."""
    child = Child(_PROGRAM)
    child.send(order)
    said: deque[str] = deque(maxlen=_LINES_SHOWN)
    try:
        for line in child.lines():
            _report(line, options, num_seeds, advance)
            if line and not _IS_REMARK.match(line):
                said.append(line)
        reply, _ = child.receive()
    except ChildEnded as error:
        why = " | ".join([error.why, *said])
        raise EngineError("sentencepiece failed", why=why) from error
    finally:
        child.end()
    if isinstance(reply, _Refused):
        raise _refusal(reply.message, options)


def _report(line: str, options: SentencePieceOptions, num_seeds: int, advance: Advance) -> None:
    size = options.vocabulary_size
    if found := _MERGED.search(line):
        advance("merging", int(found[1]), size)
    elif found := _PRUNED.search(line):
        advance("pruning", max(num_seeds - int(found[1]), 0), max(num_seeds - size, 0))


def _refusal(message: str, options: SentencePieceOptions) -> TokenmillError:
    """Return the error for a message of the library, in plain words."""
    if found := _TOO_LARGE.search(message):
        return UserError(
            f"the words are not enough for {int(found[1]):,} pieces",
            why=f"only {int(found[2]):,} possible pieces occur twice or are single characters",
            hint=f"choose a vocabulary size of at most {int(found[2]):,}, or use more text",
        )
    if found := _TOO_SMALL.search(message):
        return UserError(
            f"a vocabulary of {int(found[1]):,} pieces is too small",
            why=f"with a character coverage of {options.character_coverage}, characters and "
            f"special pieces alone need {int(found[2]):,}",
            hint="choose a larger vocabulary, or a lower coverage with byte fallback",
        )
    return EngineError("sentencepiece refused to train", why=message)


def main() -> None:
    """Train one model in a process, because the library may crash or be killed.

    It writes its progress to standard error.
    """
    parent = Parent(_Train)
    order, _ = parent.receive()
    os.chdir(order.folder)  # the model stores file names, so they must be the same everywhere
    import sentencepiece

    with open("model", "wb") as file:
        try:
            sentencepiece.SentencePieceTrainer.Train(model_writer=file, **order.arguments)
        except (RuntimeError, ValueError, OSError) as error:
            parent.send(_Refused(str(error).encode(errors="backslashreplace").decode()))
            return
    parent.send(_Trained())
