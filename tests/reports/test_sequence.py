"""A sequence as it is shown, and what a batch is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.cli.sequence_lines import sequence_lines
from tokenmill.reports.sequence import Run, view_sequence

EOS = "<|endoftext|>"


@pytest.fixture
def packed(tmp_path: Path, tokenizer_path: Path) -> Path:
    """Documents of 8, 2 and 3 tokens, in rows of 6: [0 to 6] [6 to 8, 2, -] [3, -]."""
    path = write_jsonl(tmp_path / "a.jsonl", ["1234567", "8", "90"], id=["x", "y", "z"])
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, id_field="id")
    tokenmill.pack(tmp_path / "out", sequence_length=6, packing="next-fit")
    return tmp_path / "out"


def test_a_sequence_says_which_tokens_carry_loss(packed: Path) -> None:
    dataset = tokenmill.open(packed)
    view = view_sequence(dataset, tokenmill.open_plan(dataset, "next-fit-6"), 1)
    assert (view.sequence, view.row_length, view.padding) == (1, 6, 2)
    first, second = view.segments
    assert (first.document, first.start, first.num_tokens, first.document_tokens) == (0, 6, 2, 8)
    assert (first.record["source"], first.record["id"]) == ("a.jsonl", "x")
    assert first.text == f"7{EOS}"
    assert [(run.text, run.kind, run.has_loss) for run in first.runs] == [
        ("7", "text", False),
        (EOS, "boundary", True),
    ]
    assert [(run.text, run.has_loss) for run in second.runs] == [("8", False), (EOS, True)]


def test_tokens_set_at_cuts_are_shown(packed: Path) -> None:
    dataset = tokenmill.open(packed)
    plan = tokenmill.pack(
        dataset, sequence_length=6, packing="next-fit", at_cuts="bos-and-eos", name="marked"
    ).plan
    begin, middle = (view_sequence(dataset, plan, number).segments[0] for number in (0, 1))
    assert [(run.text, run.kind) for run in begin.runs][-1] == (EOS, "set at cut")
    assert middle.runs[0] == Run(EOS, [0], "set at cut", has_loss=False)
    assert begin.text == "12345"


def test_a_sequence_is_shown_with_brackets_or_in_colour(packed: Path, capsys: Printed) -> None:
    assert main(["inspect", str(packed), "--plan", "next-fit-6", "--sequence", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "== document 0, 6 to 8 of 8 tokens; a.jsonl, position 0, id x",
        f"⟪7⟫⟦{EOS}⟧",
        "== document 1, all of 2 tokens; a.jsonl, position 31, id y",
        f"⟪8⟫⟦{EOS}⟧",
        "-- 2 of 6 tokens are padding   ⟦end or beginning of a document⟧  ⟪no loss⟫",
    ]
    dataset = tokenmill.open(packed)
    view = view_sequence(dataset, tokenmill.open_plan(dataset, "next-fit-6"), 1)
    shown = list(sequence_lines(view, colour=True))[1]
    assert shown == f"\x1b[36;2m⟪7⟫\x1b[0m\x1b[36;7m⟦{EOS}⟧\x1b[0m"


def test_a_text_cannot_steer_the_terminal(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["1\x1b[2J2"])
    dataset = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1).dataset
    plan = tokenmill.pack(dataset, sequence_length=32).plan
    lines = sequence_lines(view_sequence(dataset, plan, 0), colour=False)
    assert "\x1b" not in "".join(lines)


def test_a_step_says_what_it_is_made_of(packed: Path) -> None:
    batches = tokenmill.open(packed).batches(
        global_batch_size=2, rank=0, world_size=2, shuffle="none", even_attention=False
    )
    found = [
        (each.rank, each.row, each.column, each.document, each.start, each.length)
        for each in batches.explain(0)
    ]
    assert found == [(0, 0, 0, 0, 0, 6), (1, 0, 0, 0, 6, 2), (1, 0, 2, 1, 0, 2)]
    origin = batches.explain(0)[2]
    assert (origin.sequence, origin.epoch, origin.plan, origin.document_tokens) == (1, 0, 0, 2)
    assert origin.record == {"source": "a.jsonl", "position": 31, "id": "y", "subset": "train"}


def test_what_a_step_is_made_of_is_what_its_batches_hold(packed: Path) -> None:
    dataset = tokenmill.open(packed)
    for world_size in (1, 2):
        options = {"global_batch_size": 2, "world_size": world_size, "seed": 3}
        ranks = [dataset.batches(rank=rank, **options).batch(0) for rank in range(world_size)]
        for origin in dataset.batches(rank=0, **options).explain(0):
            shard, index = dataset.locate(origin.document)
            ids = shard.document(index)[origin.start : origin.start + origin.length]
            row = ranks[origin.rank]["input_ids"][origin.row]
            assert row[origin.column : origin.column + origin.length].tolist() == ids.tolist()
