"""Read a BPE tokenizer to extend or trim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.encodings import bytes_by_symbol, encoding_of, spelled_ranks
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.rank_json import ranks_to_json
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import BYTES, Json, Pair, loaded_ids, merges_of, read_tokenizer
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import split_of
from tokenmill.store.canonical import canonical_json
from tokenmill.vocabulary.training.tokenizer_json import added_token, template

CHECKED_WORDS = 10_000
_BYTES = bytes_by_symbol()


@dataclass(frozen=True, slots=True)
class Base:
    """The parts of a BPE tokenizer.json; tokens are spelled as in the file."""

    origin: str
    document: Json
    """The decoded file. The added tokens are also in the model's vocabulary; otherwise, the library
    would renumber them when the vocabulary changes size."""
    merges: list[Pair]
    """The merges, in order of priority."""
    byte_level: bool

    @property
    def tokens(self) -> dict[str, int]:
        """Ids by token, including added tokens."""
        tokens: dict[str, int] = self.document["model"]["vocab"]
        return tokens

    @property
    def num_ids(self) -> int:
        """One more than the largest id."""
        return max(self.tokens.values()) + 1

    @property
    def added(self) -> set[str]:
        """The added tokens; texts are split at those that are not special, before words are."""
        return {token["content"] for token in self.document["added_tokens"]}

    @property
    def opaque(self) -> set[str]:
        """Tokens that do not encode the text they spell: added tokens, unknown, bytes."""
        bytes_ = set() if self.byte_level else set(BYTES)
        return self.added | (
            self.tokens.keys() & {*bytes_, self.document["model"].get("unk_token")}
        )

    def shown(self, token: str) -> str:
        """Return a token as readable text, with invalid bytes escaped."""
        if not self.byte_level or not _BYTES.keys() >= set(token):
            return token
        return _bytes_of(token).decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed tokenizer before it is written."""

    document: Json
    """The new tokenizer.json."""
    tokens: list[str]
    """New tokens in the order of their ids, or removed tokens in the order of removal."""
    new_ids: Sequence[int | None]
    """New ids by old id; None if the token was removed."""
    num_unchanged: int
    """The number of first ids whose embedding rows stay."""
    rows: list[list[int]]
    """The old ids that each id from `num_unchanged` on consists of."""
    figures: dict[str, int]
    """Numbers of ids, and tokens of the corpus before and after."""


def open_base(file: TokenizerFile) -> Base:
    """Read a tokenizer.

    Raises:
        UserError: the tokenizer is not a BPE, or its merges cannot be changed exactly.
    """
    document = _document(file)
    model = document["model"]
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    if model["type"] != "BPE":
        kind = model["type"]
        raise _refusal(file, f"its model is {kind}; only BPE can be extended and trimmed exactly")
    if any(model.get(affix) for affix in affixes):
        raise _refusal(file, "its tokens have a prefix or suffix for their position in a word")
    before = HuggingFaceReference(file_of(document, file.origin), control_tokens=False)
    added = [token for token in document.get("added_tokens") or [] if token["content"]]
    for token, token_id in zip(added, loaded_ids(model["vocab"], added), strict=True):
        token["id"] = token_id
    document["added_tokens"] = added
    missing = {t["content"]: t["id"] for t in added if t["content"] not in model["vocab"]}
    model["vocab"] |= missing
    if len(set(model["vocab"].values())) != len(model["vocab"]):
        raise _refusal(file, "two of its tokens have the same id")
    if missing and model.get("ignore_merges"):
        _refuse_words(file, document, list(missing), before)
    return Base(file.origin, document, merges_of(model), split_of(document).byte_level)


def _refuse_words(
    file: TokenizerFile, document: Json, added: list[str], before: HuggingFaceReference
) -> None:
    """Raise a UserError if an added token would be used for an ordinary word.

    A model that ignores merges takes whole words from its vocabulary.
    """
    after = HuggingFaceReference(file_of(document, file.origin), control_tokens=False)
    try:
        compare_tokens("the tokenizer", added, after.encode(added), before.encode(added))
    except EngineError as error:
        why = f"its added tokens must be in the vocabulary, but one is also a word: {error.where}"
        raise _refusal(file, why) from error


def segmented(model: ModelAlone, words: WordCounts) -> TokenBatch:
    """Encode all words; some of them are compared with the library.

    Raises:
        VerificationError: a word is not valid UTF-8.
        EngineError: the library failed, or differs from the compiled loop.
    """
    model.check(words, CHECKED_WORDS)
    return model.segment(words)


def file_of(document: Json, origin: str) -> TokenizerFile:
    """Encode a tokenizer.json."""
    return TokenizerFile("huggingface", canonical_json(document), origin=origin)


def ranks_of(base: Base, document: Json) -> bytes:
    """Return a rank file with the tokens of a byte-level tokenizer.json, except special tokens."""
    vocab = document["model"]["vocab"]
    return spelled_ranks(
        {_bytes_of(token): i for token, i in vocab.items() if token not in base.added}
    )


def _bytes_of(token: str) -> bytes:
    return bytes(_BYTES[symbol] for symbol in token)


def num_tokens(batch: TokenBatch, words: WordCounts) -> int:
    """Return the number of tokens in the whole corpus."""
    return int(np.diff(batch.offsets) @ words.counts)


def frequencies(batch: TokenBatch, words: WordCounts, num_ids: int) -> Int64Array:
    """Return how often each token occurs in the corpus, shape (num_ids,)."""
    found = np.zeros(num_ids, np.int64)
    np.add.at(found, batch.ids, np.repeat(words.counts, np.diff(batch.offsets)))
    return found


def _document(file: TokenizerFile) -> Json:
    if file.kind == "sentencepiece":
        why = "tokenmill cannot add merges to a .model file, or remove any"
        hint = "convert it to a tokenizer.json: AutoTokenizer.from_pretrained(...).save_pretrained"
        raise UserError("cannot change the tokenizer", where=file.origin, why=why, hint=hint)
    if file.kind == "tiktoken":
        data = ranks_to_json(file.data, encoding_of(file))
    else:
        data = KINDS[file.kind].json_of(file, False)
    if data is None:
        raise _refusal(file, "it has no equivalent tokenizer.json")
    document = read_tokenizer(data)
    if file.kind == "tiktoken":
        encoding, taken = encoding_of(file), set(document["model"]["vocab"].values())
        specials = {name: i for name, i in encoding.special_tokens.items() if i not in taken}
        document["added_tokens"] = [added_token(name, i) for name, i in specials.items()]
        document["model"]["vocab"] |= specials
        prefix = list(encoding.prefix)
        document["post_processor"] = template(specials, prefix, []) if prefix else None
        document["normalizer"] = {"type": encoding.form} if encoding.form else None
    return document


def _refusal(file: TokenizerFile, why: str) -> UserError:
    return UserError("cannot change the tokenizer", where=file.origin, why=why)
