"""The measured calls: those of a user of the library, or of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xxhash

from tokenmill.core.records import TokenBatch, UInt32Array
from tokenmill.encode.encodings import encoding_of, parse_ranks
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.references.sentencepiece import load_processor
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.report.tokenizers.bench.arrangements import Arrangement

ENGINE_CACHE_BYTES = 500_000_000
"""About the cache that a build with two workers gives each."""

Encoded = TokenBatch | list[list[int]]
"""Ids in the encoder's own type: a conversion would be measured as well."""
Encode = Callable[[Sequence[str]], Encoded]


def open_encoder(file: TokenizerFile, arrangement: Arrangement) -> Encode:
    """The call of an arrangement, for one batch. Special tokens in texts are ordinary text.

    Raises:
        UserError: the tokenizer, or its library, cannot be loaded.
        EngineError: the engine does not take the tokenizer.
    """
    openers = {
        "tokenizers": _open_tokenizers,
        "tiktoken": _open_tiktoken,
        "sentencepiece": _open_sentencepiece,
        "slow": _open_python,
    }
    if opener := openers.get(arrangement.encoder):
        threads = 1 if arrangement.python_threads else arrangement.threads
        return opener(file, arrangement.batch_size == 1, threads)
    return load_engine(arrangement.encoder, file, False, ENGINE_CACHE_BYTES).encode


def ids_of_documents(encoded: Encoded) -> list[UInt32Array]:
    """The ids of each document, as arrays."""
    if isinstance(encoded, TokenBatch):
        return np.split(encoded.ids, encoded.offsets[1:-1])
    return [np.array(ids, np.uint32) for ids in encoded]


def num_tokens(encoded: Encoded) -> int:
    """Ids of all documents of a batch."""
    if isinstance(encoded, TokenBatch):
        return len(encoded.ids)
    return sum(map(len, encoded))


def digests_of(encoded: Encoded) -> bytes:
    """xxh3-64 of each document's ids as little-endian uint32: eight bytes a document."""
    arrays = (np.ascontiguousarray(ids, "<u4") for ids in ids_of_documents(encoded))
    return b"".join(xxhash.xxh3_64_digest(ids.tobytes()) for ids in arrays)


def _open_tokenizers(file: TokenizerFile, single: bool, threads: int) -> Encode:  # noqa: ARG001
    """Environment variables set its threads."""
    import tokenizers

    tokenizer: Any = tokenizers.Tokenizer.from_str(file.data.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if single:
        return lambda texts: [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
    call = tokenizer.encode_batch_fast
    return lambda texts: [found.ids for found in call(texts, add_special_tokens=False)]


def _open_tiktoken(file: TokenizerFile, single: bool, threads: int) -> Encode:
    import tiktoken

    pattern = encoding_of(file).pattern
    ranks = parse_ranks(file.data)
    encoding = tiktoken.Encoding(
        file.encoding, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
    if single:
        return lambda texts: [encoding.encode_ordinary(text) for text in texts]
    return lambda texts: encoding.encode_ordinary_batch(list(texts), num_threads=threads)


def _open_sentencepiece(file: TokenizerFile, single: bool, threads: int) -> Encode:
    processor = load_processor(file)
    if single:
        return lambda texts: [processor.Encode(text, out_type=int) for text in texts]
    return lambda texts: processor.Encode(list(texts), out_type=int, num_threads=threads)


def _open_python(file: TokenizerFile, single: bool, threads: int) -> Encode:  # noqa: ARG001
    """A Python object, called once per text in a single thread."""
    reference, _ = load_any_reference(file)
    return reference.encode
