"""Training with it: a plain loop, Hugging Face Trainer, Accelerate, Lightning; tiny random models.

Each is stopped and resumed, and has the same losses as without.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from resume_kit import sharded, through_json

import tokenmill
from tokenmill.core.errors import UserError

torch = pytest.importorskip("torch")


from tokenmill.load.loader import Loader  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("offline"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

STEPS, STOP = 6, 4
FOR_MODELS = ("input_ids", "labels", "position_ids")
Losses = list[float]


@pytest.fixture(scope="module")
def offline() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded(tmp_path_factory.mktemp("trainers") / "corpus", per_shard=40).folder


@pytest.fixture
def loader(folder: Path) -> Callable[..., Loader]:
    """Makes loaders of more than STEPS batches."""

    def make(**options: Any) -> Loader:
        options = {"global_batch_size": 16, "columns": FOR_MODELS, **options}
        return tokenmill.open(folder).loader("packed", **options)

    return make


class TinyModel(torch.nn.Module):
    """Predicts a token from the one before it and its position."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = torch.nn.Embedding(12, 8), torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 12)

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        hidden = self.tokens(batch["input_ids"]) + self.positions(batch["position_ids"])
        logits = self.head(hidden[:, :-1]).transpose(1, 2)
        return torch.nn.functional.cross_entropy(logits, batch["labels"][:, 1:])


def train(model: TinyModel, optimizer: Any, batches: Iterable[Any], backward: Any = None) -> Losses:
    """The loss of each step."""
    losses = []
    for batch in batches:
        loss = model(batch)
        backward(loss) if backward else loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


# A plain loop.


@pytest.fixture
def plain_losses(loader: Callable[..., Loader]) -> Losses:
    model = TinyModel()
    return train(model, torch.optim.Adam(model.parameters(), 0.1), islice(loader(), STEPS))


@pytest.mark.parametrize("num_workers", [None, 2], ids=["loader", "2 workers"])
def test_a_plain_loop_is_resumed_by_the_step(
    num_workers: int | None, loader: Callable[..., Loader], plain_losses: Losses
) -> None:
    def batches(source: Loader) -> Iterable[Any]:
        return source if num_workers is None else source.dataloader(num_workers)

    model, first = TinyModel(), loader()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    losses = train(model, optimizer, islice(batches(first), STOP))
    second = loader()
    second.load_state_dict(through_json(first.state_dict(step=STOP)))
    losses += train(model, optimizer, islice(batches(second), STEPS - STOP))
    assert losses == plain_losses


# Hugging Face Trainer.


def tiny_llama() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=0,
        pad_token_id=10,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def hugging_face_losses(model: Any, batches: Any, folder: Path, **more: Any) -> Losses:
    """The losses of a Trainer that has our batches as they are."""
    from transformers import Trainer, TrainingArguments

    class OurTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return batches

    arguments = TrainingArguments(
        str(folder), max_steps=STEPS, logging_steps=1, learning_rate=0.01, use_cpu=True,
        report_to=[], disable_tqdm=True, save_steps=STOP, ignore_data_skip=True,
    )  # fmt: skip
    trainer = OurTrainer(model, arguments, **more)
    last = folder / f"checkpoint-{STOP}"
    trainer.train(resume_from_checkpoint=str(last) if last.exists() else None)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_a_hugging_face_trainer_is_resumed_by_the_step(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    """Its checkpoint has the model; `ignore_data_skip`, for the loader skips nothing it needs."""
    transformers = pytest.importorskip("transformers")

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, arguments: Any, state: Any, control: Any, **rest: Any) -> None:
            control.should_training_stop = state.global_step == STOP

    whole = hugging_face_losses(tiny_llama(), loader().dataloader(2), tmp_path / "whole")
    assert len(whole) == STEPS
    assert 0 < whole[-1] < whole[0] < 3
    parts, first = tmp_path / "parts", loader()
    hugging_face_losses(tiny_llama(), first.dataloader(2), parts, callbacks=[Stop()])
    second = loader()
    second.load_state_dict(through_json(first.state_dict(step=STOP)))
    assert hugging_face_losses(tiny_llama(), second.dataloader(2), parts) == whole


def test_a_loader_given_to_a_trainer_as_its_dataset_is_not_trained_on_in_silence(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    """The Trainer would make a batch of batches of it."""
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True,
        per_device_train_batch_size=2, save_strategy="no",
    )  # fmt: skip
    dataset = loader(columns=("input_ids", "labels"))
    trainer = transformers.Trainer(tiny_llama(), arguments, train_dataset=dataset)
    with pytest.raises(UserError, match="cannot make a DataLoader from a tokenmill loader"):
        trainer.train()


# Accelerate.


def test_accelerate_prepares_the_model_and_leaves_the_loader_as_it_is(
    loader: Callable[..., Loader], plain_losses: Losses
) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = TinyModel()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    batches = loader()
    model, optimizer, prepared = accelerator.prepare(model, optimizer, batches)
    assert prepared is batches
    losses = train(model, optimizer, islice(prepared, STEPS), accelerator.backward)
    assert losses == plain_losses


