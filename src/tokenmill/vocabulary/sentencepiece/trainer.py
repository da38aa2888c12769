"""Train a SentencePiece model from word counts.

For BPE, the library reads each word once with its count (`input_format=tsv`), without
normalization, so that words stay exactly as counted. Then the normalizer that the words were
counted with is added to the model, which is byte for byte what the library trains from texts with
these words. Unigram pieces are learned here (`unigram.py`): the library takes ten times as long,
and from counts it finds worse seeds.
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
from tokenmill.encode.words.sentencepiece import published, write_model
from tokenmill.vocabulary.sentencepiece.trainer_options import SentencePieceOptions
from tokenmill.vocabulary.sentencepiece.trainer_words import (
    MAX_WORD_CHARACTERS,
    SpelledWords,
    spelled,
)
from tokenmill.vocabulary.sentencepiece.unigram import (
    learn_unigram_pieces,
    not_enough,
    too_small,
)

_LINES_SHOWN = 3
_MERGED = re.compile(r" merges=(\d+) ")
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
    """Train a model on words counted with `options.split`; for BPE, in a separate process.

    Words may contain spaces or ▁. For BPE, the temporary folder needs about twice the size of the
    unique words.

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
    if options.model == "unigram":
        pieces = learn_unigram_pieces(ready.words, options, advance)
        data = write_model(pieces, options.trainer_arguments())
    else:
        with tempfile.TemporaryDirectory(prefix="tokenmill-sentencepiece-") as name:
            _run(_prepare(Path(name), ready, options), options, advance)
            data = (Path(name) / "model").read_bytes()
    return SentencePieceModel(
        data=published(data, normalizer.message(), ready.spellings),
        long_words=ready.long_words,
        reserved_words=ready.reserved_words,
    )


def _prepare(folder: Path, ready: SpelledWords, options: SentencePieceOptions) -> _Train:
    with open(folder / "words.tsv", "wb") as file:
        file.writelines(ready.lines())
    arguments: dict[str, object] = {
        **options.trainer_arguments(),
        "input": "words.tsv",
        "input_format": "tsv",
        "max_sentence_length": 4 * MAX_WORD_CHARACTERS,
        "minloglevel": 0,
    }
    return _Train(str(folder), arguments)


def _run(order: _Train, options: SentencePieceOptions, advance: Advance) -> None:
    """Run the trainer."""
    child = Child(_PROGRAM)
    child.send(order)
    said: deque[str] = deque(maxlen=_LINES_SHOWN)
    try:
        for line in child.lines():
            if found := _MERGED.search(line):
                advance("merging", int(found[1]), options.vocabulary_size)
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


def _refusal(message: str, options: SentencePieceOptions) -> TokenmillError:
    """Return the error for a message of the library, in plain words."""
    if found := _TOO_LARGE.search(message):
        return not_enough(options, int(found[2]))
    if found := _TOO_SMALL.search(message):
        return too_small(options, int(found[2]))
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
