"""Rows as fine-tuning tools read them: documents, trl, llama-factory and bridge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpora import write_corpus

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import Interrupted, OutputConflictError, UserError
from tokenmill.load.export.rows import exporting as export_rows
from tokenmill.store.exports import LAYOUT_FORMATS, Layout

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}"
    "{% else %}{% generation %}{{ message.content }}{% endgeneration %}{% endif %}{% endfor %}"
)
LAYOUTS = list(LAYOUT_FORMATS)
Row = dict[str, list[int]]

pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")


def read(folder: Path) -> list[Row]:
    """The rows of an export, by the reader of its format."""
    if (folder / "state.json").exists():
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        rows: list[Row] = datasets.load_from_disk(str(folder)).to_list()
        return rows
    manifest = json.loads((folder / "export.json").read_text())
    files = [pq.read_table(folder / file["name"]) for file in manifest["files"]]
    return [row for table in files for row in table.to_pylist()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Four documents; a digit n has the id 16 + n, and EOS and padding are 0.

    The second token of the first document has no loss, nor have the first two of the third. The
    last document does not fit in a row.
    """
    folder = tmp_path_factory.mktemp("built")
    texts, masks = ["012", "3456", "78", "9" * 13], [[[1, 2]], [], [[0, 2]], []]
    path = write_jsonl(folder / "a.jsonl", texts, mask=masks)
    tokenmill.build(path, tokenizer_path, folder / "corpus", workers=1, no_loss="mask")
    return folder / "corpus"


def exported(built: Path, folder: Path, layout: Layout, **options: Any) -> list[Row]:
    """The rows of a plan with these options, in the order of the plan."""
    plan = tokenmill.pack(built, folder=folder / "plan", sequence_length=8, **options).plan
    tokenmill.export(built, folder / "rows", plan=plan, layout=layout, order="plan")
    return read(folder / "rows")


ROWS: dict[Layout, list[Row]] = {
    "documents": [
        {"input_ids": [16, 17, 18, 0], "attention_mask": [1] * 4, "labels": [-100, -100, 18, 0]},
        {
            "input_ids": [19, 20, 21, 22, 0],
            "attention_mask": [1] * 5,
            "labels": [-100, 20, 21, 22, 0],
        },
        {"input_ids": [23, 24, 0], "attention_mask": [1] * 3, "labels": [-100, -100, 0]},
        {"input_ids": [25] * 8, "attention_mask": [1] * 8, "labels": [-100] + [25] * 7},
        {
            "input_ids": [25] * 5 + [0],
            "attention_mask": [1] * 6,
            "labels": [-100] + [25] * 4 + [0],
        },
    ],
    "trl": [
        {
            "input_ids": [16, 17, 18, 0],
            "labels": [-100, -100, 18, 0],
            "seq_lengths": [4],
        },
        {
            "input_ids": [19, 20, 21, 22, 0, 23, 24, 0],
            "labels": [-100, 20, 21, 22, 0, -100, -100, 0],
            "seq_lengths": [5, 3],
        },
        {"input_ids": [25] * 8, "labels": [-100] + [25] * 7, "seq_lengths": [8]},
        {"input_ids": [25] * 5 + [0], "labels": [-100] + [25] * 4 + [0], "seq_lengths": [6]},
    ],
    "llama-factory": [
        {
            "input_ids": [16, 17, 18, 0, 0, 0, 0, 0],
            "attention_mask": [1, 1, 1, 1, 0, 0, 0, 0],
            "position_ids": [0, 1, 2, 3, 0, 1, 2, 3],
            "labels": [-100, -100, 18, 0, -100, -100, -100, -100],
        },
        {
            "input_ids": [19, 20, 21, 22, 0, 23, 24, 0],
            "attention_mask": [1, 1, 1, 1, 1, 2, 2, 2],
            "position_ids": [0, 1, 2, 3, 4, 0, 1, 2],
            "labels": [-100, 20, 21, 22, 0, -100, -100, 0],
        },
        {
            "input_ids": [25] * 8,
            "attention_mask": [1] * 8,
            "position_ids": [0, 1, 2, 3, 4, 5, 6, 7],
            "labels": [-100] + [25] * 7,
        },
        {
            "input_ids": [25, 25, 25, 25, 25, 0, 0, 0],
            "attention_mask": [1, 1, 1, 1, 1, 1, 0, 0],
            "position_ids": [0, 1, 2, 3, 4, 5, 0, 1],
            "labels": [-100, 25, 25, 25, 25, 0, -100, -100],
        },
    ],
    "bridge": [
        {"input_ids": [16, 17, 18, 0], "loss_mask": [0, 1, 1, 0], "seq_start_id": [0]},
        {
            "input_ids": [19, 20, 21, 22, 0, 23, 24, 0],
            "loss_mask": [1, 1, 1, 1, 0, 0, 1, 0],
            "seq_start_id": [0, 5],
        },
        {"input_ids": [25] * 8, "loss_mask": [1] * 7 + [0], "seq_start_id": [0]},
        {"input_ids": [25] * 5 + [0], "loss_mask": [1] * 5 + [0], "seq_start_id": [0]},
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_have_the_layout_of_a_tool(built: Path, tmp_path: Path, layout: Layout) -> None:
    assert exported(built, tmp_path, layout) == ROWS[layout]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (  # two joined ends are one row, and nothing is predicted across the gap
            {"long_documents": "keep-both-ends"},
            [([25] * 7 + [0], [-100, 25, 25, 25, -100, 25, 25, 0])],
        ),
        (
            {"long_documents": "sliding-window", "overlap": 4},
            [
                ([25] * 8, [-100] + [25] * 7),
                ([25] * 8, [-100] * 4 + [25] * 4),
                ([25] * 5 + [0], [-100] * 4 + [25] + [0]),
            ],
        ),
        (
            {"at_cuts": "bos-and-eos"},
            [
                ([25] * 7 + [0], [-100] + [25] * 6 + [-100]),
                ([0] + [25] * 6 + [0], [-100] + [25] * 6 + [0]),
            ],
        ),
        ({"long_documents": "drop"}, []),
    ],
    ids=str,
)  # fmt: skip
def test_parts_of_long_documents_are_rows(
    built: Path, tmp_path: Path, options: dict[str, Any], expected: list[Any]
) -> None:
    rows = exported(built, tmp_path, "documents", **options)
    found = [(row["input_ids"], row["labels"]) for row in rows if 25 in row["input_ids"]]
    assert found == expected
    manifest = json.loads((tmp_path / "rows" / "export.json").read_text())
    assert manifest["num_rows"] == len(rows) == 3 + len(expected)


