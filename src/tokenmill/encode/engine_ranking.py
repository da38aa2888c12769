"""Choose the engine for a tokenizer: a fixed ranking of the engines that are exact for it.

    fastokens    exact on every code point for tokenizers that the gate admits; bounded memory
    native       tokenmill's compiled code, for other models; ranked first for SentencePiece-style
                 BPE (Llama 2, Mistral, Gemma), where it is the fastest; the only fast engine for
                 SentencePiece's own files (BPE, Llama 2)
    memo         the reference with a cache of its answers, if texts can be cut at spaces
    reference    everything else

Small inputs go to the reference: an audit would encode all of it again, and no engine must load.
Somewhat larger ones go to engines that need no compilation, which takes seconds on a new machine.

The choice depends only on the tokenizer, the size of the inputs and the installed packages, never
on a measurement, so every machine chooses the same engine. Calibration can veto it; the next one is
then tried (`first_exact`).
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.core.errors import EngineError, TokenmillError, UserError
from tokenmill.core.installed import install_command, installed_version
from tokenmill.core.suggestions import did_you_mean
from tokenmill.encode.encodings import encoding_of
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engines.fastokens import (
    fastokens_objection,
    fastokens_routes,
    is_sentencepiece,
)
from tokenmill.encode.engines.locality import locality_objection
from tokenmill.encode.engines.native.gate import (
    is_bert,
    is_byte_level,
    native_objection,
    sentencepiece_objection,
)
from tokenmill.encode.engines.wrappers import ComposingEngine, RoutedEngine
from tokenmill.encode.exactness import (
    WHOLE_BYTES,
    CalibrationVetoError,
    check_engine,
    examine,
    with_first_exact,
)
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_bounds import library_failures
from tokenmill.encode.tokenizer_json import Json, matched_contents, read_tokenizer

NATIVE, MEMO, REFERENCE = "native", "memo", "reference"
SENTENCEPIECE = "sentencepiece"
"""The kind of .model files, which native reads directly; other kinds need a tokenizer.json."""
MEASURED_VERSIONS = {"fastokens": ("0.3.4", "0.3.5")}
"""The oldest and newest tested releases; all releases in between were tested too. To test another,
run `bench/code_points.py` and `bench/exactness.py`."""
OBJECTIONS = {"fastokens": fastokens_objection}
ENGINES = (*OBJECTIONS, NATIVE, MEMO, REFERENCE)
FOR_SENTENCEPIECE = (NATIVE, *OBJECTIONS, MEMO, REFERENCE)
"""Native is the fastest here: see `docs/reference/tokenizers.md`, measured by `bench/kinds.py`."""
SMALL_BYTES = WHOLE_BYTES
COMPILED_FROM_BYTES = 32 << 20
"""Up to this size, compiled code saves less time than its first compilation takes."""


class _Splitting(msgspec.Struct):
    """The parts of a tokenizer.json that split texts; decoding skips the vocabulary."""

    pre_tokenizer: Json | None = None
    added_tokens: list[Json] | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The engines that are exact for a tokenizer, best first, and why the others are not used."""

    names: tuple[str, ...]
    objections: dict[str, str]
    """Why each of the other engines is not used."""
    installable: frozenset[str] = frozenset()
    """Other engines that would be exact, but are not installed or have an untested version."""
    order: tuple[str, ...] = ENGINES
    """All engines, best first for this tokenizer."""

    @property
    def remarks(self) -> dict[str, str]:
        """Objections to show before a run, by engine.

        These are engines that would come first if installed. If only the reference is left, all
        objections are shown.
        """
        before = self.order[: self.order.index(self.names[0])]
        told = self.installable if self.names[0] != REFERENCE else self.objections
        return {name: self.objections[name] for name in before if name in told}


