"""Flags that describe the shape of a model by its sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.options import about

if TYPE_CHECKING:
    from tokenmill.packing.costs import ModelShape

Quantity = Annotated[float, Meta(extra={"unit": "quantity"})]


class ShapeOptions(msgspec.Struct, kw_only=True):
    """The sizes of a model, instead of --model."""

    hidden_size: Annotated[
        int | None,
        about("hidden size; without --layers, it belongs to the model of --parameters"),
    ] = None
    layers: Annotated[int | None, about("number of layers")] = None
    heads: Annotated[
        int | None, about("number of attention heads (default: heads of size 128)")
    ] = None
    kv_heads: Annotated[
        int | None,
        about("number of key and value heads (default: as many as --heads)"),
    ] = None
    feed_forward: Annotated[
        int | None,
        about("size of the feed-forward blocks (default: 8/3 of the hidden size)"),
    ] = None


def shape_from(sizes: ShapeOptions, model: str | None, *, tied: bool = False) -> ModelShape | None:
    """The shape given by its sizes, or None.

    Raises:
        UserError: a required size is missing, or a model is named as well.
    """
    from tokenmill.packing.costs import custom_shape

    if sizes.layers is None or sizes.hidden_size is None:
        if sizes.layers is not None or sizes.heads or sizes.kv_heads or sizes.feed_forward:
            raise UserError("the shape of a model needs --hidden-size and --layers")
        return None
    if model:
        raise UserError("--model and the sizes of a model cannot be combined", hint="give one")
    return custom_shape(
        sizes.hidden_size,
        sizes.layers,
        num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads,
        feed_forward_size=sizes.feed_forward,
        tied=tied,
    )
