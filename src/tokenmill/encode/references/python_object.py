"""Call a Python tokenizer object, and check what it returns."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.records import UInt32Array
from tokenmill.core.user_code import describe_failure
from tokenmill.encode.engine import TextError

LARGEST_ID = 2**31 - 1
"""The largest id that shards can store; assumed for objects that do not reveal their vocabulary."""
ROLES = ("bos", "eos", "unk", "pad")
MAX_SHOWN_CHARACTERS = 80
PROBES = ("a", " a", "1", "é", "中", "あ", "한", "я", "א", "ا", "अ", "ก", "!", "\n")
"""Texts for finding the ids around a text. At least one has ids in any common script."""
MAX_TOKENS_TRIED = 1000
"""How many tokens of the vocabulary are tried if none of `PROBES` has ids."""


class TokenizerObject:
    """A Python tokenizer, used through the methods that published tokenizers share."""

    def __init__(self, tokenizer: Any) -> None:
        if isinstance(tokenizer, type) or not callable(getattr(tokenizer, "encode", None)):
            raise UserError(
                "not a tokenizer",
                where=class_name(tokenizer),
                why="a tokenizer must have a method encode(text)",
                hint="pass an object, not its class; encode must return ids",
            )
        self.tokenizer = tokenizer
        self._parameters = _parameters(tokenizer.encode)
        self._decode_options = dict.fromkeys(
            _parameters(getattr(tokenizer, "decode", None)) & {"skip_special_tokens"}, False
        )

    @functools.cached_property
    def vocabulary(self) -> dict[str, int]:
        """Ids by token; empty if the object does not reveal them."""
        return _vocabulary(self.tokenizer)

    @functools.cached_property
    def special_tokens(self) -> dict[str, int]:
        """Control tokens by content."""
        return _special_tokens(self.tokenizer)

    @functools.cached_property
    def largest_id(self) -> int:
        """The largest id that the object reveals, from its sizes, vocabulary and special tokens."""
        sizes = [_asked(self.tokenizer, name) for name in ("vocab_size", "n_vocab", "__len__")]
        known = [size - 1 for size in sizes if _is_id(size) and size]
        known += self.vocabulary.values()
        if not known:
            return LARGEST_ID
        return int(min(max([*known, *self.special_tokens.values()]), LARGEST_ID))

    @property
    def unk_id(self) -> int | None:
        """The id of the unknown token, if the object names one."""
        found = _asked(self.tokenizer, "unk_token_id")
        return int(found) if _is_id(found) else None

    def options(self, control_tokens: bool) -> dict[str, Any]:
        """Return the keyword arguments for `encode`: no tokens around a text, and the policy.

        Only parameters that `encode` has are set. Without any, the object decides.
        """
        found: dict[str, Any] = {}
        if "add_special_tokens" in self._parameters:
            found["add_special_tokens"] = False
        if "allowed_special" in self._parameters:  # tiktoken
            found["allowed_special"] = "all" if control_tokens else set()
            found["disallowed_special"] = ()
        if hasattr(self.tokenizer, "split_special_tokens"):  # transformers, among its **kwargs
            found["split_special_tokens"] = not control_tokens
            found["verbose"] = False  # else it warns about texts longer than the model's input
        return found

    def encode(self, text: str, options: Mapping[str, Any]) -> UInt32Array:
        """Encode one text, and check the ids.

        Raises:
            TextError: the object failed, or did not return a sequence of ids.
        """
        largest_id = self.largest_id
        try:
            return checked_ids(self.tokenizer.encode(text, **options), largest_id)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            failed = TextError(
                "the tokenizer failed on a text",
                where=f"text {text[:MAX_SHOWN_CHARACTERS]!r}",
                why=describe_failure(error),
                hint="fix the tokenizer's encode or remove the text, then build again with "
                "--overwrite=first",
            )
            failed.text = text
            raise failed from error

    def surroundings(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids that `add_special_tokens` puts before and after a text.

        Both are empty if `encode` has no such parameter.

        Raises:
            UserError: they cannot be separated from the ids of the text.
        """
        if "add_special_tokens" not in self._parameters:
            return (), ()
        bare, whole = self._bare_and_whole()
        for start in range(len(whole) - len(bare) + 1):
            if whole[start : start + len(bare)] == bare and (bare or not whole):
                return tuple(whole[:start]), tuple(whole[start + len(bare) :])
        raise UserError(
            "cannot tell which ids the tokenizer puts around a text",
            where=class_name(self.tokenizer),
            why=f"add_special_tokens turns {bare} into {whole}",
        )

    def _bare_and_whole(self) -> tuple[list[int], list[int]]:
        """Return the ids of a text without and with special tokens around it."""
        options = self.options(control_tokens=False)
        tokens = (token for token in self.vocabulary if token not in self.special_tokens)
        bare: list[int] = []
        whole: list[int] = []
        for text in itertools.chain(PROBES, itertools.islice(tokens, MAX_TOKENS_TRIED)):
            try:
                bare = self.encode(text, options).tolist()
                whole = self.encode(text, {**options, "add_special_tokens": True}).tolist()
            except TextError:
                continue
            if bare:
                break
        return bare, whole

    @property
    def can_decode(self) -> bool:
        """Whether the object has a method `decode`."""
        return callable(getattr(self.tokenizer, "decode", None))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, including special tokens.

        Raises:
            UserError: the object has no `decode`.
            EngineError: its `decode` failed.
        """
        if not self.can_decode:
            where = class_name(self.tokenizer)
            hint = "give it a method decode(ids) that returns the text"
            raise UserError("the tokenizer cannot decode ids", where=where, hint=hint)
        try:
            return str(self.tokenizer.decode([int(i) for i in ids], **self._decode_options))
        except Exception as error:
            why = describe_failure(error)
            raise EngineError("the tokenizer's decode failed", why=why) from error

    def names(self) -> dict[str, str]:
        """Return the tokens by role, as in a tokenizer_config.json: {"eos_token": "</s>"}."""
        tokens = {f"{role}_token": _asked(self.tokenizer, f"{role}_token") for role in ROLES}
        return {key: str(token) for key, token in tokens.items() if token}


def class_name(tokenizer: Any) -> str:
    """Return the module and name of an object's class."""
    kind = tokenizer if isinstance(tokenizer, type) else type(tokenizer)
    return f"{kind.__module__}.{kind.__qualname__}"