def rank_engines(
    file: TokenizerFile, control_tokens: bool, wanted: str = "auto", num_bytes: float = math.inf
) -> Candidates:
    """Rank the engines that are exact for a tokenizer, for inputs of a size.

    Raises:
        UserError: `wanted` is not installed or not exact for this tokenizer.
    """
    if wanted == "auto" and num_bytes <= SMALL_BYTES and not KINDS[file.kind].is_slow:
        return Candidates((REFERENCE,), {}, order=(REFERENCE,))
    tokenizer = KINDS[file.kind].outline_of(file, control_tokens)
    objections: dict[str, str] = {}
    installable: set[str] = set()
    falls_back = tokenizer is not None and is_sentencepiece(tokenizer)
    order = FOR_SENTENCEPIECE if falls_back and num_bytes > COMPILED_FROM_BYTES else ENGINES
    for name in order:
        if objection := _objection_if_readable(name, file, tokenizer, control_tokens):
            objections[name] = objection
        elif name in OBJECTIONS and (missing := _missing(name)):
            objections[name] = missing
            installable.add(name)
    names = tuple(name for name in order if name not in objections)
    if wanted == "auto":
        return Candidates(names, objections, frozenset(installable), order)
    if wanted not in ENGINES:
        why = f"the engines are {', '.join(ENGINES)}"
        hint = did_you_mean(wanted, ENGINES, "use auto to let tokenmill choose")
        raise UserError(f"unknown engine {wanted!r}", why=why, hint=hint)
    if wanted not in names:
        problem = "cannot be used" if wanted in installable else "is not exact for this tokenizer"
        hint = "use auto to let tokenmill choose an exact engine"
        raise UserError(f"{wanted} {problem}", why=objections[wanted], hint=hint)
    return Candidates((wanted,), objections, frozenset(installable), order)


def _objection_if_readable(
    name: str, file: TokenizerFile, tokenizer: Json | None, control_tokens: bool
) -> str:
    """Return `_objection`; the reference reports what is wrong with a damaged file."""
    try:
        return _objection(name, file, tokenizer, control_tokens)
    except (KeyboardInterrupt, SystemExit, MemoryError, TokenmillError):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return f"cannot read the file ({type(error).__name__}: {error})"


def _objection(name: str, file: TokenizerFile, tokenizer: Json | None, control_tokens: bool) -> str:
    """Return why an engine is not exact for a tokenizer; "" if it is."""
    if name == REFERENCE:
        return ""
    if name == NATIVE and file.kind == SENTENCEPIECE and not control_tokens:
        return sentencepiece_objection(file.data)
    if tokenizer is None or (name in {NATIVE, MEMO} and not KINDS[file.kind].is_json):
        return file.reason or f"it cannot read this {file.kind} tokenizer"
    if name == MEMO:
        return locality_objection(tokenizer, control_tokens)
    if name == NATIVE:
        return native_objection(tokenizer, control_tokens)
    return OBJECTIONS[name](tokenizer)


def _missing(name: str) -> str:
    """Return why the installation of a fast engine cannot be used; "" if it can."""
    if importlib.util.find_spec(name) is None:
        return f"it is not installed: {install_command('fast')}"
    version = installed_version(name)
    oldest, newest = MEASURED_VERSIONS[name]
    if _release(oldest) <= _release(version) <= _release(newest):
        return ""
    return f"version {version} is not tested: pip install '{name}>={oldest},<={newest}'"


