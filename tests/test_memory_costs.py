"""Memory of a sequence, against the formulas that were published."""

from __future__ import annotations

import pytest

from tokenmill.core.errors import UserError
from tokenmill.pack.costs import ModelShape, named_shape, shape_of_size

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
