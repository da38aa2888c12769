"""Real training steps of a small transformer, with three kinds of attention.

The model has pre-norm blocks with attention and a feed-forward block of four times the hidden size,
and learned positions that begin again in each document. Ids are taken modulo the vocabulary, which
is small, so that the output matrix does not hide what packing does to the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from tokenmill.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.records import Int64Array

WHOLE_ROWS, MASK, DOCUMENTS = "over whole rows", "mask over rows", "inside documents"
VOCABULARY = 1024
HEAD_SIZE = 64
LEARNING_RATE = 1e-4
IGNORED = -100

Attend = Callable[[Tensor], Tensor]
"""From queries, keys and values, shape (3, rows, heads, length, 64), to the result of each head."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step that was timed."""

    seconds: float
    row_tokens: int
    """Padding included."""


class Stepper:
    """A model with its optimizer, and the batches it trains on."""

    def __init__(self, device: str, num_layers: int, hidden_size: int, length: int) -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device == "cuda" and not torch.cuda.is_available():
            raise UserError("PyTorch finds no GPU here", hint="--device cpu, or auto")
        self.device = torch.device(device)
        self._num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._model = _Model(num_layers, hidden_size, length).to(self.device)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATE)

    def close(self) -> None:
        """Give PyTorch its threads back."""
        torch.set_num_threads(self._num_threads)

    @property
    def num_parameters(self) -> int:
        """Of the model, embeddings included."""
        return sum(each.numel() for each in self._model.parameters())

    def warm_up(self, batch: Batch) -> None:
        """Short warm-up steps, so that the first measured step does not include loading."""
        few = {name: batch[name][:, :64] for name in COLUMNS}
        for attention in (WHOLE_ROWS, MASK, DOCUMENTS):
            self.step(few, attention)

    def step(self, batch: Batch, attention: str, *, shorten: bool = False) -> StepTime:
        """Forward, backward and update; `shorten` cuts rows to the longest of the batch."""
        stop = _longest(batch) if shorten else batch["input_ids"].shape[1]
        ids, labels, positions = self._tensors(batch, stop)
        started = self._now()
        attend = self._attend(batch["segment_ids"][:, :stop], attention)
        with self._precision():
            logits = self._model(ids, positions, attend)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return StepTime(self._now() - started, ids.numel())

    def largest_difference(self, batch: Batch) -> float:
        """Between the logits with a mask and those inside documents, by the largest logit."""
        ids, _, positions = self._tensors(batch, batch["input_ids"].shape[1])
        found = []
        with torch.no_grad(), self._precision():
            for attention in (MASK, DOCUMENTS):
                attend = self._attend(batch["segment_ids"], attention)
                found.append(self._model(ids, positions, attend).float())
        real = torch.from_numpy(batch["segment_ids"] >= 0).to(self.device)
        first, second = (each[real] for each in found)
        return float((first - second).abs().max() / first.abs().max())

    def _tensors(self, batch: Batch, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        arrays = (batch[name][:, :stop] for name in ("input_ids", "labels", "position_ids"))
        ids, labels, positions = (
            torch.from_numpy(np.ascontiguousarray(each, np.int64)).to(self.device)
            for each in arrays
        )
        labels = torch.where(labels == IGNORED, labels, labels % VOCABULARY)
        return ids % VOCABULARY, labels, positions

    def _attend(self, segment_ids: Int64Array, attention: str) -> Attend:
        if attention == WHOLE_ROWS:
            return _causal
        if attention == MASK:
            ids = torch.from_numpy(np.ascontiguousarray(segment_ids)).to(self.device)
            mask = (ids[:, :, None] == ids[:, None, :]).tril()[:, None]
            return lambda qkv: scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=mask)
        lengths = list(_segment_lengths(segment_ids))
        kernel = _varlen_kernel() if self.device.type == "cuda" else None
        if kernel is None:
            return lambda qkv: _each_segment(qkv, lengths)
        return _varlen(kernel, lengths, self.device)

    def _precision(self) -> Any:
        on_gpu = self.device.type == "cuda"
        return torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()

    def _now(self) -> float:
        """On a GPU the time on the wall, when it has done all; else that of the processor.

        One thread is at work on a processor, and its time stops while others have the core.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.process_time()


COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids")
"""Columns of a batch that a step needs, each of shape (rows, length)."""


def batch_of(batches: Batches, number: int) -> Batch:
    """One of the steps of an epoch, which begins again behind its end."""
    return batches.batch(number % len(batches))


def _longest(batch: Batch) -> int:
    """Tokens of the longest row."""
    return int((batch["segment_ids"] >= 0).sum(axis=1).max())


def _segment_lengths(segment_ids: Int64Array) -> Iterator[int]:
    """Lengths of the segments of all rows; padding is a segment, too."""
    for row in segment_ids:
        edges = np.flatnonzero(np.diff(row)) + 1
        yield from np.diff([0, *edges, len(row)]).tolist()


def _causal(qkv: Tensor) -> Tensor:
    return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)


def _each_segment(qkv: Tensor, lengths: list[int]) -> Tensor:
    """One call for each segment: the work of a kernel that takes `cu_seqlens`."""
    rows, length = qkv.shape[1], qkv.shape[3]
    flat = qkv.transpose(1, 2).flatten(2, 3)  # three, heads, all tokens, 64
    parts = [_causal(part[:, None])[0] for part in torch.split(flat, lengths, dim=2)]
    joined = torch.cat(parts, dim=1)  # heads, all tokens, 64
    return joined.reshape(len(joined), rows, length, HEAD_SIZE).transpose(0, 1)


def _varlen_kernel() -> Any:
    """PyTorch's own kernel for segments of several lengths; None before PyTorch 2.10."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


def _varlen(kernel: Any, lengths: list[int], device: torch.device) -> Attend:
    edges = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device)
    longest = max(lengths)

    def attend(qkv: Tensor) -> Tensor:
        rows, length = qkv.shape[1], qkv.shape[3]
        queries, keys, values = qkv.transpose(2, 3).flatten(1, 2).to(torch.bfloat16)
        found: Tensor = kernel(
            queries, keys, values, edges, edges, longest, longest, window_size=(-1, 0)
        )
        return found.reshape(rows, length, -1, HEAD_SIZE).transpose(1, 2)

    return attend


class _Block(nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, hidden_size, bias=False)
        self.up = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.down = nn.Linear(4 * hidden_size, hidden_size, bias=False)

    def forward(self, states: Tensor, attend: Attend) -> Tensor:
        rows, length, _ = states.shape
        qkv = self.qkv(self.before(states)).reshape(rows, length, 3, -1, HEAD_SIZE)
        heads = attend(qkv.permute(2, 0, 3, 1, 4))
        states = states + self.out(heads.transpose(1, 2).flatten(2))
        result: Tensor = states + self.down(gelu(self.up(self.between(states))))
        return result


class _Model(nn.Module):
    def __init__(self, num_layers: int, hidden_size: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, hidden_size)
        self.positions = nn.Embedding(length, hidden_size)
        self.blocks = nn.ModuleList(_Block(hidden_size) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        states = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            states = block(states, attend)
        logits: Tensor = self.norm(states) @ self.tokens.weight.T
        return logits
