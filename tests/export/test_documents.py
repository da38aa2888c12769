"""Exports of documents: read by Megatron and like nanoGPT, resumed, and refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import in_small_shards, write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import (
    Interrupted,
    OutputConflictError,
    StorageError,
    UserError,
    VerificationError,
)
from tokenmill.load.export import folder as export_folder
from tokenmill.load.export.documents import exporting as export_module
from tokenmill.load.export.documents import selection
from tokenmill.load.export.documents.exporting import export_documents
from tokenmill.load.rows import token_source
from tokenmill.reports.status import run_status
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import BLOCK_BYTES, file_digest
from tokenmill.store.exports import DocumentOptions
from tokenmill.store.layout import pack_index, unpack_index
from view_kit import view_of

ROOT = Path(__file__).parents[2]
READERS = [ROOT / name / "bin" / "python" for name in (".venv-readers", ".venv-readers-newest")]
SMALL = 3000
"""Bytes of a file: a few of them for each subset."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """Some hundred documents in several shards, a fifth of them held out."""
    folder = tmp_path_factory.mktemp("dataset")
    write_corpus(folder / "data", num_files=2, per_file=100)
    made = in_small_shards(folder / "data", tokenizer_path, folder / "out", validation=0.2)
    assert len(made.shards) >= 3
    return made


@pytest.fixture(scope="module")
def view(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Documents here and there, and none of the first shard."""
    first = dataset.shards[0].entry.documents
    numbers = [n for n in range(first, dataset.num_documents) if n % 7 > 2]
    return view_of(tmp_path_factory.mktemp("view") / "view", [dataset], numbers)


