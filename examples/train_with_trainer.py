"""The same data through Hugging Face's Trainer, stopped and resumed with the same losses.

    python examples/train_with_trainer.py --interrupt-at 30
    python examples/train_with_trainer.py

- The default columns of the loader keep documents in a row apart. With an `attention_mask`, or with
  a cache, the model would see one long text.
- Batches may be fetched before they are trained on, so the loader cannot know where training
  stands. Trainer knows: `loader.state_dict(step)`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

try:
    import accelerate  # noqa: F401 - what the Trainer runs on
    import transformers
    from torch.utils.data import DataLoader
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[all,examples]'") from error

from training import open_dataset, parse_options


class PackedTrainer(transformers.Trainer):
    """A Trainer whose batches come from a loader as they are."""

    def get_train_dataloader(self) -> DataLoader:
        """The loader has shuffled, batched and dealt to ranks; nothing is left to collate."""
        return self.train_dataset.dataloader()


class KeepPlace(transformers.TrainerCallback):
    """Writes the loader's state into every checkpoint, and stops where it is asked to."""

    def __init__(self, loader: Any, interrupt_at: int | None) -> None:
        self.loader, self.interrupt_at = loader, interrupt_at

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any, **_others: Any) -> None:
        """Print the loss with all its digits."""
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_others: Any) -> None:
        """Stop, and save first."""
        if state.global_step == self.interrupt_at:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """The loader's step counts its batches: several of them make one of Trainer's."""
        step = state.global_step * args.gradient_accumulation_steps
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loader.json"
        path.write_text(json.dumps(self.loader.state_dict(step)))


def main() -> None:
    """Train with Trainer."""
    options = parse_options(__doc__)
    dataset = open_dataset(options)
    loader = dataset.loader(
        options.plan,
        batch_size=options.batch_size // options.micro_batches,
        epochs=None,
        labels="aligned",  # the model shifts
    )
    folder = options.out / "trainer"
    checkpoint = get_last_checkpoint(str(folder)) if folder.exists() else None
    if checkpoint is not None:
        loader.load_state_dict(json.loads((Path(checkpoint) / "loader.json").read_text()))
        print(f"resumed after step {loader.step // options.micro_batches}")

    transformers.set_seed(0)
    vocab_size = dataset.manifest.tokenizer.largest_id + 1
    sizes = {"hidden_size": 128, "intermediate_size": 512}
    layers = {"num_hidden_layers": 4, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=vocab_size, **sizes, **layers, tie_word_embeddings=True
    )
    trainer = PackedTrainer(
        model=transformers.LlamaForCausalLM(config),
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=options.steps,
            gradient_accumulation_steps=options.micro_batches,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_steps=options.steps,
            ignore_data_skip=True,  # the loader begins at the right batch
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=loader,
        callbacks=[KeepPlace(loader, options.interrupt_at)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
