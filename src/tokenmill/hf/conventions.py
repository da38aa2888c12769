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
from tokenmill.hf.log import logger
from tokenmill.hf.windows import WindowRule
from tokenmill.run.recipe.tokenizer_section import CausalLMConfig

OF_NO_MODEL = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Generic fast tokenizers of transformers, which can load any tokenizer.json."""


class _Settings(msgspec.Struct):
    """Sections of a tokenizer.json; objects of `tokenizers` have the same keys."""

    padding: dict[str, Any] | None = None
    truncation: dict[str, Any] | None = None


class Conventions:
    """The conventions of a tokenizer that was named or passed.

    A tokenizer object has priority, then the configuration next to a file, then the file.
    """

    def __init__(self, tokenizer: object, file: TokenizerFile, reference: Reference) -> None:
        self._tokenizer = tokenizer
        self._file = file
        self._reference = reference
        self._settings = _settings(tokenizer, file)

    def rule(self, config: CausalLMConfig) -> WindowRule:
        """Return the rule that turns documents into rows.

        Raises:
            UserError: no token can fill rows, or end documents where this was asked for.
        """
        return WindowRule(
            config.context_length,
            config.overlap,
            self.padding_id,
            self._reference.prefix,
            self._reference.suffix,
            self.pads_left,
            self.truncates_left,
            self.appended_eos(config.append_eos),
            config.overlap_in_loss,
        )

    @property
    def padding_id(self) -> int:
        """The id that pads rows: the padding token, else the end-of-document token.

        Raises:
            UserError: the tokenizer names neither.
        """
        found = self._id_of_role("pad")
        if found is None and self._settings.padding:
            found = int(self._settings.padding["pad_id"])
        if found is not None:
            logger.debug("rows are padded with the padding token, %d", found)
            return found
        found = self._id_of_role("eos")
        found = self._known_end() if found is None else found
        if found is None:
            raise UserError(
                "the tokenizer has no token to pad rows with",
                where=self._file.origin,
                why="it names neither a padding token nor an end-of-document token",
                hint=self._hint(),
            )
        logger.info(
            "the tokenizer has no padding token: rows are padded with its end-of-document token, "
            "%d, which keeps its label when it ends a document",
            found,
        )
        return found

    def appended_eos(self, append: bool | Literal["auto"]) -> int | None:
        """The id to append to each document, or None; logs the decision.

        None if the post-processor appends its end-of-document token, or if `append` is false, or
        "auto" and no such token is known. A token that `encode` itself appends is always kept.

        Raises:
            UserError: several tokens could end documents; or `append` is true and none is known.
        """
        if (own := self._reference.own_end) is not None:
            logger.info("the tokenizer itself ends texts with its end-of-document token, %d", own)
            return own
        if append is False:
            logger.info("append_eos=false: no end-of-document token is appended")
            return None
        found = self._end_of_document(append)
        if found is None:
            return None
        eos_id, reason = found
        if eos_id in self._reference.suffix:
            logger.info(
                "the tokenizer itself ends texts with its end-of-document token, %d", eos_id
            )
            return None
        logger.info("each document ends with the end-of-document token, %d (%s)", eos_id, reason)
        return eos_id

    def _end_of_document(self, append: bool | str) -> tuple[int, str] | None:
        """The id and its origin, chosen as `tokenmill build` does, or from the tokenizer object."""
        given = getattr(self._tokenizer, "eos_token_id", None)
        if isinstance(given, int):
            return given, "tokenizer.eos_token_id"
        is_known = configured_token(self._file, "eos_token") or known_ends(self._reference)
        if is_known or append is True:
            try:
                return resolve_eos(self._reference, self._file)
            except UserError as error:
                hint = f"{self._eos_hint()}, or set append_eos: false"
                raise UserError(error.what, where=error.where, why=error.why, hint=hint) from error
        logger.warning(
            "rows have no end-of-document token, because the tokenizer names none: a model does "
            "not learn where documents end. To append one, %s. To silence this: append_eos: false",
            self._eos_hint(),
        )
        return None

    @property
    def pads_left(self) -> bool:
        """Whether padding comes before the tokens."""
        return self._is_left("padding_side", self._settings.padding)

    @property
    def truncates_left(self) -> bool:
        """Whether windows are counted from the end of a document."""
        return self._is_left("truncation_side", self._settings.truncation)

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

    def _known_end(self) -> int | None:
        names = known_ends(self._reference)
        return self._reference.special_tokens[names[0]] if len(names) == 1 else None

    def _hint(self) -> str:
        if isinstance(self._tokenizer, (str, Path)):
            return 'name a "pad_token" in tokenizer_config.json'
        if hasattr(self._tokenizer, "enable_padding"):
            return "call tokenizer.enable_padding(pad_id=..., pad_token=...)"
        if hasattr(self._tokenizer, "pad_token"):
            return "set tokenizer.pad_token"
        return "give the tokenizer an attribute pad_token_id"

    def _eos_hint(self) -> str:
        if isinstance(self._tokenizer, (str, Path)):
            return 'name an "eos_token" in tokenizer_config.json'
        if hasattr(self._tokenizer, "enable_padding"):
            return "pass PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=...)"
        return "set tokenizer.eos_token or tokenizer.eos_token_id"


def _settings(tokenizer: object, file: TokenizerFile) -> _Settings:
    """The padding and truncation of a `tokenizers` object or of a file."""
    if hasattr(tokenizer, "enable_padding"):
        return msgspec.convert(tokenizer, _Settings, from_attributes=True)
    if KINDS[file.kind].is_json and isinstance(tokenizer, (str, Path)):
        return msgspec.json.decode(file.data, type=_Settings)
    return _Settings()


def warn_of_slow_tokenizer(file: TokenizerFile) -> None:
    """Warn that a tokenizer is slow Python code, and name a fast one."""
    faster = _faster_tokenizer(file.tokenizer)
    known = f"{faster} is a fast one" if faster else "no fast tokenizer is known"
    logger.warning(
        "Using slow tokenizer %s, which is Python code: %s",
        type(file.tokenizer).__name__,
        file.reason or known,
    )


def _faster_tokenizer(tokenizer: object) -> str:
    """The fast tokenizer, as a file or a class, or "" if none is known."""
    folder = getattr(tokenizer, "name_or_path", "")
    if isinstance(folder, str) and folder and (Path(folder) / "tokenizer.json").is_file():
        return str(Path(folder) / "tokenizer.json")
    import transformers

    for kind in type(tokenizer).__mro__:  # also for subclasses
        if not kind.__module__.startswith("transformers.models."):
            continue
        for name in _fast_names(kind):
            known = getattr(transformers, name, None)
            if isinstance(known, type) and issubclass(known, transformers.PreTrainedTokenizerFast):
                return f"transformers.{name}"
    return ""


def _fast_names(slow: type) -> list[str]:
    """Possible names of the fast tokenizer for a slow one of transformers.

    Since transformers 5, the plain name is the fast one of most models, and slow ones are called
    Legacy: BertTokenizerLegacy and BertTokenizer.
    """
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    plain = slow.__name__.removesuffix("Slow").removesuffix("Legacy")
    model = slow.__module__.split(".")[2]
    of_model = TOKENIZER_MAPPING_NAMES.get(model) or TOKENIZER_MAPPING_NAMES.get(
        model.replace("_", "-")
    )
    names = of_model if isinstance(of_model, (list, tuple)) else [of_model]
    return [plain, f"{plain}Fast", *(name for name in names if name not in (None, *OF_NO_MODEL))]
