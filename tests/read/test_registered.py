"""Formats and places of installed packages: one module each, found by name in every process.

`toy_package` stands for an installed package: its folder holds modules and their metadata.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpora import command, contents
from toy_package.toy_place import data_of

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent, Format
from tokenmill.read.registry import Registry
from tokenmill.read.source import LOCAL, Source, place_of

TOY_PACKAGE = Path(__file__).parent / "toy_package"
INPUTS = ["toy://4000.netstrings", "toy://3000.jsonl"]


def with_toys(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line where the package is installed."""
    result = subprocess.run(
        command(*arguments), env=environment(), check=False, capture_output=True, text=True
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result


def environment() -> dict[str, str]:
    paths = [str(TOY_PACKAGE), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def corpus(tmp_path: Path) -> list[object]:
    """What is built: two toys, and netstrings in a compressed and in a plain file."""
    (tmp_path / "plain").write_bytes(data_of("toy://50.netstrings"))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(data_of("toy://5000.netstrings")))
    return [*INPUTS, tmp_path / "plain", tmp_path / "packed.gz"]


def test_a_build_from_toys_is_the_same_with_any_workers_and_is_verified(
    corpus: list[object], tmp_path: Path, tokenizer_path: Path
) -> None:
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        with_toys(
            "build", *corpus, "--tokenizer", tokenizer_path, "--workers", workers, "--out", out
        )
    with_toys("verify", out, "--against-sources")
    assert contents(tmp_path / "out-1") == contents(tmp_path / "out-2")
    manifest = json.loads((tmp_path / "out-1/manifest.json").read_bytes())
    assert manifest["totals"]["documents"] == 4000 + 3000 + 50 + 5000
    assert [(s["name"], s["format"], s.get("origin")) for s in manifest["sources"]] == [
        ("4000.netstrings", "netstrings", "toy://4000.netstrings"),
        ("3000.jsonl", "jsonl", "toy://3000.jsonl"),
        ("plain", "netstrings", None),
        ("packed.gz", "netstrings", None),
    ]
    assert len(manifest["shards"]) > 6


def test_a_killed_build_from_toys_resumes_to_the_same_bytes(
    corpus: list[object], tmp_path: Path, tokenizer_path: Path
) -> None:
    arguments = ["build", *corpus, "toy://24000.netstrings", "--tokenizer", tokenizer_path,
                 "--workers", 2, "--out"]  # fmt: skip
    with_toys(*arguments, tmp_path / "clean")
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(*arguments, out), env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and len(list(out.glob("work/receipts/*.json"))) < 4:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    resumed = with_toys(*arguments, out)
    assert "reused" in resumed.stdout + resumed.stderr
    assert contents(out) == contents(tmp_path / "clean")


def test_help_names_the_formats_of_installed_packages() -> None:
    assert "installed: netstrings" in " ".join(with_toys("build", "--help-all").stdout.split())


def test_toys_are_estimated(corpus: list[object], tokenizer_path: Path) -> None:
    result = with_toys("estimate", *corpus, "--tokenizer", tokenizer_path, "--json")
    assert json.loads(result.stdout)["files"] == 4


@pytest.mark.parametrize(
    "name", ["toy_format:Netstrings", "tokenmill.read.formats.jsonl:JsonLines"]
)
def test_a_recipe_can_only_name_what_is_registered(
    name: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    result = with_toys(
        "build", tmp_path / "a.jsonl", "--tokenizer", tokenizer_path, "--format", name,
        "--out", tmp_path / "out", code=2,
    )  # fmt: skip
    assert f"--format: got {name!r}; must be one of auto, parquet" in result.stderr
    assert "text, netstrings" in result.stderr


def test_a_dataset_can_only_name_what_is_registered(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    source = Source(
        name="a", place=LOCAL, location="a", version=path.stat().st_mtime_ns, num_bytes=1,
        format="toy_format:Netstrings", path=path, mtime_ns=path.stat().st_mtime_ns,
    )  # fmt: skip
    with pytest.raises(UserError, match="unknown format 'toy_format:Netstrings'"):
        next(Reader([source], Fields(), 100).read(Extent(0)))


@pytest.mark.parametrize("name", ["toy_place:Toy", "toy_place:Toy://x", "os://x", "a/b", "local.x"])
def test_a_name_without_a_registered_scheme_is_local(name: str) -> None:
    assert place_of(name) == LOCAL


def test_a_package_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(tmp_path, "one", "broken = toy_format:Missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="cannot load the format 'broken'") as caught:
        Registry("tokenmill.formats", "format", {}, Format)["broken"]
    assert caught.value.where == "toy_format:Missing"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("None", "TypeError: 'NoneType' does not define holds_records, "),
        ("ByteFormat()", "TypeError: Can't instantiate abstract class ByteFormat"),
        ("exit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_package_registers_must_be_what_it_says(
    made: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(tmp_path, "liar", "odd = liar:make")
    code = "from sys import exit\nfrom tokenmill.read.formats.format import ByteFormat\n"
    (tmp_path / "liar.py").write_text(f"{code}def make():\n    return {made}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "liar", raising=False)
    with pytest.raises(UserError, match="cannot load the format 'odd'") as caught:
        Registry("tokenmill.formats", "format", {}, Format)["odd"]
    assert caught.value.why.startswith(why)


def test_a_name_that_two_packages_register_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(tmp_path, "one", "same = a:A")
    registered(tmp_path, "two", "same = b:B")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="two packages register the format 'same'") as caught:
        Registry("tokenmill.formats", "format", {}, Format)["same"]
    assert caught.value.why == "the packages are a:A and b:B"


def registered(folder: Path, package: str, entry: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tokenmill.formats]\n{entry}\n")


BUILT_IN = """
import sys
import tokenmill
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import PLACES

tokenmill.build(sys.argv[1], sys.argv[2], sys.argv[3], workers=1)
print([name for registry in (FORMATS, PLACES) for name in vars(registry) if name == "_entries"])
"""


def test_packages_are_not_searched_for_formats_and_places_of_our_own(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    arguments = [str(tmp_path / "a.jsonl"), str(tokenizer_path), str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-c", BUILT_IN, *arguments], check=True, capture_output=True, text=True
    )
    assert result.stdout == "[]\n"
    assert tokenmill.open(tmp_path / "out").manifest.totals.documents == 1
