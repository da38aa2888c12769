"""Window sizes in the conventions of attention libraries.

In tokenmill, W is the number of keys that a query attends to, including itself. In libraries:

    Hugging Face `sliding_window`; xformers `make_local_attention(W)`     W keys
    torchtitan, FlexAttention mask                                        W keys
    flash-attn `window_size=(W, 0)`; TransformerEngine, Megatron;         W + 1 keys
      torchtitan VarlenAttention (W, 0); llm-foundry passes on (W, W)
    attention-gym `generate_sliding_window(W)`                            W + 1 keys

So `Window(4)` is `sliding_window=4` for Hugging Face and `window_size=(3, 0)` for flash-attn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.load.masks.rules import And, Bidirectional, Causal, Mask, Window


@dataclass(frozen=True)
class Band:
    """A mask that kernels support directly: up to `left` keys before and `right` keys after.

    None means no limit.
    """

    left: int | None
    right: int | None

    @property
    def causal(self) -> bool:
        """Whether queries attend to no later key."""
        return self.right == 0


def band(mask: Mask, consumer: str) -> Band:
    """Return the mask as a band.

    Raises:
        UserError: the mask is not a band, so `consumer` cannot express it.
    """
    found = _band(mask)
    if found is None:
        raise UserError(
            f"{consumer} cannot express this mask",
            where=repr(mask),
            why="it supports only segments, causality and a window without dilation",
            hint="use torch_forms.block_mask or a dense form",
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
    """Return `window_size` for flash-attn, TransformerEngine and Megatron; -1 means no limit.

    Bounds are inclusive: `Window(4)` gives (3, 0). Also pass `causal`: it is `band.causal`.

    Raises:
        UserError: the mask is more than causality and a window.
    """
    found = band(mask, consumer)
    left, right = (-1 if side is None else side for side in (found.left, found.right))
    return left, right


def keys_in_window(mask: Mask, consumer: str = "sliding_window") -> int | None:
    """Return W for libraries that count the query's own key; None means no limit.

    These are Hugging Face's `sliding_window`, torchtitan's FlexAttention mask and xformers'
    `make_local_attention`.

    Raises:
        UserError: the mask is more than a causal window.
    """
    left = _causal(mask, consumer).left
    return None if left is None else left + 1


def keys_before(mask: Mask, consumer: str = "sliding window") -> int | None:
    """Return W for libraries that do not count the query's own key; None means no limit.

    These are attention-gym's `generate_sliding_window`, llm-foundry's `sliding_window_size`, and
    the first number of torchtitan's VarlenAttention window.

    Raises:
        UserError: the mask is more than a causal window.
    """
    return _causal(mask, consumer).left


def _causal(mask: Mask, consumer: str) -> Band:
    found = band(mask, consumer)
    if not found.causal:
        raise UserError(f"{consumer} needs a causal mask", where=repr(mask))
    return found


def _narrower(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
