"""Compiled code from disk always belongs to the function, whatever happened when it was saved."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tokenmill.kernels import code_cache

PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    {fields[0]}: int
    {fields[1]}: int

PAIR = Pair({fields[0]}={values[0]}, {fields[1]}={values[1]})
"""
CALLED = """
from tokenmill.kernels.compiled import inner

@inner
def called(x):
    return x + {added}
"""
CALLER = """
from tokenmill.called import LIMIT, called
from tokenmill.kernels.compiled import compiled

@compiled
def caller(x):
    return called(x) * LIMIT

@compiled
def first(pair):
    return pair.x
"""
CALLER_BY_MODULE = """
import tokenmill.called as c
from tokenmill.kernels.compiled import compiled

@compiled
def caller(x):
    return c.called(x) * c.LIMIT
"""
START = """
import os, sys, tokenmill
from pathlib import Path
from tokenmill.kernels import code_cache
tokenmill.__path__.append(sys.argv[1])
code_cache.PACKAGE = Path(sys.argv[1])
"""
SHOWN = (
    "from tokenmill.caller import caller; print(caller(1), sum(caller.stats.cache_hits.values()))"
)
FIRST = "from tokenmill.caller import first; from tokenmill.pair import PAIR; print(first(PAIR))"
KILLED = """
from tokenmill.caller import caller
Path.replace = lambda *_: os._exit(9)
caller(1)
"""
NO_SPACE = """
from tokenmill.caller import caller
def fail(*_):
    raise OSError(28, "No space left on device")
Path.write_bytes = fail
print(caller(1))
"""
CHANGED_MEANWHILE = """
from tokenmill.caller import caller
called = Path(sys.argv[1], "called.py")
called.write_text(called.read_text().replace("x + 1", "x + 2"))
print(caller(1))
"""


