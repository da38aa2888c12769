"""Flags for the shape of a model that has no name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tokenmill.cli.parser import Parser, whole_number

if TYPE_CHECKING:
    from tokenmill.costs import ModelShape

UNITS = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def add_shape_arguments(parser: Parser, hidden_size: str = "hidden size") -> None:
    """The sizes of a model; `hidden_size` is what its help says."""
    shape = parser.add_argument_group("shape", "a model that has no name here")
    flags = {
        "--hidden-size": hidden_size,
        "--layers": "layers",
        "--heads": "heads of queries (default: of size 128)",
        "--kv-heads": "heads of keys and values (default: as many)",
        "--feed-forward": "size of the feed-forward blocks (default: 8/3 of the hidden size)",
    }
    for flag, text in flags.items():
        shape.add_argument(flag, type=whole_number, metavar="N", help=text)


def shape_from(options: argparse.Namespace, *, tied: bool = False) -> ModelShape | None:
    """The shape that is spelled out, if one is.

    Raises:
        UserError: sizes are missing, or a model is named beside them.
    """
    from tokenmill.costs import custom_shape
    from tokenmill.errors import UserError

    rest = (options.heads, options.kv_heads, options.feed_forward)
    if options.layers is None or options.hidden_size is None:
        if options.layers is not None or any(rest):
            raise UserError("a shape needs --hidden-size and --layers")
        return None
    if options.model:
        raise UserError("give --model or the sizes of a shape, not both")
    heads, kv_heads, feed_forward = rest
    return custom_shape(
        options.hidden_size,
        options.layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        feed_forward_size=feed_forward,
        tied=tied,
    )


def quantity(text: str) -> float:
    """A number, perhaps with a unit: 1.3B, 350M, 1e21."""
    unit = UNITS.get(text[-1:], 1)
    try:
        return float(text[:-1] if text[-1:] in UNITS else text) * unit
    except ValueError as error:
        what = f"must be a number such as 1.3B, 350M or 1e21, got {text!r}"
        raise argparse.ArgumentTypeError(what) from error
