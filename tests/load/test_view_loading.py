"""Plans, batches, mixtures and exports of a view are those of a build of its documents alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loading_kit import all_batches, as_lists, write_tokenizer

import tokenmill
from tokenmill import Dataset
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.packing.strategies import STRATEGIES
from tokenmill.read import units
from tokenmill.reports.verify import verify
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.plan import PLAN_NAME, PlanManifest
from view_kit import view_of

Record = dict[str, Any]
OPTIONS: dict[str, Any] = {
    "workers": 1, "eos": "<eos>", "pad": "<pad>", "no_loss": "mask", "keep": ["kind", "score"],
}  # fmt: skip


def record(number: int) -> Record:
    """Texts of 1 to 9 digits, some of them without loss; odd ones are of kind b."""
    text = str(number % 9 + 1) * (number * 7 % 9 + 1)
    mask = [[0, 1]] if number % 3 == 0 else []
    return {"text": text, "mask": mask, "kind": "ab"[number % 2], "score": str(number * 37 % 11)}


def build(folder: Path, tokenizer: Path, files: dict[str, list[Record]]) -> Dataset:
    folder.mkdir()
    for name, records in files.items():
        lines = "".join(json.dumps(each) + "\n" for each in records)
        (folder / name).write_text(lines)
    paths = [folder / name for name in files]
    return tokenmill.build(paths, tokenizer, folder / "corpus", **OPTIONS).dataset


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset, Path]:
    """A view of 23 of 60 documents, some of which cannot be used, and a build of those alone."""
    folder = tmp_path_factory.mktemp("loading")
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    records = [record(number) for number in range(60)]
    records[5] |= {"score": "none", "kind": "unusable"}
    files = ({"x.jsonl": records[:10], "y.jsonl": records[10:35]}, {"x.jsonl": records[35:]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 400)
        parents = [
            build(folder / str(number), tokenizer, each) for number, each in enumerate(files)
        ]
    chosen = [number for number in range(60) if number * 13 % 5 in (1, 3) and number not in (5, 8)]
    view = view_of(folder / "view", parents, chosen)
    alone = build(folder / "alone", tokenizer, {"x.jsonl": [records[number] for number in chosen]})
    assert len(view.shards) >= 3
    return view, alone, folder


def figures(planned: Any) -> dict[str, Any]:
    """All but the share of neighbours from one source: the build has a single source."""
    found: dict[str, Any] = msgspec.to_builtins(planned.figures) or {}
    return {**found, "neighbour_source_share": None}


def rows_of(dataset: Dataset, plan: str, **options: Any) -> list[dict[str, Any]]:
    return [as_lists(batch) for batch in all_batches(dataset.batches(plan, **options))]


@pytest.mark.parametrize("packing", [name for name in STRATEGIES if name != "optimal"])
def test_every_strategy_gives_the_batches_of_a_build_of_the_chosen_texts(
    corpora: tuple[Dataset, Dataset, Path], packing: Any
) -> None:
    view, alone, _ = corpora
    made = {"smallest_bucket": 8} if packing == "length-buckets" else {}
    plans = [
        tokenmill.pack(each, sequence_length=16, packing=packing, **made) for each in (view, alone)
    ]
    assert figures(plans[0]) == figures(plans[1])
    name = plans[0].plan.folder.name
    size = plans[0].plan.rows.group_size
    batches = [rows_of(each, name, batch_size=size, seed=3) for each in (view, alone)]
    assert batches[0] == batches[1]
    assert [row["labels"] for row in batches[0]] != [row["input_ids"] for row in batches[0]]


@pytest.mark.parametrize(
    "options",
    [
        {"separate_by": "kind"},
        {"weight_by": "kind", "weight": ["a=0"]},
        {"long_documents": "drop", "sequence_length": 6},
        {"long_documents": "split-at-boundary", "sequence_length": 6},
    ],
    ids=["kinds", "left out", "dropped", "boundaries"],
)
def test_options_of_packing_see_the_chosen_documents_only(
    corpora: tuple[Dataset, Dataset, Path], options: dict[str, Any], tmp_path: Path
) -> None:
    view, alone, _ = corpora
    packed = [
        tokenmill.pack(each, folder=tmp_path / name, **{"sequence_length": 16, **options})
        for name, each in (("view", view), ("alone", alone))
    ]
    assert figures(packed[0]) == figures(packed[1])
    compared = [tokenmill.compare_plans(each, sequence_length=16) for each in (view, alone)]
    assert [figures(each) for each in compared[0]] == [figures(each) for each in compared[1]]


def test_copies_are_made_of_the_chosen_documents_only(
    corpora: tuple[Dataset, Dataset, Path], tmp_path: Path
) -> None:
    made: dict[str, Any] = {"sequence_length": 16, "weight_by": "kind", "weight": ["a=2"]}
    planned = tokenmill.pack(corpora[0], folder=tmp_path / "p", **made)
    kinds = corpora[1].shards[0].documents()["column.kind"].to_pylist()
    assert planned.figures.documents == len(kinds) + kinds.count("a")


def test_a_weight_of_a_value_that_only_left_out_documents_have_is_refused(
    corpora: tuple[Dataset, Dataset, Path], tmp_path: Path
) -> None:
    weight = ["unusable=2"]
    with pytest.raises(UserError, match="a weight names a value that no document has"):
        tokenmill.pack(
            corpora[0], folder=tmp_path / "p", sequence_length=16, weight_by="kind", weight=weight
        )


def test_windows_of_few_sequences_hold_the_chosen_documents_in_order(
    corpora: tuple[Dataset, Dataset, Path], tmp_path: Path
) -> None:
    view, alone, _ = corpora
    made: dict[str, Any] = {"sequence_length": 16, "packing": "next-fit", "window_sequences": 1}
    plan = tokenmill.pack(view, folder=tmp_path / "plan", window="local", **made).plan
    assert len(plan.manifest.windows) > 1
    documents = [part[0] for row in range(len(plan)) for part in plan.segments(row)]
    assert len(set(documents)) == alone.num_documents
    assert documents == sorted(documents)


def test_a_curriculum_by_column_reads_the_column_of_the_chosen_documents(
    corpora: tuple[Dataset, Dataset, Path],
) -> None:
    view, alone, _ = corpora
    found = []
    for each in (view, alone):
        plan = tokenmill.pack(each, sequence_length=16, packing="next-fit", name="sorted").plan
        curriculum = tokenmill.Curriculum.of_plan(plan, each, 2, (tokenmill.Phase(by="score"),))
        found.append(rows_of(each, "sorted", curriculum=curriculum))
    assert found[0] == found[1]


def test_provenance_names_the_dataset_the_source_and_its_position(
    corpora: tuple[Dataset, Dataset, Path],
) -> None:
    view = corpora[0]
    tokenmill.pack(view, sequence_length=16, packing="next-fit", name="origins")
    batches = view.batches("origins", batch_size=1)
    seen = 0
    for step in range(batches.schedule.num_steps or 0):
        for origin in batches.explain(step):
            home = Path(origin.record["dataset"])
            source = home.parent / origin.record["source"]
            line = source.read_bytes()[origin.record["position"] :].splitlines()[0]
            shard, index = view.locate(origin.document)
            digits = "".join(map(str, shard.document(index).tolist()[:-1]))
            assert json.loads(line)["text"] == digits
            assert view.roots[home.parent.name == "1"].folder == home
            seen += 1
    assert seen >= view.num_documents


def test_a_loader_of_a_view_resumes_and_refuses_the_state_of_another_view(
    corpora: tuple[Dataset, Dataset, Path],
) -> None:
    view, alone, _ = corpora
    for each in (view, alone):
        tokenmill.pack(each, sequence_length=16, packing="next-fit", name="resumed")
    whole = rows_of(view, "resumed", batch_size=2, seed=1)
    batches = view.batches("resumed", batch_size=2, seed=1)
    next(iter(batches))
    state = batches.state_dict()
    again = tokenmill.open(view.folder).batches("resumed", batch_size=2, seed=1)
    again.load_state_dict(state)
    assert [as_lists(batch) for batch in again] == whole[1:]
    with pytest.raises(UserError, match="dataset"):
        alone.batches("resumed", batch_size=2, seed=1).load_state_dict(state)


def test_a_mixture_takes_views_and_datasets(corpora: tuple[Dataset, Dataset, Path]) -> None:
    view, alone, _ = corpora
    sources = []
    for each in (view, alone):
        plan = tokenmill.pack(each, sequence_length=16, packing="next-fit", name="mixed").plan
        sources.append(tokenmill.MixtureSource.of(each.folder, plan.folder, name=each.folder.name))
    batches = tokenmill.mix_batches(sources, batch_size=2)
    rows = [tuple(row) for batch in all_batches(batches) for row in batch["input_ids"].tolist()]
    of_one = [tuple(batch["input_ids"][0]) for batch in rows_of(alone, "mixed", batch_size=1)]
    assert set(rows) <= set(of_one)
    assert len(rows) > len(set(rows))


@pytest.mark.parametrize("kind", ["npy", "parquet", "datasets"])
def test_an_export_of_a_view_has_the_rows_of_the_build(
    corpora: tuple[Dataset, Dataset, Path], kind: Any, tmp_path: Path
) -> None:
    files = []
    for each in corpora[:2]:
        tokenmill.pack(each, sequence_length=16, packing="next-fit", name="exported")
        out = tmp_path / each.folder.parent.name
        made = tokenmill.export(each, out, plan="exported", format=kind)
        assert made.dataset_id == each.manifest.dataset_id
        files.append({path.name: path.read_bytes() for path in out.glob("rows-*")})
    assert files[0]
    assert files[0] == files[1]


def test_verify_refuses_a_plan_that_names_documents_outside_the_view(
    corpora: tuple[Dataset, Dataset, Path], tmp_path: Path
) -> None:
    view = corpora[0]
    [root, _] = view.roots
    other = view_of(tmp_path / "other", view.roots, set(range(60)))
    plan = tokenmill.pack(other, folder=tmp_path / "plan", sequence_length=16).plan
    path = plan.folder / PLAN_NAME
    found = read_sealed(path, PlanManifest)
    write_sealed(path, msgspec.structs.replace(found, dataset_id=view.manifest.dataset_id))
    with pytest.raises(VerificationError, match="1 of its plans are damaged") as caught:
        verify(view.folder, plans=[plan.folder])
    assert "a segment reaches outside its document" in str(caught.value.why)
    assert root.num_documents == 35
