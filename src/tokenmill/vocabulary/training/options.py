"""The options of `tokenmill tokenizer train`, described once.

The fields below define the flags of the command line and the keyword arguments of
`tokenmill.train_tokenizer`. The descriptions recommend values from these sources:

    split           Llama 3's pattern equals cl100k's, and the fastest engine encodes it exactly
    digits          groups-right: Singh & Strouse 2024 (arXiv 2402.14903), improves arithmetic;
                    single: Llama 1 and 2, Qwen, StarCoder; keep: the rule of the split
    whitespace      24: GPT-NeoX (arXiv 2204.06745), there as added tokens
    byte fallback   Llama 2: no text is unknown, at the cost of 256 ids
    coverage        0.9995, SentencePiece's default
    reserve         Llama 3 reserves 248 special tokens for later use
    alpha           0.3: XLM-R (arXiv 1911.02116) and mT5 (arXiv 2010.11934)
    parity          Foroutan et al. 2025 (arXiv 2508.04796)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.core.options import OptionError, Problem, Ref, about, make_structs
from tokenmill.encode.words.splits import SPLITS, SPLITS_BY_MODEL
from tokenmill.run.recipe.checks import section_of
from tokenmill.run.recipe.options import DigitRule, Positive

Model = Literal[
    "bpe", "wordpiece", "unigram", "wordlevel", "sentencepiece-bpe", "sentencepiece-unigram"
]
Role = Literal["bos", "eos", "pad", "unk", "mask"]
ROLES: tuple[Role, ...] = ("unk", "bos", "eos", "pad", "mask")
"""The roles in the order of their ids, as in SentencePiece models."""

DEFAULT_VOCABULARY = 32_000
DEFAULT_SPLITS: dict[Model, str] = {
    "bpe": "llama3",
    "wordpiece": "bert",
    "unigram": "sentencepiece",
    "wordlevel": "whitespace",
    "sentencepiece-bpe": "sentencepiece",
    "sentencepiece-unigram": "sentencepiece",
}
OF_SENTENCEPIECE: tuple[Model, ...] = ("unigram", "sentencepiece-bpe", "sentencepiece-unigram")
"""Models trained by SentencePiece, on words split by its normalizers."""
MAX_VOCABULARY = 1 << 24
COVERAGE = Ref("character_coverage")

Size = Annotated[int, Meta(ge=1, le=MAX_VOCABULARY)]
Runs = Annotated[int, Meta(ge=0, le=256)]
Reserve = Annotated[int, Meta(ge=0, le=1 << 16)]
Portion = Annotated[float, Meta(gt=0, le=1)]


class VocabularyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Model, split and size."""

    model: Annotated[Model, about("kind of model; bpe over bytes can encode any text")] = "bpe"
    split: Annotated[
        str | None,
        about(
            "how texts are split into words, by name or like a tokenizer.json. "
            f"{SPLITS_BY_MODEL} (default: {DEFAULT_SPLITS['bpe']} for bpe, "
            f"{DEFAULT_SPLITS['wordpiece']} for wordpiece, {DEFAULT_SPLITS['wordlevel']} for "
            f"wordlevel, {DEFAULT_SPLITS['unigram']} for the others)",
            known=SPLITS,
        ),
    ] = None
    vocabulary: Annotated[
        Size | None,
        about(
            f"number of ids, including special tokens (default: {DEFAULT_VOCABULARY}, "
            "or the largest of --sizes)"
        ),
    ] = None
    sizes: Annotated[
        tuple[Size, ...],
        about("also write these smaller vocabularies, e.g. 8000,16000"),
    ] = ()
    digits: DigitRule = "keep"
    whitespace_runs: Annotated[
        Runs,
        about(
            "bpe over bytes: make every run of up to N spaces a single token, for "
            "indented code; GPT-NeoX has 24"
        ),
    ] = 0
    min_frequency: Annotated[
        Positive,
        about("do not merge pairs that occur less often; 2 excludes words that occur once"),
    ] = 1
    max_token_length: Annotated[
        Positive | None,
        about("longest token, in symbols; 16 to 32 excludes boilerplate"),
    ] = None
    character_coverage: Annotated[
        Portion | None,
        about(
            "models over characters: share of the text whose characters are tokens; "
            "0.9995 excludes the rarest"
        ),
    ] = None
    limit_alphabet: Annotated[
        Positive | None,
        about("models over characters: maximum number of characters that become tokens"),
    ] = None
    byte_fallback: Annotated[
        bool,
        about("models over characters: encode other characters as bytes, not as unknown"),
    ] = False


class SpecialOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Special tokens, their ids and roles, and the chat template."""

    special: Annotated[
        list[str],
        about("a special token, or TOKEN=ID to fix its id; may be repeated"),
    ] = []
    special_at: Annotated[
        Literal["start", "end"],
        about("ids of special tokens: first, or last as in GPT-2 and Llama 3"),
    ] = "start"
    reserve: Annotated[
        Reserve,
        about("spare special tokens <|reserved_0|>, ... for later use; Llama 3 has 248"),
    ] = 0
    eos: Annotated[str | None, about("token that ends a document")] = None
    bos: Annotated[str | None, about("token at the beginning of every text")] = None
    pad: Annotated[str | None, about("token for padding")] = None
    unk: Annotated[str | None, about("token for text that the vocabulary lacks")] = None
    mask: Annotated[str | None, about("token that replaces masked tokens")] = None
    chat_template: Annotated[
        str | None,
        about("Jinja file with the chat template; copied to chat_template.jinja"),
    ] = None


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of groups of the corpus, such as languages."""

    weight: Annotated[
        list[str], about("count a group N times, e.g. th=3; may be repeated", metavar="GROUP=N")
    ] = []
    alpha: Annotated[
        Portion | None,
        about(
            "sample the groups of --by by their share of bytes to this power; 0.3 in XLM-R and mT5"
        ),
    ] = None
    byte_premium: Annotated[
        list[str],
        about(
            "bytes that a group needs for the content of one byte in others, so that "
            "--alpha and --parity compare content, e.g. th=2.7; may be repeated"
        ),
    ] = []
    parity: Annotated[
        Literal["base", "window"] | None,
        about(
            "bpe: choose each merge for the group compressed worst; window skips "
            "groups that had many recent merges; use it with --parity-counts"
        ),
    ] = None
    parity_counts: Annotated[
        str | None,
        about(
            "counts of parallel texts in the same groups; the group with the most "
            "tokens in them is compressed worst (default: the group with the most tokens per byte)"
        ),
    ] = None


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "vocabulary": VocabularyOptions,
    "special": SpecialOptions,
    "groups": GroupOptions,
}
COUNTING = ("by", "min_count")
COUNTING_SECTIONS = ("read", "limits", "resources")
"""Options of a `CountRecipe`, which say how texts are counted before a model is trained."""


class TrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options that determine a tokenizer, apart from its counts."""

    vocabulary: VocabularyOptions = VocabularyOptions()
    special: SpecialOptions = SpecialOptions()
    groups: GroupOptions = GroupOptions()

    @property
    def size(self) -> int:
        """The number of ids in the largest vocabulary."""
        given = self.vocabulary.vocabulary
        return given or max(self.vocabulary.sizes, default=DEFAULT_VOCABULARY)

    @property
    def smaller_sizes(self) -> tuple[int, ...]:
        """The sizes of the smaller vocabularies, ascending."""
        return tuple(sorted(set(self.vocabulary.sizes) - {self.size}))

    @property
    def split_name(self) -> str:
        """The name or path of the split."""
        return self.vocabulary.split or DEFAULT_SPLITS[self.vocabulary.model]

    @property
    def weights(self) -> dict[str, int]:
        """The given weights by group."""
        return {name: int(number) for name, number in _pairs(self.groups.weight)}

    @property
    def byte_premiums(self) -> dict[str, float]:
        """The given byte premiums by group."""
        return {name: float(number) for name, number in _pairs(self.groups.byte_premium)}


def counting_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate flat options into those of training and those of counting, nested by section."""
    training: dict[str, Any] = {}
    counting: dict[str, Any] = {}
    for name, value in values.items():
        if name in COUNTING:
            counting[name] = value
        elif section_of(name) in COUNTING_SECTIONS:
            counting.setdefault(section_of(name), {})[name] = value
        else:
            training[name] = value
    return training, counting


