"""Which engine encodes: a ranked table, a pure function of the tokenizer and what is installed.

    fastokens    exact on every code point where the gate admits it, bounded memory
    gigatoken    for SentencePiece-style BPE that fastokens refuses
    memo         the reference behind a memory of its answers, where texts may be cut at spaces
    reference    everything else

Speed is not measured to choose: another machine must choose the same. Calibration may veto the
choice, and then the next in the table is taken.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

import msgspec

from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.gate import Json, fastokens_objection, gigatoken_objection
from tokenmill.encode.engines.memo.locality import locality_objection
from tokenmill.encode.engines.routing import RoutedEngine, fastokens_routes, gigatoken_routes
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import EngineError, TokenmillError, UserError

MEMO, REFERENCE = "memo", "reference"
MEASURED_VERSIONS = {"fastokens": "0.3.5", "gigatoken": "0.10.0"}
"""What the gate's lists and the table of code points were found with."""
OBJECTIONS = {"fastokens": fastokens_objection, "gigatoken": gigatoken_objection}
ENGINES = (*OBJECTIONS, MEMO, REFERENCE)


class _Splitting(msgspec.Struct):
    """The part of a tokenizer.json that splits texts; the vocabulary is passed over."""

    pre_tokenizer: Json | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Engines that may encode a tokenizer, best first, and why the others may not."""

    names: tuple[str, ...]
    objections: dict[str, str]


def rank_engines(file: TokenizerFile, control_tokens: bool, wanted: str = "auto") -> Candidates:
    """The engines that the gate admits, in the order of the table.

    Raises:
        UserError: `wanted` names an engine that is not installed or not exact for this tokenizer.
    """
    data = KINDS[file.kind].json_of(file, control_tokens)
    tokenizer = msgspec.json.decode(data) if data else None
    found = {name: _objection(name, file, tokenizer, control_tokens) for name in ENGINES}
    objections = {name: objection for name, objection in found.items() if objection}
    names = tuple(name for name in ENGINES if name not in objections)
    if wanted == "auto":
        return Candidates(names, objections)
    if wanted not in ENGINES:
        why = f"the engines are {', '.join(ENGINES)}"
        raise UserError(f"there is no engine {wanted!r}", why=why, hint="auto chooses one")
    if wanted not in names:
        why = objections[wanted]
        hint = "auto takes one that is exact"
        raise UserError(f"{wanted} is not exact for this tokenizer", why=why, hint=hint)
    return Candidates((wanted,), objections)


def _objection(name: str, file: TokenizerFile, tokenizer: Json | None, control_tokens: bool) -> str:
    """Why an engine may not have a tokenizer; "" where it may."""
    if name == REFERENCE:
        return ""
    if tokenizer is None or (name == MEMO and not KINDS[file.kind].is_json):
        return file.reason or f"{file.kind} tokenizers of this kind are the reference's"
    if name == MEMO:
        return locality_objection(tokenizer, control_tokens)
    if importlib.util.find_spec(name) is None:
        return "it is not installed: pip install 'tokenmill[fast]'"
    if (version := importlib.metadata.version(name)) != MEASURED_VERSIONS[name]:
        return f"version {version} has not been measured"
    return OBJECTIONS[name](tokenizer)


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
    data = KINDS[file.kind].json_of(file, control_tokens)
    if data is None:
        raise EngineError(f"{name} cannot encode a {file.kind} tokenizer")
    if name == MEMO:
        from tokenmill.encode.engines.memo.engine import MemoEngine

        reference = load_reference(file, control_tokens)
        return MemoEngine(reference, data, control_tokens, cache_bytes)
    engine: Engine
    if name == "fastokens":
        from tokenmill.encode.engines.fastokens import FastokensEngine

        engine = FastokensEngine(data, control_tokens)
        routes = fastokens_routes(msgspec.to_builtins(msgspec.json.decode(data, type=_Splitting)))
    else:
        from tokenmill.encode.engines.gigatoken import GigatokenEngine

        engine = GigatokenEngine(data, control_tokens, cache_bytes)
        routes = gigatoken_routes(msgspec.json.decode(data))
    if not routes:
        return engine
    return RoutedEngine(engine, routes, lambda: load_reference(file, control_tokens))