def test_turns_without_loss_have_no_labels(tmp_path: Path, tokenizer_path: Path) -> None:
    messages = [
        {"role": role, "content": content}
        for role, content in [
            ("user", "01"),
            ("assistant", "2"),
            ("user", "3"),
            ("assistant", "45"),
        ]
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    corpus = tmp_path / "corpus"
    tokenmill.build(
        path, tokenizer_path, corpus, workers=1,
        chat="messages", chat_template=str(tmp_path / "template.jinja"),
    )  # fmt: skip
    ids, labels = [16, 17, 18, 19, 20, 21, 0], [-100, -100, 18, -100, 20, 21, -100]
    documents = exported(corpus, tmp_path / "a", "documents")
    assert documents == [{"input_ids": ids, "attention_mask": [1] * 7, "labels": labels}]
    assert exported(corpus, tmp_path / "b", "trl") == [
        {"input_ids": ids, "labels": labels, "seq_lengths": [7]}
    ]
    assert exported(corpus, tmp_path / "c", "llama-factory") == [
        {
            "input_ids": [*ids, 0],
            "attention_mask": [1] * 7 + [0],
            "position_ids": [0, 1, 2, 3, 4, 5, 6, 0],
            "labels": [*labels, -100],
        }
    ]
    assert exported(corpus, tmp_path / "d", "bridge") == [
        {"input_ids": ids, "loss_mask": [0, 1, 0, 1, 1, 0, 0], "seq_start_id": [0]}
    ]


# All layouts say the same as the columns of plain rows, in any number of files.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "data", num_files=2, per_file=60)
    tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1)
    return folder / "out"


