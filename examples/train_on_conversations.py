"""Conversations to packed rows, and TRL's SFTTrainer on them: loss on the assistant's turns only.

    python examples/train_on_conversations.py

tokenmill renders, masks and packs once, before training. SFTTrainer gets finished rows, so it
neither tokenizes nor packs, and `collator(model)` keeps the conversations of a row apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

try:
    import datasets
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[all,examples]'") from error

import tokenmill
from corpus import train_tokenizer
from tokenmill.hf import collator

SEQUENCE_LENGTH = 128
CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi"}


def write_conversations(path: Path, count: int = 200) -> None:
    """Two questions and their answers in each line, with a system message in some."""
    countries = list(CAPITALS)
    with path.open("w") as file:
        for number in range(count):
            first, second = (countries[(number + step) % len(countries)] for step in (0, 1))
            messages = [{"role": "system", "content": "Answer briefly."}] if number % 3 else []
            for country in (first, second):
                messages += [
                    {"role": "user", "content": f"What is the capital of {country}?"},
                    {"role": "assistant", "content": f"It is {CAPITALS[country]}."},
                ]
            file.write(json.dumps({"messages": messages}) + "\n")


def save_tokenizer(folder: Path, texts: Path) -> None:
    """A small tokenizer that knows the special tokens of ChatML."""
    special_tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    file = train_tokenizer(folder.with_suffix(".json"), [texts], special_tokens)
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_file=str(file), **ends).save_pretrained(folder)


def packed_rows(work: Path) -> Any:
    """Build, pack and export: a data set with input_ids, labels and position_ids."""
    conversations = work / "conversations.jsonl"
    write_conversations(conversations)
    save_tokenizer(work / "tokenizer", conversations)
    report = tokenmill.build(
        conversations, work / "tokenizer", work / "dataset",
        chat="messages", chat_template="chatml", sequence_length=SEQUENCE_LENGTH,
    )  # fmt: skip
    tokenmill.export(report.out, work / "rows", format="datasets")
    return datasets.load_from_disk(str(work / "rows"))


def train(work: Path, steps: int) -> list[float]:
    """The loss of every step."""
    set_seed(0)
    rows = packed_rows(work)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=SEQUENCE_LENGTH,
        )
    )  # fmt: skip
    options = SFTConfig(
        output_dir=str(work / "run"), max_steps=steps, learning_rate=1e-2, use_cpu=True,
        per_device_train_batch_size=4, logging_steps=1, save_strategy="no", report_to=[],
        disable_tqdm=True, remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    trainer = SFTTrainer(
        model,
        options,
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=collator(model),
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main() -> None:
    """Train, and print the losses."""
    parser = argparse.ArgumentParser(description="Train on conversations with TRL.")
    parser.add_argument("--out", type=Path, default=Path("runs/conversations"))
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for step, loss in enumerate(train(options.out, options.steps), 1):
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
