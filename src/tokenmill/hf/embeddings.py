"""`resize_embeddings`: fit a model's embeddings to an extended or trimmed tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.store.embedding_plan import EmbeddingPlan, is_one, read_embedding_plan


def resize_embeddings(
    model: Any, plan: EmbeddingPlan | str | Path, *, pad_to_multiple_of: int | None = None
) -> Any:
    """Fit the embeddings of a model to an extended or trimmed tokenizer.

    Applies to input and output embeddings, tied or not, and to the output bias. The row of each
    new id becomes the mean of the old rows that `plan` names, computed in float32. Unused rows
    keep the values the model gives them. If the model has more rows than an extended tokenizer
    needs, it keeps them. Special token ids in the model's configurations (`eos_token_id` and the
    like) are updated.

    Args:
        model: a `PreTrainedModel`. It is changed in place.
        plan: the embedding plan that `tokenmill tokenizer extend` or `trim` wrote, or its folder.
        pad_to_multiple_of: round the number of rows up to a multiple of this.

    Returns:
        The model.

    Raises:
        UserError: the model has fewer rows than the old tokenizer has ids, or its configuration
            names a token that was removed.
        VerificationError: the plan is damaged.
    """
    plan = plan if isinstance(plan, EmbeddingPlan) else read_embedding_plan(plan)
    held = _held(model)
    num_rows = min(len(values) for values in held)
    if num_rows < plan.num_old_ids:
        why = f"it has {num_rows:,} embedding rows, but the tokenizer had {plan.num_old_ids:,} ids"
        raise UserError("the model does not belong to the tokenizer that was changed", why=why)
    configs = [model.config, getattr(model, "generation_config", None)]
    following = [found for config in configs if config for found in _following(config, plan)]
    new_rows = [_rows(values, plan) for values in held]
    grows = plan.num_ids >= plan.num_old_ids
    size = max(plan.num_ids, num_rows) if grows else plan.num_ids
    model.resize_token_embeddings(size, pad_to_multiple_of, mean_resizing=False)
    for values, (ids, rows) in zip(_held(model), new_rows, strict=True):
        values[ids] = rows
    for config, name, value in following:
        setattr(config, name, value)
    return model


def _held(model: Any) -> list[Any]:
    """The tensors with one row per id, tied tensors once."""
    held = [model.get_input_embeddings().weight]
    output = model.get_output_embeddings()
    if output is not None:
        held += [output.weight] if output.weight is not held[0] else []
        held += [output.bias] if getattr(output, "bias", None) is not None else []
    return [values.data for values in held]


def _rows(values: Any, plan: EmbeddingPlan) -> tuple[list[int], Any]:
    """The ids with a new row, and these rows."""
    ids = [plan.num_unchanged + i for i, olds in enumerate(plan.rows) if olds]
    lists = [olds for olds in plan.rows if olds]
    rows = values[[olds[0] for olds in lists]]  # a copy
    for i, olds in enumerate(lists):
        if not is_one(olds):
            rows[i] = values[olds].float().mean(0).to(values.dtype)
    return ids, rows


def _following(config: Any, plan: EmbeddingPlan) -> Iterator[tuple[Any, str, int | list[int]]]:
    """The new ids of special tokens in a configuration: config, name, value.

    Raises:
        UserError: the tokenizer no longer has one of these tokens.
    """
    new_ids = plan.new_ids()
    for name, value in config.to_dict().items():
        ids = value if isinstance(value, list) else [value]
        if not name.endswith("_token_id") or value is None or max(ids) >= plan.num_old_ids:
            continue
        if gone := [i for i in ids if i not in new_ids]:
            why = f"{name} is {gone[0]}, and the token with this id was removed"
            hint = f"set {name} of the model to another token first"
            raise UserError("the model's configuration names a removed token", why=why, hint=hint)
        moved = [new_ids[i] for i in ids]
        yield config, name, moved if isinstance(value, list) else moved[0]
