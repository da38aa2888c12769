"""Change a training while it runs, and prove what each change did.

    python examples/change_a_run.py

A small GPT trains on two sources, "mail" and "web", and keeps a log of every step. Then, one after
another, the batch grows from 8 to 16 rows, the shares change from 1 : 1 to 1 : 3, and the texts
that contain a string are taken out while rows grow from 512 to 1,024 tokens and 2 ranks become 3.

One process plays all ranks, so that the example runs without torchrun: each rank has a loader of
its own, and the gradients of a step are summed over their batches.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenmill
from corpus import source_files, train_tokenizer
from tokenmill import MixtureSource
from training import make_model, parse_options, train_step

PACKAGES = {"mail": ("email",), "web": ("http", "json", "logging", "collections")}
SEED = 7
TAKEN_OUT = "ValueError"
COLUMNS = ("input_ids", "labels", "position_ids", "num_targets")
Token = tuple[str, int, int]
"""Source, document and position of a token."""


@dataclass
class Log:
    """What was recorded of each step."""

    digests: list[str] = field(default_factory=list)
    """Names of the global batches."""
    tokens: list[list[Token]] = field(default_factory=list)
    """The tokens that all ranks were given."""


class Run:
    """The loaders of all ranks, from a state on."""

    def __init__(
        self,
        sources: list[MixtureSource],
        *,
        ranks: int,
        rows: int,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.loaders = [
            tokenmill.mix(
                sources,
                global_batch_size=rows,
                rank=rank,
                world_size=ranks,
                seed=SEED,
                labels="next",
                columns=COLUMNS,
            )
            for rank in range(ranks)
        ]
        if state is not None:
            for loader in self.loaders:
                loader.load_state_dict(state)

    def train(self, model: Any, optimizer: Any, steps: int, log: Log) -> dict[str, Any]:
        """Take steps on all ranks; return the state after them."""
        first = self.loaders[0]
        for _, *batches in zip(range(steps), *self.loaders, strict=False):
            num_targets = sum(batch["num_targets"] for batch in batches)
            loss = train_step(model, optimizer, batches, num_targets)
            step = first.step - 1
            log.digests.append(first.digest(step))
            log.tokens.append(tokens_of(first, step))
            rows = sum(len(batch["input_ids"]) for batch in batches)
            print(f"step {step} rows {rows} loss {loss:.4f}")
        return json.loads(json.dumps(first.state_dict()))


def tokens_of(loader: Any, step: int) -> list[Token]:
    """The tokens of a step over all ranks."""
    names = [source["name"] for source in loader.state_dict()["sources"]]
    return [
        (names[segment.plan], segment.document, position)
        for segment in loader.explain(step)
        for position in range(segment.start, segment.start + segment.length)
    ]


def main() -> None:
    """Train in four legs, then check each claim against the log."""
    options = parse_options(__doc__)
    steps = min(max(options.steps // 4, 2), 6)  # of a leg; no source begins a second epoch
    folder = options.out / "changing"
    shutil.rmtree(folder, ignore_errors=True)
    build_datasets(folder)
    data = {name: folder / name for name in PACKAGES}
    model, optimizer = make_model(tokenmill.open(data["mail"]))
    log = Log()

    print("leg 0: 8 rows of 512 tokens on 2 ranks")
    run = Run(sources(data, "rows-512", (1, 1)), ranks=2, rows=8)
    state = run.train(model, optimizer, steps, log)

    print("leg 1: 16 rows")
    state = tokenmill.amend(state, global_batch_size=16)
    run = Run(sources(data, "rows-512", (1, 1)), ranks=2, rows=16, state=state)
    state = run.train(model, optimizer, steps, log)

    print("leg 2: three times as many tokens of web as of mail")
    state = tokenmill.amend(state, shares={"web": 3})
    run = Run(sources(data, "rows-512", (1, 3)), ranks=2, rows=16, state=state)
    state = run.train(model, optimizer, steps, log)

    print(f"leg 3: without {TAKEN_OUT!r}, 12 rows of 1,024 tokens on 3 ranks")
    views = {name: without_string(path) for name, path in data.items()}
    for view in views.values():
        tokenmill.pack(view, rest_of=state, sequence_length=1024, name="rows-1024")
    last = sources(views, "rows-1024", (1, 3))
    state = tokenmill.amend(state, sources=last, global_batch_size=12)
    run = Run(last, ranks=3, rows=12, state=state)
    state = run.train(model, optimizer, steps, log)

    prove(Run(last, ranks=1, rows=12, state=state), data, log, steps)


def build_datasets(folder: Path) -> None:
    """Build one dataset for each source, with the same tokenizer, and pack rows of 512 tokens."""
    folder.mkdir(parents=True)
    tokenizer = train_tokenizer(folder / "tokenizer.json")
    for name, packages in PACKAGES.items():
        files = [path for path in source_files() if path.parent.name in packages]
        tokenmill.build(files, tokenizer, folder / name, separator="\n\n")
        tokenmill.pack(folder / name, sequence_length=512, name="rows-512")


def sources(data: dict[str, Path], plan: str, shares: tuple[float, float]) -> list[MixtureSource]:
    """The sources of a leg."""
    pairs = zip(data.items(), shares, strict=True)
    return [
        MixtureSource.of(path, plan, share=share, name=name, epochs=None)
        for (name, path), share in pairs
    ]


def without_string(dataset: Path) -> Path:
    """A view of a dataset without the texts that contain a string."""
    found, view = (dataset.with_name(f"{dataset.name}-{name}") for name in ("found", "clean"))
    tokenmill.find(dataset, TAKEN_OUT, save=found)
    tokenmill.select(dataset, view, without=found)
    return view


def prove(replay: Run, data: dict[str, Path], log: Log, steps: int) -> None:
    """Check what the legs promise against the log."""
    loader = replay.loaders[0]
    legs = [range(number * steps, (number + 1) * steps) for number in range(4)]

    again = [loader.digest(step) for step in range(4 * steps)]
    assert again == log.digests
    print(f"replayed on 1 rank: {len(again)} global batches are equal")

    given = Counter(token for tokens in log.tokens for token in tokens)
    assert set(given.values()) == {1}
    print(f"given once: {len(given):,} tokens, none of them twice in its epoch")

    by_source = Counter(name for step in legs[2] for name, _, _ in log.tokens[step])
    print(f"tokens of web for one of mail in leg 2: {by_source['web'] / by_source['mail']:.2f}")
    assert abs(by_source["web"] - 3 * by_source["mail"]) <= 4 * 512

    for name, path in data.items():
        documents = {each.document for each in tokenmill.find(path, TAKEN_OUT).documents}
        before, after = (
            sum(
                (source, document) in {(name, each) for each in documents}
                for step in part
                for source, document, _ in log.tokens[step]
            )
            for part in (range(3 * steps), legs[3])
        )
        assert after == 0
        print(
            f"{name}: {len(documents)} texts with the string; {before} of their tokens were "
            f"given before step {3 * steps}, {after} after it"
        )


if __name__ == "__main__":
    main()
