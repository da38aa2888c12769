"""Options, YAML recipes and overrides: what is read, and everything that is wrong at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenmill.core.errors import UserError
from tokenmill.core.values import parse_bytes, parse_share
from tokenmill.read.sources import format_names
from tokenmill.run.recipe.checks import SECTIONS, load_recipe, make_recipe, override, section_of
from tokenmill.run.recipe.options import (
    ReadOptions,
    Recipe,
)

REQUIRED: dict[str, Any] = {"inputs": ["a.jsonl"], "tokenizer": "t.json", "out": "o"}

BAD_FORMAT = f"read.format: got 'xml'; must be one of {', '.join(format_names())}"


def recipe(**sections: Any) -> Recipe:
    return make_recipe({**REQUIRED, **sections})


def problems(options: dict[str, Any]) -> list[str]:
    with pytest.raises(UserError) as caught:
        make_recipe(options)
    found = [line.strip() for line in caught.value.why.splitlines()]
    count = f"the recipe has {len(found)} problem{'s' if len(found) > 1 else ''}"
    assert caught.value.what == count
    return found


def problem(**sections: Any) -> str:
    (found,) = problems({**REQUIRED, **sections})
    return found


def test_yaml_spellings_are_read() -> None:
    found = recipe(
        inputs="one.jsonl",
        read={"keep": "url", "validation": "0.5%", "text_field": 3},
        encode={"eos": 50256, "pad": 0},
        limits={"max_bad": "2%"},
        resources={"memory": "2GB"},
    )
    assert found.inputs == ["one.jsonl"]
    assert found.read == ReadOptions(keep=["url"], validation=0.005, text_field="3")
    assert (found.encode.eos, found.encode.pad) == ("50256", "0")
    assert found.limits.max_bad == 0.02
    assert found.resources.memory == 2_000_000_000


def test_paths_and_tuples_are_read() -> None:
    found = make_recipe(
        {"inputs": (Path("a"), "b"), "tokenizer": Path("t.json"), "out": Path("out")}
    )
    assert (found.inputs, found.tokenizer, found.out) == (["a", "b"], "t.json", "out")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tokeniser": "x"}, "tokeniser: unknown option; did you mean tokenizer?"),
        (
            {"read": {"text_feild": "x"}},
            "read.text_feild: unknown option; did you mean read.text_field?",
        ),
        (
            {"resources": {"worker": 1}},
            "resources.worker: unknown option; did you mean resources.workers?",
        ),
        ({"encode": {"zzz": 1}}, "encode.zzz: unknown option"),
        ({"read": {"inputs": ["a"]}}, "read.inputs: 'inputs' belongs at the top level"),
        ({"read": {"workers": 1}}, "read.workers: 'workers' belongs to the section resources"),
        ({"read": {"sequences_per_chunk": 1}}, "read.sequences_per_chunk: unknown option"),
        ({"read": {7: 1}}, "read.7: unknown option"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_known_one(
    options: dict[str, Any], expected: str
) -> None:
    assert problem(**options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tokenizer": ["a"]}, "tokenizer: got ['a']; must be text"),
        ({"tokenizer": True}, "tokenizer: got True; must be text"),
        ({"inputs": {"a": 1}}, "inputs: got {'a': 1}; must be a list of at least one text"),
        ({"read": 5}, "read: must be a section with options"),
        ({"read": []}, "read: must be a section with options"),
        (
            {"read": {"max_documents": 0}},
            "read.max_documents: got 0; must be a whole number, at least 1, or none",
        ),
        (
            {"read": {"validation": 1}},
            "read.validation: got 1; must be a number, at least 0 and below 1, e.g. 0.1%; did you "
            "mean 1%?",
        ),
        (
            {"limits": {"max_bad": "2.5"}},
            "limits.max_bad: got '2.5'; must be a number, at least 0 and below 1, e.g. 0.01%; did "
            "you mean 2.5%?",
        ),
        (
            {"limits": {"max_bad": 100}},
            "limits.max_bad: got 100; must be a number, at least 0 and below 1, e.g. 0.01%",
        ),
        (
            {"read": {"validation": "half"}},
            "read.validation: got 'half'; must be a number such as 0.001 or 0.1%",
        ),
        (
            {"limits": {"max_bad": "-1%"}},
            "limits.max_bad: got '-1%'; must be a number, at least 0 and below 1, e.g. 0.01%",
        ),
        (
            {"resources": {"workers": True}},
            "resources.workers: got True; must be a whole number, at least 1, or none",
        ),
        (
            {"resources": {"prefetch": -1}},
            "resources.prefetch: got -1; must be a whole number, at least 0",
        ),
        (
            {"resources": {"memory": "a lot"}},
            "resources.memory: got 'a lot'; must be a size such as 2GB or 512MiB",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_shown(options: dict[str, Any], expected: str) -> None:
    assert problem(**options) == expected


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"resources": {"memory": "100MB"}}, "resources.memory: got 100000000; must be at least"),
        ({"read": {"separator": ""}}, "read.separator: must not be empty"),
        ({"read": {"keep": ["url", "text"]}}, "read"),
        ({"read": {"text_field": "body", "keep": "body"}}, "read"),
        ({"read": {"text_field": ""}}, "read.text_field: must not be empty"),
        ({"read": {"keep": [""]}}, "read.keep: a field name is empty"),
        ({"read": {"keep": ["url", "url"]}}, "read.keep: 'url' is named twice"),
        ({"read": {"keep": ["url", "url?"]}}, "read.keep: 'url' is named twice"),
    ],
)
def test_options_that_cannot_go_together_are_refused(options: dict[str, Any], start: str) -> None:
    assert problem(**options).startswith(start)


def test_all_problems_are_told_at_once() -> None:
    options = {
        "inputs": "a",
        "tokenizer": 1.5,
        "reed": {},
        "read": {"keeep": "x", "format": "xml"},
        "resources": {"workers": 0},
    }
    assert problems(options) == [
        "reed: unknown option; did you mean read?",
        "tokenizer: got 1.5; must be text",
        "read.keeep: unknown option; did you mean read.keep?",
        BAD_FORMAT,
        "resources.workers: got 0; must be a whole number, at least 1, or none",
        "out: is missing",
    ]


def test_option_names_are_unique_over_all_sections() -> None:
    names = [name for kind in SECTIONS.values() for name in kind.__struct_fields__]
    assert len(set(names)) == len(names)
    assert [section_of("eos"), section_of("max_bad"), section_of("text_field")] == [
        "encode",
        "limits",
        "read",
    ]


def test_policies_are_what_decides_the_bytes_that_are_written() -> None:
    found = recipe(
        encode={"engine": "reference", "eos": "x", "unknown": "error"}, resources={"workers": 7}
    )
    read = msgspec.to_builtins(ReadOptions())
    for young in ("streaming", "text_template", "transform", "max_record"):
        del read[young]
    encode = {"special_tokens": "text", "unknown": "error"}
    assert msgspec.to_builtins(found.policies) == {"read": read, "encode": encode}


def test_streaming_is_a_policy_where_it_is_asked_for() -> None:
    found = recipe(inputs=["hf://datasets/a/b"], read={"streaming": True})
    assert found.policies.read.streaming is True
    with pytest.raises(UserError, match=r"only applies to remote inputs"):
        recipe(read={"streaming": True})


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_is_a_yaml_mapping(tmp_path: Path) -> None:
    path = write(tmp_path, "inputs: [ä.jsonl]\nread:\n  keep: [url]\n")
    assert load_recipe(path) == {"inputs": ["ä.jsonl"], "read": {"keep": ["url"]}}


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words", "7", "1: 2", "null"])
def test_yaml_that_is_no_mapping_of_options_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError, match="the recipe is not a mapping of options") as caught:
        load_recipe(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("text", "place", "why", "hint"),
    [
        ("a: 1\nb: [c\nd: e\n", ", line 3, column 2", "expected ',' or ']', but got ':', while "
         "parsing a flow sequence that begins in line 2",
         "close the bracket, and quote texts with brackets or commas"),
        ("a: b: c", ", line 1, column 5", "mapping values are not allowed here",
         "quote texts with a colon, and write a space after the colon of an option"),
        ("read:\n  keep: []\nread: {}\n", ", line 3, column 1", "'read' is given twice",
         "keep one of them"),
        ("!!python/object/apply:os.getcwd []", ", line 1, column 1", "could not determine a "
         "constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd'",
         "indent with spaces, and quote texts with : # * & % @ ! or brackets"),
        ("a: &a [x]\nb: *a", ", line 2, column 4", "an alias is not allowed", "quote texts that "
         "begin with *, and write out values instead of repeating them with *"),
        ("a:\n\tb: c", ", line 2, column 1", r"found character '\t' that cannot start any token",
         "indent with spaces, not with tabs"),
        ("a:\n  b: c\n d: e", ", line 3, column 2", "expected <block end>, but found '<block "
         "mapping start>', while parsing a block mapping that begins in line 1",
         "indent all options of a section alike"),
        ('{"text": "a"}\n{"text": "b"}\n', ", line 2, column 1", "expected '<document start>', but "
         "found '{'", "give a recipe in YAML; JSON Lines files are inputs, not recipes"),
        ("a: {b} {c}", ", line 1, column 8", "expected <block end>, but found '{'",
         "indent with spaces, and quote texts with : # * & % @ ! or brackets"),
    ],
)  # fmt: skip
def test_text_that_is_no_plain_yaml_is_refused_at_its_place(
    tmp_path: Path, text: str, place: str, why: str, hint: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_recipe(path)
    assert str(caught.value) == (
        f"cannot read the recipe\n  where: {path}{place}\n  why: {why}\n  next: {hint}"
    )


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="maximum recursion depth exceeded"):
        load_recipe(write(tmp_path, "a: " + "[" * 2_000))


def test_a_date_is_a_text(tmp_path: Path) -> None:
    path = write(tmp_path, "chat: {chat_date: 2026-01-31}\n")
    assert load_recipe(path) == {"chat": {"chat_date": "2026-01-31"}}


def test_a_recipe_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin1.yaml").write_bytes(b"a: \xff")
    for path in (tmp_path / "missing.yaml", tmp_path, tmp_path / "latin1.yaml"):
        with pytest.raises(UserError, match="cannot read the recipe"):
            load_recipe(path)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("out=there", {"out": "there"}),
        ("read.keep=[url, date]", {"read": {"text_field": "body", "keep": ["url", "date"]}}),
        ("read.text_field=x", {"read": {"text_field": "x"}}),
        ("encode.eos=</s>", {"encode": {"eos": "</s>"}}),
        ("encode.eos=a=b", {"encode": {"eos": "a=b"}}),
        ("limits.max_bad=1%", {"limits": {"max_bad": "1%"}}),
        ("resources.workers=4", {"resources": {"workers": 4}}),
        ("resources.workers=", {"resources": {"workers": None}}),
        (" read.text_field =x", {"read": {"text_field": "x"}}),
    ],
)
def test_an_assignment_sets_one_option(assignment: str, expected: dict[str, Any]) -> None:
    options = {"out": "here", "read": {"text_field": "body"}, "resources": None}
    assert override(options, [assignment]) == options | expected


@pytest.mark.parametrize(
    ("assignment", "what"),
    [
        ("out", "--set takes key=value or section.key=value"),
        ("a.b.c=1", "--set takes key=value or section.key=value"),
        ("out.x=1", "--set cannot set an option inside an option"),
        ("read.keep=[", "the value of --set is not valid YAML"),
    ],
)
def test_an_assignment_that_cannot_be_carried_out_is_refused(assignment: str, what: str) -> None:
    with pytest.raises(UserError) as caught:
        override({"out": "here"}, [assignment])
    assert caught.value.what == what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("1000", 1000), ("2 gb", 2_000_000_000), ("2G", 2_000_000_000)),
        *(("1.5GB", 1_500_000_000), ("512 MiB", 512 << 20), ("7B", 7)),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "B", "two", "1PB", "1GBB", "inf", "1e999", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.1%", 0.001), ("50 %", 0.5), ("0.25", 0.25), (" 1e-4 ", 0.0001)]
)
def test_shares(text: str, expected: float) -> None:
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "%", "half", "1%%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a number such as 0.001 or 0.1%"):
        parse_share(text)
