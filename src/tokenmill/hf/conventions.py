"""What a tokenizer says of padding and truncation, as an object or in its configuration."""

from __future__ import annotations

from pathlib import Path

from tokenmill.encode.boundary_policy import END_OF_DOCUMENT_TOKENS
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer_file import TokenizerFile
from tokenmill.errors import UserError
from tokenmill.hf.log import logger


def load_conforming_reference(file: TokenizerFile) -> Reference:
    """The reference, for which special-token strings in a text are text where it has a choice."""
    from tokenmill.encode.selection import load_reference

    try:
        return load_reference(file, control_tokens=False)
    except UserError:
        if file.kind != "python":
            raise
        reference = load_reference(file, control_tokens=True)
    logger.warning("special tokens that stand in a text are matched: encode has no option for it")
    return reference


def padding_id(tokenizer: object, file: TokenizerFile, reference: Reference) -> int:
    """The id that fills rows: of the padding token, else of the end-of-document token.

    Raises:
        UserError: the tokenizer names neither.
    """
    enabled = getattr(tokenizer, "padding", None)
    if isinstance(enabled, dict):  # of tokenizers
        return int(enabled["pad_id"])
    for role in ("pad", "eos"):
        found = _id_of_role(role, tokenizer, file, reference)
        if role == "eos" and found is None:
            found = _known_end(reference)
        if found is not None:
            _tell(role, found)
            return found
    raise UserError(
        "the tokenizer names no token to fill rows with",
        where=file.origin,
        why="it has neither a padding token nor an end-of-document token",
        hint='set tokenizer.pad_token, or name a "pad_token" in tokenizer_config.json',
    )


def pads_left(tokenizer: object, file: TokenizerFile) -> bool:
    """Whether padding stands before the tokens."""
    enabled = getattr(tokenizer, "padding", None)
    if isinstance(enabled, dict):
        return str(enabled["direction"]) == "left"
    return _side("padding_side", tokenizer, file) == "left"


def truncates_left(tokenizer: object, file: TokenizerFile) -> bool:
    """Whether windows are counted from the end of a document."""
    return _side("truncation_side", tokenizer, file) == "left"


def warn_of_slow_tokenizer(tokenizer: object) -> None:
    """Log that a tokenizer is Python code, and what could be used instead."""
    faster = _faster_tokenizer(tokenizer)
    logger.warning(
        "Using slow tokenizer %s, which is Python code: %s",
        type(tokenizer).__name__,
        f"{faster} is a fast one" if faster else "no fast one is known",
    )


def _faster_tokenizer(tokenizer: object) -> str:
    """A file or a class, or "" where nothing is known."""
    folder = getattr(tokenizer, "name_or_path", "")
    if isinstance(folder, str) and folder and (Path(folder) / "tokenizer.json").is_file():
        return str(Path(folder) / "tokenizer.json")
    if not type(tokenizer).__module__.startswith("transformers."):
        return ""
    import transformers

    name = f"{type(tokenizer).__name__.removesuffix('Slow')}Fast"
    known = getattr(transformers, name, None)  # without a fast one it is another name of itself
    is_fast = isinstance(known, type) and issubclass(known, transformers.PreTrainedTokenizerFast)
    return f"transformers.{name}" if is_fast else ""


def _side(name: str, tokenizer: object, file: TokenizerFile) -> str:
    return str(getattr(tokenizer, name, None) or file.config.get(name))


def _id_of_role(
    role: str, tokenizer: object, file: TokenizerFile, reference: Reference
) -> int | None:
    given = getattr(tokenizer, f"{role}_token_id", None)
    if isinstance(given, int):
        return given
    name = file.config.get(f"{role}_token")
    name = name.get("content") if isinstance(name, dict) else name
    if not isinstance(name, str) or not name:
        return None
    found = reference.special_tokens.get(name)
    return reference.token_id(name) if found is None else found


def _known_end(reference: Reference) -> int | None:
    names = [name for name in END_OF_DOCUMENT_TOKENS if name in reference.special_tokens]
    return reference.special_tokens[names[0]] if len(names) == 1 else None


def _tell(role: str, token_id: int) -> None:
    if role == "pad":
        logger.debug("rows are padded with the padding token, %d", token_id)
    else:
        logger.info(
            "the tokenizer has no padding token: rows are padded with its end-of-document token, "
            "%d, which keeps its label where it is not padding",
            token_id,
        )
