"""The composition of a vocabulary, independent of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.core.errors import EngineError
from tokenmill.encode.engine import Encoder, Reference
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import MARK

LONG_BYTES = 32
MAX_EXAMPLES = 5
CONTEXTS = ("{}", "\u00ab{}", "{}\u00bb", "a{}", "1{}", " {}")
"""Contexts to test a token in: alone, and next to characters that can matter."""


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """Kinds of tokens. Each token counts in the first kind that fits."""

    num_tokens: int
    special: int
    """Control tokens."""
    added: int
    """Added tokens that are not special."""
    single_bytes: int
    """Of one byte: fallback tokens, bytes of a byte-level vocabulary, ASCII characters; the space
    that SentencePiece spells U+2581 is not one of them."""
    fragments: int
    """Tokens of several bytes that are not whole characters."""
    unreachable: int
    """Tokens that neither the model alone nor any tested text produces."""
    long: int
    """Of more than 32 bytes; those above may be among them."""
    unreachable_examples: list[str]
    longest: list[str]


def vocabulary_facts(file: TokenizerFile, reference: Reference) -> VocabularyFacts | None:
    """Count the tokens of a vocabulary; None for a Python object without a list.

    A token is reachable if some text has it among its ids: the token's own text, alone and in a few
    contexts. One that is no whole characters has no text of its own; it is reachable if the model
    makes it of its bytes. So neither decoding that cleans up spaces nor bytes that decode to U+FFFD
    make a token look unreachable. The categories are those of Magikarp (S. Land and M. Bartolo,
    https://arxiv.org/abs/2405.05417), which counts special tokens apart as well.
    """
    tokens = tokens_of(file)
    if tokens is None:
        return None
    plain = {i: token for i, token in tokens.items() if token.is_plain}
    single = {i for i, token in plain.items() if len(token.data) == 1 and token.spelling != MARK}
    fragments = {i for i, token in plain.items() if i not in single and token.is_fragment}
    texts = {
        i: token.data.decode()
        for i, token in plain.items()
        if i not in single and i not in fragments
    }
    lost = _never_encoded(texts, reference)
    lost |= _never_merged({i: plain[i] for i in fragments}, file)
    by_length = sorted(plain, key=lambda i: (-len(plain[i].data), i))
    return VocabularyFacts(
        num_tokens=len(tokens),
        special=sum(token.is_special for token in tokens.values()),
        added=sum(token.is_added and not token.is_special for token in tokens.values()),
        single_bytes=len(single),
        fragments=len(fragments),
        unreachable=len(lost),
        long=sum(len(token.data) > LONG_BYTES for token in plain.values()),
        unreachable_examples=[_shown(plain[i]) for i in sorted(lost)[:MAX_EXAMPLES]],
        longest=[_shown(plain[i]) for i in by_length[:MAX_EXAMPLES]],
    )


def _never_encoded(texts: Mapping[int, str], reference: Reference) -> set[int]:
    """Ids that never occur in the encoding of their own text."""
    encoder = Encoder(reference, reference.largest_id)
    left = dict(texts)
    for context in CONTEXTS:
        ids = list(left)
        encoded = encoder.encode([context.format(left[i]) for i in ids])
        for i, own in zip(ids, encoded.split([1] * len(ids)), strict=True):
            if i in own.ids:
                del left[i]
    return set(left)


def _never_merged(tokens: Mapping[int, Token], file: TokenizerFile) -> set[int]:
    """Ids that the model does not produce from their own bytes; only for a tokenizer.json.

    In a rank file every token is one: the library looks a whole word up before it merges.
    """
    if not KINDS[file.kind].is_json:
        return set()
    model = model_of(file)
    return {
        i
        for i, token in tokens.items()
        if [found.id for found in model.tokenize(token.spelling)] != [i]
    }


def model_of(file: TokenizerFile) -> Any:
    """The model of a tokenizer.json in its library: no normalizer, no pre-tokenizer.

    Raises:
        EngineError: the tokenizer has no equal tokenizer.json.
    """
    import tokenizers

    data = KINDS[file.kind].json_of(file, False)
    if data is None:
        raise EngineError(f"a {file.kind} tokenizer has no model that can be asked alone")
    return tokenizers.Tokenizer.from_str(data.decode()).model


def _shown(token: Token) -> str:
    return token.data.decode(errors="replace") if token.data else token.spelling


@dataclass(frozen=True, slots=True)
class Overlap:
    """Compare two vocabularies by the bytes of their tokens."""

    common: int
    share_of_first: float
    share_of_second: float
    jaccard: float


def overlap(first: Mapping[int, Token], second: Mapping[int, Token]) -> Overlap:
    """What two vocabularies have in common, special tokens apart."""
    ours, theirs = (
        {token.data for token in tokens.values() if token.is_plain} for tokens in (first, second)
    )
    common = len(ours & theirs)
    return Overlap(
        common,
        common / max(len(ours), 1),
        common / max(len(theirs), 1),
        common / max(len(ours | theirs), 1),
    )
