"""Sampled encodings: exact in the limit, exact in distribution, a function of their key alone."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from trained_kit import JSON_NAMES, SENTENCES, trained

from conftest import TEXTS
from encode.tokenizer_kit import (
    added_token,
    as_file,
    byte_level_json,
    documents,
    sentencepiece_json,
)
from tokenmill.core.errors import UserError
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.subword import SubwordSampler
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.kernels.permutation import document_keys

ALMOST_NEVER = 1e-20  # below 2**-53: the merge loop runs, and leaves nothing out
STRANGE = ["", " ", "   two  spaces ", "\n\n\t", "\u0000\u00ad\ufeff", "e\u0301é", "▁a▁▁b", "ༀ𝔘😀"]


def keys(count: int, seed: int = 0) -> Any:
    return document_keys(seed, 0, np.arange(count))


def ids_of(sampler: SubwordSampler, texts: list[str], seed: int = 0) -> list[list[int]]:
    return documents(sampler.encode(texts, keys(len(texts), seed)))


def expected(file: TokenizerFile, texts: list[str]) -> list[list[int]]:
    return documents(HuggingFaceReference(file, control_tokens=False).encode(texts))


@pytest.fixture(scope="module")
def bpe_file(tokenizer_path: Path) -> TokenizerFile:
    return load_tokenizer_file(str(tokenizer_path))


@pytest.fixture(scope="module")
def unigram_file() -> TokenizerFile:
    """A Unigram of about 150 pieces with Metaspace and NFKC."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    return TokenizerFile("huggingface", tokenizer.to_str().encode(), origin="unigram")


def small_unigram(pieces: dict[str, float], **changes: Any) -> TokenizerFile:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], *pieces.items()]}
    tokenizer = byte_level_json(pre_tokenizer=None, decoder=None)
    added = changes.pop("added_tokens", [])
    return as_file({**tokenizer, "model": model | changes, "added_tokens": added})


class TestLimit:
    """Where nothing is random, ids are those of the reference."""

    @pytest.mark.parametrize("name", JSON_NAMES)
    def test_pipelines_of_published_tokenizers(self, name: str) -> None:
        file = trained(name)
        code = "def f(x):\n        return {x:   1}                          # <|endoftext|> </s>\n"
        texts = [*TEXTS, *STRANGE, code, *SENTENCES]
        want = expected(file, texts)
        assert ids_of(SubwordSampler(file, dropout=ALMOST_NEVER), texts) == want
        assert ids_of(SubwordSampler(file, dropout=0.0), texts) == want

    @settings(max_examples=100, deadline=None)
    @given(text=st.text())
    def test_byte_level_bpe(self, bpe_file: TokenizerFile, text: str) -> None:
        sampler = _cached(bpe_file, ALMOST_NEVER)
        assert ids_of(sampler, [text]) == expected_cached(sampler, text)

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(alphabet="ab ▁\nä<>unk😀") | st.text())
    def test_byte_fallback(self, text: str) -> None:
        sampler = _cached(SENTENCEPIECE, ALMOST_NEVER)
        assert ids_of(sampler, [text]) == expected_cached(sampler, text)

    @pytest.mark.parametrize(
        "changes",
        [
            {"byte_fallback": False},
            {"byte_fallback": False, "fuse_unk": False},
            {"merges": [["▁", "a"], ["<unk>", "b"]], "vocab": {"<unk>b": 900}},
        ],
    )
    def test_unknown_characters(self, changes: Any) -> None:
        tokenizer = sentencepiece_json()
        vocab = tokenizer["model"]["vocab"] | changes.pop("vocab", {})
        file = as_file({**tokenizer, "model": tokenizer["model"] | changes | {"vocab": vocab}})
        texts = ["a 日本 b", "日b", "ab😀😀", *STRANGE]
        assert ids_of(SubwordSampler(file, dropout=ALMOST_NEVER), texts) == expected(file, texts)

    def test_prefix_and_suffix_of_subwords(self) -> None:
        model = {
            "vocab": {"a": 0, "#b": 1, "#b</w>": 2, "a</w>": 3, "ab</w>": 4, "#bb</w>": 5, "?": 6},
            "merges": [["#b", "#b</w>"], ["a", "#b</w>"]],
            "continuing_subword_prefix": "#",
            "end_of_word_suffix": "</w>",
            "unk_token": "?",
        }
        tokenizer = byte_level_json(pre_tokenizer={"type": "Whitespace"}, decoder=None)
        file = as_file({**tokenizer, "model": tokenizer["model"] | model})
        texts = ["ab a abb abbb", "bab", "zb"]
        assert ids_of(SubwordSampler(file, dropout=ALMOST_NEVER), texts) == expected(file, texts)

    def test_added_tokens(self) -> None:
        added = [
            added_token("<|stop|>", 259, special=True),
            added_token("bc", 257, normalized=True),
            added_token("  ", 260, lstrip=True),
        ]
        file = as_file(byte_level_json(added_tokens=added))
        texts = ["abc<|stop|>abc", "a   abc  bc", "bcbc", *STRANGE]
        assert ids_of(SubwordSampler(file, dropout=ALMOST_NEVER), texts) == expected(file, texts)

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(alphabet="The quickbrownfoxTxäöü():+1日") | st.text())
    def test_unigram(self, unigram_file: TokenizerFile, text: str) -> None:
        sampler = _cached(unigram_file, None, 1e5)
        found, want = ids_of(sampler, [text])[0], expected_cached(sampler, text)[0]
        scores = [score for _, score in json.loads(unigram_file.data)["model"]["vocab"]]
        # Paths that are equally likely may differ, and no others.
        assert sum(scores[i] for i in found) == pytest.approx(sum(scores[i] for i in want))

    def test_unigram_without_randomness(self, unigram_file: TokenizerFile) -> None:
        texts = [*TEXTS, *STRANGE]
        sampler = SubwordSampler(unigram_file, alpha=math.inf)
        assert ids_of(sampler, texts) == expected(unigram_file, texts)
        assert ids_of(SubwordSampler(unigram_file, alpha=1e5), TEXTS) == expected(
            unigram_file, TEXTS
        )


