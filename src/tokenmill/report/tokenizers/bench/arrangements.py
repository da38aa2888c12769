"""Which arrangements are measured, as follows from the tokenizer, the documents and the cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenmill.encode.engine_ranking import REFERENCE, rank_engines
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile

BATCH_SIZES = (32, 64, 100, 256, 1000, 2000, 5000, 6000)
BEST_BATCH = 256
"""Batches of at most this many documents are tried first."""


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """A way to encode the documents."""

    encoder: str
    """tokenizers, tiktoken, sentencepiece, slow for a Python object, or an engine's name."""
    batch_size: int
    """Documents of one call; 1 is the library's call for a single text."""
    threads: int = 1
    python_threads: bool = False
    """Whether Python threads make the calls, instead of threads of the library."""
    processes: int = 0
    """Worker processes, which get texts and give ids; 0 is the calling process alone."""

    @property
    def name(self) -> str:
        """A short label."""
        where = f"{self.processes} processes" if self.processes else ""
        if self.threads > 1:
            where = f"{self.threads} {'Python ' if self.python_threads else ''}threads"
        return " ".join(filter(None, [self.encoder, "by", str(self.batch_size), where]))


def arrangements_for(
    file: TokenizerFile, num_documents: int, num_cores: int
) -> Iterator[Arrangement]:
    """The arrangements in the order of the table; single calls of the library come first."""
    kind = KINDS[file.kind]
    library = "slow" if kind.is_slow else kind.library
    yield Arrangement(encoder=library, batch_size=1)
    if not kind.is_slow:  # such an object has no batch call and no threads
        for size in BATCH_SIZES:
            if size <= num_documents:
                yield Arrangement(encoder=library, batch_size=size, threads=num_cores)
        yield Arrangement(encoder=library, batch_size=_shared(num_documents, 1))
    if num_cores > 1:
        size = _shared(num_documents, num_cores)
        yield Arrangement(encoder=library, batch_size=size, threads=num_cores, python_threads=True)
    counts = sorted({1, max(num_cores // 2, 1), num_cores})
    for processes in counts:
        size = _shared(num_documents, processes)
        yield Arrangement(encoder=library, batch_size=size, processes=processes)
    for name in rank_engines(file, control_tokens=False).names:
        if name != REFERENCE:
            yield Arrangement(encoder=name, batch_size=_shared(num_documents, 1))
            size = _shared(num_documents, num_cores)
            yield Arrangement(encoder=name, batch_size=size, processes=num_cores)


def by_importance(planned: Sequence[Arrangement]) -> list[Arrangement]:
    """Arrangements by importance, for when there is not enough time for all.

    Single calls, which all are compared with; a batch of the library in all threads; the engine
    that a build tries first; the library in all processes; other engines; the rest as it comes.
    """
    single, *others = planned
    engines = [each for each in others if each.encoder != single.encoder]
    library = [each for each in others if each.encoder == single.encoder]
    batches = [each for each in library if not (each.python_threads or each.processes)]
    small = [each for each in batches if each.batch_size <= BEST_BATCH]
    best = sorted(small, key=lambda each: (each.threads, each.batch_size))[-1:]
    first = [each for each in engines if each.encoder == engines[0].encoder]
    workers = [each for each in library if each.processes][-1:]
    ordered = [single, *best, *first, *workers, *engines, *library]
    return list(dict.fromkeys(ordered))


def batch_sizes_left_out(num_documents: int) -> list[int]:
    """Batch sizes larger than the number of documents."""
    return [size for size in BATCH_SIZES if size > num_documents]


def _shared(num_documents: int, num_takers: int) -> int:
    """Documents of a batch: at most 256, and at least four batches for each thread or process."""
    return min(max(num_documents // (4 * num_takers), 1), 256)
