"""The folder of a trained tokenizer.

tokenizer.json            the tokenizer; tokenizer.model instead for SentencePiece
tokenizer_config.json     roles of special tokens, for transformers
special_tokens_map.json   the same for older readers
tokenizer.tiktoken        ranks for tiktoken, if the model is equivalent to a rank file
chat_template.jinja       the chat template, if given
8000/                     the same files for a smaller vocabulary
train.json                provenance; written last
work/                     during training: lock, counts, unfinished files
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.errors import OutputConflictError, VerificationError
from tokenmill.paths import local_path, read_bounded
from tokenmill.store.canonical import write_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.files import (
    fsync_path,
    lock_if_free,
    path_inside,
    remove_folder,
    storage_errors,
    write_atomically,
)
from tokenmill.store.manifest import FileEntry
from tokenmill.vocabulary.training.options import Model, Role
from tokenmill.vocabulary.training.provenance import TRAINING_NAME, Training, read_training
from tokenmill.vocabulary.training.special_tokens import BERT_CONFIG_KEYS, CONFIG_KEYS

MAX_TEMPLATE_BYTES = 1 << 20
LOCK_NAME = "training.lock"
"""Unfinished datasets and counts also have a folder `work`, but a lock with another name, so a
training cannot mistake them for its own."""


@dataclass(frozen=True, slots=True)
class Output:
    """The folder of a tokenizer during training."""

    folder: Path

    @property
    def work(self) -> Path:
        """The folder of temporary files."""
        return self.folder / "work"

    @property
    def counts(self) -> Path:
        """Where words are counted, unless the user keeps the counts."""
        return self.work / "counts"

    def publish(self, files: Mapping[str, bytes], training: Training) -> Training:
        """Write all files and remove those of an older tokenizer; `train.json` comes last.

        Raises:
            StorageError: the file system refused it.
        """
        self._remove_old()
        for name, data in files.items():
            path = self.folder / name
            with storage_errors("create a folder", path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        entries = [
            FileEntry(name=name, bytes=len(data), xxh3_128=file_digest(self.folder / name))
            for name, data in files.items()
        ]
        return write_sealed(
            self.folder / TRAINING_NAME, msgspec.structs.replace(training, files=entries)
        )

    def _remove_old(self) -> None:
        path = self.folder / TRAINING_NAME
        if not path.is_file():
            return
        names = [file.name for file in read_training(self.folder).files]
        with storage_errors("remove the old tokenizer", self.folder):
            path.unlink()
            fsync_path(self.folder)
            for name in names:
                old = path_inside(self.folder, name)
                old.unlink(missing_ok=True)
                if old.parent != self.folder.resolve():
                    with contextlib.suppress(OSError):  # something else is in it
                        old.parent.rmdir()


@contextmanager
def claimed(out: str | Path, *, overwrite: bool) -> Iterator[Output]:
    """Lock a folder for a tokenizer; its `work` is removed when the tokenizer is complete.

    A run that was stopped leaves `work` behind, and the next one finds its counts there.

    Raises:
        OutputConflictError: the folder holds something else, or another run is writing it.
        StorageError: the file system refused it.
    """
    output = Output(local_path(out, "the output folder"))
    _check_folder(output, overwrite=overwrite)
    with storage_errors("create the output folder", output.folder):
        output.work.mkdir(parents=True, exist_ok=True)
        lock = os.open(output.work / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with storage_errors("lock the output folder", output.folder):
            if not lock_if_free(lock):
                raise OutputConflictError(
                    "another process is writing to this folder",
                    where=str(output.folder),
                    hint="wait until it has finished, or choose another folder",
                )
        yield output
        with storage_errors("remove the working files", output.work):
            remove_folder(output.work)
    finally:
        os.close(lock)


def _check_folder(output: Output, *, overwrite: bool) -> None:
    folder = output.folder
    if folder.exists() and not folder.is_dir():
        raise OutputConflictError("the output is a file", where=str(folder))
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if (folder / TRAINING_NAME).is_file():
        try:
            read_training(folder)
        except VerificationError as error:
            why = f"its {TRAINING_NAME} is damaged, or another program wrote it"
            hint = "choose another folder; --overwrite replaces trained tokenizers only"
            what = "the output folder cannot be replaced"
            raise OutputConflictError(what, where=str(folder), why=why, hint=hint) from error
        if not overwrite:
            raise OutputConflictError(
                "the output folder already holds a trained tokenizer",
                where=str(folder),
                hint="choose another folder, or replace it with --overwrite",
            )
    elif names and not _is_begun(output, names):
        raise OutputConflictError(
            "the output folder is not empty and holds no trained tokenizer",
            where=str(folder),
            why=f"it contains {names[0]!r}",
            hint="choose another folder; --overwrite replaces only trained tokenizers",
        )


def _is_begun(output: Output, names: list[str]) -> bool:
    """Whether an interrupted training left this folder: its first step creates an empty `work`."""
    work = output.work
    if names == [work.name] and work.is_dir() and not any(work.iterdir()):
        return True
    return (work / LOCK_NAME).is_file()


def config_files(model: Model, roles: Mapping[Role, str], template: bytes) -> dict[str, bytes]:
    """Return the configuration files of a tokenizer, with the roles of its special tokens."""
    keys = BERT_CONFIG_KEYS if model == "wordpiece" else CONFIG_KEYS
    tokens = {keys[role]: content for role, content in sorted(roles.items())}
    config: dict[str, object] = {**tokens, "clean_up_tokenization_spaces": False}
    if not model.startswith("sentencepiece"):  # its classes are made for single models
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    files = {"tokenizer_config.json": spelled(config), "special_tokens_map.json": spelled(tokens)}
    if template:
        files["chat_template.jinja"] = template
    return files


def read_template(path: str | None) -> bytes:
    """Read a chat template; return b"" without a path.

    Raises:
        UserError: it cannot be read.
    """
    return b"" if path is None else read_bounded(Path(path), MAX_TEMPLATE_BYTES, "a chat template")


def spelled(value: object) -> bytes:
    """Encode JSON like the libraries do: two spaces of indentation, and a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
