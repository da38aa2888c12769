"""Links, pipes, sockets, devices and files of /proc as inputs: read once, or refused by name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tokenmill.core.errors import UserError
from tokenmill.read.sources import find_sources

LINE = b'{"text": "a"}\n'


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)


def names_of(*inputs: Path) -> list[str]:
    return [source.name for source in find_sources([str(path) for path in inputs])]


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", tmp_path / "elsewhere/b.jsonl", tmp_path / "elsewhere/c/d.jsonl")
    (tmp_path / "in/link").symlink_to("../elsewhere")
    assert names_of(tmp_path / "in") == [
        "in/a.jsonl", "elsewhere/b.jsonl", "elsewhere/c/d.jsonl",
    ]  # fmt: skip


def test_links_in_a_circle_give_every_file_once(tmp_path: Path) -> None:
    put(tmp_path / "in/a.jsonl", tmp_path / "in/sub/b.jsonl", tmp_path / "other/c.jsonl")
    (tmp_path / "in/sub/up").symlink_to("..")
    (tmp_path / "in/sub/other").symlink_to("../../other")
    (tmp_path / "other/back").symlink_to("../in")
    assert names_of(tmp_path / "in") == ["in/a.jsonl", "in/sub/b.jsonl", "other/c.jsonl"]


def test_a_folder_that_is_linked_beside_itself_is_read_once(tmp_path: Path) -> None:
    put(tmp_path / "b/x.jsonl")
    (tmp_path / "a").symlink_to("b")
    assert names_of(tmp_path) == ["x.jsonl"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("target", ["link.jsonl", "nowhere"])
def test_a_link_to_itself_or_to_nothing_is_refused(
    target: str, named: bool, tmp_path: Path
) -> None:
    put(tmp_path / "a.jsonl")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    with pytest.raises(UserError, match=r"cannot read an input") as caught:
        find_sources([str(link if named else tmp_path)])
    assert caught.value.where == str(link)


def test_a_folder_may_be_called_like_a_file(tmp_path: Path) -> None:
    put(tmp_path / "x.jsonl/a.jsonl")
    assert names_of(tmp_path / "x.jsonl") == ["a.jsonl"]


@pytest.mark.parametrize("path", ["/proc/cpuinfo", "/proc/self/maps"])
def test_a_file_of_proc_is_not_taken_for_an_empty_one(path: str) -> None:
    if not Path(path).is_file():
        pytest.skip(f"no {path} here")
    with pytest.raises(UserError, match="size is 0 but it has content") as caught:
        find_sources([path])
    assert caught.value.where == path


def test_devices_pipes_and_sockets_are_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(UserError, match="not a regular file") as caught:
                find_sources([str(path)])
            assert caught.value.where == str(path)


def test_a_name_of_255_bytes_is_read_and_a_longer_one_refused(tmp_path: Path) -> None:
    name = "x" * 249 + ".jsonl"
    put(tmp_path / name)
    assert names_of(tmp_path) == [name]
    with pytest.raises(UserError, match="File name too long"):
        find_sources([str(tmp_path / f"x{name}")])


def test_a_file_that_may_not_be_looked_at_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(UserError, match="cannot read an input") as caught:
        find_sources([str(tmp_path / "closed" / "a.jsonl")])
    assert caught.value.why == "Permission denied"


def test_a_name_with_a_line_end_cannot_add_a_line_to_a_message(tmp_path: Path) -> None:
    (tmp_path / "a\n  next: do something.jsonl").symlink_to("nowhere")
    with pytest.raises(UserError) as caught:
        find_sources([str(tmp_path)])
    assert r"a\n  next: do something.jsonl" in str(caught.value)
    assert caught.value.where.endswith("a\n  next: do something.jsonl")
