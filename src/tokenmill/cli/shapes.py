"""Flags that describe the shape of a model by its sizes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tokenmill.cli.parser import Parser, whole_number

if TYPE_CHECKING:
    from tokenmill.pack.costs import ModelShape

UNITS = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def add_shape_arguments(parser: Parser, hidden_size: str = "hidden size") -> None:
    """Add the sizes of a model; `hidden_size` is the help of that option."""
    shape = parser.add_argument_group("shape", "the sizes of a model, instead of --model")
    flags = {
        "--hidden-size": hidden_size,
        "--layers": "number of layers",
        "--heads": "number of attention heads (default: heads of size 128)",
        "--kv-heads": "number of key and value heads (default: as many as --heads)",
        "--feed-forward": "size of the feed-forward blocks (default: 8/3 of the hidden size)",
    }
    for flag, text in flags.items():
        shape.add_argument(flag, type=whole_number, metavar="N", help=text)


def shape_from(options: argparse.Namespace, *, tied: bool = False) -> ModelShape | None:
    """The shape given by its sizes, or None.

    Raises:
        UserError: a required size is missing, or `--model` is given as well.
    """
    from tokenmill.core.errors import UserError
    from tokenmill.pack.costs import custom_shape

    rest = (options.heads, options.kv_heads, options.feed_forward)
    if options.layers is None or options.hidden_size is None:
        if options.layers is not None or any(rest):
            raise UserError("the shape of a model needs --hidden-size and --layers")
        return None
    if options.model:
        raise UserError("--model and the sizes of a model cannot be combined", hint="give one")
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
    """Parse a number with an optional unit: 1.3B, 350M, 1e21."""
    unit = UNITS.get(text[-1:], 1)
    try:
        return float(text[:-1] if text[-1:] in UNITS else text) * unit
    except ValueError as error:
        what = f"must be a number such as 1.3B, 350M or 1e21, got {text!r}"
        raise argparse.ArgumentTypeError(what) from error
