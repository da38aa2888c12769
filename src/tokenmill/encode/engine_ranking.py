"""Which engine encodes: a ranked table, a pure function of the tokenizer and what is installed.

    fastokens    exact on every code point where the gate admits it, bounded memory
    gigatoken    for SentencePiece-style BPE that the others refuse
    native       compiled code of our own, for models of other kinds; first of all for
                 SentencePiece-style BPE (Llama 2, Mistral, Gemma), where it is the fastest;
                 the only one for SentencePiece's own files (BPE, Llama 2)
    memo         the reference behind a memory of its answers, where texts may be cut at spaces
    reference    everything else

Speed is not measured to choose: another machine must choose the same. Calibration may veto the
choice, and then the next in the table is taken (`first_exact`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.encode.composition import ComposingEngine
from tokenmill.encode.encodings import encoding_of
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engines.chunks.locality import locality_objection
from tokenmill.encode.engines.gate import (
    Json,
    fastokens_objection,
    gigatoken_objection,
    is_sentencepiece,
)
from tokenmill.encode.engines.native.loading import load_native, native_objection
from tokenmill.encode.engines.native.sentencepiece_gate import sentencepiece_objection
from tokenmill.encode.engines.routing import RoutedEngine, fastokens_routes, gigatoken_routes
from tokenmill.encode.exactness import (
    CalibrationVetoError,
    check_engine,
    examine,
    with_first_exact,
)
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import EngineError, TokenmillError, UserError
from tokenmill.installed import installed_version

NATIVE, MEMO, REFERENCE = "native", "memo", "reference"
SENTENCEPIECE = "sentencepiece"
"""The kind whose own files native reads; of every other kind it needs a `tokenizer.json`."""
MEASURED_VERSIONS = {"fastokens": ("0.3.4", "0.3.5"), "gigatoken": ("0.9.0", "0.10.0")}
"""The oldest and the newest release for which the gate's lists and the table of code points hold;
all between were measured, too. `bench/code_points.py` and `bench/exactness.py` measure others."""
OBJECTIONS = {"fastokens": fastokens_objection, "gigatoken": gigatoken_objection}
ENGINES = (*OBJECTIONS, NATIVE, MEMO, REFERENCE)
FOR_SENTENCEPIECE = (NATIVE, *OBJECTIONS, MEMO, REFERENCE)
"""Llama 2: `docs/reference/tokenizers.md` has the measurement, which `bench/kinds.py` repeats."""


class _Splitting(msgspec.Struct):
    """The part of a tokenizer.json that splits texts; the vocabulary is passed over."""

    pre_tokenizer: Json | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Engines that may encode a tokenizer, best first, and why the others may not."""

    names: tuple[str, ...]
    objections: dict[str, str]
    installable: frozenset[str] = frozenset()
    """Those of the others that would be exact, but are missing or of another version."""
    order: tuple[str, ...] = ENGINES
    """All engines, those that are best for this tokenizer first."""

    @property
    def remarks(self) -> dict[str, str]:
        """Objections that a user should know of before a run, by engine.

        Those that an install removes, if the engine would then be the first; all of them if only
        the reference is left.
        """
        before = self.order[: self.order.index(self.names[0])]
        told = self.installable if self.names[0] != REFERENCE else self.objections
        return {name: self.objections[name] for name in before if name in told}


def rank_engines(file: TokenizerFile, control_tokens: bool, wanted: str = "auto") -> Candidates:
    """The engines that the gate admits, in the order of the table.

    Raises:
        UserError: `wanted` names an engine that is not installed or not exact for this tokenizer.
    """
    tokenizer = KINDS[file.kind].outline_of(file, control_tokens)
    objections: dict[str, str] = {}
    installable: set[str] = set()
    order = _order(tokenizer)
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
        raise UserError(
            f"unknown engine {wanted!r}", why=why, hint="auto picks one for the tokenizer"
        )
    if wanted not in names:
        problem = "cannot be used" if wanted in installable else "is not exact for this tokenizer"
        hint = "auto picks an exact engine"
        raise UserError(f"{wanted} {problem}", why=objections[wanted], hint=hint)
    return Candidates((wanted,), objections, frozenset(installable), order)


def _order(tokenizer: Json | None) -> tuple[str, ...]:
    """The order of the table for a tokenizer.json, if it is one."""
    falls_back = tokenizer is not None and is_sentencepiece(tokenizer)
    return FOR_SENTENCEPIECE if falls_back else ENGINES


