"""What a tokenizer defines for padding, truncation and the end of a document.

It may be an object, its configuration, or its file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.encode.boundary_policy import configured_token, known_ends, resolve_eos
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.hf.rows import WindowRule
from tokenmill.hf.summary import logger
from tokenmill.run.recipe.tokenizer_section import CausalLMConfig

HINTS = {
    "file": (
        'name a "pad_token" in tokenizer_config.json',
        'name an "eos_token" in tokenizer_config.json',
    ),
    "tokenizers": (
        "call tokenizer.enable_padding(pad_id=..., pad_token=...)",
        "pass PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=...)",
    ),
    "transformers": (
        "set tokenizer.pad_token",
        "set tokenizer.eos_token or tokenizer.eos_token_id",
    ),
    "other": (
        "give the tokenizer an attribute pad_token_id",
        "set tokenizer.eos_token or tokenizer.eos_token_id",
    ),
}
"""How to name a padding token and an end-of-document token, by the kind of the tokenizer."""


class _Settings(msgspec.Struct):
    """Sections of a tokenizer.json; objects of `tokenizers` have the same keys."""

    padding: dict[str, Any] | None = None
    truncation: dict[str, Any] | None = None


class Conventions:
    """The conventions of a tokenizer that was named or passed.

    A tokenizer object has priority, then the configuration next to a file, then the file.
    """

    def __init__(self, tokenizer: object, file: TokenizerFile, reference: Reference) -> None:
        self._tokenizer, self._file, self._reference = tokenizer, file, reference
        self._settings = _Settings()
        kind = "transformers" if hasattr(tokenizer, "pad_token") else "other"
        if hasattr(tokenizer, "enable_padding"):
            kind = "tokenizers"
            self._settings = msgspec.convert(tokenizer, _Settings, from_attributes=True)
        elif isinstance(tokenizer, (str, Path)):
            kind = "file"
            if KINDS[file.kind].is_json:
                self._settings = msgspec.json.decode(file.data, type=_Settings)
        self._pad_hint, self._eos_hint = HINTS[kind]

    def rule(self, config: CausalLMConfig) -> WindowRule:
        """Return the rule that turns documents into rows.

        Raises:
            UserError: no token can fill rows, or end documents where this was asked for.
        """
        return WindowRule(
            config.row_length,
            config.overlap,
            self._padding_id(),
            self._reference.prefix,
            self._reference.suffix,
            self._is_left("padding_side", self._settings.padding),
            self._is_left("truncation_side", self._settings.truncation),
            self._appended_eos(config.append_eos),
            config.overlap_in_loss,
        )

    def _padding_id(self) -> int:
        """The id that pads rows: the padding token, else the end-of-document token."""
        found = self._id_of_role("pad")
        if found is None and self._settings.padding:
            found = int(self._settings.padding["pad_id"])
        if found is not None:
            logger.debug("rows are padded with the padding token, %d", found)
            return found
        found = self._id_of_role("eos")
        ends = known_ends(self._reference)
        if found is None and len(ends) == 1:
            found = self._reference.special_tokens[ends[0]]
        if found is None:
            raise UserError(
                "the tokenizer has no token to pad rows with",
                where=self._file.origin,
                why="it names neither a padding token nor an end-of-document token",
                hint=self._pad_hint,
            )
        logger.info(
            "the tokenizer has no padding token: rows are padded with its end-of-document token, "
            "%d, which keeps its label when it ends a document",
            found,
        )
        return found

    def _appended_eos(self, append: bool | Literal["auto"]) -> int | None:
        """The id to append to each document, or None; logs the decision.

        None if the post-processor appends its end-of-document token, or if `append` is false, or
        "auto" and no such token is known. A token that `encode` itself appends is always kept.

        Raises:
            UserError: several tokens could end documents; or `append` is true and none is known.
        """
        itself = "the tokenizer itself ends texts with its end-of-document token, %d"
        if (own := self._reference.own_end) is not None:
            logger.info(itself, own)
            return own
        if append is False:
            logger.info("append_eos=false: no end-of-document token is appended")
            return None
        eos_id, reason = getattr(self._tokenizer, "eos_token_id", None), "tokenizer.eos_token_id"
        if not isinstance(eos_id, int):
            is_known = configured_token(self._file, "eos_token") or known_ends(self._reference)
            if not is_known and append is not True:
                logger.warning(
                    "rows have no end-of-document token, because the tokenizer names none: a model "
                    "does not learn where documents end. To append one, %s. To silence this: "
                    "append_eos: false",
                    self._eos_hint,
                )
                return None
            try:
                eos_id, reason = resolve_eos(self._reference, self._file)
            except UserError as error:
                hint = f"{self._eos_hint}, or set append_eos: false"
                raise UserError(error.what, where=error.where, why=error.why, hint=hint) from error
        if eos_id in self._reference.suffix:
            logger.info(itself, eos_id)
            return None
        logger.info("each document ends with the end-of-document token, %d (%s)", eos_id, reason)
        return eos_id

    def _is_left(self, name: str, section: dict[str, Any] | None) -> bool:
        named = getattr(self._tokenizer, name, None) or self._file.config.get(name)
        return str(named or (section or {}).get("direction")).lower() == "left"

    def _id_of_role(self, role: str) -> int | None:
        given = getattr(self._tokenizer, f"{role}_token_id", None)
        if isinstance(given, int):
            return given
        name = configured_token(self._file, f"{role}_token")
        if name is None:
            return None
        found = self._reference.special_tokens.get(name)
        return self._reference.token_id(name) if found is None else found


def warn_of_slow_tokenizer(file: TokenizerFile) -> None:
    """Warn that a tokenizer is slow Python code, and name a fast one."""
    faster = _faster_tokenizer(file.tokenizer)
    known = f"{faster} is a fast one" if faster else "no fast tokenizer is known"
    kind = type(file.tokenizer).__name__
    logger.warning("Using slow tokenizer %s, which is Python code: %s", kind, file.reason or known)


def _faster_tokenizer(tokenizer: object) -> str:
    """The fast tokenizer, as a file or a class, or "" if none is known.

    Since transformers 5, the plain name is the fast one of most models, and slow ones are called
    Legacy: BertTokenizerLegacy and BertTokenizer.
    """
    folder = getattr(tokenizer, "name_or_path", "")
    if isinstance(folder, str) and folder and (Path(folder) / "tokenizer.json").is_file():
        return str(Path(folder) / "tokenizer.json")
    import transformers

    for kind in type(tokenizer).__mro__:  # also for subclasses
        if not kind.__module__.startswith("transformers.models."):
            continue
        plain = kind.__name__.removesuffix("Slow").removesuffix("Legacy")
        for name in (plain, f"{plain}Fast"):
            known = getattr(transformers, name, None)
            if isinstance(known, type) and issubclass(known, transformers.PreTrainedTokenizerFast):
                return f"transformers.{name}"
    return ""