class Package:
    """Modules in a folder, of which one calls a compiled function of another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "caller.py").write_text(CALLER)
        self.edit(added=1)

    def edit(self, added: int, limit: int = 10) -> None:
        (self.folder / "called.py").write_text(CALLED.format(added=added) + f"\nLIMIT = {limit}\n")

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(self.folder)}
        command = [sys.executable, "-B", "-c", START + code, str(self.folder)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def kept(self) -> list[Path]:
        return list((self.folder / "tokenmill").iterdir())

    def shown(self) -> tuple[int, bool]:
        """Return what the function returns, and whether its code was read from disk."""
        finished = self.run(SHOWN)
        assert (finished.returncode, finished.stderr) == (0, "")
        result, hits = finished.stdout.split()
        return int(result), hits == "1"


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


@pytest.mark.parametrize("caller", [CALLER, CALLER_BY_MODULE])
def test_code_is_kept_until_a_function_or_constant_of_another_file_changes(
    package: Package, caller: str
) -> None:
    (package.folder / "caller.py").write_text(caller)
    assert package.shown() == (20, False)
    assert package.shown() == (20, True)
    package.edit(added=2)
    assert package.shown() == (30, False)
    package.edit(added=2, limit=100)
    assert package.shown() == (300, False)
    assert package.shown() == (300, True)


@pytest.mark.parametrize("imported", ["", "from tokenmill.pair import Pair\n"])
def test_code_follows_the_fields_of_a_tuple_of_another_file(
    package: Package, imported: str
) -> None:
    (package.folder / "caller.py").write_text(imported + CALLER)
    pair = package.folder / "pair.py"
    pair.write_text(PAIR.format(fields="xy", values=(3, 300)))
    assert package.run(FIRST).stdout == "3\n"
    pair.write_text(PAIR.format(fields="yx", values=(300, 3)))
    assert package.run(FIRST).stdout == "3\n"


def test_code_of_a_source_that_changed_after_its_import_is_not_kept(package: Package) -> None:
    assert package.run(CHANGED_MEANWHILE).stdout == "20\n"
    assert package.shown() == (30, False)


def test_code_of_other_packages_is_not_kept(package: Package) -> None:
    finished = package.run(
        "from tokenmill.kernels.compiled import compiled; print(compiled(lambda x: x + 1)(1))"
    )
    assert (finished.stdout, finished.stderr) == ("2\n", "")
    assert not (package.folder / "tokenmill").exists()


def test_a_kill_while_code_is_kept_leaves_nothing_to_read(package: Package) -> None:
    killed = package.run(KILLED)
    assert (killed.returncode, killed.stderr) == (9, "")
    assert package.shown() == (20, False)


def test_code_of_two_signatures_is_not_swapped(package: Package) -> None:
    shown = "from tokenmill.caller import caller; print(caller({}))"
    for _ in range(2):
        assert package.run(shown.format(1.5)).stdout == "25.0\n"
        assert package.run(shown.format(1)).stdout == "20\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda code: code[: len(code) // 2],
        lambda code: code[:-5000] + bytes([code[-5000] ^ 1]) + code[-4999:],
        lambda _: b"\x80 no pickle",
    ],
    ids=["empty", "half", "one bit", "other bytes"],
)
def test_damaged_code_is_compiled_again(package: Package, damage: Callable[[bytes], bytes]) -> None:
    assert package.shown() == (20, False)
    (path,) = package.kept()
    path.write_bytes(damage(path.read_bytes()))
    assert package.shown() == (20, False)
    assert package.shown() == (20, True)


def test_code_that_cannot_be_kept_is_used(package: Package) -> None:
    finished = package.run(NO_SPACE)
    assert (finished.returncode, finished.stdout) == (0, "20\n"), finished.stderr


def test_code_that_was_not_used_for_long_is_deleted(package: Package) -> None:
    package.shown()
    (old,) = package.kept()
    os.utime(old, (0, 0))
    assert package.shown() == (20, True)
    package.edit(added=2)
    package.shown()
    assert old in package.kept()
    os.utime(old, (0, 0))
    package.edit(added=3)
    package.shown()
    assert old not in package.kept()
    assert len(package.kept()) == 2


def test_code_of_others_is_compiled_again(package: Package) -> None:
    if os.geteuid():
        pytest.skip("only root can give files to others")
    package.shown()
    (path,) = package.kept()
    os.chown(path, 12345, 12345)
    assert package.shown() == (20, False)
    assert package.shown() == (20, True)


def closed(folder: Path) -> None:
    """Leave a folder as it is."""


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def open_to_a_group(folder: Path) -> None:
    os.chown(folder, -1, 12345)
    folder.chmod(0o770)


def of_others(folder: Path) -> None:
    os.chown(folder, 12345, -1)


def sticky(folder: Path) -> None:
    folder.chmod(0o1777)


@pytest.fixture
def folder_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Path | None]]:
    """Return the folder of code inside another folder, as a new process would."""

    def folder(parent: Path) -> Path | None:
        monkeypatch.setattr(code_cache._config, "CACHE_DIR", str(parent))
        code_cache._folder.cache_clear()
        return code_cache._folder()

    yield folder
    code_cache._folder.cache_clear()


FolderIn = Callable[[Path], Path | None]


@pytest.mark.parametrize("change", [closed, sticky])
def test_a_folder_of_code_is_private(
    change: Callable[[Path], None], folder_in: FolderIn, tmp_path: Path
) -> None:
    change(tmp_path)
    folder = folder_in(tmp_path / "cache")
    assert folder == tmp_path / "cache" / "tokenmill"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", [open_to_all, open_to_a_group, of_others])
@pytest.mark.parametrize("place", ["", "cache", "cache/tokenmill"])
def test_a_folder_that_others_can_change_is_not_used(
    place: str,
    change: Callable[[Path], None],
    folder_in: FolderIn,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if os.geteuid() and change is not open_to_all:
        pytest.skip("only root can give folders to others")
    (tmp_path / "cache" / "tokenmill").mkdir(parents=True)
    change(tmp_path / place)
    assert folder_in(tmp_path / "cache") is None
    (message,) = caplog.messages
    assert f"other users can change {tmp_path / place}. Set NUMBA_CACHE_DIR" in message


def test_a_folder_that_cannot_be_made_is_named_once(
    folder_in: FolderIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert folder_in(tmp_path / "file") is None
    assert code_cache._folder() is None
    (message,) = caplog.messages
    assert "Not a directory" in message


def imported_files(path: Path) -> set[Path]:
    """The files of the package that a file imports, as Python reads it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    inside = {name.removeprefix("tokenmill.") for name in names if name.startswith("tokenmill.")}
    files = {code_cache.PACKAGE / f"{name.replace('.', '/')}.py" for name in inside}
    return {file for file in files if file.exists()}


def test_all_imports_of_files_with_compiled_functions_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_cache, "_IMPORTED", float("inf"))
    code_cache._source.cache_clear()
    missed = {}
    for path in code_cache.PACKAGE.rglob("*.py"):
        if "tokenmill.kernels.compiled import" in path.read_text():
            left_out = imported_files(path) - code_cache._source(path)[1]
            missed |= {path: left_out} if left_out else {}
    code_cache._source.cache_clear()
    assert missed == {}
