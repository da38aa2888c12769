"""The rows of a model follow its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.hf import resize_embeddings
from tokenmill.store.canonical import write_sealed
from tokenmill.store.embedding_plan import EmbeddingPlan


def plan(num_unchanged: int, *rows: list[int]) -> EmbeddingPlan:
    """Of a tokenizer that had ids 0 to 5."""
    return EmbeddingPlan(
        base="", tokenizer="", num_old_ids=6, num_unchanged=num_unchanged, rows=list(rows)
    )


EXTENDED = plan(6, [0, 2], [1, 1, 5])
TRIMMED = plan(2, [3], [5])


def gpt2(num_rows: int = 6, *, tied: bool = True) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=num_rows,
        n_positions=8,
        n_embd=4,
        n_layer=1,
        n_head=1,
        tie_word_embeddings=tied,
        bos_token_id=5,
        eos_token_id=5,
    )
    return GPT2LMHeadModel(config)


def gptj() -> Any:
    """A model with a bias for each id."""
    from transformers import GPTJConfig, GPTJForCausalLM

    config = GPTJConfig(
        vocab_size=6, n_positions=8, n_embd=4, n_layer=1, n_head=1, rotary_dim=2,
        bos_token_id=5, eos_token_id=5, tie_word_embeddings=False,
    )  # fmt: skip
    model = GPTJForCausalLM(config)
    model.lm_head.bias.data = torch.arange(6.0)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_means_of_old_ones(tied: bool) -> None:
    model = gpt2(tied=tied)
    weights = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    old = [weight.detach().clone() for weight in weights]
    assert resize_embeddings(model, EXTENDED) is model
    new = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    assert (new[0] is new[1]) == tied
    for before, after in zip(old, new, strict=True):
        assert after.shape == (8, 4)
        torch.testing.assert_close(after[:6], before)
        torch.testing.assert_close(after[6], before[[0, 2]].mean(0))
        torch.testing.assert_close(after[7], before[[1, 1, 5]].mean(0))
    assert model.config.vocab_size == 8
    assert model(torch.tensor([[6, 7]])).logits.shape == (1, 2, 8)


def test_kept_rows_move_and_ids_of_configurations_follow() -> None:
    model = gpt2()
    old = model.get_input_embeddings().weight.detach().clone()
    resize_embeddings(model, TRIMMED)
    torch.testing.assert_close(model.get_input_embeddings().weight.data, old[[0, 1, 3, 5]])
    assert model.config.eos_token_id == model.generation_config.eos_token_id == 3


def test_a_bias_follows() -> None:
    model = resize_embeddings(gptj(), EXTENDED)
    assert model.lm_head.bias.tolist() == [0, 1, 2, 3, 4, 5, 1.0, pytest.approx(7 / 3)]
    assert resize_embeddings(gptj(), TRIMMED).lm_head.bias.tolist() == [0, 1, 3, 5]


def test_rows_that_pad_a_matrix_are_used() -> None:
    model = gpt2(num_rows=16)
    old = model.get_input_embeddings().weight.detach().clone()
    resize_embeddings(model, EXTENDED)
    weight = model.get_input_embeddings().weight
    assert weight.shape == (16, 4)
    torch.testing.assert_close(weight[7], old[[1, 1, 5]].mean(0))


def test_matrices_can_be_padded() -> None:
    model = resize_embeddings(gpt2(), EXTENDED, pad_to_multiple_of=8 * 2)
    assert model.get_input_embeddings().weight.shape == (16, 4)


def test_half_precision_is_kept() -> None:
    model = resize_embeddings(gpt2().to(torch.bfloat16), EXTENDED)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_a_plan_is_read_from_its_folder(tmp_path: Path) -> None:
    write_sealed(tmp_path / "embeddings.json", TRIMMED)
    assert resize_embeddings(gpt2(), tmp_path).get_input_embeddings().weight.shape == (4, 4)


def test_a_plan_that_names_rows_that_never_were_is_refused(tmp_path: Path) -> None:
    write_sealed(tmp_path / "embeddings.json", plan(6, [9]))
    with pytest.raises(VerificationError, match="not a plan of embedding rows"):
        resize_embeddings(gpt2(), tmp_path)


def test_a_model_of_another_tokenizer_is_refused() -> None:
    with pytest.raises(UserError, match="it has 5 embedding rows, but the tokenizer had 6 ids"):
        resize_embeddings(gpt2(num_rows=5), EXTENDED)


def test_a_configuration_that_names_a_removed_token_is_refused() -> None:
    with pytest.raises(UserError, match="bos_token_id is 5") as caught:
        resize_embeddings(gpt2(), plan(2, [3]))
    assert "was removed" in str(caught.value)
