"""Compiled functions compute what they say; code from disk is always that of the sources."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from tokenmill.kernels import compiled as module
from tokenmill.kernels.compiled import compiled, inner, telling_of_compilation

PACKAGE = Path(module.__file__).parents[1]


def doubled(values: np.ndarray) -> np.ndarray:
    return 2 * values


def test_an_inner_function_is_for_compiled_ones_and_refuses_python() -> None:
    twice = inner(doubled)
    assert compiled(lambda values: twice(values))(np.array([1, 2])).tolist() == [2, 4]
    with pytest.raises(TypeError, match="doubled can be called by compiled functions only"):
        twice(np.array([1, 2]))


def test_compilation_is_told_of_once() -> None:
    told: list[str] = []
    function = numba.njit(doubled)
    with telling_of_compilation(lambda: told.append("compiling")):
        function(np.array([1, 2]))
        function(np.array([1.0, 2.0]))
    with telling_of_compilation(lambda: told.append("compiling")):
        function(np.array([3, 4]))
    assert told == ["compiling"]


def test_all_compiled_functions_are_where_their_code_is_kept() -> None:
    """Code is kept for a state of the files of `kernels`, which import no others but `core`."""
    names = re.compile(r"from tokenmill\.kernels\.compiled import .*\b(compiled|inlined|inner)\b")
    elsewhere = [
        path
        for path in PACKAGE.rglob("*.py")
        if names.search(path.read_text()) and path.parent != module.KERNELS
    ]
    assert elsewhere == []


# Code on disk.

PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    {0}: int
    {1}: int

LIMIT = {limit}
PAIR = Pair({0}=1, {1}=2)
"""
CALLER = """
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.pair import LIMIT, PAIR, Pair

@compiled
def caller(pair):
    return pair.x * LIMIT
"""
FORKING = """
import gc, json, numba, os, sys, time, tokenmill.kernels
from pathlib import Path
from tokenmill.kernels import compiled
sys.dont_write_bytecode = True
numba.njit(lambda: 1)()  # loads what compiling needs, in a second
gc.freeze()  # a collection in a child would copy all pages
for line in sys.stdin:
    folder, code, output = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for descriptor in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    compiled._config.CACHE_DIR, compiled._IMPORTED = folder, time.time()
    compiled.KERNELS = Path(folder)
    tokenmill.kernels.__path__.append(folder)
    from tokenmill.kernels.caller import PAIR, Pair, caller
    exec(code)
    sys.exit()
"""
"""Runs code with the modules of a folder, each time in a process that is forked for it."""
CALLED = "print(caller(PAIR), sum(caller.stats.cache_hits.values()))"
TOGETHER = f"""
other = os.fork()
{CALLED}
if other:
    os.waitpid(other, 0)
"""
NO_SPACE = """
import numba.core.caching as caching
def fail(*_):
    raise OSError(28, "No space left on device")
caching.IndexDataCacheFile._save_data = fail
"""
CHANGED = """
import os
Path(folder, "pair.py").write_text("LIMIT = 1")
"""


class Kernels:
    """Two modules, of which one has the constant and the tuple of the other's function."""

    def __init__(self, folder: Path, server: subprocess.Popen[str]) -> None:
        self.folder, self.server = folder, server
        (folder / "caller.py").write_text(CALLER)
        self.edit()

    def edit(self, fields: str = "xy", limit: int = 10) -> None:
        (self.folder / "pair.py").write_text(PAIR.format(*fields, limit=limit))

    def run(self, code: str) -> str:
        output = self.folder / "output"
        output.write_bytes(b"")
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        task = [str(self.folder), code, str(output)]
        print(json.dumps(task), file=self.server.stdin, flush=True)
        assert self.server.stdout.readline() == "0\n", output.read_text()
        return output.read_text()

    def called(self) -> tuple[int, bool]:
        """Return what the function returns, and whether its code was read from disk."""
        result, hits = self.run(CALLED).split()
        return int(result), hits == "1"

    def files(self) -> list[Path]:
        return [*(self.folder / "tokenmill").rglob("*.nb*")]


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORKING], **pipes) as server:
        yield server
        server.kill()


@pytest.fixture
def kernels(tmp_path: Path, server: subprocess.Popen[str]) -> Kernels:
    return Kernels(tmp_path, server)


def test_code_is_kept_until_a_constant_or_a_tuple_of_another_file_changes(
    kernels: Kernels,
) -> None:
    assert kernels.called() == (10, False)
    assert kernels.called() == (10, True)
    kernels.edit(limit=100)
    assert kernels.called() == (100, False)
    kernels.edit("yx", limit=100)
    assert kernels.called() == (200, False)
    kernels.edit()
    assert kernels.called() == (10, True)


FRESH = """
import sys, numba, numpy as np
from tokenmill.kernels.permutation import Permutation, _hashes
order = Permutation(5, 1)(np.arange(5)).tolist()
is_kept, is_loaded = bool(_hashes.stats.cache_hits), "numba.typed.typeddict" in sys.modules
print(sorted(order), is_kept, is_loaded, numba.njit(lambda values: values.sum())(np.arange(3)))
"""


def test_kept_code_runs_without_the_compiler_which_is_loaded_when_it_is_needed(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FRESH]
    runs = [subprocess.check_output(command, env=environment, text=True) for _ in range(2)]
    assert runs == ["[0, 1, 2, 3, 4] False True 3\n", "[0, 1, 2, 3, 4] True False 3\n"]