SENTENCEPIECE = as_file(sentencepiece_json())
_SAMPLERS: dict[Any, SubwordSampler] = {}


def _cached(
    file: TokenizerFile, dropout: float | None, alpha: float | None = None
) -> SubwordSampler:
    key = (file.sha256, dropout, alpha)
    if key not in _SAMPLERS:
        _SAMPLERS[key] = SubwordSampler(file, dropout=dropout, alpha=alpha)
    return _SAMPLERS[key]


def expected_cached(sampler: SubwordSampler, text: str) -> list[list[int]]:
    return documents(sampler.reference.encode([text]))


def splits(
    word: str, merges: list[tuple[str, str]], dropout: float
) -> dict[tuple[str, ...], float]:
    """The exact distribution of algorithm 1 of the paper."""
    found: Counter[tuple[str, ...]] = Counter()
    waiting = {tuple(word): 1.0}
    while waiting:
        split, chance = waiting.popitem()
        pairs = [
            (merges.index(p), i) for i, p in enumerate(itertools.pairwise(split)) if p in merges
        ]
        left = chance  # that every merge so far was left out
        for _, i in sorted(pairs):
            merged = (*split[:i], split[i] + split[i + 1], *split[i + 2 :])
            waiting[merged] = waiting.get(merged, 0.0) + left * (1 - dropout)
            left *= dropout
        found[split] += left
    return dict(found)


def assert_distributed(found: list[Any], chances: dict[Any, float]) -> None:
    """Pearson's statistic, against a bound that chance exceeds once in a million seeds."""
    counts = Counter(found)
    assert counts.keys() <= chances.keys()
    assert sum(chances.values()) == pytest.approx(1)
    likely = {each: chance for each, chance in chances.items() if chance * len(found) >= 10}
    statistic = sum(
        (counts[each] - len(found) * chance) ** 2 / (len(found) * chance)
        for each, chance in likely.items()
    )
    freedom = len(likely) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 15
    rare = 1 - sum(likely.values())
    unlikely = sum(count for each, count in counts.items() if each not in likely)
    assert abs(unlikely - rare * len(found)) < 5 * math.sqrt(rare * len(found) + 10)


