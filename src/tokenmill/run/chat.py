"""The chat template of a build, and its other options of conversations."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from tokenmill.core.errors import UserError
from tokenmill.core.paths import read_bounded
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.rendering.chat.conversations import (
    CHATML,
    CHATML_MARKERS,
    TEMPLATES,
    Conversations,
)
from tokenmill.run.recipe.options import ChatOptions
from tokenmill.store.policies import ChatPolicies, Policies

LOGGER = logging.getLogger(__name__)
MAX_TEMPLATE_BYTES = 1 << 20
DEFAULT_NAME = "default"
TRL = "trl"
"""Names TRL's training version of the tokenizer's template."""


def chat_policies(
    options: ChatOptions, file: TokenizerFile, reference: Reference, eos_id: int
) -> ChatPolicies | UnsetType:
    """Return how conversations are rendered, for the manifest. UNSET for other records.

    Raises:
        UserError: the template cannot be found or read.
    """
    if options.chat is None:
        return UNSET
    tokens = _named_tokens(file)
    for name, known in reference.special_tokens.items():
        if known == eos_id:
            tokens.setdefault("eos_token", name)
    is_text = options.chat == "prompt-completion"
    template = "" if is_text else _template(options.chat_template, file)
    unknown = [name for name in CHATML_MARKERS if reference.token_id(name) is None]
    if template == CHATML and unknown:
        text = "the tokenizer has no token %s: the template writes it as several tokens"
        LOGGER.warning(text, " or ".join(unknown))
    return ChatPolicies(
        chat=options.chat,
        template=template,
        tokens={} if is_text else tokens,
        loss_on=options.loss_on or ["assistant"],
        date=options.chat_date,
    )


def conversations_of(policies: Policies, special_tokens: Mapping[str, int]) -> Conversations | None:
    """Return the renderer of conversations that the policies describe. None for other records."""
    chat = policies.chat
    if isinstance(chat, UnsetType):
        return None
    return Conversations(
        chat=chat.chat,
        template=chat.template,
        tokens=chat.tokens,
        loss_on=tuple(chat.loss_on),
        date=chat.date,
        control_strings=tuple(special_tokens),
        special_tokens=policies.encode.special_tokens,
    )


def _template(named: str | None, file: TokenizerFile) -> str:
    """Return the text of a template from the tokenizer, this package, TRL, or a file."""
    own = _own_templates(file)
    if named is None:
        if found := own.get(DEFAULT_NAME):
            return found
        names = ", ".join(sorted({*own, *TEMPLATES}))
        raise UserError(
            "the tokenizer has no chat template",
            where=file.origin,
            why="neither tokenizer_config.json nor chat_template.jinja has one",
            hint=f"choose one with --chat-template: {names}, or a Jinja file",
        )
    if named in own:
        return own[named]
    if named in TEMPLATES:
        return TEMPLATES[named]
    if named == TRL:
        return _training_version(own.get(DEFAULT_NAME), file)
    path = Path(named)
    if not path.is_file():
        why = f"it is neither a file nor one of {', '.join(sorted({*own, *TEMPLATES, TRL}))}"
        raise UserError(f"cannot find the chat template {named!r}", why=why)
    return _decoded(read_bounded(path, MAX_TEMPLATE_BYTES, "the chat template"), named)


def _training_version(template: str | None, file: TokenizerFile) -> str:
    """Return TRL's training version of a template. Compares the texts, as TRL does."""
    found = importlib.util.find_spec("trl")  # finds the package without importing it
    if found is None or found.origin is None:
        raise UserError("TRL is not installed", hint="pip install trl, or give a Jinja file")
    for path in sorted(Path(found.origin).parent.glob("chat_templates/*_training.jinja")):
        original = path.with_name(path.name.replace("_training.jinja", ".jinja"))
        if original.is_file() and original.read_text(encoding="utf-8") == template:
            return path.read_text(encoding="utf-8")
    raise UserError(
        "TRL has no training version of the tokenizer's chat template",
        where=file.origin,
        hint="give a Jinja file with {% generation %} markers",
    )


def _own_templates(file: TokenizerFile) -> dict[str, str]:
    """Return the templates of a tokenizer by name."""
    found = file.config.get("chat_template")
    if isinstance(found, str):
        return {DEFAULT_NAME: found}
    if isinstance(found, dict):
        return {name: text for name, text in found.items() if isinstance(text, str)}
    named = found if isinstance(found, list) else []
    return {
        each["name"]: each["template"]
        for each in named
        if isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("template"), str)
    }


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError("the chat template is not UTF-8", where=where, why=str(error)) from error


def _named_tokens(file: TokenizerFile) -> dict[str, str]:
    """Return the special tokens that templates can name, such as bos_token and eos_token."""
    values = ((key, _content(value)) for key, value in sorted(file.config.items()))
    return {key: text for key, text in values if key.endswith("_token") and text is not None}


def _content(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
