"""`tokenmill find`: what a user types, sees and gets back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import tokenmill_here

import tokenmill
from conftest import write_jsonl


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A dataset of five documents with a plan of four tokens a sequence, and a file of strings."""
    folder = tmp_path_factory.mktemp("found")
    texts = ["a Z", "ZqZqZ", "no", "Z\nZ", "qqqqqqZ"]
    write_jsonl(folder / "a.jsonl", texts, id=["a0", "a1", "a2", "a3", "a4"])
    (folder / "strings.txt").write_text("Z\nqZ\r\n\nnowhere\n")
    tokenmill.build(folder / "a.jsonl", tokenizer_path, folder / "corpus", workers=1, id_field="id")
    tokenmill.pack(folder / "corpus", sequence_length=4, name="four")
    return folder


@pytest.fixture(autouse=True)
def inside(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)


def told(*arguments: object) -> list[str]:
    done = tokenmill_here("find", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_documents_are_listed_up_to_the_limit_and_counted(tmp_path: Path) -> None:
    view = tmp_path / "view"
    lines = told("corpus", "Z", "--limit", "3", "--save", view)
    assert lines == [
        "document 0, a.jsonl, position 0, id a0; 1 occurrence",
        "    a ⟦Z⟧",
        "document 1, a.jsonl, position 28, id a1; 3 occurrences",
        "    ⟦Z⟧qZqZ",
        "document 3, a.jsonl, position 85, id a3; 2 occurrences",
        "    ⟦Z⟧\\nZ",
        "",
        '   documents  4 of 5, containing "Z"',
        " occurrences  7",
        "      tokens  22 in these documents",
        f"        view  {view}",
        "",
        f"next: tokenmill select corpus --without {view} --out cleaned/",
    ]
    assert tokenmill.open(view).num_documents == 4


def test_the_sequences_of_a_plan_are_named() -> None:
    lines = told("corpus", "qZq", "--plan", "four")
    assert lines[0].startswith("document 1, a.jsonl, position 28, id a1; 1 occurrence; sequences ")
    found = tokenmill.find("corpus", "qZq", plan="four").documents[0]
    assert lines[0].endswith(
        f"sequences {', '.join(map(str, found.sequences or []))}" + "; 1 cut" * bool(found.cut)
    )


def test_the_steps_of_a_run_are_named(tmp_path: Path) -> None:
    batches = tokenmill.open("corpus").batches("four", global_batch_size=1, shuffle="none")
    for _ in range(2):
        assert batches.advance() is not None
    state = tmp_path / "state.json"
    state.write_text(json.dumps(batches.state_dict()))
    found = tokenmill.find("corpus", "Z", state=state).documents
    given = [each.document for each in found if any(use.is_given for use in each.uses or [])]
    assert 0 < len(given) < len(found)
    lines = told("corpus", "Z", "--state", state, "--limit", "1")
    (use, *_) = found[0].uses or []
    words = "given at" if use.is_given else "to come at"
    assert lines[2] == f"    {words} step {use.step} (corpus, epoch 0, rank 0)"
    to_come = [each for each in found if any(not use.is_given for use in each.uses or [])]
    assert lines[-2:] == [
        f"       given  {len(given)} documents before step 2",
        f"     to come  {len(to_come)} documents in the present epoch",
    ]
    result = json.loads(told("corpus", "Z", "--state", state, "--count", "--json")[-1])
    assert (result["given"], result["to_come"]) == (len(given), len(to_come))


def test_json_has_a_line_for_each_document_and_the_result() -> None:
    lines = [json.loads(line) for line in told("corpus", "--regex", "q{3,}", "--json")]
    assert lines == [
        {
            "event": "document",
            "document": 4,
            "source": "a.jsonl",
            "position": 114,
            "id": "a4",
            "occurrences": 1,
            "before": "",
            "match": "qqqqqq",
            "after": "Z",
            "tokens": 8,
            "sequences": None,
            "cut": None,
            "left_out": None,
            "uses": None,
        },
        {
            "event": "result",
            "question": 'matching "q{3,}"',
            "documents": 1,
            "occurrences": 1,
            "tokens": 8,
            "strings": [{"string": "q{3,}", "documents": 1, "occurrences": 1}],
            "decoded_by_reference": False,
            "view": None,
        },
    ]


def test_many_strings_are_counted() -> None:
    assert told("corpus", "--strings", "strings.txt", "--count") == [
        "string   documents  occurrences",
        "Z                4            7",
        "qZ               2            3",
        "nowhere          0            0",
        "",
        "   documents  4 of 5, containing one of 3 strings",
        " occurrences  10",
        "      tokens  22 in these documents",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read a file of strings"),
        (b"\n\n", "there is nothing to find"),
        (b"a\n\xff", "line 2"),
    ],
)
def test_a_file_of_strings_that_cannot_be_used_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "strings.txt"
    if content is not None:
        file.write_bytes(content)
    done = tokenmill_here("find", "corpus", "--strings", file)
    assert done.returncode in (2, 6)
    assert message in done.stderr