@pytest.fixture(params=["dataset", "view"])
def source(request: pytest.FixtureRequest) -> Dataset:
    """A dataset and a view."""
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents come in many small parts."""
    monkeypatch.setattr(selection, "PLACES_AT_ONCE", 17)
    monkeypatch.setattr(token_source, "TOKENS_AT_ONCE", 200)


def documents_of(source: Dataset) -> dict[int, tuple[str, list[int]]]:
    """The subset and the tokens of each document by its number, read without the export."""
    found, first = {}, 0
    for shard in source.shards:
        subsets = shard.documents(["subset"])["subset"].to_pylist()
        for index in shard.chosen.tolist():
            found[first + index] = (subsets[index], shard.document(index).tolist())
        first += shard.entry.documents
    return found


def expected(source: Dataset, subset: str, order: str = "corpus", seed: int = 0) -> list[list[int]]:
    """The documents of a subset in the order of an export."""
    known, numbers = documents_of(source), source.document_numbers
    places = tokenmill.Permutation(len(numbers), seed)(numbers) if order == "shuffled" else numbers
    chosen = [known[int(n)] for n in places if int(n) in known]
    return [tokens for name, tokens in chosen if name == subset]


def pairs_of(manifest: tokenmill.DocumentsManifest, subset: str) -> list[str]:
    return [part.name for part in manifest.parts if part.subset == subset]


def read_pair(prefix: Path) -> list[list[int]]:
    """The documents of a joined pair, whose index is the one that builds write."""
    data = prefix.with_name(f"{prefix.name}.idx").read_bytes()
    dtype, lengths = unpack_index(data, "")
    ids = np.fromfile(prefix.with_name(f"{prefix.name}.bin"), dtype)
    assert data == pack_index(lengths, dtype)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of the files, in which the name of the folder does not count."""
    name = str(folder).encode()
    found = {path.name: path.read_bytes().replace(name, b"OUT") for path in folder.iterdir()}
    record = json.loads(found["export.json"])
    record["digest"] = record["files"][-1] = ""  # they cover the name of the folder
    record.pop("dataset_place", None)
    return found | {"export.json": json.dumps(record).encode()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is written.


@pytest.mark.parametrize("order", ["corpus", "shuffled"])
def test_pairs_hold_the_documents_of_each_subset_in_order(
    order: Any, source: Dataset, tmp_path: Path
) -> None:
    options = DocumentOptions(order=order, seed=3, file_size=SMALL)
    manifest = export_documents(source, tmp_path / "out", options).manifest
    found = {}
    for subset in ("train", "validation"):
        files = [read_pair(tmp_path / "out" / name) for name in pairs_of(manifest, subset)]
        found[subset] = [document for documents in files for document in documents]
        assert found[subset] == expected(source, subset, order, 3)
        sizes = [sum(map(len, documents)) * 2 for documents in files]
        assert min(sizes) >= SMALL or len(sizes) == 1
        counts = [(len(documents), sum(map(len, documents))) for documents in files]
        parts = [each for each in manifest.parts if each.subset == subset]
        assert [(part.documents, part.tokens) for part in parts] == counts
    assert len(found["train"]) + len(found["validation"]) == source.num_documents
    assert len(pairs_of(manifest, "train")) > 2


def test_files_are_as_large_as_asked_for_and_few_by_default(
    dataset: Dataset, tmp_path: Path
) -> None:
    manifest = export_documents(dataset, tmp_path / "out").manifest
    assert names(tmp_path / "out") == [
        *("blend.json", "export.json", "train-00000.bin", "train-00000.idx"),
        *("validation-00000.bin", "validation-00000.idx"),
    ]
    assert manifest.options.file_size == 10_000_000_000
    for file in manifest.files:
        path = tmp_path / "out" / file.name
        assert (path.stat().st_size, file_digest(path)) == (file.bytes, file.xxh3_128)


def test_a_file_has_no_more_documents_than_megatron_can_number(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MOST_DOCUMENTS", 30)
    manifest = export_documents(dataset, tmp_path / "out").manifest
    counts = [part.documents for part in manifest.parts if part.subset == "train"]
    assert counts[:-1] == [30] * (len(counts) - 2) + [counts[-2]]
    assert sum(counts) == len(expected(dataset, "train"))
    joined = [d for name in pairs_of(manifest, "train") for d in read_pair(tmp_path / "out" / name)]
    assert joined == expected(dataset, "train")


def test_the_blend_weights_files_by_their_tokens(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = export_documents(dataset, out, DocumentOptions(file_size=SMALL)).manifest
    blend: dict[str, Any] = {"test": None}
    for subset, name in (("train", "train"), ("validation", "valid")):
        parts = [part for part in manifest.parts if part.subset == subset]
        blend[name] = [text for part in parts for text in (str(part.tokens), f"{out}/{part.name}")]
    assert json.loads((out / "blend.json").read_text()) == blend
    assert manifest.arguments == {
        "Megatron-LM": f"--per-split-data-args-path {out}/blend.json",
        "Megatron Bridge (NeMo)": f"per_split_data_args_path={out}/blend.json",
    }


def test_a_dataset_without_a_validation_subset_has_only_training_files(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two", "three"])
    built = tokenmill.build(data, tokenizer_path, tmp_path / "corpus", workers=1).dataset
    manifest = tokenmill.export_documents(built, tmp_path / "out")
    assert [part.name for part in manifest.parts] == ["train-00000"]
    assert read_pair(tmp_path / "out" / "train-00000") == expected(built, "train")
    blend = json.loads((tmp_path / "out" / "blend.json").read_text())
    assert (blend["valid"], blend["test"]) == (None, None)


# Megatron.

MEGATRON = """
import dataclasses, json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split, get_blend_from_list

class Tokenizer:
    eod, vocab_size, unique_identifiers = 0, 400, {"class": "test"}
    pad = property(lambda self: self.nothing)  # then Megatron pads with -1

blend = json.load(open(sys.argv[1]))
answer = {}
for split in ("train", "valid"):
    for prefix in get_blend_from_list(blend[split])[0]:
        by_map, by_file = IndexedDataset(prefix, mmap=True), IndexedDataset(prefix, mmap=False)
        documents = [by_map[i].tolist() for i in range(len(by_map))]
        assert documents == [by_file.get(i).tolist() for i in range(len(by_file))]
        assert by_map.document_indices.tolist() == list(range(len(by_map) + 1))
        try:
            sliced = [each.tolist() for each in by_map[0 : len(by_map)]]
        except ValueError:  # it would read beyond the end
            sliced = None
        answer[prefix] = {"documents": documents, "sliced": sliced}
        names = {field.name for field in dataclasses.fields(GPTDatasetConfig)}
        for packed in [False, True] if "inter_document_masking" in names else [False]:
            config = GPTDatasetConfig(
                random_seed=5, sequence_length=64, split="1", blend=([prefix], None),
                path_to_cache=sys.argv[2], tokenizer=Tokenizer(), reset_position_ids=True,
                reset_attention_mask=True, eod_mask_loss=True,
                **({"inter_document_masking": True} if packed else {}),
            )
            indices = np.arange(len(by_map), dtype=np.int32)
            dataset = GPTDataset(by_map, prefix, indices, None, Split.train, config)
            order = dataset.document_index.tolist()
            stream = [token for number in order for token in documents[number]]
            starts = np.cumsum([0] + [len(documents[number]) for number in order])
            document_of = np.searchsorted(starts, np.arange(len(stream)), side="right") - 1
            for sample in range(len(dataset)):
                found = dataset[sample]
                first = int(dataset.shuffle_index[sample]) * 64
                assert np.array_equal(found["tokens"], stream[first : first + 64])
                assert np.array_equal(found["labels"], stream[first + 1 : first + 65])
                at = np.arange(first, first + 64)
                within = at - np.maximum(starts[document_of[at]], first)
                assert np.array_equal(found["position_ids"], within)
                ends = np.isin(at + 1, starts)
                assert np.array_equal(found["loss_mask"], ~ends)
                own = document_of[at]
                if packed:
                    edges = np.flatnonzero(np.diff(own, prepend=-1, append=-1)).tolist()
                    assert found["cu_seqlens"].tolist() == edges + [64] * (65 - len(edges))
                else:
                    allowed = (own[:, None] == own[None, :]) & (at[:, None] >= at[None, :])
                    assert np.array_equal(found["attention_mask"][0], ~allowed)
print(json.dumps(answer))
"""


def read_by_megatron(out: Path, cache: Path, python: Path) -> dict[str, dict[str, list[list[int]]]]:
    """What Megatron reads of each prefix, by map and by file; samples and masks are checked."""
    if not python.is_file():
        pytest.skip(f"megatron-core is not installed in {python.parts[-3]}: make readers")
    command = [python, "-W", "ignore", "-c", MEGATRON, out / "blend.json", cache]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    return {Path(prefix).name: answer for prefix, answer in found.items()}


@pytest.mark.parametrize("source", ["view"], indirect=True)
@pytest.mark.parametrize("python", READERS, ids=lambda path: path.parts[-3])
def test_megatron_reads_every_document_and_masks_between_documents(
    python: Path, source: Dataset, tmp_path: Path
) -> None:
    options = DocumentOptions(order="shuffled", seed=1, file_size=SMALL)
    manifest = export_documents(source, tmp_path / "out", options).manifest
    found = read_by_megatron(tmp_path / "out", tmp_path / "cache", python)
    for subset in ("train", "validation"):
        files = [found[name] for name in pairs_of(manifest, subset)]
        read = [document for file in files for document in file["documents"]]
        assert read == expected(source, subset, "shuffled", 1)
        assert [document for file in files for document in file["sliced"]] == read


@pytest.mark.parametrize(
    ("source", "order"), [("dataset", "corpus"), ("view", "shuffled")], indirect=["source"]
)
@pytest.mark.parametrize("python", READERS, ids=lambda path: path.parts[-3])
def test_megatron_reads_indexes_over_shards_but_its_slices_are_wrong(
    python: Path, order: Any, source: Dataset, tmp_path: Path
) -> None:
    options = DocumentOptions(order=order, seed=1, index_only=True)
    manifest = export_documents(source, tmp_path / "out", options).manifest
    found = read_by_megatron(tmp_path / "out", tmp_path / "cache", python)
    known, first = documents_of(source), 0
    for number, shard in enumerate(source.shards):
        places = np.arange(shard.entry.documents)
        if order == "shuffled":
            places = tokenmill.Permutation(len(places), 1, number)(places)
        here = [known[first + n] for n in places.tolist() if first + n in known]
        for subset in ("train", "validation"):
            documents = [tokens for name, tokens in here if name == subset]
            answer = found.get(f"{subset}-{number:05d}", {"documents": [], "sliced": []})
            assert answer["documents"] == documents
            assert answer["sliced"] != documents or len(documents) < 2
        first += shard.entry.documents
    assert sum(part.documents for part in manifest.parts) == source.num_documents
    assert sum(path.stat().st_size for path in (tmp_path / "out").glob("*.idx")) == sum(
        42 + 20 * part.documents for part in manifest.parts
    )


def test_links_lead_to_the_shards_through_links_to_the_output(
    dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "short").symlink_to(tmp_path / "real" / "deep")
    out = tmp_path / "short" / "out"
    options = DocumentOptions(index_only=True)
    manifest = export_documents(dataset, out, options).manifest
    for part in manifest.parts:
        shard = dataset.shards[int(part.name[-5:])]
        assert (out / f"{part.name}.bin").samefile(shard.path("bin"))
    assert export_documents(dataset, out, options).already_there
    (out / "train-00000.bin").unlink()
    with pytest.raises(OutputConflictError) as caught:
        export_documents(dataset, out, options)
    assert caught.value.why == "its link 'train-00000.bin' leads to no file"
    assert not export_documents(dataset, out, options, overwrite=True).already_there
    assert (out / "train-00000.bin").is_file()
    assert dataset.shards[0].path("bin").is_file()


@pytest.mark.parametrize("cache", [{}, {"cache_bytes": BLOCK_BYTES}], ids=["all", "one block"])
def test_documents_of_a_bucket_are_exported_and_indexes_over_it_refused(
    cache: Any, dataset: Dataset, tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_source, "TOKENS_AT_ONCE", 1)
    location = f"s3://{bucket.name}/corpus"
    tokenmill.copy(dataset, location)
    remote = tokenmill.open(location, cache=tmp_path / "cache", **cache)
    for order in ("corpus", "shuffled"):
        options = DocumentOptions(order=order, file_size=SMALL)
        export_documents(remote, tmp_path / order, options)
        export_documents(dataset, tmp_path / "local" / order, options)
        assert contents(tmp_path / order) == contents(tmp_path / "local" / order)
        with pytest.raises(UserError, match="cannot find the dataset of the export"):
            tokenmill.verify(tmp_path / order)
        result = tokenmill.verify(tmp_path / order, dataset=location)
        assert (result.documents, result.tokens) == (dataset.num_documents, dataset.num_tokens)
    with pytest.raises(UserError, match="an index needs token files on this machine"):
        export_documents(remote, tmp_path / "out", DocumentOptions(index_only=True))
    assert not (tmp_path / "out").exists()


# nanoGPT.


@pytest.mark.parametrize("order", ["corpus", "shuffled"])
def test_nanogpt_reads_train_and_val(order: Any, source: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = tokenmill.export_documents(source, out, format="nanogpt", order=order, seed=2)
    assert names(out) == ["export.json", "train.bin", "val.bin"]
    assert (manifest.dtype, manifest.arguments) == ("uint16", {})
    for split, subset in (("train", "train"), ("val", "validation")):
        data = np.memmap(out / f"{split}.bin", dtype=np.uint16, mode="r")
        stream = [token for tokens in expected(source, subset, order, 2) for token in tokens]
        assert len(data) == len(stream)
        block = 32  # what get_batch() of nanoGPT's train.py does, from every place
        x = np.stack([data[i : i + block].astype(np.int64) for i in range(len(data) - block)])
        y = np.stack([data[i + 1 : i + 1 + block].astype(np.int64) for i in range(len(x))])
        assert x[:, 0].tolist() == stream[:-block]
        assert y[:, -1].tolist() == stream[block:]


def test_ids_that_do_not_fit_uint16_are_uint32_for_nanogpt(
    tmp_path: Path, tokenizer_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = json.loads(tokenizer_path.read_text())
    large["model"]["vocab"] |= {f"unused{i}": 400 + i for i in range(66_000)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(large))
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    built = tokenmill.build(data, tmp_path / "tokenizer.json", tmp_path / "out", workers=1).dataset
    assert tokenmill.export_documents(built, tmp_path / "n", format="nanogpt").dtype == "uint32"
    assert caplog.messages == ["nanoGPT needs val.bin, but the dataset has no validation documents"]
    tokens = np.fromfile(tmp_path / "n" / "train.bin", np.uint32).tolist()
    assert tokens == [token for document in expected(built, "train") for token in document]
    assert tokenmill.export_documents(built, tmp_path / "m").dtype == "int32"
    assert read_pair(tmp_path / "m" / "train-00000") == expected(built, "train")


# Kills, and what is at the output.

KILLED = """
import os, signal, sys
from tokenmill.cli import main
from tokenmill.load.export.documents import format as document_format
from tokenmill.load.export import folder
from tokenmill.load.export.documents import selection
from tokenmill.load.rows import token_source

selection.PLACES_AT_ONCE, token_source.TOKENS_AT_ONCE = 17, 200
point, count = sys.argv[1], int(sys.argv[2])
places = {
    "choosing": (selection, "_held_out"),
    "writing": (document_format.TokenFile, "append"),
    "finishing": (document_format.TokenFile, "finish"),
    "recording": (folder.Unfinished, "finish"),
    "removing": (folder.shutil, "rmtree"),
}
owner, name = places[point]
really, calls = getattr(owner, name), iter(range(1000))

def killed(*arguments, **options):
    if next(calls) == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return really(*arguments, **options)

setattr(owner, name, killed)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("point", "count", "kept"),
    [
        ("choosing", 1, 0),
        ("writing", 3, 0),
        ("writing", 30, 4),
        ("finishing", 2, 4),
        ("recording", 1, 2),
        ("removing", 0, "all"),
    ],
)
def test_a_killed_export_continues_and_equals_one_that_was_not(
    point: str, count: int, kept: Any, dataset: Dataset, tmp_path: Path
) -> None:
    given = f"--format megatron --order shuffled --seed 9 --file-size {SMALL}"
    out = tmp_path / "out"
    command = ["export", str(dataset.folder), "--out", str(out), *given.split()]
    killing = [sys.executable, "-c", KILLED, point, str(count), *command]
    killed = subprocess.run(killing, capture_output=True, timeout=100)
    assert killed.returncode == -9, killed.stderr
    assert out.exists() == (kept == "all")
    options = DocumentOptions(order="shuffled", seed=9, file_size=SMALL)
    report = export_documents(dataset, out, options)
    export_documents(dataset, tmp_path / "undisturbed", options)
    assert report.already_there == (kept == "all")
    assert report.files_kept == (0 if kept == "all" else kept)
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert names(tmp_path) == ["out", "undisturbed"]


def test_an_index_only_export_that_was_stopped_continues(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> Any:
        raise Interrupted(2)

    out, options = tmp_path / "out", DocumentOptions(index_only=True)
    with monkeypatch.context() as patch:
        patch.setattr(export_module, "take_name", stop)
        with pytest.raises(Interrupted):
            export_documents(dataset, out, options)
    report = export_documents(dataset, out, options)
    assert report.files_kept == len(report.manifest.parts) > 3
    assert (out / "train-00000.bin").samefile(dataset.shards[0].path("bin"))


def test_rows_and_documents_replace_each_other_only_if_that_is_asked_for(
    dataset: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    tokenmill.pack(dataset, folder=tmp_path / "plan", sequence_length=32)
    tokenmill.export(dataset, out, plan=tmp_path / "plan")
    with pytest.raises(OutputConflictError) as caught:
        export_documents(dataset, out)
    assert caught.value.why == "format: parquet, not megatron"
    export_documents(dataset, out, overwrite=True)
    assert tokenmill.export_documents(dataset, out).num_documents == dataset.num_documents
    with pytest.raises(OutputConflictError) as caught:
        export_documents(dataset, out, DocumentOptions(file_size=7, seed=1))
    assert caught.value.why == "seed: 0, not 1; file_size: 10000000000, not 7"
    with pytest.raises(OutputConflictError) as caught:
        export_documents(dataset, out, DocumentOptions(format="nanogpt"))
    assert caught.value.why == "format: megatron, not nanogpt"
    with pytest.raises(OutputConflictError) as caught:
        tokenmill.export(dataset, out, plan=tmp_path / "plan")
    assert caught.value.why == "format: megatron, not parquet"
    tokenmill.export(dataset, out, plan=tmp_path / "plan", overwrite=True)
    assert names(out) == ["export.json", "rows-32-00000.parquet"]


def test_another_unfinished_export_is_a_conflict(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(export_module, "take_name", stop)
        with pytest.raises(KeyboardInterrupt):
            export_documents(dataset, tmp_path / "out")
    tokenmill.pack(dataset, folder=tmp_path / "plan", sequence_length=32)
    with pytest.raises(OutputConflictError) as caught:
        tokenmill.export(dataset, tmp_path / "out", plan=tmp_path / "plan")
    assert caught.value.why == "format: megatron, not parquet"


def test_an_export_that_does_not_fit_on_the_disk_is_refused(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = 2 * dataset.num_tokens + 2 * 42 + 20 * dataset.num_documents
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed - 1))
        with pytest.raises(StorageError, match="not enough disk space") as caught:
            export_documents(dataset, tmp_path / "out")
        assert caught.value.why.startswith("the export needs ")
        assert names(tmp_path) == []
        patch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed))
        export_documents(dataset, tmp_path / "out")


@pytest.mark.parametrize("part", ["bin", "idx"])
def test_a_damaged_shard_is_not_exported(part: str, dataset: Dataset, tmp_path: Path) -> None:
    shutil.copytree(dataset.folder, tmp_path / "copy")
    copied = Dataset(tmp_path / "copy")
    path = copied.shards[1].path(part)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError) as caught:
        export_documents(copied, tmp_path / "out")
    assert caught.value.where == str(path)
    assert names(tmp_path) == ["copy"]


def test_a_full_disk_keeps_finished_files(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended, calls = export_module.TokenFile.append, iter(range(1000))

    def fail_later(*arguments: Any) -> None:
        if next(calls) == 30:
            raise OSError(28, "No space left on device")
        appended(*arguments)

    options = DocumentOptions(file_size=SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(export_module.TokenFile, "append", fail_later)
        with pytest.raises(StorageError) as caught:
            export_documents(dataset, tmp_path / "out", options)
    assert caught.value.__notes__[-1] == "4 finished files are kept"
    assert export_documents(dataset, tmp_path / "out", options).files_kept == 4


def test_progress_is_told_and_stored(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folder, "REPORT_SECONDS", 0.0)
    told: list[tuple[str, int, int]] = []

    def advance(stage: str, done: int, total: int) -> None:
        told.append((stage, done, total))
        status = run_status(tmp_path / "out")
        assert (status.kind, status.stage) == ("export", stage)

    export_documents(dataset, tmp_path / "out", advance=advance)
    assert list(dict.fromkeys(stage for stage, *_ in told)) == ["choosing", "planning", "writing"]
    assert told[-1] == ("writing", 2 * dataset.num_tokens, 2 * dataset.num_tokens)
    assert run_status(tmp_path / "out").documents == dataset.num_documents


# The command.


def test_the_command_prints_what_trainers_need(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, train = tmp_path / "o", expected(dataset, "train")
    given = ["export", str(dataset.folder), "--out", str(out), "--format", "megatron"]
    assert main([*given, "--index-only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = len(dataset.shards)
    assert lines[0] == (
        f"train: {len(train)} documents, {sum(map(len, train)):,} tokens in {files} files"
    )
    assert lines[2:5] == [
        "uint16; documents end with token 0",
        "the .bin files are links to the dataset",
        "IndexedDataset[i] and get() are right; slices, [a:b], silently give wrong tokens",
    ]
    assert "".join(lines[5:]).startswith(f"Megatron-LM: --per-split-data-args-path {out}"[:60])
    assert main([*given, "--index-only"]) == 0
    assert capsys.readouterr().out.startswith("nothing to do: the export is complete\n")
    assert main([*given, "--overwrite", "--json"]) == 0
    *events, shown = map(json.loads, capsys.readouterr().out.splitlines())
    assert events[0] == {"event": "choosing", "done": 0, "total": len(dataset.shards)}
    record = json.loads((out / "export.json").read_text())
    assert shown == {"event": "finished", **record}


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (
            "--format megatron --columns input_ids --bands 3",
            [
                "--columns: cannot be given for the format megatron, which is one of documents",
                "--bands: cannot be given for the format megatron, which is one of documents",
            ],
        ),
        (
            "--format nanogpt --plan p",
            ["--plan: cannot be given for the format nanogpt, which is one of documents"],
        ),
        (
            "--format pt --file-size 1GB",
            ["--file-size: cannot be given for the format pt, which is one of rows"],
        ),
        (
            "--format megatron --order plan",
            ["--order: got 'plan'; must be one of corpus, shuffled"],
        ),
        (
            "--format nanogpt --file-size 1GB --index-only",
            [
                "--file-size: cannot be combined with the format nanogpt",
                "--index-only: can only be given for the format megatron",
            ],
        ),
        (
            "--format megatron --file-size 1GB --index-only",
            ["--file-size: cannot be combined with --index-only"],
        ),
    ],
    ids=str,
)
def test_options_of_the_other_kind_are_refused(
    given: str,
    problems: list[str],
    dataset: Dataset,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["export", str(dataset.folder), "--out", str(tmp_path / "out"), *given.split()]
    assert main(command) == 2
    errors = capsys.readouterr().err
    assert [line for line in problems if line not in errors] == []
    assert names(tmp_path) == []
