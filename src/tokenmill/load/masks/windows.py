"""What each consumer calls a window: one function for each convention, from one definition.

Here, a window of W is the number of keys a query sees, itself included. What others mean by W:

    Hugging Face `sliding_window`; xformers `make_local_attention(W)`     W keys
    torchtitan, FlexAttention mask                                        W keys
    flash-attn `window_size=(W, 0)`; TransformerEngine, Megatron;         W + 1 keys
      torchtitan VarlenAttention (W, 0); llm-foundry passes on (W, W)
    attention-gym `generate_sliding_window(W)`                            W + 1 keys

So `Window(4)` is `sliding_window=4` for Hugging Face and `window_size=(3, 0)` for flash-attn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.errors import UserError
from tokenmill.load.masks.definition import And, Mask
from tokenmill.load.masks.rules import Bidirectional, Causal, Window


@dataclass(frozen=True)
class Band:
    """A mask that a kernel knows without being shown it: keys from `left` before to `right` after.

    None is without a limit.
    """

    left: int | None
    right: int | None

    @property
    def causal(self) -> bool:
        """Whether no key after the query is seen."""
        return self.right == 0


def band(mask: Mask, consumer: str) -> Band:
    """The band that a mask is.

    Raises:
        UserError: it is none, so that `consumer` cannot express it.
    """
    found = _band(mask)
    if found is None:
        raise UserError(
            f"{consumer} cannot express this mask",
            where=repr(mask),
            why="it knows segments, causality and an undilated window",
            hint="torch_forms.block_mask, or a dense form",
        )
    return found


def _band(mask: Mask) -> Band | None:
    match mask:
        case Bidirectional():
            return Band(None, None)
        case Causal():
            return Band(None, 0)
        case Window(size=size, dilation=1, both_sides=both_sides):
            return Band(size - 1, size - 1 if both_sides else 0)
        case And(left=first, right=second):
            a, b = _band(first), _band(second)
            if a is not None and b is not None:
                return Band(_narrower(a.left, b.left), _narrower(a.right, b.right))
    return None


def flash_window(mask: Mask, consumer: str = "flash-attn window_size") -> tuple[int, int]:
    """`window_size` of flash-attn, TransformerEngine and Megatron: -1 is without a limit.

    Bounds are inclusive: `Window(4)` gives (3, 0). Pass `causal` on as well: it is band.causal.

    Raises:
        UserError: the mask is no band.
    """
    found = band(mask, consumer)
    left, right = (-1 if side is None else side for side in (found.left, found.right))
    return left, right


def keys_in_window(mask: Mask, consumer: str = "sliding_window") -> int | None:
    """W for consumers that count the query's own key.

    Hugging Face `sliding_window`, torchtitan's FlexAttention mask, xformers'
    `make_local_attention`. None is without a limit.

    Raises:
        UserError: the mask is no causal band.
    """
    left = _causal(mask, consumer).left
    return None if left is None else left + 1


def keys_before(mask: Mask, consumer: str = "sliding window") -> int | None:
    """W for consumers that do not count the query's own key.

    attention-gym's `generate_sliding_window`, llm-foundry's `sliding_window_size`, the first of
    torchtitan's VarlenAttention window. None is without a limit.

    Raises:
        UserError: the mask is no causal band.
    """
    return _causal(mask, consumer).left


def _causal(mask: Mask, consumer: str) -> Band:
    found = band(mask, consumer)
    if not found.causal:
        raise UserError(f"{consumer} is causal, and this mask is not", where=repr(mask))
    return found


def _narrower(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
