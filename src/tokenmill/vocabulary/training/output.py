"""The folder of a trained tokenizer, and the record of its training.

tokenizer.json            the tokenizer; tokenizer.model instead for SentencePiece
tokenizer_config.json     roles of special tokens, for transformers
special_tokens_map.json   the same for older readers
tokenizer.tiktoken        ranks for tiktoken, if the model is equivalent to a rank file
chat_template.jinja       the chat template, if given
8000/                     the same files for a smaller vocabulary
train.json                what the tokenizer was trained on and how, and the digests of its files

`train.json` is written last, so a folder that holds one is complete. It names no path, no time and
no machine: equal counts, options and versions give the same bytes.

A training writes these files to `.NAME.unfinished/new/` beside the folder NAME, and exchanges the
two at the end. Its counts are beside `new/`, where the next run finds them after a stop.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import OutputConflictError, VerificationError
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.counts.folder import remove_counts
from tokenmill.store.digests import file_digest
from tokenmill.store.files import (
    held_beside,
    remove_folder,
    storage_errors,
    take_name,
    write_atomically,
)
from tokenmill.store.manifest import Count, FileEntry
from tokenmill.store.ownership import COUNTS_FILES, TEMPORARY, refuse_strangers
from tokenmill.vocabulary.training.options import Model, Role
from tokenmill.vocabulary.training.special_tokens import BERT_CONFIG_KEYS, CONFIG_KEYS

TRAINING_NAME = "train.json"
TRAINING_FORMAT = "tokenmill-training"
TRAINING_VERSION = 1
MAX_TEMPLATE_BYTES = 1 << 20
_UNFINISHED = re.compile(
    r"(new|replaced)/(\d+/)?((train|tokenizer|tokenizer_config|special_tokens_map)\.json"
    rf"|tokenizer\.(model|tiktoken)|chat_template\.jinja|{TEMPORARY})|counts/({COUNTS_FILES.pattern})"
)
"""The files in the folder beside a tokenizer during training."""


class CountsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The word counts used for training."""

    counts_id: str
    weights: dict[str, Count]
    """Weight of each group."""
    words: Count
    """Unique words. This and the numbers below include weights."""
    occurrences: Count
    bytes: Count
    words_left_out: Count
    """Rare words left out when counting."""
    bytes_left_out: Count


class LongToken(msgspec.Struct, frozen=True, kw_only=True):
    """One of the longest tokens."""

    characters: Count
    start: str
    """Its first characters."""


class SizeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one vocabulary on its training words."""

    vocabulary: Count
    tokens: Count
    """Tokens of the whole corpus."""
    unused: Count
    """Tokens that never occur in the corpus, without special tokens."""
    fallback_bytes: Count
    """Bytes of the corpus in unknown tokens, or in tokens that are not whole characters."""
    longest: list[LongToken]


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of a training, stored as `train.json`."""

    format: str = TRAINING_FORMAT
    format_version: int = TRAINING_VERSION
    options: dict[str, Any]
    split: dict[str, Any]
    """The split: normalizer and pre-tokenizer."""
    special_ids: dict[str, Count]
    counts: CountsEntry
    sizes: list[SizeEntry]
    """The largest vocabulary first."""
    curve: list[tuple[Count, Count]]
    """Vocabulary sizes and tokens of the corpus, for models that know them for every size."""
    versions: dict[str, str]
    files: list[FileEntry]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """The folder of a tokenizer during training."""

    folder: Path
    work: Path
    """The folder beside it, which this process has locked."""

    @property
    def counts(self) -> Path:
        """Where words are counted, unless the user keeps the counts."""
        return self.work / "counts"

    def publish(self, files: Mapping[str, bytes], training: Training) -> Training:
        """Write all files to a new folder, and exchange it with that of an older tokenizer.

        Raises:
            OutputConflictError: the old folder holds files of someone else.
            StorageError: the file system refused it.
        """
        new = self.work / "new"
        remove_folder(new)  # left by a killed run
        for name, data in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        entries = [
            FileEntry(name=name, bytes=len(data), xxh3_128=file_digest(new / name))
            for name, data in files.items()
        ]
        training = msgspec.structs.replace(training, files=entries)
        training = write_sealed(new / TRAINING_NAME, training)
        _check_folder(self.folder, overwrite=True)
        take_name(new, self.folder)
        return training


@contextmanager
def claimed(out: str | Path, *, overwrite: bool) -> Iterator[Output]:
    """Lock a folder for a tokenizer; its working folder is removed when the tokenizer is complete.

    A run that was stopped leaves its counts there, and the next one finds them.

    Raises:
        OutputConflictError: the folder holds something else, or another run is writing it.
        StorageError: the file system refused it.
    """
    folder = Path(os.path.realpath(local_path(out, "the output folder")))
    doing = "train the tokenizer"
    with storage_errors(doing, folder):
        _check_folder(folder, overwrite=overwrite)
    with (
        storage_errors(doing, folder),
        held_beside(folder, TRAINING_NAME, _UNFINISHED.fullmatch) as work,
        storage_errors(doing, folder),
    ):
        output = Output(folder, work)
        try:
            yield output
        except BaseException:
            if not output.counts.exists():
                shutil.rmtree(work, ignore_errors=True)
            raise
        remove_counts(output.counts)
        remove_folder(work)


def _check_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise an OutputConflictError unless the folder is free, or a tokenizer to be replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        files = read_sealed(folder / TRAINING_NAME, Training).files
    except (VerificationError, FileNotFoundError, NotADirectoryError) as error:
        raise OutputConflictError(
            "the output folder is not empty and holds no trained tokenizer",
            where=str(folder),
            why=f"its {TRAINING_NAME} is missing or damaged, or another program wrote it",
            hint="choose another folder; --overwrite replaces trained tokenizers only",
        ) from error
    if not overwrite:
        raise OutputConflictError(
            "the output folder already holds a trained tokenizer",
            where=str(folder),
            hint="choose another folder, or replace it with --overwrite",
        )
    refuse_strangers(folder, {TRAINING_NAME, *(file.name for file in files)}.__contains__)


def config_files(model: Model, roles: Mapping[Role, str], template: bytes) -> dict[str, bytes]:
    """Return the configuration files of a tokenizer, with the roles of its special tokens."""
    keys = BERT_CONFIG_KEYS if model == "wordpiece" else CONFIG_KEYS
    tokens = {keys[role]: content for role, content in sorted(roles.items())}
    config: dict[str, object] = {**tokens, "clean_up_tokenization_spaces": False}
    if not model.startswith("sentencepiece"):  # its classes are made for single models
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    files = {
        "tokenizer_config.json": canonical_json(config),
        "special_tokens_map.json": canonical_json(tokens),
    }
    if template:
        files["chat_template.jinja"] = template
    return files


def read_template(path: str | None) -> bytes:
    """Read a chat template; return b"" without a path.

    Raises:
        UserError: it cannot be read.
    """
    return b"" if path is None else read_bounded(Path(path), MAX_TEMPLATE_BYTES, "a chat template")


def versions(*libraries: str) -> dict[str, str]:
    """Installed versions of the libraries that decide the result."""
    return {name: importlib.metadata.version(name) for name in sorted(("tokenmill", *libraries))}
