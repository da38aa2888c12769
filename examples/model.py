"""A small GPT that keeps packed documents apart.

Two things differ from a GPT that is trained on one document a row, and both come from
`position_ids`, which begin again at 0 with every document in a row: the mask, and the rotary
embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Turn = tuple[Tensor, Tensor]
"""Cosines and sines, both of shape (num_rows, 1, row_length, head_width / 2)."""


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of the model; the defaults train on a laptop's processor."""

    vocab_size: int
    num_layers: int = 4
    num_heads: int = 4
    width: int = 128


class GPT(nn.Module):
    """Token ids to logits."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.head_width = config.width // config.num_heads
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.width)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Logits of shape (num_rows, row_length, vocab_size)."""
        mask = document_mask(position_ids)
        turn = rotary_turn(position_ids, self.head_width)
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, mask, turn)
        return F.linear(self.norm(x), self.embedding.weight)


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its norm before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.width
        self.num_heads = config.num_heads
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x: Tensor, mask: Tensor, turn: Turn) -> Tensor:
        """Shape (num_rows, row_length, width) in and out."""
        x = x + self.attend(self.attention_norm(x), mask, turn)
        return x + self.feed_forward(self.feed_forward_norm(x))

    def attend(self, x: Tensor, mask: Tensor, turn: Turn) -> Tensor:
        """Each token looks at the tokens that the mask lets it see."""
        heads = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # (num_rows, num_heads, row_length, -1)
        query, key = turned(query, turn), turned(key, turn)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.attention_out(seen.transpose(1, 2).flatten(2))


def document_mask(position_ids: Tensor) -> Tensor:
    """True where a query sees a key: (num_rows, 1, row_length, row_length), for all heads.

    position_ids  0 1 2 0 1      x . . . .      A document begins where the position is 0, and
    document      1 1 1 2 2      x x . . .      padding begins at 0 too: it is one more document
                                 x x x . .      that no other can see.
                                 . . . x .
                                 . . . x x
    """
    document = (position_ids == 0).cumsum(-1)
    same = document[:, :, None] == document[:, None, :]
    return same.tril()[:, None]


def rotary_turn(position_ids: Tensor, head_width: int) -> Turn:
    """By how much each pair of channels is turned (RoPE, arXiv 2104.09864)."""
    pairs = torch.arange(0, head_width, 2, device=position_ids.device)
    angles = position_ids[:, None, :, None] * 10_000.0 ** (-pairs / head_width)
    return angles.cos(), angles.sin()


def turned(x: Tensor, turn: Turn) -> Tensor:
    """Queries or keys with their pairs of channels turned."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
