"""Every documented way to train keeps documents of a row apart, and controls show that it matters.

The leak is the largest difference between the logits of a document in its row and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from loading_kit import PAD, as_lists
from resume_kit import sharded

import tokenmill
from tokenmill.core.errors import UserError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

from tokenmill.hf import collator  # noqa: E402
from tokenmill.load.columns import DEFAULT_COLUMNS  # noqa: E402
from tokenmill.load.loader import as_tensors  # noqa: E402
from tokenmill.load.masks import Causal, Grid  # noqa: E402
from tokenmill.load.masks.varlen import hf_flash_kwargs  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline", "one_thread")

NONE, MUCH = 1e-12, 1e-3
Seen = list[tuple[Any, Any, Any]]
"""Ids, labels and logits of each batch that a model was given."""


@pytest.fixture(scope="module")
def offline() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterable[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = sharded(tmp_path_factory.mktemp("leak") / "corpus", per_shard=30, num_shards=1)
    tokenmill.pack(dataset, name="rows", sequence_length=96)
    return dataset.folder


@pytest.fixture(scope="module")
def export(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Exports rows, and opens them as Hugging Face datasets does."""

    def make(**options: Any) -> Any:
        out = tmp_path_factory.mktemp("rows") / "out"
        tokenmill.export(folder, out, plan="rows", format="datasets", **options)
        return datasets.load_from_disk(str(out))

    return make


