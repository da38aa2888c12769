"""Measure the CPU seconds of compilation on a fresh install, when all caches are empty.

Every case is a separate process with an empty folder for Numba's cache. It runs again with the
filled folder:

- tokenizers: load the native engine and encode a first text in many languages;
- pack: make the first plan of a small dataset with several strategies, and compare all strategies;
- load: make the first batch of a loader.

By default, tokenizers and the dataset are made from the pages in docs/.

    python bench/compile.py
    python bench/compile.py --cases "Llama 2" --tokenizers "Llama 2=llama2.json" --functions 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure

PAGES = sorted((Path(__file__).resolve().parent.parent / "docs").rglob("*.md"))
KINDS = {
    "Llama 2": "BPE with byte fallback, Metaspace (Mistral)",
    "BPE, ends of words": "BPE with ends of words (GPT)",
    "StarCoder": "byte-level BPE, single digits (StarCoder)",
    "WordPiece": "WordPiece, uncased (BERT)",
    "WordLevel": "WordLevel",
    "Unigram": "Unigram",
    "T5": "Unigram, NFKC, joined spaces (T5)",
}
"""Native kinds, and what they are called in `kinds.py`."""
PLANS = ("best-fit", "concat-and-chunk", "balanced", "length-buckets")
LOADERS: dict[str, dict[str, Any]] = {
    "load": {},
    "load, positions of documents": {"positions": "document"},
}
TEXT = (
    "Größe, naïve\u0301 'x' 12.5\t東京 — 😀😀 and don't, \r\n"
    "  spaces   \u2028 x\ufb01 \u0915\u094d "
)
"""Some of what the compiled functions do is reached by few characters only."""
LENGTH = 512
CACHE_BYTES = 1 << 26


class Functions:
    """CPU seconds of every function that numba compiles while it listens, without its callees."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.signatures: dict[str, int] = {}
        self._open: list[list[float]] = []

    def on_start(self, _: Any) -> None:
        self._open.append([time.process_time(), 0.0])

    def on_end(self, event: Any) -> None:
        started, callees = self._open.pop()
        spent = time.process_time() - started
        if self._open:
            self._open[-1][1] += spent
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('tokenmill.')}.{function.__name__}"
        self.seconds[name] = self.seconds.get(name, 0.0) + spent - callees
        self.signatures[name] = self.signatures.get(name, 0) + 1


@contextlib.contextmanager
def listening() -> Iterator[Functions]:
    """Notes what is compiled."""
    from numba.core import event

    functions = Functions()

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            functions.on_start(event)

        def on_end(self, event: Any) -> None:
            functions.on_end(event)

    with event.install_listener("numba:compile", Listener()):
        yield functions


def first_encoding(tokenizer: str) -> None:
    """Load the native engine and encode once."""
    from tokenmill.encode.engine_ranking import load_engine
    from tokenmill.encode.tokenizer_file import load_tokenizer_file

    engine = load_engine("native", load_tokenizer_file(tokenizer), False, CACHE_BYTES)
    engine.encode([TEXT * 20, *(page.read_text() for page in PAGES[:3])])


def first_plan(dataset: str, strategy: str, folder: str) -> None:
    """Plan a small dataset."""
    import tokenmill

    tokenmill.pack(dataset, packing=strategy, sequence_length=LENGTH, folder=Path(folder) / "plan")


def comparison(dataset: str) -> None:
    """Plan a small dataset in all ways."""
    import tokenmill

    tokenmill.compare_plans(dataset, sequence_length=LENGTH)


def first_batch(dataset: str, **options: Any) -> None:
    """Take one batch."""
    import tokenmill

    loader = tokenmill.open(dataset).loader(
        "plan", global_batch_size=4, rank=0, world_size=1, **options
    )
    next(iter(loader))


RUNS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (first_encoding, first_plan, comparison, first_batch)
}


def run_case(function: str, arguments: dict[str, Any]) -> None:
    """In a process of its own: print what was compiled, and for how long."""
    import tokenmill  # noqa: F401 - a user has imported it, too

    started, cpu = time.perf_counter(), time.process_time()
    import numba  # noqa: F401

    imported = time.process_time()
    with listening() as functions:
        RUNS[function](**arguments)
    print(
        json.dumps(
            {
                "compiling": sum(functions.seconds.values()),
                "importing": imported - cpu,
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - started,
                "functions": functions.seconds,
                "signatures": functions.signatures,
            }
        )
    )


