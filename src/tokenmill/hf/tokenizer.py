"""`CausalLMTokenizer`: turn a dataset of texts into a dataset of rows for causal LMs.

    texts of the dataset -> ids from the engine -> windows or packed rows -> an Arrow file

The calling thread reads and encodes, with the engine's threads or worker processes. A second
thread makes and writes the rows, one batch behind.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import join_batches
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.hf.columns import RowColumns, RowFormat
from tokenmill.hf.conventions import Conventions, warn_of_slow_tokenizer
from tokenmill.hf.encoding import AUTO, ExactEncoder, Sampling
from tokenmill.hf.results import (
    ResultPlace,
    fingerprint,
    identity_of_rows,
    subclass_fingerprint,
)
from tokenmill.hf.rows import PackedRows, Place, Portion, Portions
from tokenmill.hf.source import (
    TextColumn,
    Texts,
    choose_batch_size,
    features_of_stream,
    find_text_column,
    first_texts,
    shortened,
    texts_of,
    without_null,
)
from tokenmill.hf.summary import Summary, logger, logging_at, progress
from tokenmill.hf.workers import Workers, described, thread_environment
from tokenmill.hf.writing import RowWriter, unfinished_rows
from tokenmill.packing.options import PackOptions, warn_of_short_sequences
from tokenmill.run.machine import usable_cores
from tokenmill.run.recipe.tokenizer_section import (
    DEFAULT_COLUMNS,
    SECTION,
    CausalLMConfig,
    check_section,
    load_section,
    with_length,
)

DATASET_BATCH_ROWS = 10_000
DATASET_DICT_BATCH_ROWS = 40_000
OWN_ATTRIBUTES = frozenset(
    ("config", "text_column", "summary", "_has_warned", "_workers", "_file", "_encoder", "_rule")
) | {"_form"}
"""Attributes of an instance without those of subclasses. `_identity` covers what changes rows."""

Batch = Mapping[str, Sequence[str | None]]
Columns = dict[str, npt.NDArray[Any]]


class CausalLMTokenizer:
    """Tokenizes Hugging Face datasets into rows of `context_length` tokens.

    Each document is cut into windows, and the last window is padded. With `packing`, several
    documents share a row. Null texts and texts without tokens give no row; `summary` counts them.
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
            config: path of a YAML file, a mapping, or a `CausalLMConfig`.
            tokenizer: a tokenizer of `transformers`, a `tokenizers.Tokenizer`, or any object with
                `encode`. It overrides `tokenizer_name`.
            text_column: the column with the texts. It overrides the configuration. If neither
                names one, the column `text` is used, or the only column of strings.
            engine: as `--engine` of `tokenmill build`; `reference` is the tokenizer's own library.

        Raises:
            UserError: the configuration or the tokenizer cannot be used.
        """
        self.config = make_config(config)
        self.text_column = self.config.text_column if text_column is None else text_column
        self.summary = Summary()
        """Counts and timings of the last call of `tokenize`."""
        given = self.config.tokenizer_name if tokenizer is None else tokenizer
        if given is None:
            hint = "set tokenizer_name in the configuration, or pass a tokenizer"
            raise UserError("no tokenizer given", hint=hint)
        self._has_warned = False
        self._workers = Workers()
        with logging_at(self.config.verbose_level):
            self._file = require_harmless(load_tokenizer_file(given))
            named = given if self._file.tokenizer is None else self._file.tokenizer
            self.config = with_length(self.config, named, self._file.origin, logger.info)
            if logger.isEnabledFor(logging.WARNING):
                warn_of_short_sequences(self.config.row_length)
            self._encoder = ExactEncoder(self._file, engine, self._sampling())
            conventions = Conventions(named, self._file, self._encoder.reference)
            self._rule = conventions.rule(self.config)
            self._form = RowFormat.of(self.config)
            logger.debug("documents become rows by %s", self._rule)
            logger.debug("columns: %s", self._form)
            if self.config.packing and "attention_mask" in self._form.columns:
                logger.warning(
                    "packed rows have an attention_mask: with one, models of transformers ignore "
                    "position_ids, and documents in a row attend to each other; leave it out of "
                    "columns"
                )

    def tokenize(
        self,
        dataset: Any,
        *,
        cache_dir: str | Path | None = None,
        out: str | Path | None = None,
        force: bool = False,
    ) -> Any:
        """Tokenize a dataset and return a dataset of rows.

        By default, rows have the columns `input_ids`, `attention_mask` and `labels`.

        Args:
            dataset: a `Dataset`, `DatasetDict`, `IterableDataset` or `IterableDatasetDict`. The
                result has the same type. Iterable datasets stay lazy; if no batch size is
                configured, their first documents are read to choose one.
            cache_dir: folder for the Arrow files. By default, the folder `dataset.map` uses.
            out: folder to store the rows in. `datasets.load_from_disk` opens it.
            force: make all rows again, even if an earlier run left some, as with `cache: false`.

        Raises:
            UserError: `dataset` is not a dataset, its text column is unknown, or `out` holds other
                rows and `force` is false.
            EngineError: the engine differs from the tokenizer's own library.
            StorageError: the result cannot be written.
        """
        import datasets

        self.summary = Summary()
        started = time.perf_counter()
        place = ResultPlace(cache_dir, out, overwrite=force)
        fresh = force or not self.config.cache
        with logging_at(self.config.verbose_level):
            if isinstance(dataset, datasets.IterableDatasetDict | datasets.IterableDataset):
                place.refuse_stream()
            if isinstance(dataset, datasets.IterableDatasetDict):
                lazy = {name: self._lazy_rows(split) for name, split in dataset.items()}
                return datasets.IterableDatasetDict(lazy)
            if isinstance(dataset, datasets.IterableDataset):
                return self._lazy_rows(dataset)
            if isinstance(dataset, datasets.DatasetDict):
                result: Any = datasets.DatasetDict()
                for name, split in dataset.items():
                    rows = self._tokenize(split, DATASET_DICT_BATCH_ROWS, place, name, fresh)
                    result[name] = rows
            elif isinstance(dataset, datasets.Dataset):
                result = self._tokenize(dataset, DATASET_BATCH_ROWS, place, None, fresh)
            else:
                kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
                why = f"got an object of type {kind}"
                raise UserError("expected a dataset of the library datasets", why=why)
            place.close()
            self.summary.seconds = time.perf_counter() - started
            logger.info("%s", self.summary)
            self.summary.warn()
        return result

    def _get_optimal_num_proc(self) -> int:
        """Number of encoding processes; 1 means the calling process. Subclasses can override it."""
        wanted = self.config.num_proc
        if self._is_slow:
            return wanted or max(usable_cores() // 2, 1)
        if wanted is not None and wanted > 1:
            logger.info("num_proc=%d is ignored: the tokenizer has its own threads", wanted)
        return 1

    def _tokenize_function(self, batch: Batch) -> Columns:
        """Return arrays of shape (rows, context_length) for a batch {column: texts}.

        Subclasses can override it to return other arrays of this shape.
        """
        (texts,) = batch.values()
        tokens = self._encode(without_null(texts))
        options, rule = self._pack_options, self._rule
        source = (
            PackedRows.of(rule.enclosed(tokens), rule, options) if options else rule.cut(tokens)
        )
        rows = self._form.filled(source)
        columns: Columns = {name: getattr(rows, name) for name in DEFAULT_COLUMNS}
        if options:
            columns["position_ids"] = rows.segmentation.positions
        return columns

    def _tokenize(
        self, dataset: Any, batch_rows: int, place: ResultPlace, split: str | None, fresh: bool
    ) -> Any:
        """Tokenize one split: find or make its rows, and open them."""
        column = find_text_column(dataset.features, self.text_column)
        texts = TextColumn(dataset, column)
        name = fingerprint(dataset, self._identity(column))
        path = place.path(dataset, split, name)
        logger.debug("rows of column %r have the fingerprint %s, and lie in %s", column, name, path)
        if path.exists() and not fresh:
            result = place.open(path, dataset, name, self._form.features)
            self.summary.reuse(str(path), len(dataset), len(result))
            return result
        num_proc = self._num_proc(dataset.features, column)
        with (
            thread_environment(num_proc),
            unfinished_rows(path, can_resume=self.config.cache, fresh=fresh) as writer,
        ):
            size = self._choose_batch_size(texts.sample(), texts.mean_bytes, writer.batch_size)
            writer.batch_size = size
            self._tell_of_performance(size, num_proc)
            with (
                self._workers.during_run(self, num_proc),
                progress(texts.num_bytes, self.config.show_progress) as advance,
            ):
                self._write(texts, writer, batch_rows, advance)
                self._encoder.finish_audit()
        return place.open(path, dataset, name, self._form.features)

    def _write(
        self,
        texts: TextColumn,
        writer: RowWriter,
        batch_rows: int,
        advance: Callable[[int], None],
    ) -> None:
        """Make the rows that an earlier run has not written; `advance` is called with bytes."""
        summary, done = self.summary, writer.done.place
        before = summary.counts
        writer.begin(self._form, batch_rows, summary)
        advance(done.counts.get("text_bytes", 0))
        portions = Portions(self._rule, self._pack_options, done.skipped)

        def write(found: Sequence[Portion]) -> None:
            for portion in found:
                writer.write(portion)

        assert writer.batch_size is not None
        batches = texts.batches(writer.batch_size, done.document)
        with ThreadPoolExecutor(1, "rows") as background:
            written: Future[None] = background.submit(lambda: None)
            while (batch := summary.timed("read", lambda: next(batches, None))) is not None:
                place = Place(batch.first, counts=summary.since(before))
                summary.count(len(batch.texts) + batch.num_null, batch.num_null, batch.num_bytes)
                found = summary.timed("encode", self._encoded, texts.name, portions, batch, place)
                written.result()
                written = background.submit(write, found)
                advance(batch.num_bytes)
            written.result()
            background.submit(write, list(portions.finish())).result()
            background.submit(writer.end).result()

    def _lazy_rows(self, dataset: Any) -> Any:
        """The lazy rows of an iterable dataset. At most a sample is read and encoded now."""
        features = features_of_stream(dataset)
        column = find_text_column(features, self.text_column)
        num_proc = self._num_proc(features, column)
        self._workers.end()  # they hold a copy of this object from the earlier dataset
        size = self.config.batch_size
        if size is None:
            first = first_texts(dataset, column)
            mean_bytes = first.num_bytes / max(len(first.texts) + first.num_null, 1)
            with thread_environment(num_proc):
                sample = shortened(first.texts)
                size = self._choose_batch_size(sample, mean_bytes, None, is_lazy=True)
        self._tell_of_performance(size, num_proc)
        return dataset.with_format(None).map(
            functools.partial(self._columns_of_stream, column, num_proc),
            batched=True,
            batch_size=size,
            remove_columns=list(features),
            features=self._form.features,
        )

    def _columns_of_stream(
        self, column: str, num_proc: int, batch: Mapping[str, Iterable[str | None]]
    ) -> dict[str, Any]:
        """The rows of a batch of an iterable dataset, counted in the summary of this process."""
        started = time.perf_counter()
        summary, texts = self.summary, texts_of(batch[column])
        with logging_at(self.config.verbose_level), thread_environment(num_proc):
            self._encoder.choose_engine(texts.texts)  # before processes are forked
            self._workers.begin(self, num_proc)
            columns = summary.timed("encode", self._columns, column, texts.texts)
            rows = RowColumns.of_arrays(columns, self._form)
            self._encoder.finish_audit()
            summary.count(len(texts.texts) + texts.num_null, texts.num_null, texts.num_bytes)
            summary.warn(" so far")
        summary.rows += len(rows)
        summary.tokens += rows.num_tokens
        summary.seconds += time.perf_counter() - started
        return self._form.arrays(rows)

    def _choose_batch_size(
        self, sample: list[str], mean_bytes: float, resumed: int | None, is_lazy: bool = False
    ) -> int:
        """Choose the documents per batch; encoding the sample also chooses the engine."""
        tokens = self._encoder.encode(sample)
        wanted = self.config.batch_size or resumed
        if self._has_own_function:  # its rows may depend on what a batch holds
            wanted = resumed or self.config.batch_size
        holds_rows = is_lazy or self._has_own_function
        return wanted or choose_batch_size(
            mean_bytes, tokens, self._rule, self._form, holds_rows=holds_rows
        )

    def _encoded(
        self, column: str, portions: Portions, batch: Texts, place: Place
    ) -> list[Portion]:
        """Encode a batch; what is returned becomes rows."""
        if not self._has_own_function:
            return list(portions.add(self._encode(batch.texts), place))
        rows = RowColumns.of_arrays(self._columns(column, batch.texts), self._form)
        return [Portion(place, lambda: rows)]

    def _columns(self, column: str, texts: list[str]) -> Columns:
        """The result of `_tokenize_function` for texts, split among workers if there are any."""
        if not self._workers.exist or not self._has_own_function:
            return self._tokenize_function({column: texts})
        parts = self._workers.map(functools.partial(_columns_of_part, column), texts)
        self.summary.empty += sum(counted.empty for _, counted in parts)
        self.summary.cut += sum(counted.cut for _, counted in parts)
        found = [columns for columns, _ in parts]
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    def _encode(self, texts: list[str]) -> TokenBatch:
        if self._workers.exist:
            tokens = join_batches(self._workers.map(_encode_part, texts))
        else:
            tokens = self._encoder.encode(texts)
        self._encoder.hold_for_audit(texts, tokens)
        self.summary.empty += int(np.count_nonzero(tokens.lengths == 0))
        too_long = tokens.lengths + len(self._rule.end) > self._rule.content_length
        self.summary.cut += int(np.count_nonzero(too_long))
        return tokens

    def _sampling(self) -> Sampling | None:
        rate = self.config.subword_regularisation
        return None if rate is None else Sampling(rate, self.config.seed)

    @property
    def _pack_options(self) -> PackOptions | None:
        return self.config.pack_options if self.config.packing else None

    @property
    def _is_slow(self) -> bool:
        return KINDS[self._file.kind].is_slow

    @property
    def _has_own_function(self) -> bool:
        own = getattr(self._tokenize_function, "__func__", None)
        return own is not CausalLMTokenizer._tokenize_function

    def _num_proc(self, features: Mapping[str, Any], column: str) -> int:
        """The number of encoding processes; logs what a user should know of the dataset first."""
        if dropped := [name for name in features if name != column]:
            logger.info("dropped columns: %s", ", ".join(dropped))  # rows are not documents
        num_proc = max(self._get_optimal_num_proc() or 1, 1)
        if self._is_slow and not self._has_warned:
            self._has_warned = True
            warn_of_slow_tokenizer(self._file)
        return num_proc

    def _tell_of_performance(self, batch_size: int, num_proc: int) -> None:
        how = described(num_proc, is_slow=self._is_slow)
        logger.info("Performance configuration: batch_size=%d, %s", batch_size, how)

    def _identity(self, column: str) -> dict[str, Any]:
        """Everything that determines the rows, except the dataset."""
        own = ""
        if self._has_own_function:
            own = subclass_fingerprint(self, CausalLMTokenizer, OWN_ATTRIBUTES)
        return {
            "column": column,
            "tokenizer": [self._file.kind, self._file.sha256],
            "library": [self._encoder.reference.name, self._encoder.reference.version],
            "function": own,
            **identity_of_rows(self._rule, self._form, self.config.packing, self._sampling()),
        }

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, with an empty summary."""
        return {**self.__dict__, "summary": Summary()}


def _encode_part(owner: CausalLMTokenizer, texts: list[str]) -> TokenBatch:
    """Encode a part of a batch in a worker."""
    return owner._encoder.encode(texts)


def _columns_of_part(
    column: str, owner: CausalLMTokenizer, texts: list[str]
) -> tuple[Columns, Summary]:
    """Make the rows of a part with the function of a subclass, in a worker, and count them."""
    owner.summary = Summary()
    columns = owner._tokenize_function({column: texts})
    owner._encoder.finish_audit()
    return columns, owner.summary


def make_config(config: CausalLMConfig | Mapping[str, Any] | str | Path) -> CausalLMConfig:
    """Make a configuration from a YAML file, a mapping, or the struct itself.

    The options are under `tokenizer`, and other sections of such a file are not read. A mapping
    without that section holds the options themselves.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    if isinstance(config, CausalLMConfig):
        return check_section(msgspec.to_builtins(config))  # constructors do not check values
    if isinstance(config, Mapping):
        section = config.get(SECTION)
        return check_section(section if isinstance(section, Mapping) else config)
    return check_section(load_section(config), str(config))