def plain_rows(corpus: Path, plan: Any, folder: Path) -> list[Row]:
    """Rows in training order: of each length in turn, as files are."""
    options = {"columns": ["input_ids", "labels", "position_ids", "attention_mask"]}
    tokenmill.export(corpus, folder, plan=plan, format="npy", seed=3, **options)
    rows = []
    for path in sorted(
        folder.glob("*.input_ids.npy"), key=lambda path: int(path.name.split("-")[1])
    ):
        stem = path.name.removesuffix(".input_ids.npy")
        columns = {
            name: np.load(folder / f"{stem}.{name}.npy").tolist() for name in options["columns"]
        }
        rows += [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    return rows


def cut(row: Row) -> Iterator[Row]:
    """The segments of a plain row, without padding."""
    starts = [place for place, position in enumerate(row["position_ids"]) if position == 0]
    for start, stop in zip(starts, [*starts[1:], len(row["position_ids"])], strict=True):
        if row["attention_mask"][start]:
            yield {name: values[start:stop] for name, values in row.items()}


def laid_out(row: Row, layout: Layout) -> list[Row]:
    parts = [*cut(row)]
    lengths = [len(part["input_ids"]) for part in parts]
    ids, labels = [
        [value for part in parts for value in part[name]] for name in ("input_ids", "labels")
    ]
    if layout == "documents":
        return [{name: part[name] for name in ROWS["documents"][0]} for part in parts]
    if layout == "trl":
        return [{"input_ids": ids, "labels": labels, "seq_lengths": lengths}]
    if layout == "bridge":
        mask = [int(label != -100) for label in labels[1:]] + [0]
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        return [{"input_ids": ids, "loss_mask": mask, "seq_start_id": starts}]
    numbers, number = [], 0
    for real, position in zip(row["attention_mask"], row["position_ids"], strict=True):
        number += real and position == 0
        numbers.append(number * real)
    return [{name: (row | {"attention_mask": numbers})[name] for name in ROWS["llama-factory"][0]}]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "options",
    [{}, {"packing": "length-buckets", "smallest_bucket": 8}, {"packing": "concat-and-chunk"}],
    ids=str,
)
def test_a_layout_says_what_plain_rows_say(
    corpus: Path, tmp_path: Path, layout: Layout, options: dict[str, Any]
) -> None:
    plan = tokenmill.pack(corpus, folder=tmp_path / "plan", sequence_length=64, **options).plan
    expected = [
        each
        for row in plain_rows(corpus, plan, tmp_path / "plain")
        for each in laid_out(row, layout)
    ]
    made = tokenmill.export(
        corpus, tmp_path / "rows", plan=plan, layout=layout, seed=3, sequences_per_file=20
    )
    assert read(tmp_path / "rows") == expected
    assert (made.num_sequences, made.num_rows or len(plan)) == (len(plan), len(expected))
    assert len([file for file in made.files if file.name.startswith("rows-")]) > 2


def test_the_padding_of_segments_has_the_number_0(corpus: Path, tmp_path: Path) -> None:
    options = {"sequence_length": 64, "segment_multiple": 8}
    plan = tokenmill.pack(corpus, folder=tmp_path / "plan", **options).plan
    plain = plain_rows(corpus, plan, tmp_path / "plain")
    tokenmill.export(corpus, tmp_path / "rows", plan=plan, layout="llama-factory", seed=3)
    expected = [each for row in plain for each in laid_out(row, "llama-factory")]
    assert read(tmp_path / "rows") == expected
    assert any(0 in row["attention_mask"][: row["attention_mask"].index(2)] for row in expected)


def test_an_export_that_was_stopped_goes_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tokenmill.pack(corpus, folder=tmp_path / "plan", sequence_length=64).plan
    options: dict[str, Any] = {"plan": plan, "layout": "documents", "sequences_per_file": 10}
    tokenmill.export(corpus, tmp_path / "whole", **options)
    calls, columns_of = iter(range(100)), export_rows.columns_of

    def stop(*arguments: Any) -> Any:
        if next(calls) == 4:
            raise Interrupted(2)
        return columns_of(*arguments)

    monkeypatch.setattr(export_rows, "columns_of", stop)
    with pytest.raises(Interrupted):
        tokenmill.export(corpus, tmp_path / "rows", **options)
    monkeypatch.undo()
    tokenmill.export(corpus, tmp_path / "rows", **options)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "rows" / path.name).read_bytes() == path.read_bytes()


# The manifest, and what contradicts a layout.


@pytest.mark.parametrize(
    ("layout", "format_name", "dtypes"),
    [
        (
            "documents",
            "datasets",
            {"input_ids": "int32", "attention_mask": "int8", "labels": "int32"},
        ),
        ("trl", "datasets", {"input_ids": "int32", "labels": "int32", "seq_lengths": "int32"}),
        (
            "llama-factory",
            "datasets",
            dict.fromkeys(["input_ids", "attention_mask", "position_ids", "labels"], "int32"),
        ),
        ("bridge", "parquet", {"input_ids": "int32", "loss_mask": "int8", "seq_start_id": "int32"}),
    ],
)  # fmt: skip
def test_the_manifest_has_the_layout(
    built: Path, tmp_path: Path, layout: Layout, format_name: str, dtypes: dict[str, str]
) -> None:
    plan = tokenmill.pack(built, folder=tmp_path / "plan", sequence_length=8).plan
    made = tokenmill.export(built, tmp_path / "rows", plan=plan, layout=layout)
    assert (made.options.layout, made.options.format, made.dtypes) == (layout, format_name, dtypes)
    first = read(tmp_path / "rows")[0]
    assert list(first) == list(dtypes)
    with pytest.raises(OutputConflictError) as caught:
        tokenmill.export(built, tmp_path / "rows", plan=plan, format=made.options.format)
    assert f"layout: {layout}, not none" in caught.value.why


