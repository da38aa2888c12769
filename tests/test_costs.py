"""Parameters, FLOPs and memory of models, against what was published of them."""

from __future__ import annotations

import pytest

from tokenmill.core.errors import UserError
from tokenmill.packing.costs import (
    SHAPES,
    ModelShape,
    custom_shape,
    logit_bytes,
    named_shape,
    shape_of_size,
    training_bytes,
)

PUBLISHED_PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "smollm2-135m": 134_515_008,
    "tinyllama-1.1b": 1_100_048_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
}
"""As the checkpoints hold them, in tensors of their state dicts."""

TINY = ModelShape(
    "tiny", 4, 2, num_heads=2, num_kv_heads=1, head_size=3, feed_forward_size=10,
    gated=True, vocabulary_size=100, tied=False,
)  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    shape = named_shape(name)
    assert shape.parameters(shape.vocabulary_size) == PUBLISHED_PARAMETERS[name]


def test_gpt3_xl_has_about_as_many_as_its_name_says() -> None:
    shape = SHAPES["gpt3-xl"]
    assert 1.30e9 < shape.parameters(shape.vocabulary_size) < 1.33e9


def test_parameters_of_a_tiny_model_by_hand() -> None:
    queries_and_output, keys_and_values = 2 * 4 * 6, 2 * 4 * 3
    layer = queries_and_output + keys_and_values + 3 * 4 * 10
    assert TINY.layer_weights == layer
    assert TINY.non_vocabulary_parameters == 2 * (layer + 2 * 4) + 4
    assert TINY.embedding_parameters(100) == 2 * 100 * 4
    assert TINY.weights(100) == 2 * layer + 100 * 4


def test_flops_of_a_tiny_model_by_hand() -> None:
    assert TINY.matrix_flops(100, 7) == 6 * TINY.weights(100) * 7
    segments = [3, 4]
    squares = sum(length**2 for length in segments)
    heads = 2 * 3
    assert TINY.attention_flops(squares) == 12 * 2 * heads * squares
    assert TINY.training_flops(100, 7, squares) == 6 * TINY.weights(100) * 7 + 12 * 12 * squares


def test_attention_of_palm_540b_is_the_share_that_its_appendix_gives() -> None:
    """118 layers, 48 heads of 256, 2048 tokens: 12 l h q s FLOPs a token, beside 6 x 540e9."""
    palm = ModelShape("palm", 18432, 118, 48, 1, 256, 4 * 18432, False, 256000, True)
    assert palm.attention_flops(2048**2) == 12 * 118 * 48 * 256 * 2048 * 2048


def test_memory_of_parameters_and_of_logits() -> None:
    assert training_bytes(10) == 160
    assert logit_bytes(vocabulary_size=50257, num_tokens=2) == 4 * 2 * 50257


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UserError, match=r"(?s)cannot find a model shape named 'lama-3-8b'.*llama-3-8b"
    ):
        named_shape("lama-3-8b")


def test_a_custom_shape_has_the_usual_sizes() -> None:
    shape = custom_shape(2048, 24)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_size) == (16, 16, 128)
    assert shape.feed_forward_size == 5632
    grouped = custom_shape(4096, 32, num_heads=32, num_kv_heads=8, feed_forward_size=14336)
    llama = named_shape("llama-3-8b")
    assert grouped.parameters(128256) == llama.parameters(128256)


def test_a_shape_whose_heads_do_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="num_heads must divide hidden_size"):
        custom_shape(100, 2, num_heads=3)
    with pytest.raises(UserError, match="must be at least 1"):
        custom_shape(128, 0)


# Memory of a sequence.

GPT3 = ModelShape(
    "gpt3", 12288, 96, num_heads=96, num_kv_heads=96, head_size=128, feed_forward_size=4 * 12288,
    gated=False, vocabulary_size=51200, tied=True, biased=True, num_positions=2048,
)  # fmt: skip


def test_activations_of_gpt3_are_those_of_the_paper() -> None:
    """Equation 1 of arXiv 2205.05198: s b h (34 + 5 a s / h) a layer; 5 a s / h is 80 for GPT-3."""
    tokens = 2048
    assert GPT3.activation_bytes(tokens) == 34 * tokens * 12288 * 96
    assert GPT3.score_bytes(tokens**2) == 80 * tokens * 12288 * 96
    assert GPT3.checkpointed_bytes(tokens) == 2 * tokens * 12288 * 96


def test_activations_of_a_gated_shape_by_hand() -> None:
    """Hidden size 4, two heads of 3, one of keys, a gated block of 10; 2 layers; no dropout."""
    tiny = ModelShape("tiny", 4, 2, 2, 1, 3, 10, gated=True, vocabulary_size=100, tied=False)
    two_norms, attention_input, queries, keys_and_values, heads_output = 8, 4, 6, 2 * 3, 6
    block_input, gate_up_activated_and_product = 4, 4 * 10
    numbers = two_norms + attention_input + queries + keys_and_values + heads_output
    numbers += block_input + gate_up_activated_and_product
    assert tiny.activation_bytes(5) == 2 * 2 * numbers * 5
    assert tiny.score_bytes(5**2) == 2 * 2 * 2 * 25
    assert tiny.kv_cache_bytes(5) == 2 * 2 * 2 * 3 * 5


def test_keys_and_values_of_llama_take_what_is_known_of_them() -> None:
    """Half a MiB a token for Llama 2 7B, 2 GiB at 4,096; 128 KiB a token for Llama 3 8B."""
    assert named_shape("llama-2-7b").kv_cache_bytes(4096) == 2 << 30
    assert named_shape("llama-3-8b").kv_cache_bytes(1) == 128 << 10


def test_a_size_alone_names_the_usual_model() -> None:
    assert named_shape("7b").name == "llama-2-7b"
    assert named_shape("70B").name == "llama-3-70b"


@pytest.mark.parametrize(
    ("parameters", "layers", "hidden_size"), [(6.5e9, 32, 4096), (1.3e9, 19, 2432)]
)
def test_a_number_of_parameters_makes_a_usual_shape(
    parameters: float, layers: int, hidden_size: int
) -> None:
    shape = shape_of_size(parameters)
    assert (shape.num_layers, shape.hidden_size) == (layers, hidden_size)
    assert shape.non_vocabulary_parameters == pytest.approx(parameters, rel=0.1)


def test_fewer_parameters_than_a_layer_are_refused() -> None:
    with pytest.raises(UserError, match="too few parameters for a model"):
        shape_of_size(1000)
