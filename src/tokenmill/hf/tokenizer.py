"""`CausalLMTokenizer`: a dataset of texts to a dataset of rows, for causal language models.

    texts of the dataset -> ids by the engine -> windows and labels -> an Arrow file

The first two run in the calling thread, on the engine's own threads or in worker processes; the
others in a second thread, a batch behind.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.errors import UserError
from tokenmill.hf import conventions
from tokenmill.hf.config import CausalLMConfig, make_config
from tokenmill.hf.encoding import ExactEncoder, joined
from tokenmill.hf.engines import AUTO
from tokenmill.hf.log import logger, logging_at
from tokenmill.hf.parallelism import Parallelism, WorkerPool, thread_environment, usable_cores
from tokenmill.hf.progress import progress
from tokenmill.hf.results import fingerprint, object_fingerprint, open_result, result_path
from tokenmill.hf.source import (
    TextColumn,
    Texts,
    choose_batch_size,
    features_of_stream,
    find_text_column,
    tell_of_dropped_columns,
    without_null,
)
from tokenmill.hf.summary import Summary
from tokenmill.hf.windows import COLUMNS, WindowRule
from tokenmill.hf.writing import RowWriter, checked_rows, row_features, whole_file
from tokenmill.records import TokenBatch

DATASET_BATCH_ROWS = 10_000
DATASET_DICT_BATCH_ROWS = 40_000

Batch = Mapping[str, Sequence[str | None]]
Columns = dict[str, npt.NDArray[Any]]


class CausalLMTokenizer:
    """Tokenizes datasets of Hugging Face `datasets` into rows of `context_length` tokens.

    Every document is cut into windows by itself, the last of which is padded. A null text and a
    text without tokens give no row; `summary` counts them.
    """

    def __init__(
        self,
        config: CausalLMConfig | Mapping[str, Any] | str | Path,
        tokenizer: object | None = None,
        *,
        text_column: str | None = None,
        engine: str = AUTO,
    ) -> None:
        """Load the tokenizer.

        Args:
            config: path of a YAML file, mapping, or struct; see `CausalLMConfig`.
            tokenizer: of `transformers`, `tokenizers.Tokenizer`, or any object with `encode`;
                it goes before `tokenizer_name`.
            text_column: the column with the texts; without it `text`, or the only one of strings.
            engine: as `--engine` of `tokenmill build`; `reference` is the tokenizer's own library.

        Raises:
            UserError: the configuration or the tokenizer cannot be used.
        """
        self.config = make_config(config)
        self.text_column = text_column
        self.summary = Summary()
        """Of the last call of `tokenize`."""
        given = self.config.tokenizer_name if tokenizer is None else tokenizer
        if given is None:
            hint = "set tokenizer_name, or pass a tokenizer"
            raise UserError("there is no tokenizer", hint=hint)
        self._has_warned = False
        self._pool: WorkerPool | None = None
        with logging_at(self.config.verbose_level):
            self._file = load_tokenizer_file(given)
            self._encoder = ExactEncoder(self._file, engine)
            named = self._file.tokenizer if self._file.kind == "python" else given
            reference = self._encoder.reference
            self._rule = WindowRule(
                self.config.context_length,
                self.config.overlap,
                conventions.padding_id(named, self._file, reference),
                reference.prefix,
                reference.suffix,
                conventions.pads_left(named, self._file),
                conventions.truncates_left(named, self._file),
            )

    def tokenize(
        self, dataset: Any, *, cache_dir: str | Path | None = None, force: bool = False
    ) -> Any:
        """Rows of `input_ids` (int64), `attention_mask` (int8) and `labels` (int64).

        Args:
            dataset: `Dataset`, `DatasetDict`, or their iterable kinds; the result is of the same
                kind. An iterable one stays lazy.
            cache_dir: folder for the Arrow files; without it they stand where `dataset.map` puts
                them.
            force: make the rows anew where an earlier run left them.

        Raises:
            UserError: it is no dataset, or its column of texts is not known.
            EngineError: the engine differs from the tokenizer's own library.
            StorageError: the file system refused the result.
        """
        import datasets

        self.summary = Summary()
        started = time.perf_counter()
        with logging_at(self.config.verbose_level):
            if isinstance(dataset, datasets.IterableDatasetDict):
                lazy = {name: self._tokenize_lazily(split) for name, split in dataset.items()}
                return datasets.IterableDatasetDict(lazy)
            if isinstance(dataset, datasets.IterableDataset):
                return self._tokenize_lazily(dataset)
            if isinstance(dataset, datasets.DatasetDict):
                result: Any = datasets.DatasetDict()
                for name, split in dataset.items():
                    result[name] = self._tokenize(split, DATASET_DICT_BATCH_ROWS, cache_dir, force)
            elif isinstance(dataset, datasets.Dataset):
                result = self._tokenize(dataset, DATASET_BATCH_ROWS, cache_dir, force)
            else:
                why = f"it is of {type(dataset).__module__}.{type(dataset).__qualname__}"
                raise UserError("this is no dataset of Hugging Face datasets", why=why)
            self.summary.seconds = time.perf_counter() - started
            self.summary.tell()
        return result

    def _get_optimal_num_proc(self) -> int:
        """Processes that encode; 1 is the calling one. A subclass may decide otherwise."""
        wanted = self.config.num_proc
        if self._is_slow:
            return wanted or max(usable_cores() // 2, 1)
        if wanted is not None and wanted > 1:
            logger.info("num_proc=%d is ignored: the tokenizer has threads of its own", wanted)
        return 1

    def _tokenize_function(self, batch: Batch) -> Columns:
        """Arrays of shape (rows, context_length) from a batch of one column, {name: texts}.

        A subclass may make others of that shape.
        """
        (texts,) = batch.values()
        rows = self._rule.rows(self._encode(without_null(texts)))
        return {name: getattr(rows, name) for name in COLUMNS}

    def _tokenize(
        self, dataset: Any, batch_rows: int, cache_dir: str | Path | None, force: bool
    ) -> Any:
        """One split: the whole path."""
        column = find_text_column(dataset.features, self.text_column)
        name = fingerprint(dataset, self._identity(column))
        path = result_path(dataset, name, cache_dir)
        if path.exists() and not force:
            logger.info("the rows of an earlier run are used: %s", path)
            self.summary.reused.append(str(path))
            return open_result(path, dataset, name)
        tell_of_dropped_columns(dataset.features, column)
        parallelism = self._parallelism()
        texts = TextColumn(dataset, column)
        with thread_environment(parallelism):
            size = self._prepare(texts, parallelism)
            with (
                self._workers(parallelism),
                progress(texts.num_bytes, self.config.show_progress) as advance,
                whole_file(path) as file,
            ):
                writer = RowWriter(file, self.config.context_length, batch_rows, self.summary)
                self._write_rows(texts.batches(size), column, writer, advance)
        return open_result(path, dataset, name)

    def _tokenize_lazily(self, dataset: Any) -> Any:
        """An iterable dataset of rows; nothing is encoded before it is read."""
        features = features_of_stream(dataset)
        column = find_text_column(features, self.text_column)
        tell_of_dropped_columns(features, column)
        size = choose_batch_size(self.config.batch_size, 0.0, joined([]), self._rule)
        parallelism = self._parallelism()
        logger.info(parallelism.describe(size))
        return dataset.with_format(None).map(
            functools.partial(self._make_rows_of, column, parallelism),
            batched=True,
            batch_size=size,
            remove_columns=list(features),
            features=row_features(),
        )

    def _make_rows_of(
        self, column: str, parallelism: Parallelism, batch: Mapping[str, list[Any]]
    ) -> Columns:
        """Rows of a batch of an iterable dataset, in whatever process reads it."""
        texts = without_null(batch[column])
        num_null = len(batch[column]) - len(texts)
        with logging_at(self.config.verbose_level), thread_environment(parallelism):
            self._encoder.choose_engine(texts)  # before processes are forked
            self._pool = self._pool_of_this_process(parallelism)
            columns = self._columns(column, texts)
            self._encoder.finish_audit()
        self.summary.count(Texts(texts, sum(map(len, texts)), num_null))
        self.summary.rows += len(columns["input_ids"])
        self.summary.tokens += int(np.count_nonzero(columns["attention_mask"]))
        return columns

    def _prepare(self, texts: TextColumn, parallelism: Parallelism) -> int:
        """Choose the engine and the size of a batch, on a sample of the documents."""
        sample = texts.sample()
        tokens = self._encoder.encode(sample)
        size = choose_batch_size(self.config.batch_size, texts.mean_bytes, tokens, self._rule)
        logger.info(parallelism.describe(size))
        return size

    def _write_rows(
        self,
        batches: Iterator[Texts],
        column: str,
        writer: RowWriter,
        advance: Callable[[int], None],
    ) -> None:
        """Encode batch after batch, while a second thread writes the rows of the one before."""
        summary = self.summary
        with ThreadPoolExecutor(1, "rows") as background:
            written: Future[None] = background.submit(lambda: None)
            while (batch := summary.timed("read", lambda: next(batches, None))) is not None:
                summary.count(batch)
                write = summary.timed("encode", self._encoded, batch, column, writer)
                written.result()
                written = background.submit(write)
                advance(batch.num_bytes)
            written.result()
            self._encoder.finish_audit()
            background.submit(writer.close).result()

    def _encoded(self, batch: Texts, column: str, writer: RowWriter) -> Callable[[], None]:
        """Encode a batch; what is returned writes its rows."""
        if not self._has_own_function:
            tokens = self._encode(batch.texts)
            return lambda: writer.write_windows(self._rule.cut(tokens))
        rows = checked_rows(self._columns(column, batch.texts), self._rule.context_length)
        return lambda: writer.write_rows(rows)

    def _columns(self, column: str, texts: list[str]) -> Columns:
        """What `_tokenize_function` makes of texts, in parts where there are workers."""
        if self._pool is None or not self._has_own_function:
            return self._tokenize_function({column: texts})
        parts = self._pool.map(functools.partial(_columns_of_part, column), texts)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _encode(self, texts: list[str]) -> TokenBatch:
        if self._pool is None:
            tokens = self._encoder.encode(texts)
        else:
            tokens = joined(self._pool.map(_encode_part, texts))
        self._encoder.hold_for_audit(texts, tokens)
        self.summary.empty += int(np.count_nonzero(tokens.lengths == 0))
        return tokens

    @property
    def _is_slow(self) -> bool:
        return self._file.kind == "python"

    @property
    def _has_own_function(self) -> bool:
        own = getattr(self._tokenize_function, "__func__", None)
        return own is not CausalLMTokenizer._tokenize_function

    def _parallelism(self) -> Parallelism:
        found = Parallelism(max(self._get_optimal_num_proc() or 1, 1), self._is_slow)
        if self._is_slow and not self._has_warned:
            self._has_warned = True
            conventions.warn_of_slow_tokenizer(self._file.tokenizer)
        return found

    @contextmanager
    def _workers(self, parallelism: Parallelism) -> Iterator[None]:
        """Worker processes, where these encode."""
        if not parallelism.uses_processes:
            yield
            return
        self._pool = WorkerPool(self, parallelism.num_proc)
        try:
            yield
        finally:
            self._pool.close()
            self._pool = None

    def _pool_of_this_process(self, parallelism: Parallelism) -> WorkerPool | None:
        """The pool of an iterable dataset; none in a daemon, which may have no children."""
        if not parallelism.uses_processes or multiprocessing.current_process().daemon:
            return None
        if self._pool is not None and self._pool.is_of_this_process:
            return self._pool
        self._pool = None
        return WorkerPool(self, parallelism.num_proc)

    def _identity(self, column: str) -> dict[str, Any]:
        """Everything that rows depend on, beside the dataset."""
        own = object_fingerprint((self._tokenize_function, self)) if self._has_own_function else ""
        return {
            "column": column,
            "tokenizer": [self._file.kind, self._file.sha256],
            "library": [self._encoder.reference.name, self._encoder.reference.version],
            "windows": dataclasses.asdict(self._rule),
            "function": own,
        }

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: neither processes nor the counts of this one."""
        return {**self.__dict__, "_pool": None, "summary": Summary()}


def _encode_part(owner: CausalLMTokenizer, texts: list[str]) -> TokenBatch:
    """In a worker: the ids of a part of a batch."""
    return owner._encoder.encode(texts)


def _columns_of_part(column: str, owner: CausalLMTokenizer, texts: list[str]) -> Columns:
    """In a worker: rows of a part of a batch, as a subclass makes them."""
    columns = owner._tokenize_function({column: texts})
    owner._encoder.finish_audit()
    return columns