def checked_ids(answer: Any, largest_id: int) -> UInt32Array:
    """Return the ids in the result of an `encode`.

    The result may be a list, tuple or array, or an object or mapping that contains one.

    Raises:
        TypeError, ValueError: the result contains no valid ids.
    """
    if isinstance(answer, Mapping):
        answer = answer["input_ids"]
    answer = getattr(answer, "ids", answer)
    if isinstance(answer, np.ndarray):
        array: npt.NDArray[Any] = answer
        kinds = {answer.dtype.type} if answer.size else set()
    else:
        answer = list(answer)
        kinds = set(map(type, answer))
        array = answer
    wrong = [kind for kind in kinds if not issubclass(kind, (int, np.integer)) or kind is bool]
    if wrong:
        raise TypeError(f"encode returned {wrong[0].__name__} instead of ids")
    array = np.asarray(array, np.int64 if not kinds else None)
    if array.ndim != 1:
        raise TypeError(f"encode returned an array of shape {array.shape} instead of ids")
    if len(array) and not 0 <= int(array.min()) <= int(array.max()) <= largest_id:
        bad = next(int(i) for i in array if not 0 <= int(i) <= largest_id)
        raise ValueError(
            f"encode returned id {bad}; the largest id of its vocabulary is {largest_id}"
        )
    return array.astype(np.uint32)


def _asked(tokenizer: Any, name: str) -> Any:
    """Return an attribute, or the result of a method; None if there is none.

    Raises:
        UserError: the method failed.
    """
    try:
        value = getattr(tokenizer, name, None)
        return value() if callable(value) else value
    except (NotImplementedError, TypeError):  # from a base class; from a method with parameters
        return None
    except Exception as error:
        what, why = f"the tokenizer's own {name} failed", describe_failure(error)
        hint = "fix it, or pass an object without it; only encode(text) is required"
        raise UserError(what, where=class_name(tokenizer), why=why, hint=hint) from error


def _is_id(value: object) -> bool:
    """Whether a value is an int of at least 0, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0


def _ids_by_name(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {name: int(i) for name, i in value.items() if _is_text(name) and _is_id(i)}


def _is_text(value: object) -> bool:
    """Whether a value is a string without lone surrogates, which no document contains."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _vocabulary(tokenizer: Any) -> dict[str, int]:
    return _ids_by_name(_asked(tokenizer, "get_vocab") or _asked(tokenizer, "vocab"))


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    """Return control tokens by content, as transformers, tiktoken or `special_tokens` give them."""
    found = _ids_by_name(_asked(tokenizer, "special_tokens"))
    names, ids = _asked(tokenizer, "all_special_tokens"), _asked(tokenizer, "all_special_ids")
    if names and ids:
        found |= _ids_by_name(dict(zip(map(str, names), ids, strict=False)))
    if hasattr(tokenizer, "encode_single_token"):
        for name in sorted(_asked(tokenizer, "special_tokens_set") or ()):
            found[name] = tokenizer.encode_single_token(name)
    for role in ROLES:
        name, number = _asked(tokenizer, f"{role}_token"), _asked(tokenizer, f"{role}_token_id")
        found |= _ids_by_name({str(name): number}) if name else {}
    return found


def _parameters(function: Callable[..., Any] | None) -> set[str]:
    try:
        return set(inspect.signature(function).parameters) if function else set()
    except (TypeError, ValueError):  # compiled code without a signature
        return set()
