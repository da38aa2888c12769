"""Where rows are kept, when they are used again, and what a run leaves that does not end."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from hf_kit import TEXTS, Letters, contents, dataset_of, fast_tokenizer, options, recipe

from tokenmill.errors import EngineError, StorageError
from tokenmill.hf import CausalLMTokenizer, engines


@pytest.fixture(autouse=True)
def short_exam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a tokenizer is what takes the time of these tests."""
    monkeypatch.setattr(engines, "adversarial_texts", lambda special_tokens: ["a", "\n\n b"])


@pytest.fixture
def on_disk(tmp_path: Path) -> datasets.Dataset:
    """A dataset with files of its own."""
    dataset_of(TEXTS).save_to_disk(tmp_path / "dataset")
    return datasets.load_from_disk(tmp_path / "dataset")


def file_of(dataset: datasets.Dataset) -> Path:
    (file,) = dataset.cache_files
    return Path(file["filename"])


def made(length: int = 8, **others: Any) -> CausalLMTokenizer:
    return CausalLMTokenizer(options(length, **others), fast_tokenizer())


def test_an_unchanged_run_uses_the_rows_of_the_one_before(on_disk: datasets.Dataset) -> None:
    first = made().tokenize(on_disk)
    again = made()
    second = again.tokenize(on_disk)
    assert file_of(second) == file_of(first)
    assert file_of(first).parent == file_of(on_disk).parent
    assert file_of(first).name == f"cache-{first._fingerprint}.arrow"
    assert first._fingerprint == second._fingerprint
    assert again.summary.reused == [str(file_of(first))]
    assert contents(second) == recipe(fast_tokenizer(), TEXTS, 8, 0)


def test_whatever_changes_the_rows_makes_them_anew(on_disk: datasets.Dataset) -> None:
    results = [
        made().tokenize(on_disk),
        made(9).tokenize(on_disk),
        made(overlap=1).tokenize(on_disk),
        made().tokenize(on_disk.select([1, 0])),
        CausalLMTokenizer(options(8), fast_tokenizer(padding_side="left")).tokenize(on_disk),
        CausalLMTokenizer(options(8), fast_tokenizer(1)).tokenize(on_disk),
        CausalLMTokenizer(options(8), fast_tokenizer(pad_token="<s>")).tokenize(on_disk),
        CausalLMTokenizer(options(8), Letters()).tokenize(on_disk),
        Doubled(options(8), fast_tokenizer()).tokenize(on_disk),
        CausalLMTokenizer(options(8), fast_tokenizer(), text_column="other").tokenize(
            on_disk.add_column("other", TEXTS)
        ),
    ]
    assert len({file_of(result) for result in results}) == len(results)


class Doubled(CausalLMTokenizer):
    """Another function for batches."""

    def _tokenize_function(self, batch: Any) -> Any:
        columns = super()._tokenize_function(batch)
        return {**columns, "input_ids": columns["input_ids"] * 2}


def test_what_does_not_change_the_rows_uses_them_again(on_disk: datasets.Dataset) -> None:
    first = made().tokenize(on_disk)
    assert file_of(made(batch_size=2, num_proc=1).tokenize(on_disk)) == file_of(first)
    first_doubled = Doubled(options(8), fast_tokenizer()).tokenize(on_disk)
    doubled = Doubled(options(8), fast_tokenizer()).tokenize(on_disk)
    assert file_of(doubled) == file_of(first_doubled)


def test_force_makes_rows_anew(on_disk: datasets.Dataset) -> None:
    first = made().tokenize(on_disk)
    inode = file_of(first).stat().st_ino
    again = made()
    assert file_of(again.tokenize(on_disk, force=True)).stat().st_ino != inode
    assert again.summary.reused == []
    assert contents(first) == recipe(fast_tokenizer(), TEXTS, 8, 0)  # still open


def test_a_cache_folder_may_be_named(on_disk: datasets.Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    result = made().tokenize(on_disk, cache_dir=folder)
    assert file_of(result).parent == folder
    assert [path.name for path in folder.iterdir()] == [file_of(result).name]
    assert file_of(made().tokenize(dataset_of(TEXTS), cache_dir=folder)).parent == folder


@pytest.fixture
def no_caching() -> Iterator[None]:
    datasets.disable_caching()
    yield
    datasets.enable_caching()


def test_without_caching_nothing_is_kept_beside_the_dataset(
    on_disk: datasets.Dataset, no_caching: None
) -> None:
    before = sorted(file_of(on_disk).parent.iterdir())
    first, second = made().tokenize(on_disk), made().tokenize(on_disk)
    assert file_of(first) != file_of(second)
    assert sorted(file_of(on_disk).parent.iterdir()) == before
    assert contents(first) == contents(second)


def test_rows_of_a_dataset_in_memory_lie_in_the_temporary_folder_of_datasets() -> None:
    from datasets.fingerprint import get_temporary_cache_files_directory

    result = made().tokenize(dataset_of(TEXTS))
    assert file_of(result).parent == Path(get_temporary_cache_files_directory())


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt("broken")])
def test_a_run_that_does_not_end_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    class Failing(Letters):
        def encode(self, text: str) -> list[int]:
            if text == "fail":
                raise error
            return super().encode(text)

    dataset = dataset_of(["a"] * 500 + ["fail"] + ["a"] * 500)
    tokenizer = CausalLMTokenizer(options(4, batch_size=10), Failing())
    with pytest.raises((EngineError, KeyboardInterrupt), match="broken"):
        tokenizer.tokenize(dataset, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path) -> None:
    tokenizer = CausalLMTokenizer(options(1024), Letters())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageError, match="refused the result"):
            tokenizer.tokenize(dataset_of(["a" * 500] * 100), cache_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_rows_can_be_saved_and_shuffled_as_those_of_any_dataset(tmp_path: Path) -> None:
    result = made().tokenize(dataset_of(TEXTS))
    result.save_to_disk(tmp_path / "saved")
    assert contents(datasets.load_from_disk(tmp_path / "saved")) == contents(result)
    assert sorted(result.shuffle(seed=1)["input_ids"]) == sorted(result["input_ids"])


def test_a_tokenizer_can_be_pickled_before_and_after_it_was_used() -> None:
    tokenizer = made()
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(tokenizer))
        expected = recipe(fast_tokenizer(), TEXTS, 8, 0)
        assert contents(copy.tokenize(dataset_of(TEXTS), force=True)) == expected
        tokenizer.tokenize(dataset_of(TEXTS))