def make_train_options(values: Mapping[str, Any]) -> TrainOptions:
    """Check flat options, as given on the command line or by a caller.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    hint = "tokenmill tokenizer train --help-all lists every option"
    structs = make_structs(tuple(SECTIONS.values()), values, "the tokenizer", hint)
    made = TrainOptions(**dict(zip(SECTIONS, structs, strict=True)))
    if problems := list(_conflicts(made)):
        raise OptionError("the tokenizer", problems, hint=hint)
    return made


def _conflicts(options: TrainOptions) -> Iterator[Problem]:
    vocabulary = options.vocabulary
    if options.smaller_sizes and options.smaller_sizes[-1] > options.size:
        why = f"{options.smaller_sizes[-1]} is larger than the vocabulary of {options.size}"
        yield Problem("sizes", why)
    if vocabulary.character_coverage is not None and vocabulary.limit_alphabet is not None:
        yield Problem("limit_alphabet", "cannot be combined with {}", COVERAGE)
    if vocabulary.whitespace_runs and (vocabulary.model != "bpe" or options.groups.parity):
        yield Problem("whitespace_runs", "is for bpe without parity")
    if vocabulary.model in OF_SENTENCEPIECE:
        yield from _sentencepiece_conflicts(options)
    yield from _group_conflicts(options)


def _sentencepiece_conflicts(options: TrainOptions) -> Iterator[Problem]:
    vocabulary = options.vocabulary
    if options.smaller_sizes:
        yield Problem("sizes", f"{vocabulary.model} needs a separate training for every size")
    for name in ("limit_alphabet", "min_frequency"):
        if getattr(vocabulary, name) not in (None, 1):
            yield Problem(name, "SentencePiece has no such limit; see {}", COVERAGE)
    if vocabulary.digits == "groups-right":
        yield Problem("digits", "SentencePiece cuts single digits, or none")


def _group_conflicts(options: TrainOptions) -> Iterator[Problem]:
    groups = options.groups
    for text in groups.weight:
        if not _is_pair(text, int):
            yield Problem("weight", "got {!r}; must be GROUP=N with a whole number", text)
    for text in groups.byte_premium:
        if not _is_pair(text, float):
            yield Problem("byte_premium", "got {!r}; must be GROUP=NUMBER from 0.01 to 100", text)
    if groups.alpha is not None and groups.weight:
        yield Problem("alpha", "cannot be combined with {}", Ref("weight"))
    if groups.byte_premium and groups.alpha is None and not groups.parity:
        yield Problem("byte_premium", "needs {} or {}", Ref("alpha"), Ref("parity"))
    if groups.parity_counts and (groups.byte_premium or not groups.parity):
        rule = "needs {}, without {}"
        yield Problem("parity_counts", rule, Ref("parity"), Ref("byte_premium"))
    if groups.parity and options.vocabulary.model != "bpe":
        yield Problem("parity", f"works only with bpe, not with {options.vocabulary.model}")
    if groups.parity and (groups.weight or groups.alpha is not None):
        yield Problem("parity", "takes no weight and no alpha: it treats all groups alike")


def _pairs(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, _, number = text.rpartition("=")
        yield name, number


def _is_pair(text: str, kind: type[int] | type[float]) -> bool:
    name, equals, number = text.rpartition("=")
    try:
        value = kind(number)
    except ValueError:
        return False
    in_range = value >= 0 if kind is int else 0.01 <= value <= 100
    return bool(name and equals) and in_range
