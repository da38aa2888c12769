"""Word counts on disk: runs, the folder that they are merged into, and weights."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.store.counts.folder import (
    CountsManifest,
    merge_counts,
    open_counts,
    sampling_weights,
    write_counts,
)
from tokenmill.store.counts.merging import LeftOut, Merge, merged
from tokenmill.store.counts.runs import check_words, open_run, write_run

BYTES = Split("", None, {"type": "ByteLevel"}, byte_level=True)
SPACES = Split("", None, {"type": "WhitespaceSplit"}, byte_level=False)
WORDS = st.text(st.sampled_from("ab\0é漢😀"), min_size=1, max_size=12).map(str.encode)
RUNS = st.lists(st.dictionaries(WORDS, st.integers(1, 2**24)), max_size=5)


def words(**counts: int) -> WordCounts:
    return WordCounts.of({name.encode(): count for name, count in counts.items()})


@settings(deadline=None)
@given(RUNS, st.integers(1, 9), st.integers(1, 2**16))
def test_a_merge_adds_up_what_its_runs_hold(
    runs: list[dict[bytes, int]], weight: int, least: int
) -> None:
    total: Counter[bytes] = Counter()
    for number, run in enumerate(runs):
        total.update({word: count * (weight + number) for word, count in run.items()})
    weights = [weight + number for number in range(len(runs))]
    arrays = [WordCounts.of(run) for run in runs]
    assert merged(arrays, weights).to_dict() == dict(sorted(total.items()))

    merge, found = Merge(arrays, weights, min_count=least), {}
    for part in merge.parts():
        found |= part.to_dict()
    rare = {word: count for word, count in total.items() if count < least}
    assert found == {word: count for word, count in total.items() if count >= least}
    assert merge.left_out == LeftOut(
        len(rare), sum(rare.values()), sum(len(word) * count for word, count in rare.items())
    )


def test_a_merge_hands_out_parts_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.store.counts.merging.PART_BYTES", 4)
    monkeypatch.setattr("tokenmill.store.counts.merging.PART_WORDS", 2)
    merge = Merge([words(a=1, bb=1, c=1, dddddd=1), words(a=1, e=1)])
    assert [part.to_dict() for part in merge.parts()] == [
        {b"a": 2, b"bb": 1}, {b"c": 1}, {b"dddddd": 1}, {b"e": 1}
    ]  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.dictionaries(WORDS, st.integers(1, 2**40))))
def test_a_run_is_read_as_it_was_written(groups: dict[str, dict[bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        write_run(path, {name: WordCounts.of(run) for name, run in groups.items()})
        assert {name: run.to_dict() for name, run in open_run(path).items()} == groups


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    groups = {"en": [words(the=5, cat=1), words(the=2, a=1)], "de": [words(die=4, a=2)]}
    write_counts(tmp_path / "counts", CountsManifest(split=BYTES, by="language"), groups)
    return tmp_path / "counts"


def test_a_folder_holds_the_sum_of_the_runs_of_each_group(folder: Path) -> None:
    counts = open_counts(folder)
    assert {name: found.to_dict() for name, found in counts.groups.items()} == {
        "de": {b"a": 2, b"die": 4},
        "en": {b"a": 1, b"cat": 1, b"the": 7},
    }
    assert counts.split == BYTES
    assert counts.total().to_dict() == {b"a": 3, b"cat": 1, b"die": 4, b"the": 7}
    assert counts.total({"de": 10, "en": 1}).to_dict() == {
        b"a": 21, b"cat": 1, b"die": 40, b"the": 7
    }  # fmt: skip
    assert counts.total({"de": 0}).to_dict() == {b"a": 1, b"cat": 1, b"the": 7}


def test_weights_whose_sums_overflow_are_refused(folder: Path, tmp_path: Path) -> None:
    counts = open_counts(folder)
    for weight in (1 << 50, 1 << 62, 1 << 63, 10**20):
        with pytest.raises(UserError, match="too large to add up"):
            counts.total({"en": weight})
    write_counts(
        tmp_path / "half", CountsManifest(split=BYTES, by="language"), {"en": [words(z=1 << 52)]}
    )
    half = open_counts(tmp_path / "half")
    with pytest.raises(UserError, match="too large to add up"):
        merge_counts([half] * 3, tmp_path / "all")


def test_rare_words_are_left_out_of_the_sum_and_counted(tmp_path: Path) -> None:
    runs = [words(the=1, cat=1, oddly=1), words(the=1, cat=1)]
    write_counts(tmp_path, CountsManifest(split=BYTES, min_count=2), {"": runs})
    counts = open_counts(tmp_path)
    assert counts.total().to_dict() == {b"cat": 2, b"the": 2}
    assert counts.left_out == LeftOut(words=1, occurrences=1, bytes=5)


def test_equal_words_make_equal_folders_however_they_came(tmp_path: Path) -> None:
    write_counts(tmp_path / "a", CountsManifest(split=BYTES), {"": [words(x=1), words(x=2, y=1)]})
    write_counts(tmp_path / "b", CountsManifest(split=BYTES), {"": [words(x=3), words(y=1)]})
    names = [path.name for path in sorted((tmp_path / "a").iterdir())]
    assert names == ["00000.counts.npy", "00000.offsets.npy", "00000.words.npy", "counts.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_folders_of_counts_add_up(folder: Path, tmp_path: Path) -> None:
    groups = {"en": [words(the=1)], "fr": [words(le=1)]}
    write_counts(tmp_path / "more", CountsManifest(split=BYTES, by="language"), groups)
    merge_counts([open_counts(folder), open_counts(tmp_path / "more")], tmp_path / "all")
    assert {name: c.to_dict() for name, c in open_counts(tmp_path / "all").groups.items()} == {
        "de": {b"a": 2, b"die": 4},
        "en": {b"a": 1, b"cat": 1, b"the": 8},
        "fr": {b"le": 1},
    }
    with pytest.raises(OutputConflictError, match="already contains word counts"):
        merge_counts([open_counts(folder)], tmp_path / "all")


def test_counts_that_mean_different_things_do_not_add_up(folder: Path, tmp_path: Path) -> None:
    write_counts(
        tmp_path / "spaces", CountsManifest(split=SPACES, by="language"), {"en": [words(a=1)]}
    )
    with pytest.raises(UserError, match="different splits"):
        merge_counts([open_counts(folder), open_counts(tmp_path / "spaces")], tmp_path / "all")
    write_counts(tmp_path / "source", CountsManifest(split=BYTES, by="input"), {"en": [words(a=1)]})
    with pytest.raises(UserError, match="different groups"):
        merge_counts([open_counts(folder), open_counts(tmp_path / "source")], tmp_path / "all")


@pytest.mark.parametrize("name", ["00000.words.npy", "00000.offsets.npy", "00001.counts.npy"])
def test_damage_is_found_when_counts_are_opened(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(VerificationError, match=name):
        open_counts(folder)
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(VerificationError, match=name):
        open_counts(folder)
    (folder / name).unlink()
    with pytest.raises(VerificationError, match=name):
        open_counts(folder)


@pytest.mark.parametrize(
    ("data", "offsets", "counts", "problem"),
    [
        (b"ab", [0, 1, 2], [1, 1], ""),
        (b"ab", [0, 1, 1], [1, 1], "offsets"),
        (b"ab", [0, 9, 2], [1, 1], "offsets"),
        (b"ab", [1, 1, 2], [1, 1], "offsets"),
        (b"ab", [0, 1], [1, 1], "offsets"),
        (b"ba", [0, 1, 2], [1, 1], "sorted"),
        (b"aa", [0, 1, 2], [1, 1], "sorted"),
        (b"ab", [0, 1, 2], [1, 0], "count"),
        (b"ab", [0, 1, 2], [2**62, 1], "count"),
        (b"\xff", [0, 1], [1], "UTF-8"),
        (b"\xc3", [0, 1], [1], "UTF-8"),
        (b"\xed\xa0\x80", [0, 3], [1], "UTF-8"),
        (b"\xf4\x90\x80\x80", [0, 4], [1], "UTF-8"),
        (b"\xe0\x80\x80", [0, 3], [1], "UTF-8"),
        (b"\xfc\x80\x80\x80", [0, 4], [1], "UTF-8"),
    ],
)
def test_arrays_that_compiled_code_could_not_survive_are_refused(
    data: bytes, offsets: list[int], counts: list[int], problem: str
) -> None:
    found = WordCounts(np.frombuffer(data, np.uint8), np.array(offsets), np.array(counts))
    said = check_words(found)
    assert problem in said
    assert bool(problem) == bool(said)


def test_a_damaged_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write_run(path, {"": words(a=1, b=2)})
    good = path.read_bytes()
    for bad in (good[:-1], good + b"\0", b"", good[:8] + b"\xff" * 8 + good[16:]):
        path.write_bytes(bad)
        with pytest.raises(VerificationError, match="damaged"):
            open_run(path)


def test_small_languages_weigh_more_the_smaller_alpha() -> None:
    sizes = {"en": 900, "sw": 100}
    assert sampling_weights(sizes, 1.0) == {"en": 1, "sw": 1}
    assert sampling_weights(sizes, 0.0) == {"en": 100, "sw": 900}
    assert sampling_weights(sizes, 0.5) == {"en": 100, "sw": 300}
    assert sampling_weights({"en": 5, "none": 0}, 0.5) == {"en": 100, "none": 1}
