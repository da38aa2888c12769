"""Parameters, FLOPs and memory of a decoder-only transformer, computed from its shape.

A matrix of n weights takes 2 n FLOPs per token forward (a multiplication and an addition) and twice
that backward, so training takes 6 n (Kaplan et al. 2020, arXiv 2001.08361, 2.1). Attention takes
4 n_heads d_head FLOPs forward for every key that a query sees, in every layer: queries times keys,
and weights times values. A token that sees s keys takes 12 n_layers n_heads d_head s in training
(PaLM, arXiv 2204.02311, appendix B). As there, norms, biases, softmax and activations are not
counted. An embedding lookup takes no FLOPs; the output matrix takes FLOPs, tied or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import did_you_mean

FLOPS_PER_WEIGHT = 6
"""FLOPs per weight to train on one token: 2 forward, 4 backward."""
ATTENTION_FLOPS = 12
"""FLOPs of training per query, key and head dimension of a layer."""
TRAINING_BYTES_PER_PARAMETER = 16
"""Mixed precision with Adam: weight and gradient in 2 bytes each, and weight, mean and variance in
4 bytes each (ZeRO, arXiv 1910.02054, 3.1)."""
LOGIT_BYTES = 4
"""Bytes of a logit; the loss is computed in float32."""
HALF_BYTES = 2
"""Bytes of an activation, and of a key or value in inference, in bfloat16 or float16."""
USUAL_ASPECT = 128
"""Hidden size divided by layers, as in Llama 2 7B and Llama 3 8B; other models are close."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a decoder-only transformer."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    feed_forward_size: int
    gated: bool
    """Whether a feed-forward block has three matrices (SwiGLU), not two."""
    vocabulary_size: int
    """Published vocabulary size."""
    tied: bool
    """Whether input and output share one embedding."""
    biased: bool = False
    """Whether matrices and norms have biases (GPT-2)."""
    num_positions: int = 0
    """Number of learned positions; 0 for rotary positions."""

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of one layer."""
        attention = 2 * self.hidden_size * self.head_size * (self.num_heads + self.num_kv_heads)
        return attention + (2 + self.gated) * self.hidden_size * self.feed_forward_size

    @property
    def non_vocabulary_parameters(self) -> int:
        """Parameters outside the embedding and the output matrix."""
        norm = self.hidden_size * (1 + self.biased)
        queries_keys_values = self.head_size * (self.num_heads + 2 * self.num_kv_heads)
        biases = queries_keys_values + 2 * self.hidden_size + self.feed_forward_size
        layer = self.layer_weights + 2 * norm + self.biased * biases
        return self.num_layers * layer + norm + self.num_positions * self.hidden_size

    def embedding_parameters(self, vocabulary_size: int) -> int:
        """Parameters of the embedding, and of the output matrix if it is not tied."""
        return embedding_parameters(vocabulary_size, self.hidden_size, tied=self.tied)

    def parameters(self, vocabulary_size: int) -> int:
        """All parameters."""
        return self.non_vocabulary_parameters + self.embedding_parameters(vocabulary_size)

    def weights(self, vocabulary_size: int) -> int:
        """Weights that every token is multiplied by: those of the layers and of the output."""
        return self.num_layers * self.layer_weights + vocabulary_size * self.hidden_size

    def matrix_flops(self, vocabulary_size: int, num_tokens: int) -> int:
        """FLOPs of training on `num_tokens` tokens without attention: 6 N D."""
        return FLOPS_PER_WEIGHT * self.weights(vocabulary_size) * num_tokens

    def attention_flops(self, squared_lengths: int) -> int:
        """FLOPs of attention in training, from the sum of squared segment lengths.

        As in PaLM, all keys of a segment count for each of its queries.
        """
        sizes = self.num_layers * self.num_heads * self.head_size
        return ATTENTION_FLOPS * sizes * squared_lengths

    def training_flops(self, vocabulary_size: int, num_tokens: int, squared_lengths: int) -> int:
        """FLOPs of training on segments with `num_tokens` tokens, including attention."""
        matrices = self.matrix_flops(vocabulary_size, num_tokens)
        return matrices + self.attention_flops(squared_lengths)

    def activation_bytes(self, num_tokens: int) -> int:
        """Bytes that all layers keep for the backward pass, without attention scores.

        Counted as in Korthikanti et al. 2022 (arXiv 2205.05198, 4.1), with 2 bytes per number: the
        inputs of norms, matrices, attention and the feed-forward block. For GPT, including dropout
        masks, this gives their 34 bytes per token, layer and hidden unit; Llama has no dropout.
        Kernels that recompute scores (FlashAttention, arXiv 2205.14135) keep nothing else.
        """
        queries, keys = self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        norms = 2 * self.hidden_size
        attention = self.hidden_size + queries + 2 * keys + queries
        feed_forward = self.hidden_size + (4 if self.gated else 2) * self.feed_forward_size
        layer = HALF_BYTES * (norms + attention + feed_forward)
        if self.has_dropout:
            layer += 2 * self.hidden_size
        return self.num_layers * layer * num_tokens

    def score_bytes(self, squared_lengths: int) -> int:
        """Bytes of attention scores that all layers keep, from the sum of squared row lengths.

        This only applies to kernels that store the scores. A score takes 5 bytes with dropout
        (softmax, mask and masked result; arXiv 2205.05198, 4.1) and 2 without (softmax).
        """
        each = 2 * HALF_BYTES + 1 if self.has_dropout else HALF_BYTES
        return each * self.num_layers * self.num_heads * squared_lengths

    def checkpointed_bytes(self, num_tokens: int) -> int:
        """Bytes of the input of each layer, if the rest is recomputed (the same paper, 5)."""
        return HALF_BYTES * self.num_layers * self.hidden_size * num_tokens

    def kv_cache_bytes(self, num_tokens: int) -> int:
        """Bytes of the keys and values of `num_tokens` tokens of context in inference.

        2 n_layers n_kv_heads d_head numbers per token (Shazeer 2019, arXiv 1911.02150).
        """
        numbers = 2 * self.num_layers * self.num_kv_heads * self.head_size
        return HALF_BYTES * numbers * num_tokens

    @property
    def has_dropout(self) -> bool:
        """Whether the model is trained with dropout, as assumed for GPT-2 and GPT-3 shapes."""
        return self.biased


def embedding_parameters(vocabulary_size: int, hidden_size: int, *, tied: bool) -> int:
    """Parameters of the embedding, and of the output matrix if it is not tied."""
    return vocabulary_size * hidden_size * (1 if tied else 2)


def training_bytes(num_parameters: int) -> int:
    """Bytes of the parameters in training with Adam in mixed precision, over all ranks."""
    return TRAINING_BYTES_PER_PARAMETER * num_parameters


def logit_bytes(vocabulary_size: int, num_tokens: int) -> int:
    """Bytes of the logits of a micro-batch of `num_tokens` tokens, if all are kept at once."""
    return LOGIT_BYTES * vocabulary_size * num_tokens


def named_shape(name: str) -> ModelShape:
    """Return the shape of a published model; a size alone also works: 7b is llama-2-7b.

    Raises:
        UserError: the name is unknown.
    """
    name = BY_SIZE.get(name.lower(), name)
    if name not in SHAPES:
        raise UserError(
            f"cannot find a model shape named {name!r}",
            why=f"the shapes are {', '.join(SHAPES)}; the sizes are {', '.join(BY_SIZE)}",
            hint=did_you_mean(name, [*SHAPES, *BY_SIZE], "give the sizes of the model instead"),
        )
    return SHAPES[name]


def custom_shape(
    hidden_size: int,
    num_layers: int,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    feed_forward_size: int | None = None,
    tied: bool = False,
) -> ModelShape:
    """Return the shape of a model like Llama, with default sizes for those not given.

    By default, heads have size 128, keys and values have as many heads as queries, and the
    feed-forward size is 8/3 of the hidden size, rounded up to a multiple of 256.

    Raises:
        UserError: a size is below 1, or the heads do not divide the hidden size.
    """
    num_heads = max(hidden_size // 128, 1) if num_heads is None else num_heads
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    if feed_forward_size is None:
        feed_forward_size = -(-8 * hidden_size // (3 * 256)) * 256
    sizes = (hidden_size, num_layers, num_heads, num_kv_heads, feed_forward_size)
    if min(sizes) < 1:
        raise UserError("every size of a model must be at least 1", why=f"got {sizes}")
    if hidden_size % num_heads or num_heads % num_kv_heads:
        raise UserError(
            "num_heads must divide hidden_size, and num_kv_heads must divide num_heads",
            why=f"hidden_size is {hidden_size}, num_heads {num_heads}, num_kv_heads {num_kv_heads}",
        )
    return ModelShape(
        "custom", hidden_size, num_layers, num_heads, num_kv_heads, hidden_size // num_heads,
        feed_forward_size, gated=True, vocabulary_size=0, tied=tied,
    )  # fmt: skip


def shape_of_size(parameters: float, *, tied: bool = False) -> ModelShape:
    """Return a shape like Llama with about `parameters` parameters outside the vocabulary.

    The hidden size is 128 times the number of layers, so L layers have about 12 L (128 L)^2
    weights.

    Raises:
        UserError: one layer has more parameters than that.
    """
    num_layers = round((parameters / (12 * USUAL_ASPECT**2)) ** (1 / 3)) if parameters > 0 else 0
    if num_layers < 1:
        why = f"got {parameters:,.0f}; a single layer has {12 * USUAL_ASPECT**2:,}"
        raise UserError("too few parameters for a model", why=why)
    return custom_shape(USUAL_ASPECT * num_layers, num_layers, tied=tied)


def _gpt(
    name: str, hidden_size: int, num_layers: int, num_heads: int, positions: int
) -> ModelShape:
    return ModelShape(
        name, hidden_size, num_layers, num_heads, num_heads, hidden_size // num_heads,
        4 * hidden_size, gated=False, vocabulary_size=50257, tied=True, biased=True,
        num_positions=positions,
    )  # fmt: skip


def _llama(
    name: str,
    hidden_size: int,
    num_layers: int,
    heads: tuple[int, int, int],
    feed_forward_size: int,
    vocabulary_size: int,
    tied: bool = False,
) -> ModelShape:
    """Return a shape; `heads` are the query heads, the key-value heads, and the head size."""
    return ModelShape(
        name, hidden_size, num_layers, *heads, feed_forward_size,
        gated=True, vocabulary_size=vocabulary_size, tied=tied,
    )  # fmt: skip


SHAPES = {
    shape.name: shape
    for shape in (
        # GPT-2: config.json of openai-community/gpt2*. GPT-3 XL: arXiv 2005.14165, table 2.1, with
        # 16 heads of 128: the table's 24 heads contradict its 2048 dimensions and 1.3 B parameters.
        _gpt("gpt2", 768, 12, 12, 1024),
        _gpt("gpt2-medium", 1024, 24, 16, 1024),
        _gpt("gpt2-large", 1280, 36, 20, 1024),
        _gpt("gpt2-xl", 1600, 48, 25, 1024),
        _gpt("gpt3-xl", 2048, 24, 16, 2048),
        # The config.json of each model's repository on the Hugging Face Hub.
        _llama("smollm2-135m", 576, 30, (9, 3, 64), 1536, 49152, tied=True),
        _llama("tinyllama-1.1b", 2048, 22, (32, 4, 64), 5632, 32000),
        _llama("llama-3.2-1b", 2048, 16, (32, 8, 64), 8192, 128256, tied=True),
        _llama("llama-2-7b", 4096, 32, (32, 32, 128), 11008, 32000),
        _llama("llama-2-13b", 5120, 40, (40, 40, 128), 13824, 32000),
        _llama("llama-2-70b", 8192, 80, (64, 8, 128), 28672, 32000),
        _llama("llama-3-8b", 4096, 32, (32, 8, 128), 14336, 128256),
        _llama("llama-3-70b", 8192, 80, (64, 8, 128), 28672, 128256),
    )
}
"""Published models by name."""
BY_SIZE = {
    "135m": "smollm2-135m",
    "1b": "llama-3.2-1b",
    "1.1b": "tinyllama-1.1b",
    "1.3b": "gpt3-xl",
    "7b": "llama-2-7b",
    "8b": "llama-3-8b",
    "13b": "llama-2-13b",
    "70b": "llama-3-70b",
}
"""The model that a size alone stands for."""
