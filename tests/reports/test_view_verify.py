"""Verifying a view checks its own files and counts, its plans, and every dataset behind it."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import Printed
from load.loading_kit import write_tokenizer
from tokenmill import Dataset
from tokenmill.cli import main
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.reports.verify import verify
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.manifest import FileEntry
from tokenmill.store.view_manifest import ParentEntry, ViewManifest, view_id
from view_kit import built, view_of

SAME_VIEW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def view(tmp_path: Path) -> Dataset:
    """4<eos>, 56<eos>, 7<eos> of one dataset and 2222<eos> of another, with a plan."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    files = {"old": {"a.jsonl": ["123", "4", "56"], "b.jsonl": ["7"]}, "new": {"a.jsonl": ["2222"]}}
    parents = []
    for name, texts in files.items():
        (tmp_path / name).mkdir()
        parents.append(built(tmp_path / name, tokenizer, texts))
    found = view_of(tmp_path / "view", parents, [1, 2, 3, 4])
    tokenmill.pack(found, sequence_length=16)
    return found


def change(view: Dataset, **changes: object) -> None:
    """Change view.json, with a digest that fits."""
    path = view.folder / "view.json"
    write_sealed(path, msgspec.structs.replace(read_sealed(path, ViewManifest), **changes))


def test_verify_names_what_it_checked(view: Dataset, capsys: Printed) -> None:
    assert main(["verify", str(view.folder), "--against-sources"]) == 0
    old, new = (root.folder for root in view.roots)
    assert capsys.readouterr().out.splitlines() == [
        "verified: 10 files, 4 documents, 12 tokens, 1 plan, 5 compared with their sources",
        f"with its dataset {old}: 4 documents",
        f"with its dataset {new}: 1 document",
    ]
    assert main(["verify", str(view.folder), "--json", "--shard", "1/2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parents"] == [str(old), str(new)]


def test_a_damaged_parent_is_found_and_named(view: Dataset) -> None:
    path = view.roots[1].folder / "tokens" / "00000000-000000.bin"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match="a file is damaged") as caught:
        verify(view.folder)
    assert caught.value.where == str(view.roots[1].folder)


def test_counts_that_lie_are_refused(view: Dataset) -> None:
    found = read_sealed(view.folder / "view.json", ViewManifest)
    other = [msgspec.structs.replace(found.sources[0], tokens=6), *found.sources[1:]]
    other[1] = msgspec.structs.replace(other[1], tokens=1)
    change(view, sources=other)
    tokenmill.open(view.folder)
    with pytest.raises(VerificationError, match="a view is damaged") as caught:
        verify(view.folder)
    assert caught.value.why == "the documents of its sources have other counts"
    change(view, sources=found.sources)
    verify(view.folder)
    shards = [msgspec.structs.replace(found.shards[0], documents=2), *found.shards[1:]]
    change(view, shards=shards)
    with pytest.raises(VerificationError, match="a view is damaged"):
        tokenmill.open(view.folder)
    sources = [msgspec.structs.replace(found.sources[0], documents=1), *found.sources[1:]]
    change(view, shards=shards, sources=sources)
    with pytest.raises(VerificationError, match="a view is damaged") as caught:
        verify(view.folder)
    assert caught.value.why == "the bits of shard 0 are not those of the view"
    change(view, shards=[msgspec.structs.replace(shards[0], documents=2**53), found.shards[1]])
    with pytest.raises(VerificationError, match="a view is damaged"):
        tokenmill.open(view.folder)


@pytest.mark.parametrize("place", ["", ".", "/", "/etc", "../..", "a" * 5000, "x\0y", "../view"])
def test_a_place_that_holds_no_dataset_is_refused(view: Dataset, place: str) -> None:
    entry = ParentEntry(place=place, dataset_id=view.roots[0].manifest.dataset_id)
    found = read_sealed(view.folder / "view.json", ViewManifest)
    change(view, parents=[entry, found.parents[1]])
    with pytest.raises((UserError, VerificationError)):
        tokenmill.open(view.folder)


def test_a_view_that_is_its_own_parent_is_refused(view: Dataset) -> None:
    entry = ParentEntry(place=".", dataset_id=view.roots[0].manifest.dataset_id)
    found = read_sealed(view.folder / "view.json", ViewManifest)
    (view.folder / "manifest.json").write_bytes(
        (view.roots[0].folder / "manifest.json").read_bytes()
    )
    change(view, parents=[entry, found.parents[1]])
    with pytest.raises(VerificationError, match="a view is damaged") as caught:
        tokenmill.open(view.folder)
    assert caught.value.why == f"its parent {view.folder} is a view"


def test_a_selection_that_unpacks_to_much_is_refused_without_unpacking_it(view: Dataset) -> None:
    from tokenmill.store.digests import file_digest
    from tokenmill.store.view_manifest import view_id

    found = read_sealed(view.folder / "view.json", ViewManifest)
    path = view.folder / "selection.bin"
    bomb = zlib.compress(bytes(256 << 20))
    path.write_bytes(bomb)
    digest = file_digest(path)
    shards = [
        msgspec.structs.replace(found.shards[0], bytes=len(bomb)),
        msgspec.structs.replace(found.shards[1], bytes=0),
    ]
    file = FileEntry(name="selection.bin", bytes=len(bomb), xxh3_128=digest)
    change(view, shards=shards, file=file, view_id=view_id(found.parents, digest))
    opened = tokenmill.open(view.folder)
    tracemalloc.start()
    with pytest.raises(VerificationError, match="a view is damaged"):
        verify(view.folder)
    with pytest.raises(VerificationError, match="a view is damaged"):
        tokenmill.pack(opened, sequence_length=32)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_changed_bytes_are_typed_errors(view: Dataset, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["view.json", "selection.bin"]))
    path = view.folder / name
    whole = path.read_bytes()
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.sampled_from([len(whole), len(whole) // 2]))]
    path.write_bytes(changed)
    try:
        if bytes(changed) == whole:
            return
        with pytest.raises((UserError, VerificationError)):
            tokenmill.open(view.folder)
    finally:
        path.write_bytes(whole)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_hostile_selection_with_fitting_digests_is_a_typed_error_or_no_other_view(
    view: Dataset, data: st.DataObject
) -> None:
    """Whoever writes a view can write its digests, too."""
    paths = [view.folder / name for name in ("view.json", "selection.bin")]
    whole = [path.read_bytes() for path in paths]
    changed = bytearray(whole[1])
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    number, count = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 5))
    paths[1].write_bytes(changed)
    found = read_sealed(paths[0], ViewManifest)
    digest = file_digest(paths[1])
    file = msgspec.structs.replace(found.file, xxh3_128=digest)
    shards = list(found.shards)
    shards[number] = msgspec.structs.replace(shards[number], documents=count)
    change(view, file=file, view_id=view_id(found.parents, digest), shards=shards)
    try:
        opened = tokenmill.open(view.folder)
        verify(view.folder)
        assert sum(len(shard.chosen) for shard in opened.shards) == opened.num_documents
    except (UserError, VerificationError):
        pass
    finally:
        for path, content in zip(paths, whole, strict=True):
            path.write_bytes(content)
    assert np.sum([shard.num_documents for shard in tokenmill.open(view.folder).shards]) == 4