class TestDistribution:
    @pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
    def test_bpe_dropout_is_that_of_the_paper(self, dropout: float) -> None:
        merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("c", "a"), ("a", "bc"), ("abc", "abc")]
        tokenizer = byte_level_json()
        names = [*"abc", "ab", "bc", "ca", "abc", "abcabc"]
        vocab = {name: i for i, name in enumerate(names)}
        model = tokenizer["model"] | {"vocab": vocab, "merges": [list(m) for m in merges]}
        sampler = SubwordSampler(as_file({**tokenizer, "model": model}), dropout=dropout)
        texts = ["abcabc"] * 10_000
        found = [tuple(names[i] for i in ids) for ids in ids_of(sampler, texts)]
        assert_distributed(found, splits("abcabc", merges, dropout))

    @pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 3.0])
    def test_unigram_segmentations_have_their_probability(self, alpha: float) -> None:
        pieces = {"a": -2.0, "b": -3.0, "ab": -2.5, "ba": -4.0, "aba": -5.0, "abab": -6.5}
        sampler = SubwordSampler(small_unigram(pieces), alpha=alpha)
        names = ["<unk>", *pieces]
        weights: dict[tuple[str, ...], float] = {}
        for size in range(1, 7):
            for split in itertools.product(pieces, repeat=size):
                if "".join(split) == "ababab":
                    weights[split] = math.exp(alpha * sum(map(pieces.__getitem__, split)))
        total = sum(weights.values())
        found = [tuple(names[i] for i in ids) for ids in ids_of(sampler, ["ababab"] * 10_000)]
        assert_distributed(found, {split: weight / total for split, weight in weights.items()})

    def test_words_are_drawn_for_apart(self) -> None:
        """Two occurrences of a word in one document differ as two documents would."""
        sampler = SubwordSampler(as_file(byte_level_json()), dropout=0.5)
        (ids,) = ids_of(sampler, [" a" * 10_000])
        assert len(ids) - 10_000 == pytest.approx(5_000, abs=250)

    def test_a_document_without_pre_tokenizer_is_cut_into_words(self) -> None:
        """Otherwise each merge would get another chance until it is kept."""
        sampler = _cached(SENTENCEPIECE, 0.5)
        (ids,) = ids_of(sampler, ["a " * 9_999 + "a"])
        assert ids.count(261) == pytest.approx(5_000, abs=250)


class TestKeys:
    def test_ids_depend_on_the_key_alone(self, bpe_file: TokenizerFile) -> None:
        sampler = SubwordSampler(bpe_file, dropout=0.5)
        together = ids_of(sampler, TEXTS)
        np.random.seed(1)
        other = SubwordSampler(bpe_file, dropout=0.5)
        own = keys(len(TEXTS))
        alone = [documents(other.encode([text], own[i : i + 1]))[0] for i, text in enumerate(TEXTS)]
        assert together == alone
        assert together != ids_of(sampler, TEXTS, seed=1)

    def test_keys_differ_by_seed_epoch_and_document(self) -> None:
        found = [document_keys(seed, epoch, np.arange(100)) for seed in (0, 1) for epoch in (0, 1)]
        assert len(np.unique(np.concatenate(found))) == 400

    def test_samples_never_change(self) -> None:
        """A run that is resumed with a later version must see the same ids."""
        sampler = SubwordSampler(as_file(byte_level_json()), dropout=0.5)
        assert ids_of(sampler, ["abc abc abc"], seed=7) == GOLDEN_BPE
        pieces = {"a": -2.0, "b": -3.0, "ab": -2.5, "ba": -4.0}
        lattice = SubwordSampler(small_unigram(pieces), alpha=0.5)
        assert ids_of(lattice, ["abababab"], seed=7) == GOLDEN_UNIGRAM


GOLDEN_BPE = [[97, 98, 99, 256, 98, 99, 32, 97, 98, 99]]
GOLDEN_UNIGRAM = [[3, 1, 2, 3, 1, 2]]


