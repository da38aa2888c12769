"""Compare a build of conversations with TRL's preparation, with the same ids and masks.

Both get the same conversations, built from lines of Python's standard library, and ChatML. TRL maps
`apply_chat_template` with `return_assistant_tokens_mask` over the records, and this program calls
the same function in one process. A build also reads, checks, audits and writes. Seconds are CPU
time over all processes, and contenders take turns.

    python bench/chat.py --tokenizer tokenizer.json
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import measure
import tokenmill
from tokenmill.read.rendering.chat.conversations import CHATML

END = "<|im_end|>"
PACKAGES = ("tokenmill", "jinja2", "transformers", "tokenizers")


def write_conversations(path: Path, count: int, turns: int) -> None:
    """Conversations of several turns of some hundred characters each."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = [
        line
        for file in sorted(library.glob("*.py"))
        for line in file.read_text(errors="ignore").splitlines()
        if line.strip()
    ]
    rng = np.random.default_rng(0)
    with path.open("w") as out:
        for _ in range(count):
            messages = []
            for turn in range(2 * turns):
                start = int(rng.integers(len(lines) - 20))
                content = "\n".join(lines[start : start + int(rng.integers(1, 20))])
                messages.append({"role": ("user", "assistant")[turn % 2], "content": content})
            out.write(json.dumps({"messages": messages}) + "\n")


def cpu_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call and of the processes that it ends, and what it returns."""
    before = _used()
    result = call()
    return _used() - before, result


def _used() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(each)[:2]) for each in who)


def masked(known: Any, path: Path) -> list[tuple[list[int], list[int]]]:
    """Ids and masks of all conversations, as transformers gives them."""
    found = []
    for line in path.open():
        made = known.apply_chat_template(
            json.loads(line)["messages"], chat_template=CHATML, tokenize=True,
            return_dict=True, return_assistant_tokens_mask=True,
        )  # fmt: skip
        found.append((made["input_ids"], made["assistant_masks"]))
    return found


def built(tokenizer: Path, path: Path, out: Path, workers: int) -> Any:
    """A dataset of all conversations."""
    return tokenmill.build(
        path, tokenizer, out, overwrite=True, workers=workers,
        chat="messages", chat_template="chatml", special_tokens="control", eos="<|im_end|>",
    )  # fmt: skip


def different(report: Any, expected: list[tuple[list[int], list[int]]], eos: int) -> int:
    """How many conversations have other ids or another mask."""
    count, number = 0, 0
    for shard in report.dataset.shards:
        spans = shard.documents(["no_loss"]).column("no_loss").to_pylist()
        for index, ranges in enumerate(spans):
            ids = shard.document(index).tolist()
            mask = np.ones(len(ids), int)
            for each in ranges:
                mask[each["start"] : each["stop"]] = 0
            theirs, their_mask = expected[number]
            count += ids != [*theirs, eos] or mask.tolist() != [*their_mask, 0]
            number += 1
    return count + abs(number - len(expected))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Conversations: build against TRL's preparation.")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--conversations", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        path = work / "conversations.jsonl"
        write_conversations(path, options.conversations, options.turns)
        words = Tokenizer.from_file(str(options.tokenizer))
        words.add_special_tokens(["<|im_start|>", "<|im_end|>"])
        words.save(str(work / "tokenizer.json"))
        known = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END)
        ours, theirs = [], []
        for _ in range(options.runs):
            seconds, expected = cpu_seconds(lambda: masked(known, path))
            theirs.append(seconds)
            seconds, report = cpu_seconds(
                lambda: built(work / "tokenizer.json", path, work / "out", workers=2)
            )
            ours.append(seconds)
        wrong = different(report, expected, known.eos_token_id)
        tokens = report.manifest.totals.tokens
    for facts in (measure.machine(), measure.versions(PACKAGES)):
        print("; ".join(f"{name} {value}" for name, value in facts.items()))
    print(f"{options.conversations:,} conversations, {tokens:,} tokens, {wrong} different")
    lines = [("transformers, one process", theirs), ("tokenmill build, start included", ours)]
    rows = [[name, f"{statistics.median(seconds):.2f}"] for name, seconds in lines]
    print(measure.table(["", "CPU s"], rows))
    print(f"ratio {measure.ratio(theirs, ours):.2f}")


if __name__ == "__main__":
    main()
