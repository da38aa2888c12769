"""Give new ids to all tokens of a tokenizer.json and the configuration next to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenmill.core.errors import UserError

Json = dict[str, Any]
NewIds = Sequence[int | None]
"""New ids by old id; None if the token was removed."""


def renumbered(document: Json, new_ids: NewIds) -> Json:
    """Replace the ids in the vocabulary, added tokens, post-processor and padding.

    Every token in the tokenizer.json must have a new id.
    """
    model = document["model"]
    vocab = {token: _new(new_ids, token_id) for token, token_id in model["vocab"].items()}
    added = [{**token, "id": _new(new_ids, token["id"])} for token in document["added_tokens"]]
    changed = {**document, "added_tokens": added, "model": {**model, "vocab": vocab}}
    if document.get("post_processor"):
        changed["post_processor"] = _post_processor(document["post_processor"], new_ids)
    if document.get("padding"):
        padding = document["padding"]
        changed["padding"] = {**padding, "pad_id": _new(new_ids, padding["pad_id"])}
    return changed


def renumbered_config(config: Json, new_ids: NewIds) -> Json:
    """Replace the ids in a tokenizer_config.json's table of added tokens."""
    table = config.get("added_tokens_decoder")
    if not table:
        return config
    changed = {str(_new(new_ids, int(token_id))): token for token_id, token in table.items()}
    return {**config, "added_tokens_decoder": changed}


def _post_processor(step: Json, new_ids: NewIds) -> Json:
    match step.get("type"):
        case "Sequence":
            members = [_post_processor(member, new_ids) for member in step["processors"]]
            return {**step, "processors": members}
        case "TemplateProcessing":
            tokens = {
                name: {**token, "ids": [_new(new_ids, i) for i in token["ids"]]}
                for name, token in step["special_tokens"].items()
            }
            return {**step, "special_tokens": tokens}
        case "BertProcessing" | "RobertaProcessing":
            pairs = {name: [step[name][0], _new(new_ids, step[name][1])] for name in ("sep", "cls")}
            return {**step, **pairs}
        case _:
            return step


def _new(new_ids: NewIds, old: int) -> int:
    """Return the new id of a kept token."""
    new = new_ids[old] if 0 <= old < len(new_ids) else None
    if new is None:
        why = f"its configuration names id {old}, but no token has this id"
        hint = "load and save the tokenizer with transformers to make its files consistent"
        raise UserError("cannot renumber the tokenizer's ids", why=why, hint=hint)
    return new