def train(folder: Path) -> dict[str, str]:
    """Paths of a small tokenizer of each kind."""
    from kinds import kinds

    texts = [page.read_text() for page in PAGES]
    found = {}
    for name, kind in KINDS.items():
        tokenizer = kinds()[kind](texts)
        found[name] = str(folder / f"{name}.json")
        tokenizer.save(found[name])
    return found


def build(folder: Path, tokenizer: str) -> str:
    """A dataset of the paragraphs of docs/."""
    import tokenmill

    source, out = folder / "docs.jsonl", folder / "dataset"
    texts = [text for page in PAGES for text in page.read_text().split("\n\n")]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    end = "<|endoftext|>"
    tokenmill.build([source], tokenizer=tokenizer, out=out, eos=end)
    tokenmill.pack(out, sequence_length=LENGTH, name="plan")
    return str(out)


def cases(options: argparse.Namespace, folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """The function and the arguments of every case."""
    tokenizers = train(folder) | dict(given.split("=", 1) for given in options.tokenizers)
    found: dict[str, tuple[str, dict[str, Any]]] = {
        name: ("first_encoding", {"tokenizer": path}) for name, path in tokenizers.items()
    }
    names = [*(f"pack {strategy}" for strategy in PLANS), "pack --compare", *LOADERS]
    if options.cases and not set(options.cases).intersection(names):
        return found
    dataset = build(folder, tokenizers["StarCoder"])
    for strategy in PLANS:
        arguments = {"dataset": dataset, "strategy": strategy, "folder": ""}
        found[f"pack {strategy}"] = ("first_plan", arguments)
    found["pack --compare"] = ("comparison", {"dataset": dataset})
    for name, arguments in LOADERS.items():
        found[name] = ("first_batch", {"dataset": dataset, **arguments})
    return found


def measured(case: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a case takes with an empty cache, and with the one that it left."""
    function, arguments = case
    with tempfile.TemporaryDirectory() as cache:
        runs = []
        for turn in ("empty", "filled"):
            own = {"folder": f"{cache}/{turn}"} if "folder" in arguments else {}
            words = [function, json.dumps(arguments | own)]
            command = [sys.executable, __file__, "--case", *words]
            found = measure.run(command, {"NUMBA_CACHE_DIR": f"{cache}/numba"}, hz=0)
            runs.append(json.loads(found.output.splitlines()[-1]))
    return runs[0], runs[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", nargs="*", help="names of the table, all unless given")
    parser.add_argument(
        "--tokenizers", nargs="*", default=[], metavar="NAME=FILE", help="in place of small ones"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--functions", type=int, default=0, help="list so many of the slowest")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(options.case[0], json.loads(options.case[1]))
        return
    print(measure.machine())
    print(measure.versions(["tokenmill", "numba", "llvmlite", "numpy"]))
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(options, Path(folder)).items():
            if options.cases and name not in options.cases:
                continue
            rounds = [measured(case) for _ in range(options.rounds)]
            print(f"{name}: {rounds[0][0]['compiling']:.2f}", file=sys.stderr)
            lines.append([name, *map(str, row(rounds))])
            listed = sorted(rounds[0][0]["functions"].items(), key=lambda item: -item[1])
            for function, seconds in listed[: options.functions]:
                count = rounds[0][0]["signatures"][function]
                print(f"    {seconds:5.2f} {function} ({count})", file=sys.stderr)
    header = ["case", "compiling, CPU s", "functions", "all, CPU s", "wall s", "all, cached"]
    print(measure.table(header, lines))


def row(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[str]:
    """Medians of one case."""

    def median(turn: int, name: str) -> str:
        return f"{statistics.median(found[turn][name] for found in rounds):.2f}"

    yield from (median(0, "compiling"), str(sum(rounds[0][0]["signatures"].values())))
    yield from (median(0, "cpu"), median(0, "wall"), median(1, "cpu"))


if __name__ == "__main__":
    main()