TWO_RANKS = """
import json, os, sys, torch, tokenmill
from accelerate import Accelerator

def loader(**ranks):
    return tokenmill.open(sys.argv[1]).loader(
        "packed", global_batch_size=16, columns=("input_ids",), **ranks
    )

def prepared(accelerator, way, ours):
    if way == "as they are":
        return [accelerator.prepare(loader(**ours)), loader(**ours).dataloader(1)]
    workers = {"num_workers": 1, "multiprocessing_context": "spawn"} if way == "spawned" else {}
    return [accelerator.prepare(loader(**ours).dataloader(**workers))]

def train(rank, ways, out):
    accelerator = Accelerator(cpu=True)
    ours = {"rank": rank, "world_size": accelerator.num_processes}
    for way in ways:
        found = [
            [batch["input_ids"] for batch in batches]
            for batches in prepared(accelerator, way, ours)
        ]
        torch.save(found, f"{out}/{rank}.pt")
    accelerator.end_training()  # else processes that still talk to each other may abort

for out, port, *ways in json.loads(sys.argv[2]):  # PyTorch is imported once for all processes
    children = []
    for rank in (0, 1):
        if not (child := os.fork()):
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
            os.dup2(os.open(f"{out}/{rank}.err", os.O_WRONLY | os.O_CREAT), 2)
            train(rank, ways, out)
            sys.exit()
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1]
"""

REFUSED = "UserError: Accelerate would split the batches of the first rank among all ranks"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def test_under_accelerate_each_of_two_ranks_has_its_rows_unless_it_divides_them_again(
    folder: Path, tmp_path: Path
) -> None:
    """A Loader, which `prepare` gives back as it is; a DataLoader, if `prepare` does not get it.

    Of one that it gets, both ranks would have rows of the first one only, and nobody the others;
    nor may workers that are spawned give them to it.
    """
    pytest.importorskip("accelerate")
    runs = {"prepared": ["as they are", "prepared"], "spawned": ["spawned"]}
    for name in runs:
        (tmp_path / name).mkdir()
    told = json.dumps([[str(tmp_path / name), free_port(), *ways] for name, ways in runs.items()])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", TWO_RANKS, folder, told],
        env={**os.environ, **common, "ACCELERATE_USE_CPU": "true"},
        check=True,
        timeout=240,
    )
    for name in runs:
        errors = [path.read_text() for path in (tmp_path / name).glob("*.err")]
        assert any(REFUSED in error for error in errors), errors
    for rank in (0, 1):
        batches = tokenmill.open(folder).batches(
            "packed", global_batch_size=16, rank=rank, world_size=2
        )
        expected = [batch["input_ids"].tolist() for batch in batches]
        of_loader, of_data_loader = torch.load(tmp_path / "prepared" / f"{rank}.pt")
        assert [ids.tolist() for ids in of_loader] == expected
        assert [ids.tolist() for ids in of_data_loader] == expected


# Lightning.


@pytest.fixture
def login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Slurm, outside its jobs: Lightning warns there, and tests must pass."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    srun = tmp_path / "slurm" / "srun"
    srun.parent.mkdir()
    srun.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def lightning_losses(tmp_path: Path, login_node: None) -> Callable[..., Losses]:
    """Trains up to a step, with a checkpoint at STOP or from that one; the losses of its steps."""
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = TinyModel()
            self.losses: Losses = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self.model(batch)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.1)

    def losses(batches: Any, stop: int, resume: bool = False) -> Losses:
        module = Module()
        checkpoint = tmp_path / "stop.ckpt"
        saving = ModelCheckpoint(tmp_path, "stop", every_n_train_steps=STOP, save_top_k=-1)
        trainer = lightning.Trainer(
            max_steps=stop, accelerator="cpu", logger=False, default_root_dir=tmp_path,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[saving],
        )  # fmt: skip
        trainer.fit(module, batches, ckpt_path=checkpoint if resume else None)
        return module.losses

    return losses


OF_LIGHTNING = [
    "ignore:The `srun` command is available on your system but is not used:UserWarning",
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:GPU available but not used:UserWarning",
    "ignore:Your `IterableDataset` has `__len__` defined:UserWarning",
    "ignore:The 'train_dataloader' does not have many workers:UserWarning",
    "ignore:Checkpoint directory .* exists and is not empty:UserWarning",
]


@pytest.mark.filterwarnings(*OF_LIGHTNING)
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended:UserWarning")
def test_lightning_with_a_data_loader_is_resumed_by_the_step(
    lightning_losses: Callable[..., Losses],
    loader: Callable[..., Loader],
    plain_losses: Losses,
) -> None:
    """Where there is no length, and Lightning is one batch ahead."""
    first = loader(epochs=None)
    assert lightning_losses(first.dataloader(2), STOP + 1) == plain_losses[: STOP + 1]
    second = loader(epochs=None)
    second.load_state_dict(through_json(first.state_dict(step=STOP)))
    assert lightning_losses(second.dataloader(2), STEPS, resume=True) == plain_losses[STOP:]