def _objection_if_readable(
    name: str, file: TokenizerFile, tokenizer: Json | None, control_tokens: bool
) -> str:
    """As `_objection`; a damaged file is left to the reference, which tells what is wrong."""
    try:
        return _objection(name, file, tokenizer, control_tokens)
    except (KeyboardInterrupt, SystemExit, MemoryError, TokenmillError):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        return f"a file that cannot be understood ({type(error).__name__}: {error})"


def _objection(name: str, file: TokenizerFile, tokenizer: Json | None, control_tokens: bool) -> str:
    """Why an engine is not exact for a tokenizer; "" if it is."""
    if name == REFERENCE:
        return ""
    if name == NATIVE and file.kind == SENTENCEPIECE and not control_tokens:
        return sentencepiece_objection(file.data)
    if tokenizer is None or (name in {NATIVE, MEMO} and not KINDS[file.kind].is_json):
        return file.reason or f"{file.kind} tokenizers of this kind are the reference's"
    if name == MEMO:
        return locality_objection(tokenizer, control_tokens)
    if name == NATIVE:
        return native_objection(tokenizer, control_tokens)
    return OBJECTIONS[name](tokenizer)


def _missing(name: str) -> str:
    """Why a fast engine cannot be used as it is installed; "" if it can."""
    if importlib.util.find_spec(name) is None:
        return "it is not installed: pip install 'tokenmill[fast]'"
    version = installed_version(name)
    oldest, newest = MEASURED_VERSIONS[name]
    if _release(oldest) <= _release(version) <= _release(newest):
        return ""
    return f"version {version} has not been measured: pip install '{name}>={oldest},<={newest}'"


def _release(version: str) -> tuple[int, ...]:
    """A version as numbers; () for pre-releases and the like, which are never measured."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def first_exact(
    names: Sequence[str],
    load: Callable[[str], Engine],
    reference: Reference,
    sample: Sequence[str],
    on_veto: Callable[[str, CalibrationVetoError], None],
) -> Engine:
    """The first engine of `names` that loads, and passes the exam with the documents of `sample`.

    Workers of a build do the same, each with its own engine. The reference needs no exam.

    Raises:
        CalibrationVetoError: the last one does not pass either.
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
    """An engine, with the reference behind it for documents that it is known to get wrong.

    Raises:
        EngineError: the engine does not take this tokenizer.
    """
    if name == REFERENCE:
        return load_reference(file, control_tokens)
    try:
        return _load_fast(name, file, control_tokens, cache_bytes)
    except (KeyboardInterrupt, SystemExit, MemoryError, TokenmillError):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        why = f"{type(error).__name__}: {error}"
        raise EngineError(f"{name} cannot load the tokenizer", why=why) from error


def _load_fast(name: str, file: TokenizerFile, control_tokens: bool, cache_bytes: int) -> Engine:
    if name == NATIVE and file.kind == SENTENCEPIECE:
        from tokenmill.encode.engines.native.sentencepiece_bpe import load_sentencepiece

        return load_sentencepiece(
            file.data, lambda: load_reference(file, control_tokens), cache_bytes
        )
    data = KINDS[file.kind].json_of(file, control_tokens)
    if data is None:
        raise EngineError(f"{name} cannot encode a {file.kind} tokenizer")
    if name == MEMO:
        from tokenmill.encode.engines.memo import MemoEngine

        reference = load_reference(file, control_tokens)
        return MemoEngine(reference, data, control_tokens, cache_bytes)
    if name == NATIVE:
        return load_native(
            data, control_tokens, lambda: load_reference(file, control_tokens), cache_bytes
        )
    engine: Engine
    if name == "fastokens":
        from tokenmill.encode.engines.fastokens import FastokensEngine

        engine = FastokensEngine(data, control_tokens)
        routes = fastokens_routes(msgspec.to_builtins(msgspec.json.decode(data, type=_Splitting)))
    else:
        from tokenmill.encode.engines.gigatoken import GigatokenEngine

        engine = GigatokenEngine(data, control_tokens, cache_bytes)
        routes = gigatoken_routes(msgspec.json.decode(data))
    if routes:
        engine = RoutedEngine(engine, routes, lambda: load_reference(file, control_tokens))
    if file.kind == "tiktoken" and encoding_of(file).form:
        return ComposingEngine(engine)
    return engine
