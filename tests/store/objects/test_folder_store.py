"""A folder as a store: races, answers that are lost, file systems that refuse, and crashes."""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from store_races import assert_each_is_won_once, race, race_of_processes

from tokenmill.core.errors import StorageError
from tokenmill.store import files
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.opening import refuse_unsafe

SIXTEEN = [f"racer-{number}" for number in range(16)]
NAMES = [f"work/claims/{number:05d}.0" for number in range(100)]


def files_below(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make link() and rename() answer as a network mount that loses answers: they act, and fail."""

    def lose_answers(
        probability: float, *, link: int = errno.EEXIST, rename: int = errno.ENOENT
    ) -> None:
        rolls = random.Random(3)

        def lossy(call: Callable[..., None], code: int) -> Callable[..., None]:
            def acted(*arguments: object) -> None:
                call(*arguments)
                if rolls.random() < probability:
                    raise OSError(code, os.strerror(code))

            return acted

        monkeypatch.setattr(os, "link", lossy(os.link, link))
        monkeypatch.setattr(os, "replace", lossy(os.replace, rename))

    return lose_answers


class TestCreate:
    def test_the_first_to_create_wins_and_the_second_learns_it(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path)
        assert store.create("work/job.json", b"first") == b"first"
        assert store.create("work/job.json", b"second") == b"first"
        assert files_below(tmp_path) == ["work/job.json"]

    def test_16_threads_win_each_of_100_names_once(self, tmp_path: Path) -> None:
        wins = race(lambda: FolderStore(tmp_path), SIXTEEN, NAMES)
        assert_each_is_won_once(wins, NAMES)
        assert files_below(tmp_path) == NAMES

    def test_16_threads_of_4_processes_win_each_of_100_names_once(self, tmp_path: Path) -> None:
        race_of_processes(str(tmp_path), num_processes=4, num_threads=4, num_names=100)

    @pytest.mark.parametrize("link", [errno.EEXIST, errno.ESTALE, errno.ENOENT])
    def test_lost_answers_cost_nobody_a_name(
        self, tmp_path: Path, mount: Callable[..., None], link: int
    ) -> None:
        mount(0.3, link=link)
        wins = race(lambda: FolderStore(tmp_path), SIXTEEN, NAMES)
        assert_each_is_won_once(wins, NAMES)
        assert files_below(tmp_path) == NAMES

    def test_a_name_that_never_appears_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*arguments: object) -> None:
            raise FileExistsError(errno.EEXIST, "File exists")

        monkeypatch.setattr(os, "link", link)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        with pytest.raises(StorageError, match="another process keeps creating and deleting it"):
            FolderStore(tmp_path).create("work/job.json", b"first")
        assert files_below(tmp_path) == []

    def test_durable_flushes_the_file_before_the_name_and_then_the_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FolderStore(tmp_path)
        seen: list[str] = []
        fsync, link = os.fsync, os.link

        def flushing(descriptor: int) -> None:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            seen.append("folder" if is_folder else "file")
            fsync(descriptor)

        def linking(old: Path, new: Path) -> None:
            seen.append("link")
            link(old, new)

        monkeypatch.setattr(os, "fsync", flushing)
        monkeypatch.setattr(os, "link", linking)
        store.create("job.json", b"first")
        assert seen == ["file", "link", "folder"]
        store.create("claim", b"first", durable=False)
        assert seen == ["file", "link", "folder", "link"]


class TestFaults:
    """A fault at each call of the file system leaves the old state or the new one."""

    @pytest.fixture(params=[errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
    def code(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    def faults(self, monkeypatch: pytest.MonkeyPatch, code: int) -> Iterator[int]:
        """Fail the first call, then the second, ... until there is none left to fail."""
        for fail_at in count():
            calls = count()

            def failing(
                call: Callable[..., object], fail_at: int = fail_at, calls: Iterator[int] = calls
            ) -> Callable[..., object]:
                def counted(*arguments: object, **options: object) -> object:
                    if next(calls) == fail_at:
                        raise OSError(code, os.strerror(code))
                    return call(*arguments, **options)

                return counted

            with monkeypatch.context() as patch:
                for name in ("open", "fsync", "link", "replace", "mkdir"):
                    patch.setattr(os, name, failing(getattr(os, name)))
                patch.setattr(files, "open", failing(open), raising=False)
                yield fail_at
            if next(calls) <= fail_at:
                return

    def test_create(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        told = []
        for number in self.faults(monkeypatch, code):
            store = FolderStore(tmp_path / str(number))
            try:
                store.create("work/job.json", b"whole")
            except StorageError as error:
                told.append(error.why)
            assert files_below(tmp_path / str(number)) in ([], ["work/job.json"])
            assert store.read("work/job.json") in (None, b"whole")
        assert told == [os.strerror(code)] * len(told)
        assert len(told) >= 4  # open, fsync, link, and the folder's open and fsync

    def test_replace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        store = FolderStore(tmp_path)
        for number in self.faults(monkeypatch, code):
            name = f"agents/{number}"
            try:
                store.replace(name, b"new")
            except StorageError:
                assert store.read(name) is None
            else:
                assert store.read(name) == b"new"
        assert not [name for name in files_below(tmp_path) if name.endswith(".tmp")]

    def test_add_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        for number in self.faults(monkeypatch, code):
            place = tmp_path / str(number)
            finished = tmp_path / f"{number}.bin"
            finished.write_bytes(b"tokens")
            store = FolderStore(place)
            try:
                store.add_files({"tokens/00000000-000000.bin": finished})
            except StorageError:
                assert finished.exists() or store.read("tokens/00000000-000000.bin") == b"tokens"
            else:
                assert store.read("tokens/00000000-000000.bin") == b"tokens"


class TestAddFiles:
    def test_files_get_their_names_over_what_had_them(self, tmp_path: Path) -> None:
        finished = tmp_path / "attempt.bin"
        finished.write_bytes(b"tokens")
        store = FolderStore(tmp_path / "out")
        store.create("tokens/0.bin", b"tokens of a first run")
        store.add_files({"tokens/0.bin": finished})
        assert store.read("tokens/0.bin") == b"tokens"
        assert not finished.exists()

    @pytest.mark.parametrize("rename", [errno.ENOENT, errno.ESTALE, errno.EEXIST])
    def test_a_rename_whose_answer_was_lost_has_happened(
        self, tmp_path: Path, mount: Callable[..., None], rename: int
    ) -> None:
        finished = tmp_path / "attempt.bin"
        finished.write_bytes(b"tokens")
        mount(1.0, rename=rename)
        store = FolderStore(tmp_path / "out")
        store.add_files({"tokens/0.bin": finished})
        store.replace("work/agents/0.json", b"1")
        store.replace("work/agents/0.json", b"2")
        assert store.read("tokens/0.bin") == b"tokens"
        assert store.read("work/agents/0.json") == b"2"

    def test_a_file_of_another_file_system_is_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace = os.replace

        def other_file_system(old: Path, new: Path) -> None:
            if old.parent != new.parent:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            replace(old, new)

        monkeypatch.setattr(os, "replace", other_file_system)
        finished = tmp_path / "attempt.bin"
        finished.write_bytes(b"tokens")
        store = FolderStore(tmp_path / "out")
        store.add_files({"tokens/0.bin": finished})
        assert files_below(tmp_path) == ["out/tokens/0.bin"]
        assert store.read("tokens/0.bin") == b"tokens"


class TestListings:
    def test_entries_are_objects_and_nothing_else(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path)
        store.create("work/claims/a.0", b"abc")
        (tmp_path / "work/claims/.b.0.0123456789abcdef.tmp").write_bytes(b"a writer was killed")
        (tmp_path / "work/claims/.nfs0000000000000001").write_bytes(b"removed while it was open")
        (tmp_path / "work/claims/folder").mkdir()
        (tmp_path / "work/claims/link").symlink_to(tmp_path / "elsewhere")
        assert store.sizes("work/claims") == {"work/claims/a.0": 3}
        assert store.sizes("work/nothing") == {}

    def test_a_temporary_file_that_is_swept_too_early_is_written_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link, swept = os.link, []

        def sweeping(old: Path, new: Path) -> None:
            if not swept:
                swept.append(old)
                old.unlink()
            link(old, new)

        monkeypatch.setattr(os, "link", sweeping)
        store = FolderStore(tmp_path)
        assert store.create("work/job.json", b"first") == b"first"
        assert len(swept) == 1


class TestProbe:
    def test_without_links_several_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*arguments: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StorageError) as raised:
            refuse_unsafe(FolderStore(tmp_path))
        assert str(raised.value) == (
            "several agents cannot work in this location\n"
            f"  where: {tmp_path}\n"
            "  why: this file system has no hard links (link: Operation not permitted)\n"
            "  next: build without --agent (a single agent), or choose another file system"
        )
        assert files_below(tmp_path) == []