@pytest.mark.parametrize("layout", ["documents", "trl"])
def test_ragged_rows_can_be_parquet(built: Path, tmp_path: Path, layout: Layout) -> None:
    plan = tokenmill.pack(built, folder=tmp_path / "plan", sequence_length=8).plan
    tokenmill.export(built, tmp_path / "arrow", plan=plan, layout=layout)
    tokenmill.export(built, tmp_path / "parquet", plan=plan, layout=layout, format="parquet")
    assert read(tmp_path / "parquet") == read(tmp_path / "arrow")


def test_what_contradicts_a_layout_is_named_at_once(
    built: Path, tmp_path: Path, capsys: Printed
) -> None:
    tokenmill.pack(built, folder=tmp_path / "plan", sequence_length=8)
    command = ["export", str(built), "--plan", str(tmp_path / "plan"), "--out", str(tmp_path / "a")]
    given = "--layout bridge --format npy --columns input_ids --labels next --dtype int32"
    assert main([*command, *given.split(), "--with-labels"]) == 2
    assert capsys.readouterr().err == (
        "tokenmill: the export has 5 problems\n"
        "  why: --columns: cannot be combined with --layout bridge\n"
        "       --with-labels: cannot be combined with --layout bridge\n"
        "       --labels: next cannot be combined with --layout bridge\n"
        "       --dtype: cannot be combined with --layout bridge\n"
        "       --format: got npy; --layout bridge is written as parquet\n"
        "  next: tokenmill export --help-all lists every option\n"
    )
    assert not (tmp_path / "a").exists()


def test_a_recipe_is_checked_before_it_is_built(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["012"])
    export = {"out": str(tmp_path / "rows"), "layout": "trl", "dtype": "uint16", "format": "pt"}
    with pytest.raises(UserError) as caught:
        tokenmill.build(path, tokenizer_path, tmp_path / "c", sequence_length=1024, export=export)
    assert "export.dtype: cannot be combined with export.layout trl" in caught.value.why
    assert "got pt; export.layout trl is written as datasets or parquet" in caught.value.why
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("layout", ["documents", "trl", "bridge"])
def test_padding_of_segments_is_not_lost_in_silence(
    built: Path, tmp_path: Path, layout: Layout
) -> None:
    with pytest.raises(UserError, match=f"the layout {layout} has no padding") as caught:
        exported(built, tmp_path, layout, segment_multiple=4)
    assert caught.value.why == "the plan pads segments to a multiple of 4"


def test_llama_factory_needs_rows_of_a_multiple_of_8(built: Path, tmp_path: Path) -> None:
    plan = tokenmill.pack(built, folder=tmp_path / "plan", sequence_length=12).plan
    with pytest.raises(UserError, match="cannot read rows of 12 tokens") as caught:
        tokenmill.export(built, tmp_path / "rows", plan=plan, layout="llama-factory")
    assert caught.value.hint == "make a plan with --sequence-multiple 8"
    options = {"sequence_length": 12, "sequence_multiple": 8}
    plan = tokenmill.pack(built, folder=tmp_path / "padded", **options).plan
    tokenmill.export(built, tmp_path / "rows", plan=plan, layout="llama-factory")
    assert {len(row["position_ids"]) for row in read(tmp_path / "rows")} == {16}


def test_the_command_counts_documents(built: Path, tmp_path: Path, capsys: Printed) -> None:
    tokenmill.pack(built, folder=tmp_path / "plan", sequence_length=8)
    plan, out = str(tmp_path / "plan"), tmp_path / "rows"
    assert (
        main(["export", str(built), "--plan", plan, "--out", str(out), "--layout", "documents"])
        == 0
    )
    size = sum(path.stat().st_size for path in out.iterdir() if path.name != "export.json")
    assert capsys.readouterr().out == (
        f"5 rows in 3 files, {size:,} bytes\n"
        "columns: input_ids int32, attention_mask int8, labels int32; "
        "labels aligned; padding id 0\n"
    )