def test_code_of_two_signatures_is_not_swapped(kernels: Kernels) -> None:
    assert kernels.run("print(caller(Pair(1.5, 2)))") == "15.0\n"
    assert kernels.run("print(caller(PAIR))") == "10\n"
    assert kernels.run("print(caller(Pair(1.5, 2)), caller(PAIR))") == "15.0 10\n"


def test_one_at_a_time_compiles_a_function(tmp_path: Path) -> None:
    """As many threads: each opens the lock for itself, as processes do."""
    inside, most = [0], [0]

    def compile_it() -> None:
        with module._turn_of(tmp_path / "lock"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            threading.Event().wait(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=compile_it) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == ([0], [1])


def test_a_process_waits_for_the_code_that_another_compiles(kernels: Kernels) -> None:
    assert sorted(kernels.run(TOGETHER).splitlines()) == ["10 0", "10 1"]


def test_code_is_not_kept_after_too_long_a_wait(kernels: Kernels) -> None:
    assert kernels.run("compiled.TURN_SECONDS = 0\n" + CALLED) == "10 0\n"
    assert kernels.called() == (10, False)


def test_those_who_wait_compile_at_once_if_the_code_cannot_be_kept(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    first = module._turn_of(path)

    def end_first(_: float) -> None:
        path.unlink()
        first.close()

    monkeypatch.setattr(module.time, "sleep", end_first)
    assert module._turn_of(path).closed
    monkeypatch.undo()

    assert kernels.run(NO_SPACE + CALLED) == "10 0\n"
    assert [*tmp_path.rglob("*.lock")] == []


def test_code_is_not_kept_elsewhere_if_numba_cannot_write_to_the_folder(kernels: Kernels) -> None:
    numba_cannot = "from numba.core.caching import UserProvidedCacheLocator as Place\n"
    numba_cannot += "Place.from_function = classmethod(lambda *_: None)\n"
    assert kernels.run(numba_cannot + CALLED) == "10 0\n"
    assert [*kernels.folder.rglob("*.nb*")] == []


def test_a_compilation_that_failed_gives_its_turn_back(kernels: Kernels) -> None:
    fails = "try: caller('no pair')\nexcept Exception as error: print(type(error).__name__)\n"
    assert kernels.run(fails + CALLED) == "TypingError\n10 0\n"
    assert kernels.called() == (10, True)


def test_damaged_code_is_compiled_again(kernels: Kernels) -> None:
    assert kernels.called() == (10, False)
    for left in (0, 100):
        for path in kernels.files():
            path.write_bytes(path.read_bytes()[:left])
        assert kernels.called() == (10, False)
    assert kernels.called() == (10, True)


def test_code_that_cannot_be_kept_is_used(kernels: Kernels) -> None:
    assert kernels.run(NO_SPACE + CALLED) == "10 0\n"
    assert kernels.run(CHANGED + CALLED) == "10 0\n"  # its source changed after it was imported
    kernels.edit()
    assert kernels.called() == (10, False)


def test_code_that_was_not_used_for_long_is_deleted(kernels: Kernels) -> None:
    kernels.called()
    (old,) = {path.parents[1] for path in kernels.files()}
    kernels.edit(limit=20)
    kernels.called()
    assert old.exists()
    os.utime(old, (0, 0))
    kernels.called()
    assert not old.exists()


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


FolderIn = Callable[[Path], Path | None]


@pytest.fixture
def folder_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderIn]:
    """Return the folder of code inside another folder, as a new process would."""

    def folder(parent: Path) -> Path | None:
        monkeypatch.setattr(module._config, "CACHE_DIR", str(parent))
        module._folder.cache_clear()
        return module._folder()

    yield folder
    module._folder.cache_clear()


@pytest.mark.parametrize("change", [closed, sticky])
def test_a_folder_of_code_is_private(
    change: Callable[[Path], None], folder_in: FolderIn, tmp_path: Path
) -> None:
    change(tmp_path)
    folder = folder_in(tmp_path / "cache")
    assert folder is not None
    for made in (folder, folder.parent):
        assert made.stat().st_mode & 0o777 == 0o700
    assert folder.parent == tmp_path / "cache" / "tokenmill"


@pytest.mark.parametrize("change", [open_to_all, open_to_a_group, of_others])
@pytest.mark.parametrize("place", ["", "cache", "cache/tokenmill", "cache/tokenmill/digest"])
def test_a_folder_that_others_can_change_is_not_used(
    place: str,
    change: Callable[[Path], None],
    folder_in: FolderIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if os.geteuid() and change is not open_to_all:
        pytest.skip("only root can give folders to others")
    monkeypatch.setattr(module, "_digest", lambda: "digest")
    (tmp_path / "cache" / "tokenmill" / "digest").mkdir(parents=True)
    change(tmp_path / place)
    assert folder_in(tmp_path / "cache") is None
    assert module._folder() is None
    (message,) = caplog.messages
    assert f"other users can change {tmp_path / place}. Set NUMBA_CACHE_DIR" in message


# What imports the compiler.


@pytest.mark.parametrize(
    ("imported", "heavy"),
    [
        ("tokenmill.cli.build", "numpy numba pyarrow asyncio yaml"),
        (
            "tokenmill.cli.build, tokenmill.cli.display, tokenmill.run.pipeline, "
            "tokenmill.run.worker, tokenmill.reports.verify",
            "numba",
        ),
    ],
    ids=["before the first worker starts", "what does not pack"],
)
def test_what_takes_long_is_not_imported(imported: str, heavy: str) -> None:
    code = f"import sys, {imported}; print({{*{heavy.split()}}} & {{*sys.modules}})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "set()\n"