def tiny_model(attention: str = "sdpa", kind: str = "llama", hidden_size: int = 16) -> Any:
    """In float64, of random weights that are large enough to show every leak."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=12, hidden_size=hidden_size, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=96, bos_token_id=0, eos_token_id=0,
        pad_token_id=PAD, initializer_range=0.5, attn_implementation=attention,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).double()


@pytest.fixture
def model() -> Any:
    return tiny_model()


def watched(model: Any) -> Seen:
    """What the model is given from now on, and its logits."""
    seen: Seen = []
    hidden: list[Any] = []  # SFTTrainer computes losses without logits

    def keep(_module: Any, _args: Any, given: dict[str, Any], _output: Any) -> None:
        logits = model.lm_head(hidden[-1]).detach()
        seen.append((given["input_ids"], given["labels"], logits))

    model.model.register_forward_hook(
        lambda _module, _args, output: hidden.append(output.last_hidden_state)
    )
    model.register_forward_hook(keep, with_kwargs=True)
    return seen


def logits_alone(model: Any, document: Any) -> Any:
    with torch.no_grad():
        return model.lm_head(model.model(document[None], use_cache=False).last_hidden_state)[0]


def leak(model: Any, seen: Seen) -> float:
    """The largest difference over all documents; a document begins where there is no label."""
    batches = list(seen)
    assert batches
    most, num_documents = 0.0, 0
    for ids, labels, logits in batches:
        for row in range(len(ids)):
            starts = [place for place, label in enumerate(labels[row].tolist()) if label == -100]
            for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
                document = ids[row, start:stop]
                if (document == PAD).any():
                    continue
                difference = logits[row, start:stop] - logits_alone(model, document)
                most = max(most, float(difference.abs().max()))
                num_documents += 1
    assert num_documents > 2 * sum(len(ids) for ids, _, _ in batches)
    return most


def arguments(out: Path, **more: Any) -> dict[str, Any]:
    """Two steps that change no weight."""
    return {
        "output_dir": str(out), "max_steps": 2, "learning_rate": 0.0, "use_cpu": True,
        "per_device_train_batch_size": 2, "report_to": [], "disable_tqdm": True,
        "save_strategy": "no", "logging_strategy": "no", **more,
    }  # fmt: skip


# The loader.


def batch_of(folder: Path, **options: Any) -> dict[str, Any]:
    return next(iter(tokenmill.open(folder).loader("rows", global_batch_size=4, **options)))


def test_the_default_batch_of_the_loader_keeps_documents_apart(model: Any, folder: Path) -> None:
    assert model.config.use_cache  # the default of models
    seen = watched(model)
    model(**batch_of(folder))
    assert leak(model, seen) < NONE


@pytest.mark.parametrize("without", ["position_ids", "use_cache"])
def test_control_the_same_batch_leaks_without(without: str, model: Any, folder: Path) -> None:
    seen = watched(model)
    batch = batch_of(folder)
    del batch[without]
    model(**batch)
    assert leak(model, seen) > MUCH


def test_control_the_same_batch_leaks_with_an_attention_mask(model: Any, folder: Path) -> None:
    seen = watched(model)
    batch = batch_of(folder)
    model(**batch, attention_mask=torch.ones_like(batch["input_ids"]))
    assert leak(model, seen) > MUCH


def test_trainer_with_the_loader_keeps_documents_apart(
    model: Any, folder: Path, tmp_path: Path
) -> None:
    class PackedTrainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset.dataloader()

    seen = watched(model)
    loader = tokenmill.open(folder).loader("rows", global_batch_size=2)
    trained = transformers.TrainingArguments(**arguments(tmp_path))
    PackedTrainer(model, trained, train_dataset=loader).train()
    assert len(seen) == 2
    assert leak(model, seen) < NONE


# Exported rows.


def train(model: Any, out: Path, rows: Any, **more: Any) -> Seen:
    """What Trainer gives the model."""
    seen = watched(model)
    trained = transformers.TrainingArguments(**arguments(out))
    transformers.Trainer(model, trained, train_dataset=rows, **more).train()
    assert len(seen) == 2
    return list(seen)


def test_trainer_with_our_collator_keeps_documents_of_exported_rows_apart(
    model: Any, export: Callable[..., Any], tmp_path: Path
) -> None:
    rows = export()
    assert rows.column_names == ["input_ids", "labels", "position_ids"]
    seen = train(model, tmp_path, rows, data_collator=collator(model))
    assert leak(model, seen) < NONE


def boundaries_only(
    module: Any, query: Any, key: Any, value: Any, _mask: Any, *, scaling: float, **given: Any
) -> tuple[Any, None]:
    """As FlashAttention: boundaries over all rows, and `position_ids` do not count."""
    del module
    edges = given["cu_seq_lens_q"].tolist()
    assert given["cu_seq_lens_k"].tolist() == edges
    lengths = [stop - start for start, stop in pairwise(edges)]
    assert given["max_length_q"] == given["max_length_k"] == max(lengths)
    flat = [states.transpose(1, 2).flatten(0, 1) for states in (query, key, value)]
    found = [
        torch.nn.functional.scaled_dot_product_attention(
            *(part.transpose(0, 1) for part in parts), is_causal=True, scale=scaling
        ).transpose(0, 1)
        for parts in zip(*(states.split(lengths) for states in flat), strict=True)
    ]
    return torch.cat(found).view(query.transpose(1, 2).shape), None


@pytest.mark.parametrize("way", ["loader", "collator"])
def test_an_attention_that_knows_boundaries_only_keeps_documents_apart(
    way: str, folder: Path, export: Callable[..., Any]
) -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("boundaries_only", boundaries_only)
    ALL_MASK_ATTENTION_FUNCTIONS.register("boundaries_only", flash_attention_mask)
    model = tiny_model("boundaries_only")
    batch = batch_of(folder)
    if way == "collator":
        batch = collator(model)([export()[i] for i in range(4)])
    logits = model(**batch).logits.detach()
    assert leak(tiny_model(), [(batch["input_ids"], batch["labels"], logits)]) < NONE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", ["loader", "collator", "masks"])
def test_flash_attention_keeps_documents_apart(
    way: str, folder: Path, export: Callable[..., Any]
) -> None:
    pytest.importorskip("flash_attn")
    model = tiny_model("flash_attention_2", hidden_size=128).bfloat16().cuda()
    batch = batch_of(folder, columns=(*DEFAULT_COLUMNS, "segmentation"))
    grid = Grid.of_batch(batch)
    del batch["segmentation"]
    if way == "collator":
        batch = collator(model)([export()[i] for i in range(4)])
    if way == "masks":
        batch |= as_tensors(hf_flash_kwargs(Causal(), grid, num_segments=99))
    on_gpu = {
        name: value.cuda() if torch.is_tensor(value) else value for name, value in batch.items()
    }
    seen = watched(model)
    model(**on_gpu)
    largest = float(seen[0][2].abs().max())
    assert leak(model, seen) < 0.02 * largest
    seen = watched(model)
    model(**{name: value for name, value in on_gpu.items() if name != "cu_seq_lens_q"})
    assert leak(model, seen) > 0.1 * largest  # positions of several rows do not count


# TRL.

OF_TRL = pytest.mark.filterwarnings("ignore:.* is deprecated and will be removed:FutureWarning")


@pytest.fixture
def sft(tmp_path: Path) -> Callable[..., Seen]:
    """Trains with SFTTrainer; what it gives the model."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    import tokenizers

    vocabulary = {str(number): number for number in range(12)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="10"))
    known = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="10", eos_token="0"
    )

    def run(model: Any, rows: Any, collator: Any = None, **more: Any) -> Seen:
        seen = watched(model)
        trained = trl.SFTConfig(**arguments(tmp_path, **more))
        trl.SFTTrainer(
            model, trained, train_dataset=rows, data_collator=collator, processing_class=known
        ).train()
        assert len(seen) == 2
        return list(seen)

    return run


