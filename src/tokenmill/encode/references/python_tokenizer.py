"""The reference for Python objects with a method `encode`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.boundary_policy import known_ends
from tokenmill.encode.engine import Reference, TextError
from tokenmill.encode.references.python_object import TokenizerObject, class_name
from tokenmill.encode.references.python_source import library_version
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind

END_PROBES = ("a", "The")


class PolicyError(UserError):
    """An object does not follow the policy for special tokens in texts, and has no option."""


class PythonReference(Reference):
    """Calls the object's `encode` once for each text.

    It is both reference and engine. The ids must depend only on the text; calibration and audits
    check that with the objects of two processes, or by encoding a text twice.
    """

    name = "python"
    may_refuse = True

    def __init__(self, file: TokenizerFile, control_tokens: bool) -> None:
        if file.tokenizer is None:
            raise UserError(
                "cannot load the tokenizer",
                where=file.origin,
                why="it is a Python object, and the dataset stores only a description of it",
                hint="pass it with tokenizer=... or --tokenizer python:module:name",
            )
        self.version = library_version(file.tokenizer)
        self._object = TokenizerObject(file.tokenizer)
        self._options = self._object.options(control_tokens)
        self.largest_id = self._object.largest_id
        self.special_tokens = self._object.special_tokens
        self.unk_id = self._object.unk_id
        self.can_decode = self._object.can_decode
        self._require_policy(control_tokens)
        self.prefix, self.suffix = self._object.surroundings()
        self.own_end = self._appended_end()

    def token_id(self, token: str) -> int | None:
        return self.special_tokens.get(token, self._object.vocabulary.get(token))

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text.

        Raises:
            TextError: the object failed on a text, which is in the error's attribute `text`.
        """
        arrays = [self._object.encode(text, self._options) for text in texts]
        if self.own_end is not None:
            ends = [len(array) > 0 and array[-1] == self.own_end for array in arrays]
            arrays = [array[: len(array) - end] for array, end in zip(arrays, ends, strict=True)]
        return batch_of(arrays)

    def twin(self) -> PythonReference:
        """Return a reference with a copy of the object, for audits; itself if copying fails."""
        found = copy.copy(self)
        try:
            found._object = TokenizerObject(copy.deepcopy(self._object.tokenizer))
        except Exception:  # from the user's code
            return self
        return found

    def encode_with_offsets(self, text: str) -> NoReturn:  # noqa: ARG002 - of the Protocol
        """Raise a UserError: Python tokenizers do not report offsets."""
        raise UserError(
            "a Python tokenizer does not report which characters a token covers",
            where=class_name(self._object.tokenizer),
            why="--no-loss needs that to convert character ranges to tokens",
            hint="convert the tokenizer to tokenizer.json, or remove --no-loss",
        )

    def decode(self, ids: Sequence[int]) -> str:
        return self._object.decode(ids)

    def _appended_end(self) -> int | None:
        """Return the end token that the object appends to every text, if there is one."""
        last: set[int] = set()
        for text in END_PROBES:
            try:
                last.update(self._object.encode(text, self._options)[-1:].tolist())
            except TextError:
                continue
        named = self._object.names().get("eos_token", "")
        ends = {self.token_id(name) for name in (named, *known_ends(self))}
        ends.add(getattr(self._object.tokenizer, "eos_token_id", None))
        return last.pop() if len(last) == 1 and last <= ends - {self.unk_id} else None

    def _require_policy(self, control_tokens: bool) -> None:
        """Raise a PolicyError if the object does not follow the policy for special tokens."""
        for token, token_id in self.special_tokens.items():
            try:
                found = self._object.encode(token, self._options).tolist()
            except TextError:
                continue  # documents with this token are refused
            if (found == [token_id]) != control_tokens:
                reads = "ordinary text" if control_tokens else "a control token"
                other = "text" if control_tokens else "control"
                raise PolicyError(
                    f"the tokenizer reads {token!r} in texts as {reads}",
                    where=class_name(self._object.tokenizer),
                    why="--special-tokens requires the opposite, and its encode has no option "
                    "for that",
                    hint=f"use --special-tokens {other}",
                )


def _components(file: TokenizerFile) -> dict[str, Any]:
    """Return the components of a Python tokenizer, from its description.

    The library's version is left out: if it matters, the answers differ.
    """
    facts: dict[str, Any] = msgspec.json.decode(file.data, type=dict)
    facts.pop("library_version")
    special_tokens = facts.pop("special_tokens")
    vocabulary = {"sha256": facts.pop("vocabulary_sha256")}
    answers = {name: facts.pop(name) for name in ("num_answers", "answers_sha256")}
    return {
        "model": {"type": "python", **facts},
        "vocabulary": vocabulary,
        "answers": answers,
        "added_tokens": {name: {"id": i, "special": True} for name, i in special_tokens.items()},
    }


KIND = TokenizerKind(
    name="python",
    library="python",
    file_name="tokenizer-python.json",
    is_file=lambda path, data: path.name == "tokenizer-python.json" and data[:1] == b"{",
    reference=PythonReference,
    components=_components,
    is_slow=True,
    is_described=True,
    may_vary=True,
)
