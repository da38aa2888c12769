"""The embedding rows of a model of transformers, after its tokenizer was extended or trimmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.errors import UserError
from tokenmill.store.embedding_plan import EmbeddingPlan, is_one, read_embedding_plan


def resize_embeddings(
    model: Any, plan: EmbeddingPlan | str | Path, *, pad_to_multiple_of: int | None = None
) -> Any:
    """Give a model the rows of a new tokenizer; returns the model.

    Input and output embeddings, tied or not, and a bias of the output get for each new id the mean
    of the old rows that `plan` names; means are computed in float32. Rows that no token uses keep
    what the model puts there. A model that has more rows than an extended tokenizer needs keeps
    them. Ids in the model's configurations (`eos_token_id` and the like) follow.

    Args:
        model: a PreTrainedModel.
        plan: what `tokenmill tokenizer extend` and `trim` write, or their folder.
        pad_to_multiple_of: the number of rows becomes a multiple of this.

    Raises:
        UserError: the model has fewer rows than the old tokenizer has ids, or its configuration
            names a token that was removed.
        VerificationError: the plan is damaged.
    """
    plan = plan if isinstance(plan, EmbeddingPlan) else read_embedding_plan(plan)
    held = _held(model)
    num_rows = min(len(values) for values in held)
    if num_rows < plan.num_old_ids:
        why = f"it has {num_rows:,} rows, and the tokenizer had {plan.num_old_ids:,} ids"
        raise UserError("the model is not of the tokenizer that was changed", why=why)
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
    """The tensors that have a row for each id; tied ones once."""
    held = [model.get_input_embeddings().weight]
    output = model.get_output_embeddings()
    if output is not None:
        held += [output.weight] if output.weight is not held[0] else []
        held += [output.bias] if getattr(output, "bias", None) is not None else []
    return [values.data for values in held]


def _rows(values: Any, plan: EmbeddingPlan) -> tuple[list[int], Any]:
    """Ids whose row changes, and their rows."""
    ids = [plan.num_unchanged + i for i, olds in enumerate(plan.rows) if olds]
    lists = [olds for olds in plan.rows if olds]
    rows = values[[olds[0] for olds in lists]]  # a copy
    for i, olds in enumerate(lists):
        if not is_one(olds):
            rows[i] = values[olds].float().mean(0).to(values.dtype)
    return ids, rows


def _following(config: Any, plan: EmbeddingPlan) -> Iterator[tuple[Any, str, int | list[int]]]:
    """The ids of special tokens in a configuration, as they must become.

    Raises:
        UserError: the new tokenizer has no such token any more.
    """
    new_ids = plan.new_ids()
    for name, value in config.to_dict().items():
        ids = value if isinstance(value, list) else [value]
        if not name.endswith("_token_id") or value is None or max(ids) >= plan.num_old_ids:
            continue
        if gone := [i for i in ids if i not in new_ids]:
            why = f"{name} is {gone[0]}, and the token with this id was removed"
            hint = "give the model another one first"
            raise UserError("the model's configuration cannot follow", why=why, hint=hint)
        moved = [new_ids[i] for i in ids]
        yield config, name, moved if isinstance(value, list) else moved[0]
