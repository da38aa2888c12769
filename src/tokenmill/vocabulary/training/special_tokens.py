"""The special tokens of a trained tokenizer: their contents, roles and ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenmill.core.errors import UserError
from tokenmill.vocabulary.training.options import ROLES, Model, Role, SpecialOptions

MASKED: dict[Role, str] = {
    "unk": "[UNK]",
    "bos": "[CLS]",
    "eos": "[SEP]",
    "pad": "[PAD]",
    "mask": "[MASK]",
}
USUAL_ROLES: dict[Model, dict[Role, str]] = {
    "bpe": {"eos": "<|endoftext|>"},
    "wordpiece": MASKED,
    "wordlevel": {"unk": "[UNK]", "eos": "</s>"},
    "unigram": {"unk": "<unk>", "eos": "</s>"},
    "sentencepiece-bpe": {"unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    "sentencepiece-unigram": {"unk": "<unk>", "bos": "<s>", "eos": "</s>"},
}
"""The default roles of each model, as in GPT-2, BERT, T5 and SentencePiece."""
CHARACTER_ROLES: dict[Role, str] = {"unk": "<unk>", "eos": "</s>"}
"""The default roles of BPE over characters."""
CONFIG_KEYS: dict[Role, str] = {role: f"{role}_token" for role in ROLES}
BERT_CONFIG_KEYS: dict[Role, str] = {**CONFIG_KEYS, "bos": "cls_token", "eos": "sep_token"}


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Special tokens in the order of their ids."""

    contents: tuple[str, ...]
    roles: Mapping[Role, str]
    fixed_ids: Mapping[str, int] = field(default_factory=dict)
    last: bool = False
    """Whether their ids come after all other tokens."""

    def __len__(self) -> int:
        return len(self.contents)

    def numbered(self, num_others: int) -> Numbering:
        """Return the ids of the special tokens, and the ids left for `num_others` other tokens.

        Raises:
            UserError: a fixed id lies beyond the last one.
        """
        size = len(self) + num_others
        for content, fixed in self.fixed_ids.items():
            if fixed >= size:
                raise UserError(
                    f"the special token {content!r} cannot have id {fixed}",
                    why=f"the vocabulary of {size} tokens ends at id {size - 1}",
                    hint="choose a smaller id or a larger --vocabulary",
                )
        taken = set(self.fixed_ids.values())
        free = [i for i in range(size) if i not in taken]
        unfixed = [content for content in self.contents if content not in self.fixed_ids]
        chosen = free[len(free) - len(unfixed) :] if self.last else free[: len(unfixed)]
        ids = {**self.fixed_ids, **dict(zip(unfixed, chosen, strict=True))}
        used = set(ids.values())
        return Numbering(
            {content: ids[content] for content in sorted(self.contents, key=ids.__getitem__)},
            [i for i in range(size) if i not in used],
        )


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids of the special tokens and of all others."""

    special_ids: dict[str, int]
    other_ids: list[int]


def usual_roles(model: Model, byte_level: bool) -> Mapping[Role, str]:
    """Return the default roles of a model over bytes or over characters."""
    return CHARACTER_ROLES if model == "bpe" and not byte_level else USUAL_ROLES[model]


def special_tokens(options: SpecialOptions, usual: Mapping[Role, str]) -> SpecialTokens:
    """Collect the special tokens of the options; `usual` are the default roles of the model.

    A role that is set to "" is left out.

    Raises:
        UserError: a token or an id is named twice, or a token is empty.
    """
    given = {role: getattr(options, role) for role in ROLES}
    used = {role: usual.get(role, "") if given[role] is None else given[role] for role in ROLES}
    roles = {role: content for role, content in used.items() if content}
    listed = [_parse(text) for text in options.special]
    names = [content for content, _ in listed]
    contents = [content for content in roles.values() if content not in names]
    contents = [*dict.fromkeys(contents), *names]
    contents += [f"<|reserved_{number}|>" for number in range(options.reserve)]
    fixed = {content: number for content, number in listed if number is not None}
    if "" in contents:
        raise UserError("a special token is empty", hint="name it: --special '<|im_start|>'")
    if twice := _first_twice(contents):
        raise UserError(f"the special token {twice!r} is named twice")
    if len(set(fixed.values())) != len(fixed):
        shared = _first_twice(list(fixed.values()))
        raise UserError(f"two special tokens have id {shared}")
    return SpecialTokens(tuple(contents), roles, fixed, options.special_at == "end")


def _parse(text: str) -> tuple[str, int | None]:
    """Parse a token with an optional fixed id: "<pad>=0"."""
    content, equals, number = text.rpartition("=")
    if equals and content and number.isdecimal() and number.isascii():
        return content, int(number)
    return text, None


def _first_twice(values: Sequence[str | int]) -> str | int | None:
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