class TestUnknown:
    """What a Unigram model does not spell."""

    def test_neighbours_become_one_unknown_token(self) -> None:
        sampler = SubwordSampler(small_unigram({"a": -1.0, "aa": -2.0}), alpha=0.2)
        assert ids_of(sampler, ["xyz", "xay"]) == [[0], [0, 1, 0]]

    def test_bytes_of_a_character(self) -> None:
        pieces = {"a": -1.0} | {f"<0x{byte:02X}>": -9.0 for byte in range(256)}
        file = small_unigram(pieces, byte_fallback=True)
        sampler = SubwordSampler(file, alpha=0.2)
        texts = ["aéa", "日😀", "a"]
        assert ids_of(sampler, texts) == expected(file, texts)

    def test_a_character_inside_tokens_is_unknown_only_where_it_must_be(self) -> None:
        sampler = SubwordSampler(small_unigram({"a": -1.0, "bc": -9.0, "abc": -99.0}), alpha=0.0)
        found = {tuple(ids) for ids in ids_of(sampler, ["abc"] * 200)}
        assert found == {(1, 2), (3,)}
        assert ids_of(sampler, ["ab", "bcc"]) == [[1, 0], [2, 0]]

    def test_added_tokens(self) -> None:
        added = [added_token("<x>", 4), added_token("</s>", 5, special=True)]
        file = small_unigram({"a": -1.0, "b": -1.0, "ab": -1.5}, added_tokens=added)
        sampler = SubwordSampler(file, alpha=1e5)
        texts = ["ab<x>b<x>", "a</s>b", "<x>"]
        assert ids_of(sampler, texts) == expected(file, texts)


WORD_PIECE = {
    "type": "WordPiece",
    "vocab": {"[UNK]": 0, "a": 1},
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}
BPE, UNIGRAM = as_file(byte_level_json()), small_unigram({"a": -1.0})


@pytest.mark.parametrize(
    ("file", "rates", "message"),
    [
        (BPE, {}, "use only dropout"),
        (BPE, {"alpha": 0.1}, "use only dropout"),
        (BPE, {"dropout": 0.1, "alpha": 0.1}, "use only dropout"),
        (BPE, {"dropout": -0.1}, "out of range"),
        (BPE, {"dropout": 1.1}, "out of range"),
        (BPE, {"dropout": math.nan}, "out of range"),
        (as_file(byte_level_json(model={"dropout": 0.1})), {"dropout": 0.1}, "is random"),
        (UNIGRAM, {"dropout": 0.1}, "use only alpha"),
        (UNIGRAM, {"alpha": -1.0}, "out of range"),
        (small_unigram({"a": -1.0}, byte_fallback=True), {"alpha": 0.1}, "sampled exactly"),
        (
            small_unigram({"a": -1.0}, added_tokens=[added_token("x", 2)]),
            {"alpha": 0.1},
            "sampled exactly",
        ),
        (as_file({**byte_level_json(), "model": WORD_PIECE}), {"dropout": 0.1}, "is WordPiece"),
        (TokenizerFile("tiktoken", b"", origin="x"), {"dropout": 0.1}, "kind is tiktoken"),
        (TokenizerFile("sentencepiece", b""), {"dropout": 0.1}, "kind is sentencepiece"),
    ],
)
def test_what_cannot_be_sampled_is_refused(file: TokenizerFile, rates: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SubwordSampler(file, **rates)


def test_sentencepiece_draws_from_the_same_lattice() -> None:
    """The mean number of pieces of SentencePiece's own sampler is ours."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.set_random_generator_seed(1)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low lower lowest", "new newer newest", "wide wider widest"] * 20),
        model_writer=model,
        vocab_size=40,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = processor.get_piece_size()
    pieces = {processor.id_to_piece(i): processor.get_score(i) for i in range(3, count)}
    sampler = SubwordSampler(small_unigram(pieces), alpha=0.3)
    ours = np.array([len(ids) for ids in ids_of(sampler, ["▁lowest"] * 4000)])
    theirs = np.array(
        [
            len(processor.encode("lowest", enable_sampling=True, alpha=0.3, nbest_size=-1))
            for _ in range(4000)
        ]
    )
    assert ours.var() > 0.1
    assert abs(ours.mean() - theirs.mean()) < 5 * math.sqrt((ours.var() + theirs.var()) / 4000)
