"""The layout trl in TRL: its own collator and trainer, against our loader on the same rows."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokenmill

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL is not installed", allow_module_level=True)
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
torch = pytest.importorskip("torch")

STEPS, LEARNING_RATE = 20, 0.1
PAIRS = [(f"Is {number} even?", "Yes." if number % 2 == 0 else "No.") for number in range(40)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Prompts without loss and completions, several in each row of 64 tokens."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps({"prompt": prompt, "completion": text}) for prompt, text in PAIRS]
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")
    options = {"chat": "prompt-completion", "sequence_length": 64, "workers": 1}
    tokenmill.build(folder / "chats.jsonl", tokenizer_path, folder / "out", **options)
    return folder / "out"


@pytest.fixture(scope="module")
def rows(corpus: Path) -> Any:
    tokenmill.export(corpus, corpus.parent / "rows", layout="trl")
    return datasets.load_from_disk(str(corpus.parent / "rows"))


def new_model() -> Any:
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=400, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def losses_of_our_loader(corpus: Path, num_rows: int) -> list[float]:
    """Each step trains on all rows, so that their order does not matter."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    batch = next(iter(tokenmill.open(corpus).loader(batch_size=num_rows)))
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "labels")}
    losses = []
    for _ in range(STEPS):
        loss = model(**inputs, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_20_steps_of_sft_trainer_have_the_losses_of_our_loader(
    corpus: Path, rows: Any, tmp_path: Path, tokenizer_path: Path
) -> None:
    from trl import SFTConfig, SFTTrainer

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_path), eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    options = SFTConfig(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=len(rows),
        learning_rate=LEARNING_RATE, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0,
        logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        bf16=False, gradient_checkpointing=False, padding_free=True, max_length=None,
    )  # fmt: skip
    trainer = SFTTrainer(new_model(), options, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses == pytest.approx(losses_of_our_loader(corpus, len(rows)), abs=1e-4)
    assert losses[-1] < losses[0] / 2


def test_a_document_does_not_see_another(rows: Any) -> None:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    model, collator = new_model().eval(), DataCollatorForLanguageModeling(0, padding_free=True)
    before, first = rows[0], rows[0]["seq_lengths"][0]
    assert len(before["seq_lengths"]) > 2
    changed = {**before, "input_ids": [*range(100, 100 + first), *before["input_ids"][first:]]}
    with torch.no_grad():
        logits = [model(**collator([row]), use_cache=False).logits[0] for row in (before, changed)]
    assert (logits[0][:first] != logits[1][:first]).any()
    assert torch.equal(logits[0][first:], logits[1][first:])
