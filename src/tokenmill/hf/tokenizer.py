"""`CausalLMTokenizer`: a dataset of texts to a dataset of rows, for causal language models.

    texts of the dataset -> ids by the engine -> windows and labels -> an Arrow file

The first two run in the calling thread, on the engine's own threads or in worker processes; the
others in a second thread, a batch behind.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import join_batches
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.errors import UserError
from tokenmill.hf.config import CausalLMConfig, make_config
from tokenmill.hf.conventions import Conventions, warn_of_slow_tokenizer
from tokenmill.hf.encoding import AUTO, ExactEncoder
from tokenmill.hf.log import logger, logging_at
from tokenmill.hf.parallelism import Parallelism, thread_environment
from tokenmill.hf.progress import progress
from tokenmill.hf.results import fingerprint, open_result, result_path, subclass_fingerprint
from tokenmill.hf.source import (
    TextColumn,
    Texts,
    choose_batch_size,
    features_of_stream,
    find_text_column,
    first_texts,
    shortened,
    tell_of_dropped_columns,
    texts_of,
    without_null,
)
from tokenmill.hf.stream import lazy_rows
from tokenmill.hf.summary import Summary
from tokenmill.hf.windows import COLUMNS, RowColumns, WindowRule
from tokenmill.hf.workers import Workers
from tokenmill.hf.writing import RowWriter, arrow_file, checked_rows
from tokenmill.records import TokenBatch
from tokenmill.run.machine.cores import usable_cores

DATASET_BATCH_ROWS = 10_000
DATASET_DICT_BATCH_ROWS = 40_000
OWN_ATTRIBUTES = frozenset(
    ("config", "text_column", "summary", "_has_warned", "_workers", "_file", "_encoder", "_rule")
)
"""Of an instance, before a subclass adds any; those with a say in rows stand in `_identity`."""

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
            raise UserError("no tokenizer given", hint=hint)
        self._has_warned = False
        self._workers = Workers()
        with logging_at(self.config.verbose_level):
            self._file = require_harmless(load_tokenizer_file(given))
            self._encoder = ExactEncoder(self._file, engine)
            named = given if self._file.tokenizer is None else self._file.tokenizer
            reference = self._encoder.reference
            conventions = Conventions(named, self._file, reference)
            self._rule = WindowRule(
                self.config.context_length,
                self.config.overlap,
                conventions.padding_id,
                reference.prefix,
                reference.suffix,
                conventions.pads_left,
                conventions.truncates_left,
                conventions.appended_eos(self.config.append_eos),
            )

    def tokenize(
        self, dataset: Any, *, cache_dir: str | Path | None = None, force: bool = False
    ) -> Any:
        """Rows of `input_ids` (int64), `attention_mask` (int8) and `labels` (int64).

        Args:
            dataset: `Dataset`, `DatasetDict`, or their iterable kinds; the result is of the same
                kind. An iterable one stays lazy; only without a batch size its first documents
                are read, to choose one.
            cache_dir: folder for the Arrow files; without it they stand where `dataset.map` puts
                them.
            force: make the rows anew where an earlier run left them.

        Raises:
            UserError: it is no dataset, or its column of texts is not known.
            EngineError: the engine differs from the tokenizer's own library.
            StorageError: cannot write the result.
        """
        import datasets

        self.summary = Summary()
        started = time.perf_counter()
        with logging_at(self.config.verbose_level):
            if isinstance(dataset, datasets.IterableDatasetDict):
                lazy = {name: self._lazy_rows(split) for name, split in dataset.items()}
                return datasets.IterableDatasetDict(lazy)
            if isinstance(dataset, datasets.IterableDataset):
                return self._lazy_rows(dataset)
            if isinstance(dataset, datasets.DatasetDict):
                result: Any = datasets.DatasetDict()
                for name, split in dataset.items():
                    result[name] = self._tokenize(split, DATASET_DICT_BATCH_ROWS, cache_dir, force)
            elif isinstance(dataset, datasets.Dataset):
                result = self._tokenize(dataset, DATASET_BATCH_ROWS, cache_dir, force)
            else:
                why = f"it is of {type(dataset).__module__}.{type(dataset).__qualname__}"
                raise UserError("not a dataset of Hugging Face datasets", why=why)
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
        texts = TextColumn(dataset, column)
        name = fingerprint(dataset, self._identity(column))
        path = result_path(dataset, name, cache_dir)
        if path.exists() and not force:
            logger.info("the rows of an earlier run are used: %s", path)
            self.summary.reused.append(str(path))
            return open_result(path, dataset, name)
        tell_of_dropped_columns(dataset.features, column)
        parallelism = self._parallelism()
        with thread_environment(parallelism):
            size = self._choose_batch_size(texts.sample(), texts.mean_bytes)
            logger.info(parallelism.describe(size))
            with (
                self._workers.during_run(self, parallelism.num_proc),
                progress(texts.num_bytes, self.config.show_progress) as advance,
                arrow_file(path) as file,
            ):
                length = self.config.context_length
                writer = RowWriter(file, path, length, batch_rows, self.summary)
                self._write_rows(texts.batches(size), column, writer, advance)
        return open_result(path, dataset, name)

    def _lazy_rows(self, dataset: Any) -> Any:
        """Rows of an iterable dataset; but for a sample, nothing is read or encoded yet."""
        features = features_of_stream(dataset)
        column = find_text_column(features, self.text_column)
        tell_of_dropped_columns(features, column)
        parallelism = self._parallelism()
        self._workers.end()  # those of an earlier dataset know this object as it was
        size = self.config.batch_size
        if size is None:
            first = first_texts(dataset, column)
            mean_bytes = first.num_bytes / max(len(first.texts) + first.num_null, 1)
            with thread_environment(parallelism):
                size = self._choose_batch_size(shortened(first.texts), mean_bytes)
        logger.info(parallelism.describe(size))
        make_rows = functools.partial(self._rows_of_stream, column, parallelism)
        return lazy_rows(dataset, features, column, size, make_rows)

    def _rows_of_stream(
        self, column: str, parallelism: Parallelism, values: Iterable[str | None]
    ) -> RowColumns:
        """The rows of a batch of an iterable dataset; `summary` of this process counts them."""
        started = time.perf_counter()
        summary, texts = self.summary, texts_of(values)
        with logging_at(self.config.verbose_level), thread_environment(parallelism):
            self._encoder.choose_engine(texts.texts)  # before processes are forked
            self._workers.begin(self, parallelism.num_proc)
            columns = summary.timed("encode", self._columns, column, texts.texts)
            rows = checked_rows(columns, self.config.context_length)
            self._encoder.finish_audit()
            summary.count(texts)
            summary.warn(" so far")
        summary.rows += len(rows)
        summary.tokens += int(np.count_nonzero(rows.attention_mask))
        summary.seconds += time.perf_counter() - started
        return rows

    def _choose_batch_size(self, sample: list[str], mean_bytes: float) -> int:
        """Documents of a batch; the sample makes the engines known, too."""
        tokens = self._encoder.encode(sample)
        return choose_batch_size(self.config.batch_size, mean_bytes, tokens, self._rule)

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
        pool = self._workers.pool
        if pool is None or not self._has_own_function:
            return self._tokenize_function({column: texts})
        parts = pool.map(functools.partial(_columns_of_part, column), texts)
        self.summary.empty += sum(num_empty for _, num_empty in parts)
        found = [columns for columns, _ in parts]
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    def _encode(self, texts: list[str]) -> TokenBatch:
        pool = self._workers.pool
        if pool is None:
            tokens = self._encoder.encode(texts)
        else:
            tokens = join_batches(pool.map(_encode_part, texts))
        self._encoder.hold_for_audit(texts, tokens)
        self.summary.empty += int(np.count_nonzero(tokens.lengths == 0))
        return tokens

    @property
    def _is_slow(self) -> bool:
        return KINDS[self._file.kind].is_slow

    @property
    def _has_own_function(self) -> bool:
        own = getattr(self._tokenize_function, "__func__", None)
        return own is not CausalLMTokenizer._tokenize_function

    def _parallelism(self) -> Parallelism:
        found = Parallelism(max(self._get_optimal_num_proc() or 1, 1), self._is_slow)
        if self._is_slow and not self._has_warned:
            self._has_warned = True
            warn_of_slow_tokenizer(self._file)
        return found

    def _identity(self, column: str) -> dict[str, Any]:
        """Everything that rows depend on, beside the dataset."""
        own = ""
        if self._has_own_function:
            own = subclass_fingerprint(self, CausalLMTokenizer, OWN_ATTRIBUTES)
        return {
            "column": column,
            "tokenizer": [self._file.kind, self._file.sha256],
            "library": [self._encoder.reference.name, self._encoder.reference.version],
            "windows": dataclasses.asdict(self._rule),
            "function": own,
        }

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: not the counts of this one."""
        return {**self.__dict__, "summary": Summary()}


def _encode_part(owner: CausalLMTokenizer, texts: list[str]) -> TokenBatch:
    """In a worker: the ids of a part of a batch."""
    return owner._encoder.encode(texts)


def _columns_of_part(
    column: str, owner: CausalLMTokenizer, texts: list[str]
) -> tuple[Columns, int]:
    """In a worker: rows of a part as a subclass makes them, and its texts without tokens."""
    owner.summary = Summary()
    columns = owner._tokenize_function({column: texts})
    owner._encoder.finish_audit()
    return columns, owner.summary.empty
