"""Compiled code from disk always belongs to the function, whatever happened when it was saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill.code_cache import _digest
from tokenmill.compiled import byte_at, eight_bytes_at, int32_at

CALLED = """
from tokenmill.compiled import inner

@inner
def called(x):
    return x + {added}
"""
CALLER = """
from called import LIMIT, called
from tokenmill.compiled import compiled

@compiled
def caller(x):
    return called(x) * LIMIT
"""
CALLER_BY_MODULE = """
import called as c
from tokenmill.compiled import compiled

@compiled
def caller(x):
    return c.called(x) * c.LIMIT
"""
SHOWN = "from caller import caller; print(caller(1), sum(caller.stats.cache_hits.values()))"
KILLED = """
import os, caller
from numba.core.caching import IndexDataCacheFile
kept = IndexDataCacheFile._save_data
def keep_and_die(*arguments):
    kept(*arguments)
    os._exit(9)
IndexDataCacheFile._save_data = keep_and_die
caller.caller(1)
"""
NO_SPACE = """
import caller
from numba.core.caching import IndexDataCacheFile
def fail(*_):
    raise OSError(28, "No space left on device")
IndexDataCacheFile._save_data = fail
print(caller.caller(1))
"""


class Package:
    """Two modules in a folder, of which one calls a compiled function of the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "caller.py").write_text(CALLER)
        self.edit(added=1)

    def edit(self, added: int, limit: int = 10) -> None:
        (self.folder / "called.py").write_text(CALLED.format(added=added) + f"\nLIMIT = {limit}\n")

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(self.folder), *sys.path])
        environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(self.folder)}
        command = [sys.executable, "-B", "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def kept(self) -> list[Path]:
        return [path for path in self.folder.rglob("*.nb?") if path.is_file()]

    def shown(self) -> tuple[int, bool]:
        """Return what the function returns, and whether its code was read from disk."""
        finished = self.run(SHOWN)
        assert finished.returncode == 0, finished.stderr
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


def test_a_kill_while_code_is_kept_leaves_no_code_of_an_older_version(package: Package) -> None:
    assert package.shown() == (20, False)
    (package.folder / "caller.py").write_text(CALLER.replace("* LIMIT", "* -LIMIT"))
    killed = package.run(KILLED)
    assert killed.returncode == 9, killed.stderr
    assert package.shown()[0] == -20


def test_code_of_two_signatures_is_not_swapped(package: Package) -> None:
    shown = "from caller import caller; print(caller({}))"
    for _ in range(2):
        assert package.run(shown.format(1.5)).stdout == "25.0\n"
        assert package.run(shown.format(1)).stdout == "20\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda code: code[: len(code) // 2],
        lambda code: code[:-1],
        lambda code: code[:-5000] + bytes([code[-5000] ^ 1]) + code[-4999:],
        lambda _: b"\x80 no pickle",
    ],
    ids=["empty", "half", "one byte short", "one bit", "other bytes"],
)
def test_damaged_code_is_compiled_again(package: Package, damage: Callable[[bytes], bytes]) -> None:
    assert package.shown() == (20, False)
    for path in package.kept():
        path.write_bytes(damage(path.read_bytes()))
    assert package.shown() == (20, False)
    assert package.shown() == (20, True)


def test_code_that_cannot_be_kept_is_used(package: Package) -> None:
    finished = package.run(NO_SPACE)
    assert (finished.returncode, finished.stdout) == (0, "20\n"), finished.stderr


def test_code_of_older_versions_is_deleted_after_a_while(package: Package) -> None:
    package.shown()
    (old,) = package.kept()
    (package.folder / "caller.py").write_text("# a line more" + CALLER)
    package.shown()
    assert old in package.kept()
    os.utime(old, (0, 0))
    (package.folder / "caller.py").write_text("# a line more\n\n" + CALLER)
    package.shown()
    assert old not in package.kept()
    assert len(package.kept()) == 2
    assert package.run(SHOWN.replace("(1)", "(1.5)")).returncode == 0
    assert len(package.kept()) == 3


def test_code_of_intrinsics_made_by_one_function_differs() -> None:
    digests = {_digest(each._defn) for each in (byte_at, int32_at, eight_bytes_at)}
    assert len(digests) == 3


def test_code_that_names_a_removed_type_is_ignored(package: Package) -> None:
    (package.folder / "removed.py").write_text(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n"
    )
    (package.folder / "caller.py").write_text(CALLER.replace("called(x)", "called(x[0])"))
    assert (
        package.run(
            "from caller import caller; from removed import Pair; caller(Pair(1))"
        ).returncode
        == 0
    )
    (package.folder / "removed.py").unlink()
    finished = package.run("from caller import caller; print(caller((1,)))")
    assert finished.stdout == "20\n", finished.stderr
