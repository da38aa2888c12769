"""Names of other storage never become local folders; odd files are neither read nor waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.paths import local_path, read_bounded, redacted
from tokenmill.hf.tokenizer import CausalLMTokenizer
from tokenmill.load.text.pieces import TextCorpus
from tokenmill.read.fields import Fields
from tokenmill.read.sources import find_sources
from tokenmill.reports.tokenizers.subject import open_tokenizer
from tokenmill.run.recipe.checks import load_recipe

URLS = [
    "s3://bucket/x",
    "gs://bucket/x",
    "file:///data/x",
    "https://example.org/x.jsonl",
    "HF://datasets/a/b",
    "simplecache::s3://bucket/x",
    "zip://a.jsonl::s3://bucket/x.zip",
    Path("s3://bucket/x"),
]


@pytest.mark.parametrize("name", URLS, ids=str)
def test_a_url_is_no_path(name: str | Path) -> None:
    with pytest.raises(UserError, match="the output must be on this machine"):
        local_path(name, "the output")


@pytest.mark.parametrize("name", ["a/b.jsonl", "C:x", "a:b", "a/b://c", "x y://z", "1s3://b"])
def test_a_name_without_a_scheme_is_a_path(name: str) -> None:
    assert local_path(name, "the output") == Path(name)


def test_a_file_that_is_called_like_a_chain_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "File::Spec.jsonl", ["a"])
    assert [source.name for source in find_sources(["File::Spec.jsonl"])] == ["File::Spec.jsonl"]


@pytest.mark.parametrize(
    ("name", "shown"),
    {
        "s3://bucket/x": "s3://bucket/x",
        "s3://bucket/x@v1": "s3://bucket/x@v1",
        "https://me:secret@host/x": "https://***@host/x",
        "https:/me:secret@host/x": "https:/***@host/x",
        "https://token@host/x": "https://***@host/x",
        "s3://KEY:SEC/RET@bucket/x": "s3://***@bucket/x",
        "https://host/x?X-Amz-Signature=abc&y=1#z": "https://host/x?***",
        "simplecache::https://me:secret@host/x?sig=1": "simplecache::https://***@host/x?***",
    }.items(),
)
def test_what_may_be_a_secret_is_not_shown(name: str, shown: str) -> None:
    assert redacted(name) == shown
    with pytest.raises(UserError) as caught:
        local_path(name, "the output")
    assert caught.value.where == shown
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def dataset(tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    source = write_jsonl(folder / "a.jsonl", ["one two", "three"])
    built = tokenmill.build(source, tokenizer_path, folder / "out", workers=1)
    tokenmill.pack(built.dataset, sequence_length=8)
    return Dataset(built.dataset.folder)


ENTRANCES = {
    "input": lambda url, t, d: tokenmill.build(url, t, "out"),
    "output": lambda url, t, d: tokenmill.build("a.jsonl", t, url),
    "tokenizer": lambda url, t, d: tokenmill.build("a.jsonl", url, "out"),
    "cache": lambda url, t, d: tokenmill.build("hf://datasets/a/b", t, "out", cache_dir=url),
    "metrics": lambda url, t, d: tokenmill.build("a.jsonl", t, "out", metrics=url),
    "estimate": lambda url, t, d: tokenmill.estimate(url, t),
    "recipe": lambda url, t, d: load_recipe(url),
    "open": lambda url, t, d: tokenmill.open(url),
    "verify": lambda url, t, d: tokenmill.verify(url),
    "plan to verify": lambda url, t, d: tokenmill.verify(d.folder, plans=[url]),
    "view": lambda url, t, d: tokenmill.view_document(url, 0),
    "plan": lambda url, t, d: d.batches(url, batch_size=1),
    "dataset to pack": lambda url, t, d: tokenmill.pack(url, sequence_length=8),
    "plan's folder": lambda url, t, d: tokenmill.pack(d, folder=url, sequence_length=8),
    "export": lambda url, t, d: tokenmill.export(d, url, plan="best-fit-8"),
    "dataset to export": lambda url, t, d: tokenmill.export(url, "out", plan="best-fit-8"),
    "tokenizer to compare": lambda url, t, d: tokenmill.check_tokenizer(d, url),
    "tokenizer to show": lambda url, t, d: open_tokenizer(url),
    "text": lambda url, t, d: TextCorpus([url], Fields()),
    "configuration": lambda url, t, d: CausalLMTokenizer(url),
    "tokenizer of rows": lambda url, t, d: CausalLMTokenizer({"context_length": 8}, url),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_no_entrance_takes_a_url_for_a_folder(
    entrance: str,
    tokenizer_path: Path,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["a"])
    refused = "must be on this machine|a location must not contain a user or a password"
    with pytest.raises(UserError, match=refused) as caught:
        ENTRANCES[entrance]("s3://me:secret@bucket/x", tokenizer_path, dataset)
    assert caught.value.where == "s3://***@bucket/x"
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a" * 300, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
        ("a\0b", "embedded null byte"),
    ],
    ids=["long", "loop", "zero byte"],
)
def test_a_name_that_no_file_can_have_is_refused_at_every_entrance(
    name: str,
    why: str,
    tokenizer_path: Path,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    write_jsonl(tmp_path / "a.jsonl", ["a"])
    for entrance in ("input", "output", "tokenizer", "recipe", "open", "plan", "export"):
        with pytest.raises(UserError) as caught:
            ENTRANCES[entrance](name, tokenizer_path, dataset)
        assert why in caught.value.why


def test_an_output_whose_name_is_not_utf8_is_refused(
    tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(UserError, match="its path is not valid UTF-8"):
        tokenmill.build("a.jsonl", tokenizer_path, os.fsdecode(b"out\xff"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/proc/self/pagemap", "folder", "large"])
def test_a_small_file_is_read_only_if_it_is_one(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 1001)
    path = tmp_path / kind
    if not path.exists():
        pytest.skip(f"no {kind} here")
    with pytest.raises(UserError, match=r"the recipe is|Is a directory"):
        read_bounded(path, 1000, "the recipe")
    for use in (load_recipe, CausalLMTokenizer):
        if kind in ("pipe", "/dev/zero"):
            with pytest.raises(
                UserError, match=r"the (recipe|configuration) is not a regular file"
            ):
                use(path)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/proc/cpuinfo"])
def test_what_is_no_file_is_neither_a_tokenizer_nor_a_dataset(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / kind
    with pytest.raises(UserError):
        open_tokenizer(path)
    with pytest.raises(UserError, match="cannot find a dataset"):
        tokenmill.open(path)
    (tmp_path / "manifest.json").symlink_to(path)
    with pytest.raises(UserError if kind != "/proc/cpuinfo" else VerificationError):
        tokenmill.open(tmp_path)


def test_a_configuration_beside_a_tokenizer_is_not_waited_for(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_path.read_bytes())
    (tmp_path / "tokenizer_config.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "special_tokens_map.json")
    assert open_tokenizer(tmp_path).config == {}
