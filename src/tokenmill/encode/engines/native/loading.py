"""Which tokenizer.json the native engine may be given, and the compiled model of each kind.

Every build asks for objections, and most take another engine: what is compiled is imported where it
is loaded (`numba` alone takes 0.2 s).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.locality import Json
from tokenmill.errors import EngineError

if TYPE_CHECKING:
    from tokenmill.encode.engines.native.engine import NativeEngine


def native_objection(tokenizer: Json, control_tokens: bool) -> str:  # noqa: ARG001
    """Why native may not have this tokenizer; "" where it may."""
    match tokenizer["model"].get("type"):
        case kind:
            return f"model {kind}"


def load_native(
    tokenizer_json: bytes,
    control_tokens: bool,  # noqa: ARG001
    load_reference: Callable[[], Engine],  # noqa: ARG001
    cache_bytes: int,  # noqa: ARG001
) -> NativeEngine:
    """The engine of a tokenizer to which there is no objection."""
    tokenizer: Json = msgspec.json.decode(tokenizer_json)
    match tokenizer["model"].get("type"):
        case kind:
            raise EngineError(f"native cannot encode a model {kind}")
