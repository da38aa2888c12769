"""A throwaway tokenizer and tiny corpora."""

from __future__ import annotations

import functools
import gc
import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from tokenizers import decoders, models, pre_tokenizers, trainers

from tokenmill.encode import engine_ranking, exactness
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.run import machine

pytest_plugins = ["cloud_kit.s3_fixtures", "slurm_fixtures"]
"""Not in files of their own folders, also called conftest.py: tests import from this one."""

# Hundreds of tests start processes; without stored bytecode each would compile tokenmill again, and
# pytest would rewrite every assertion in each run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first", type=int, help="only the first N tests of every file")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the slowest tests: at the end, one process would wait for another one's."""
    items.sort(key=lambda item: item.path.name != "test_examples.py")
    if (most := config.getoption("--first")) is not None:
        seen: Counter[Path] = Counter()
        for item in items.copy():
            seen[item.path] += 1
            if seen[item.path] > most:
                items.remove(item)


def pytest_collection_finish() -> None:
    """Leave the modules and tests, which live to the end, out of every later garbage collection.

    It also lets forks share their memory, which a collection in a child would write to.
    """
    gc.collect()
    gc.freeze()


Printed = pytest.CaptureFixture[str]
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Ein Text mit Umlauten: äöü, und einem Zeilenende.\n",
    "def f(x):\n    return x + 1\n",
    "日本語のテキスト と emoji 😀",
    "a",
]


@pytest.fixture(scope="module", autouse=True)
def short_exams(request: pytest.FixtureRequest) -> Iterator[None]:
    """Builds examine their engines with 600 of 3,000 strings: each one alone, doubled and between
    letters, but few of the random mixes, which take half of the time of a small build, and none of
    those that are chosen for a tokenizer, which take as long as all others together.

    The tests of encoding have all, and modules that ask for `WHOLE_EXAMS`; those of `hf`, which
    load a tokenizer each, have two.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "encode" not in request.path.parts and not hasattr(request.module, "WHOLE_EXAMS"):
            two = "hf" in request.path.parts
            patch.setattr(
                exactness,
                "adversarial_texts",
                lambda specials: ["a", "\n\n b"] if two else short_exam(frozenset(specials)),
            )
            patch.setattr(exactness, "texts_of_classes", lambda normalize: [])
        yield


@functools.cache
def short_exam(specials: frozenset[str]) -> list[str]:
    """The first strings, kept for later builds: making all of them takes 30 ms."""
    return adversarial_texts(specials)[:600]


@pytest.fixture(scope="module", autouse=True)
def without_what_it_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """What functions of a module have cached, such as engines, ends with it.

    Every later fork would copy the tables of its pages, and every collection look through it.
    """
    yield
    for function in vars(request.module).values():
        if getattr(function, "__module__", "") == request.module.__name__:
            getattr(function, "cache_clear", lambda: None)()


@pytest.fixture(scope="module", autouse=True)
def engines_for_small_inputs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Builds in this process take the engines of large inputs, although tests have small ones.

    Modules that have `REFERENCE_FOR_SMALL` take the reference, as do builds in other processes.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not hasattr(request.module, "REFERENCE_FOR_SMALL"):
            patch.setattr(engine_ranking, "SMALL_BYTES", -1)
        yield


@pytest.fixture(scope="module", autouse=True)
def one_worker_by_default(request: pytest.FixtureRequest) -> Iterator[None]:
    """Builds in this process start no others unless a test says how many workers there are.

    Modules that have `CORES_OF_MACHINE` find those of the machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not hasattr(request.module, "CORES_OF_MACHINE"):
            patch.setattr(machine, "_usable_cores", lambda: (1.0, "one core"))
        yield


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of 400 ids, with <|endoftext|> as its only special token."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def reference(tokenizer_path: Path) -> Callable[[str], list[int]]:
    """The ids that Hugging Face `tokenizers` gives a text, special strings read as text."""
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    tokenizer.encode_special_tokens = True
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_disks() -> Iterator[None]:
    """Tests kill processes but no machine, so nothing needs to be on the disk when `fsync` returns.

    A build calls it 20 times, and each call may take milliseconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def random_trials(few: int, many: int, **strategies: Any) -> Callable[[Any], Any]:
    """A test of random inputs, drawn from a strategy each: few of them, and many in make soak.

    Its other arguments are fixtures.
    """

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        def test(examples: int, **fixtures: Any) -> None:
            def trial(**drawn: Any) -> None:
                check(**drawn, **fixtures)

            trial.__name__ = check.__name__  # under which hypothesis keeps what has failed
            settings(max_examples=examples, deadline=None)(given(**strategies)(trial))()

        functools.update_wrapper(test, check)
        names = [
            "examples",
            *(n for n in inspect.signature(check).parameters if n not in strategies),
        ]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(name, kind) for name in names]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        soak = pytest.param(many, marks=[pytest.mark.soak, pytest.mark.timeout(0)])
        return pytest.mark.parametrize("examples", [few, soak])(test)

    return decorate


def write_jsonl(path: Path, texts: Iterable[str], **columns: Iterable[object]) -> Path:
    """One {"text": ...} a line, with further columns."""
    names = ["text", *columns]
    rows = zip(texts, *columns.values(), strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Path]:
    """Names of folders that do not exist."""
    parent = tmp_path_factory.mktemp("plans")
    return (parent / str(number) for number in count())