def _release(version: str) -> tuple[int, ...]:
    """Return a version as numbers; () for pre-releases and the like, which are never tested."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def first_exact(
    names: Sequence[str],
    load: Callable[[str], Engine],
    reference: Reference,
    sample: Sequence[str],
    on_veto: Callable[[str, CalibrationVetoError], None],
) -> Engine:
    """Return the first engine that loads and gives the reference's ids for fixed and sample texts.

    Each worker of a build calls this. The reference itself is not tested.

    Raises:
        CalibrationVetoError: no engine passes.
    """
    if names[0] == REFERENCE:
        return reference
    exam = examine(reference, sample)

    def passed(name: str) -> Engine:
        if name == REFERENCE:
            return reference
        try:
            engine = load(name)
            check_engine(engine, exam)
        except EngineError as error:
            raise CalibrationVetoError.of(error) from error
        return engine

    return with_first_exact(names, passed, on_veto)


def load_engine(name: str, file: TokenizerFile, control_tokens: bool, cache_bytes: int) -> Engine:
    """Load an engine; documents that it is known to get wrong are routed to the reference.

    Raises:
        EngineError: the engine cannot load this tokenizer.
    """
    if name == REFERENCE:
        return load_reference(file, control_tokens)

    def failed(error: BaseException) -> EngineError:
        why = f"{type(error).__name__}: {error}"
        return EngineError(f"{name} cannot load the tokenizer", why=why)

    with library_failures(failed):
        return _load_fast(name, file, control_tokens, cache_bytes)


def _load_fast(name: str, file: TokenizerFile, control_tokens: bool, cache_bytes: int) -> Engine:
    if name == NATIVE and file.kind == SENTENCEPIECE:
        from tokenmill.encode.engines.native.character_bpe import load_sentencepiece

        return load_sentencepiece(
            file.data, lambda: load_reference(file, control_tokens), cache_bytes
        )
    data = KINDS[file.kind].json_of(file, control_tokens)
    if data is None:
        raise EngineError(f"{name} cannot encode a {file.kind} tokenizer")
    if name == MEMO:
        from tokenmill.encode.engines.chunks import MemoEngine

        reference = load_reference(file, control_tokens)
        return MemoEngine(reference, data, control_tokens, cache_bytes)
    if name == NATIVE:
        return load_native(
            data, control_tokens, lambda: load_reference(file, control_tokens), cache_bytes
        )
    from tokenmill.encode.engines.fastokens import FastokensEngine

    engine: Engine = FastokensEngine(data, control_tokens)
    splitting = msgspec.to_builtins(msgspec.json.decode(data, type=_Splitting))
    if strings := fastokens_routes(splitting):
        engine = RoutedEngine(
            engine,
            re.compile("|".join(map(re.escape, strings))).search,
            lambda: load_reference(file, control_tokens),
            in_ascii=any(map(str.isascii, strings)),
        )
    if file.kind == "tiktoken" and encoding_of(file).form:
        return ComposingEngine(engine)
    return engine


def load_native(
    tokenizer_json: bytes,
    control_tokens: bool,
    load_reference: Callable[[], Engine],
    cache_bytes: int,
) -> Engine:
    """Load the engine of a tokenizer that `native_objection` admits."""
    from tokenmill.encode.engines.chunks import NativeEngine, NativeModel
    from tokenmill.encode.engines.cuts import make_cuts
    from tokenmill.encode.engines.native.byte_bpe import ByteBpe
    from tokenmill.encode.engines.native.character_bpe import load_bpe
    from tokenmill.encode.engines.native.unigram import unigram_model
    from tokenmill.encode.engines.native.wordpiece import WordBpe, WordPiece

    tokenizer = read_tokenizer(tokenizer_json)
    contents = matched_contents(tokenizer, control_tokens)
    match tokenizer["model"]["type"]:
        case "BPE" if is_byte_level(tokenizer):
            model: NativeModel = ByteBpe(tokenizer, contents)
        case "BPE" if is_bert(tokenizer):
            model = WordBpe(tokenizer, contents)
        case "BPE":
            return load_bpe(tokenizer, control_tokens, load_reference, cache_bytes)
        case "Unigram":
            model = unigram_model(tokenizer_json, tokenizer)
        case "WordPiece" | "WordLevel":
            model = WordPiece(tokenizer)
        case kind:
            raise EngineError(f"native cannot encode a model of type {kind}")
    cuts = make_cuts(tokenizer, control_tokens)
    return NativeEngine(model, cuts, load_reference, cache_bytes)
