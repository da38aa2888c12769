"""Which engine encodes: the best that agrees with the tokenizer's own library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tokenmill.encode.calibration import Exam, adversarial_texts, check_engine
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.selection import REFERENCE, load_engine, rank_engines
from tokenmill.encode.tokenizer_file import TokenizerFile
from tokenmill.errors import EngineError
from tokenmill.hf.log import logger

AUTO = "auto"
CACHE_BYTES = 512 << 20
"""How far an engine's own cache may grow."""


class EngineChoice:
    """The engines that may encode, best first; the first begins to load at once, in a thread."""

    def __init__(self, file: TokenizerFile, wanted: str) -> None:
        """Rank the engines, or take the one that is wanted.

        Raises:
            UserError: the engine that is wanted is not installed or not exact for this tokenizer.
        """
        self._file = file
        self._wanted = wanted
        self._names = rank_engines(file, False, wanted).names
        self._pid = os.getpid()
        self._first: Future[Engine] | None = None
        if self._names[0] != REFERENCE:
            background = ThreadPoolExecutor(1, "engine")
            self._first = background.submit(self._load, self._names[0])
            background.shutdown(wait=False)

    def best(self, reference: Reference, sample: Sequence[str]) -> Engine:
        """The first engine that agrees with the reference on hard strings and on a sample.

        Raises:
            EngineError: the engine that is wanted does not.
        """
        if self._first is None:
            return reference
        texts = [*adversarial_texts(reference.special_tokens), *sample]
        exam = Exam(texts, Encoder(reference, reference.largest_id).encode(texts))
        for name in self._names:
            if name == REFERENCE:
                break
            try:
                # A forked process has no thread that would end the loading.
                is_loading = name == self._names[0] and os.getpid() == self._pid
                engine = self._first.result() if is_loading else self._load(name)
                check_engine(engine, exam)
            except EngineError as error:
                if self._wanted != AUTO:
                    raise
                logger.warning("%s is not used: %s", name, error)
            else:
                return engine
        return reference

    def _load(self, name: str) -> Engine:
        return load_engine(name, self._file, False, CACHE_BYTES)