AS_DOCUMENTED = {
    "remove_unused_columns": False,
    "dataset_kwargs": {"skip_prepare_dataset": True},
}


@OF_TRL
def test_sft_trainer_with_our_collator_keeps_documents_apart(
    model: Any, export: Callable[..., Any], sft: Callable[..., Seen]
) -> None:
    seen = sft(model, export(), collator(model), **AS_DOCUMENTED)
    assert leak(model, seen) < NONE


@OF_TRL
def test_control_sft_trainer_with_its_own_collator_leaks(
    model: Any, export: Callable[..., Any], sft: Callable[..., Seen]
) -> None:
    assert leak(model, sft(model, export())) > MUCH


@OF_TRL
def test_our_collator_is_not_silent_if_sft_trainer_removes_the_positions(
    model: Any, export: Callable[..., Any], sft: Callable[..., Seen]
) -> None:
    with pytest.raises(UserError, match="rows have no position_ids") as caught:
        sft(model, export(), collator(model))
    assert "remove_unused_columns=False" in caught.value.hint


# The collator.


def test_the_batch_of_the_collator_holds_boundaries_and_neither_mask_nor_cache() -> None:
    names = ("input_ids", "labels", "position_ids")
    rows = [
        ([7, 8, 9, 3, 4], [-100, 8, 9, -100, 4], [0, 1, 2, 0, 1]),
        ([5, 6, 2], [-100, 6, -100], [0, 1, 0]),
    ]
    batch = collator()([dict(zip(names, row, strict=True)) for row in rows])
    types = {name: value.dtype for name, value in batch.items() if hasattr(value, "dtype")}
    assert types == {
        **dict.fromkeys(("input_ids", "labels", "position_ids"), torch.int64),
        **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), torch.int32),
    }
    assert as_lists(batch) == {
        "input_ids": [[7, 8, 9, 3, 4], [5, 6, 2, 0, 0]],
        "labels": [[-100, 8, 9, -100, 4], [-100, 6, -100, -100, -100]],
        "position_ids": [[0, 1, 2, 0, 1], [0, 1, 0, 0, 1]],
        "cu_seq_lens_q": [0, 3, 5, 7, 8, 10],
        "cu_seq_lens_k": [0, 3, 5, 7, 8, 10],
        "max_length_q": 3,
        "max_length_k": 3,
        "use_cache": False,
    }


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("input_ids labels", "rows have no position_ids"),
        ("input_ids labels attention_mask", "rows have no position_ids"),
        ("input_ids position_ids", "rows have no labels"),
        ("input_ids labels position_ids attention_mask", "rows have an attention_mask"),
    ],
)
def test_rows_that_would_leak_are_refused(columns: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        collator()([{name: [0, 1] for name in columns.split()}])
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["opt", "falcon"])
def test_a_model_that_does_not_look_at_positions_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match="does not keep documents of a row apart") as caught:
        collator(tiny_model("eager", kind))
    assert "of the change in its own logits" in caught.value.why


def test_labels_of_the_next_token_would_be_shifted_twice_and_are_refused() -> None:
    row = {"input_ids": [5, 6, 7], "labels": [6, 7, -100], "position_ids": [0, 1, 2]}
    with pytest.raises(UserError, match="labels are not aligned with input_ids"):
        collator()([row])
