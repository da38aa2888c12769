"""Names on the Hub: every form, what is refused, and which files a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_kit import FakeHub, parquet, serving
from tokenmill.core.errors import UserError
from tokenmill.core.paths import is_safe_path
from tokenmill.read.places.hub.names import ALIASES, HubName, parse_hub_name
from tokenmill.read.places.hub.place import Hub
from tokenmill.read.source import Access

SHA = "0123456789" * 4
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf://datasets/a/b", HubName("a/b")),
        ("hf://datasets/squad", HubName("squad")),
        ("hf://datasets/a/b/", HubName("a/b")),
        ("hf://datasets/a/b/data/x.parquet", HubName("a/b", "main", "data/x.parquet")),
        (f"hf://datasets/a/b@{SHA}", HubName("a/b", SHA)),
        ("hf://datasets/squad@v1/plain_text", HubName("squad", "v1", "plain_text")),
        (
            "hf://datasets/a/b@refs/convert/parquet/default/train",
            HubName("a/b", "refs/convert/parquet", "default/train"),
        ),
        ("hf://datasets/a/b@refs/pr/12", HubName("a/b", "refs/pr/12")),
        ("hf://datasets/a/b@feature%2Fx/data", HubName("a/b", "feature/x", "data")),
        ("hf://datasets/a/b/odd@name.parquet", HubName("a/b", "main", "odd@name.parquet")),
        ("hf://tinystories", HubName("roneneldan/TinyStories", "main", "data/train-*.parquet")),
        (f"hf://fineweb-10bt@{SHA}", HubName("HuggingFaceFW/fineweb", SHA, "sample/10BT")),
    ],
)
def test_a_name_has_a_data_set_a_revision_and_a_path(text: str, name: HubName) -> None:
    assert parse_hub_name(text) == name
    assert parse_hub_name(str(name)) == name


SAFE_PARTS = st.text(min_size=1).filter(lambda part: "/" not in part and is_safe_path(part))
SAFE_PATHS = st.lists(SAFE_PARTS, min_size=1, max_size=3).map("/".join)
REPO_PARTS = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", fullmatch=True)


@given(
    st.lists(REPO_PARTS, min_size=1, max_size=2).map("/".join),
    st.one_of(SAFE_PATHS, st.sampled_from(["main", "refs/pr/1", "refs/convert/parquet", SHA])),
    st.one_of(st.just(""), SAFE_PATHS),
)
def test_a_name_that_is_written_is_read_as_it_was(repo: str, revision: str, path: str) -> None:
    name = HubName(repo, revision, path)
    assert parse_hub_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "hf://",
        "hf://datasets/",
        "hf://datasets/a/b@",
        "hf://datasets/../b",
        "hf://datasets/a/b@..%2F..%2Fx",
        "hf://datasets/a/b@%2Fetc",
        "hf://datasets/a/b/../../x",
        "hf://datasets/a/b/x\\y",
        "hf://datasets/a b/c",
        "hf://models/a/b",
        "hf://a/b",
        "hf://tinystories@",
        "hf://fineweb@../../../x",
        "hf://fineweb@..%2F..%2Fx",
        "hf://fineweb@main/sub",
    ],
)
def test_what_is_no_data_set_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="does not name a dataset on the Hub"):
        parse_hub_name(text)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("fineweb-edu-10b", "fineweb-edu-10bt"), ("allenai/c4", "datasets/allenai/c4")],
)
def test_a_name_that_is_nearly_right_gets_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=rf"did you mean hf://{meant}\?"):
        parse_hub_name(f"hf://{name}")


def test_every_alias_is_a_data_set_and_files_in_it() -> None:
    for short, alias in ALIASES.items():
        name = parse_hub_name(f"hf://{short}")
        assert (name.repo, name.path) == alias
        assert name.repo.count("/") == 1
        assert is_safe_path(name.path)
        assert f"`{short}`" in (DOCS / "guides" / "hub.md").read_text()


DATA = parquet(["a"])
FILES = {
    "README.md": b"# a",
    "data/en/train-00000-of-00002.parquet": DATA,
    "data/en/train-00001-of-00002.parquet": DATA,
    "data/en/test-00000-of-00001.parquet": DATA,
    "data/de/0000.parquet": DATA,
    "data/de/0001.parquet": DATA,
    "raw/a.jsonl.gz": b"",
    "raw/deep/b.jsonl.gz": b"",
    "raw/LICENSE": b"",
}


UNCLEAR = {
    "o/suffixes/d": {
        "d/*.jsonl d/*.jsonl.gz": ["d/a.jsonl", "d/b.jsonl.gz"],
        "d/c.parquet": ["d/c.parquet"],
    },
    "o/deep/d": {
        "d/**/*.jsonl": ["d/a.jsonl", "d/e/b.jsonl"],
        "d/t": ["d/t/0.txt.gz", "d/t/1.txt"],
    },
    "o/close": {
        "data/train-[0-9]*.parquet": ["data/train-00000.parquet", "data/train-00001.parquet"],
        "data/train-clean-*.parquet": [
            "data/train-clean-00000.parquet",
            "data/train-clean-00001.parquet",
        ],
    },
    "o/closer": {
        "[0-9]-[0-9][0-9][0-9][0-9].parquet": ["1-0000.parquet", "1-0001.parquet"],
        "1-0000x-*.parquet": ["1-0000x-0000.parquet", "1-0000x-0001.parquet"],
    },
    "o/versions": {"v1.parquet": ["v1.parquet"], "v2.parquet": ["v2.parquet"]},
    "o/magic": {"a[[]1].parquet": ["a[1].parquet"], "b.parquet": ["b.parquet"]},
}
"""By name, and by what is suggested for it: the files of one kind, configuration or split."""


@pytest.fixture(scope="module")
def hub() -> FakeHub:
    with serving() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.commit("o/n", FILES)
        hub.commit("o/one", {"x/train-00000-of-00009-0123456789abcdef.parquet": DATA, "a.md": b""})
        hub.commit("o/none", {"README.md": b""})
        hub.commit("old", {"plain/0.parquet": DATA, "other/0.parquet": DATA})
        hub.commit("o/lines", {"default/train/0000.parquet": DATA}, "refs/convert/parquet")
        hub.commit("o/mixed", {"d/a.jsonl": b"{}", "d/a.parquet": DATA})
        hub.commit("o/wide", {"説明\u3000.md": b"", "0.parquet": DATA})
        for name, groups in UNCLEAR.items():
            files = [path for paths in groups.values() for path in paths]
            hub.commit(name.removesuffix("/d"), dict.fromkeys([*files, "d/notes.md"], DATA))
        yield hub


def paths_of(name: str, tmp_path: Path) -> list[str]:
    access = Access("stream", str(tmp_path))
    return [parse_hub_name(source.location).path for source in Hub().list([name], access)[name]]


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("o/n/data/de", ["data/de/0000.parquet", "data/de/0001.parquet"]),
        ("o/n/data/*/t*-00000-*", [f"data/en/{s}-00000-of-0000{n}.parquet" for s, n in
                                   (("test", 1), ("train", 2))]),
        ("o/n/**/b.*", ["raw/deep/b.jsonl.gz"]),
        ("o/n/raw", ["raw/a.jsonl.gz", "raw/deep/b.jsonl.gz"]),
        ("o/n/raw/*", ["raw/LICENSE", "raw/a.jsonl.gz"]),
        ("o/n/raw/a.jsonl.gz", ["raw/a.jsonl.gz"]),
        ("o/n/README.md", ["README.md"]),
        ("old@main/plain", ["plain/0.parquet"]),
        ("o/lines@refs/convert/parquet", ["default/train/0000.parquet"]),
        ("o/one", ["x/train-00000-of-00009-0123456789abcdef.parquet"]),
    ],
)  # fmt: skip
def test_a_path_is_a_file_a_folder_or_a_glob(
    hub: FakeHub, tmp_path: Path, name: str, paths: list[str]
) -> None:
    assert paths_of(f"hf://datasets/{name}", tmp_path) == paths


def test_several_configurations_or_splits_are_refused_with_the_choices(
    hub: FakeHub, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as raised:
        paths_of("hf://datasets/o/n", tmp_path)
    name = "hf://datasets/o/n/data"
    assert raised.value.why.split("\n       ") == [
        "it has 3 configurations or splits:",
        f"{name}/de",
        f"{name}/en/test-00000-of-00001.parquet",
        f"{name}/en/train-*.parquet",
    ]
    assert raised.value.hint == (
        f"name one or more of them, or a folder or glob: tokenmill build '{name}/de' ..."
    )


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_suggested_takes_exactly_the_files_of_one_group(
    hub: FakeHub, tmp_path: Path, name: str
) -> None:
    groups = UNCLEAR[name]
    with pytest.raises(UserError) as raised:
        paths_of(f"hf://datasets/{name}", tmp_path)
    suggested = raised.value.why.split("\n       ")[1:]
    prefix = f"hf://datasets/{name.removesuffix('/d')}/"
    assert [line.replace(prefix, "") for line in suggested] == list(groups)
    for line, paths in zip(suggested, groups.values(), strict=True):
        assert [path for each in line.split(" ") for path in paths_of(each, tmp_path)] == paths


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("o/none", "the dataset has no Parquet files"),
        ("o/mixed/d", "cannot tell which files"),
        ("o/n/nowhere", "an input does not exist"),
        ("o/n/data/nowhere/*.parquet", "an input does not exist"),
        ("o/n/data/*.parquet", "an input does not exist"),
        ("o/n/no/such.parquet", "an input does not exist"),
        ("o/nothing", "an input does not exist"),
        ("o/n@nowhere", "an input does not exist"),
    ],
)
def test_what_is_not_there_is_named(hub: FakeHub, tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        paths_of(f"hf://datasets/{name}", tmp_path)
