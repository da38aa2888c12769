"""Where rows are kept, when they are used again, and what a run leaves that does not end."""

from __future__ import annotations

import importlib.util
import pickle
import resource
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from hf_kit import TEXTS, Letters, contents, dataset_of, fast_tokenizer, options, recipe

from tokenmill.core.errors import EngineError, StorageError, UserError
from tokenmill.hf import CausalLMTokenizer
from tokenmill.hf.tokenizer import OWN_ATTRIBUTES


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


def test_an_unchanged_run_uses_the_rows_of_the_one_before(
    on_disk: datasets.Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    first = made().tokenize(on_disk)
    again = made()
    second = again.tokenize(on_disk)
    assert file_of(second) == file_of(first)
    assert file_of(first).parent == file_of(on_disk).parent
    assert file_of(first).name == f"cache-{first._fingerprint}.arrow"
    assert first._fingerprint == second._fingerprint
    assert again.summary.reused == [str(file_of(first))]
    assert (again.summary.documents, again.summary.rows) == (len(TEXTS), len(first))
    assert f"{len(TEXTS)} documents -> {len(first)} rows, all of an earlier run" in caplog.messages
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


SUBCLASS = """
from tokenmill.hf import CausalLMTokenizer

class Shift:
    by = {by}

class Shifted(CausalLMTokenizer, Shift):
    def _tokenize_function(self, batch):
        columns = super()._tokenize_function(batch)
        return {{**columns, "input_ids": columns["input_ids"] + self.by}}
"""


def module_of(folder: Path, code: str) -> Any:
    """A module of the user's, as it is on disk now."""
    folder.mkdir(exist_ok=True)
    (folder / "user_rows.py").write_text(code)
    spec = importlib.util.spec_from_file_location("user_rows", folder / "user_rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_rows"] = module
    spec.loader.exec_module(module)
    return module


def test_other_code_of_a_subclass_makes_rows_anew(
    on_disk: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "user_rows", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    files = []
    for number, by in enumerate((1, 1, 2)):
        module = module_of(tmp_path / str(number), SUBCLASS.format(by=by))
        tokenizer = module.Shifted(options(8), fast_tokenizer())
        files.append(file_of(tokenizer.tokenize(on_disk)))
    assert files[0] == files[1] != files[2]


def test_a_subclass_without_source_is_never_taken_for_another(
    on_disk: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("user_rows")
    monkeypatch.setitem(sys.modules, "user_rows", module)
    exec(SUBCLASS.format(by=1), module.__dict__)
    tokenizer = module.Shifted(options(8), fast_tokenizer())
    assert file_of(tokenizer.tokenize(on_disk)) != file_of(tokenizer.tokenize(on_disk))


def test_only_what_a_subclass_adds_counts(on_disk: datasets.Dataset) -> None:
    class Counted(Doubled):
        def __init__(self, number: int, **others: Any) -> None:
            super().__init__(options(8, **others), Letters())
            self.number = number

    first = file_of(Counted(1, num_proc=1).tokenize(on_disk))
    again = Counted(1, num_proc=2, verbose_level="ERROR", batch_size=3)
    for _ in range(2):  # the warning of a slow tokenizer has been given the second time
        assert file_of(again.tokenize(on_disk)) == first
    assert file_of(Counted(2, num_proc=1).tokenize(on_disk)) != first


def test_the_attributes_that_do_not_count_are_those_of_the_class() -> None:
    assert set(vars(made())) == OWN_ATTRIBUTES


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
        with pytest.raises(StorageError, match="cannot write the rows"):
            tokenizer.tokenize(dataset_of(["a" * 500] * 100), cache_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_can_be_pickled_before_and_after_it_was_used() -> None:
    tokenizer = made()
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(tokenizer))
        expected = recipe(fast_tokenizer(), TEXTS, 8, 0)
        assert contents(copy.tokenize(dataset_of(TEXTS), force=True)) == expected
        tokenizer.tokenize(dataset_of(TEXTS))


def test_rows_go_to_one_place(on_disk: datasets.Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be combined"):
        made().tokenize(on_disk, cache_dir=tmp_path, out=tmp_path)
    with pytest.raises(UserError, match="out cannot be used with an iterable dataset"):
        made().tokenize(on_disk.to_iterable_dataset(), out=tmp_path)
    rows = made().tokenize(on_disk, out=tmp_path / "rows")
    assert contents(datasets.load_from_disk(str(tmp_path / "rows"))) == contents(rows)


def test_options_with_defaults_leave_the_fingerprints_of_earlier_versions(
    on_disk: datasets.Dataset,
) -> None:
    identity = made()._identity("text")
    assert list(identity) == ["column", "tokenizer", "library", "function", "windows"]
    assert "overlap_in_loss" not in identity["windows"]
    others: list[dict[str, Any]] = [
        {"packing": "best-fit"},
        {"dtype": "int32"},
        {"columns": ["input_ids"]},
        {"overlap": 2, "overlap_in_loss": False},
        {"subword_regularisation": 0.1},
    ]
    files = {file_of(made(**other).tokenize(on_disk)) for other in [{}, *others]}
    assert len(files) == 6


def test_a_folder_of_splits_and_one_of_a_dataset_replace_each_other(
    on_disk: datasets.Dataset, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    splits = datasets.DatasetDict(train=on_disk, test=on_disk.select(range(2)))
    made().tokenize(on_disk, out=folder)
    (folder / "notes.txt").write_text("mine")
    for dataset, names in (
        (splits, ["dataset_dict.json", "notes.txt", "test", "train"]),
        (on_disk, ["dataset_info.json", "notes.txt", "rows", "state.json"]),
    ):
        rows = made().tokenize(dataset, out=folder, force=True)
        found = datasets.load_from_disk(str(folder))
        assert type(found) is type(rows)
        found_names = (path.name for path in folder.iterdir())
        assert sorted(name.partition("-")[0] for name in found_names) == names
