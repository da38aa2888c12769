"""The main job on text that every machine has: Python's own standard library.

Trains a small tokenizer on the spot, builds a dataset, verifies it against its sources, shows it,
packs it into sequences, exports some, and says what to do next. Everything is in demo/out
afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parent / "out"


def library_files() -> Iterator[Path]:
    """The .py files of the standard library, without tests and installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "test", "tests"} & set(parts):
            yield path


def write_corpus(folder: Path, num_files: int = 4) -> list[Path]:
    """JSON Lines of the library's sources: {"text": ..., "path": ...}."""
    folder.mkdir(parents=True)
    paths = [folder / f"stdlib-{index}.jsonl" for index in range(num_files)]
    files = [open(path, "w", encoding="utf-8") for path in paths]
    for number, source in enumerate(library_files()):
        try:
            text = source.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        print(json.dumps({"text": text, "path": source.name}), file=files[number % num_files])
    for file in files:
        file.close()
    return paths


def train_tokenizer(path: Path) -> None:
    """A byte-level BPE of 8,192 ids, trained on a part of the library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8192,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(source) for source in list(library_files())[::4]], trainer)
    tokenizer.save(str(path))


def run(*arguments: str) -> None:
    """Show a command as a user would type it, and run it."""
    shown = [Path(word).name if word == sys.executable else word for word in arguments]
    print(f"\n$ tokenmill {shlex.join(shown)}", flush=True)
    subprocess.run([sys.executable, "-m", "tokenmill", *arguments], check=True)


def show_sequence(corpus: str, plan: str) -> None:
    """The sequence of most segments, decoded: the first lines of each segment."""
    import numpy as np

    import tokenmill

    opened = tokenmill.open_plan(tokenmill.open(corpus), plan)
    number = str(np.diff(opened.offsets).argmax())
    arguments = ["inspect", corpus, "--plan", plan, "--sequence", number]
    print(f"\n$ tokenmill {shlex.join(arguments)}    # the first lines of each segment", flush=True)
    command = [sys.executable, "-m", "tokenmill", *arguments]
    decoded = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shown = 0
    for line in decoded.splitlines():
        shown = 0 if line.startswith("== document ") else shown + 1
        if shown == 0 or (line and shown <= 2):
            print(line)


def main() -> None:
    """The demo."""
    shutil.rmtree(OUT, ignore_errors=True)
    data, tokenizer, corpus = OUT / "data", OUT / "tokenizer.json", OUT / "corpus"
    print("collecting the sources of Python's standard library ...", flush=True)
    paths = write_corpus(data)
    num_bytes = sum(path.stat().st_size for path in paths)
    print(
        f"corpus: {num_bytes / 1e6:.0f} MB of Python's standard library in {os.path.relpath(data)}",
        flush=True,
    )
    print("training a tokenizer on a quarter of them; takes some ten seconds ...", flush=True)
    train_tokenizer(tokenizer)
    print(
        f"tokenizer: 8,192 ids, in {os.path.relpath(tokenizer)}",
        flush=True,
    )
    names = [os.path.relpath(path) for path in (data, tokenizer, corpus)]
    run("estimate", names[0], "--tokenizer", names[1])
    run("build", names[0], "--tokenizer", names[1], "--out", names[2], "--keep", "path")
    run("verify", names[2], "--against-sources")
    run("inspect", names[2])
    run("pack", names[2], "--sequence-length", "2048", "--compare")
    run("pack", names[2], "--sequence-length", "2048")
    show_sequence(names[2], "best-fit-2048")
    rows = os.path.relpath(OUT / "rows")
    run("export", names[2], "--plan", "best-fit-2048", "--out", rows, "--max-sequences", "100")
    print(
        "\nThat was the whole pipeline: every id was compared with Hugging Face tokenizers, and no"
        "\ndocument is cut that fits into a sequence."
        "\nNow with your own data:"
        "\n  .venv/bin/tokenmill build data/*.jsonl.zst --tokenizer tokenizer.json --out corpus/"
        "\n  .venv/bin/tokenmill pack corpus/ --sequence-length 4096"
    )


if __name__ == "__main__":
    main()
