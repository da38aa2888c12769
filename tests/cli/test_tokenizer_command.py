"""`tokenmill tokenizer`: what is printed, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Printed
from encode.tokenizer_kit import (
    added_token,
    as_file,
    byte_level_json,
)
from tokenmill.cli import main
from tokenmill.encode.engine_ranking import rank_engines

GOLDEN = Path(__file__).parents[1] / "golden" / "v2" / "dataset"
END = added_token("<|endoftext|>", 259, special=True)


def saved(path: Path, tokenizer: dict[str, Any]) -> str:
    path.write_text(json.dumps(tokenizer))
    return str(path)


def printed(capsys: Printed, *arguments: object) -> tuple[int, str]:
    """Exit code and standard output of `tokenmill tokenizer`."""
    code = main(["tokenizer", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_a_fingerprint_is_one_line(tmp_path: Path, capsys: Printed) -> None:
    path = saved(tmp_path / "a.json", byte_level_json())
    code, line = printed(capsys, "fingerprint", path)
    assert (code, line[:4], len(line)) == (0, "tm1:", len("tm1:") + 64 + 1)
    _, found = printed(capsys, "fingerprint", path, "--json")
    assert json.loads(found)["fingerprint"] == line.strip()
    assert list(json.loads(found)["components"]) == [
        "model",
        "vocabulary",
        "merges",
        "normalizer",
        "pre_tokenizer",
        "added_tokens",
    ]


def test_a_tokenizer_is_shown(tmp_path: Path, capsys: Printed) -> None:
    tokenizer = byte_level_json(added_tokens=[END], normalizer={"type": "StripAccents"})
    code, shown = printed(capsys, "show", saved(tmp_path / "a.json", tokenizer))
    facts = [line.split(maxsplit=1) for line in shown.splitlines()]
    found = {name: value for name, value in facts if name != "not"}
    assert code == 0
    assert found["model"].startswith("sha256 ")  # the digest of a component of that name
    assert "BPE" in shown
    assert "259 tokens, largest id 259, shards of uint16" in shown
    assert found["pre-tokenizer"] == "ByteLevel (use_regex true, add_prefix_space false)"
    assert found["special"] == "<|endoftext|> 259"
    assert found["beginning"] == "nothing"
    assert found["end"].startswith("id 259, from the only known")
    assert found["engine"] == rank_engines(as_file(tokenizer), control_tokens=False).names[0]
    assert "fastokens: normalizer StripAccents" in shown
    assert found["fingerprint"].startswith("tm1:")


def test_equal_tokenizers_end_with_code_0(tmp_path: Path, capsys: Printed) -> None:
    tokenizer = byte_level_json()
    other = tokenizer | {"version": "other", "post_processor": tokenizer["decoder"]}
    paths = [saved(tmp_path / "a.json", tokenizer), saved(tmp_path / "b.json", other)]
    code, shown = printed(capsys, "diff", *paths)
    assert (code, [line.split()[-1] for line in shown.splitlines()]) == (0, ["equal"] * 6)
    _, values = printed(capsys, "diff", *paths, "--json")
    assert (json.loads(values)["equal"], json.loads(values)["differences"]) == (True, [])


def test_what_differs_is_shown_component_by_component(tmp_path: Path, capsys: Printed) -> None:
    tokenizer = byte_level_json(added_tokens=[END])
    model = tokenizer["model"]
    vocab = model["vocab"] | {"a": 98, "b": 97, "cd": 258}
    del vocab["abc"]
    merges = [["b", "c"], ["Ġ", "a"], ["c", "d"]]
    other = tokenizer | {
        "model": model | {"vocab": vocab, "merges": merges, "ignore_merges": True},
        "added_tokens": [END | {"lstrip": True}],
    }
    paths = [saved(tmp_path / "a.json", tokenizer), saved(tmp_path / "b.json", other)]
    code, shown = printed(capsys, "diff", *paths)
    assert code == 5
    assert [line.strip() for line in shown.splitlines()] == [
        "model  0 added, 0 removed, 1 changed",
        '"ignore_merges" false -> true',
        "vocabulary  1 added, 1 removed, 2 changed",
        '- "abc" 258',
        '+ "cd" 258',
        '"a" 97 -> 98',
        '"b" 98 -> 97',
        "merges  1 added, 1 removed, 2 changed",
        '- ["a", "bc"]',
        '+ ["c", "d"]',
        '["Ġ", "a"] -> ["b", "c"] in its place',
        '["b", "c"] -> ["Ġ", "a"] in its place',
        "added_tokens  0 added, 0 removed, 1 changed",
        '"<|endoftext|>" lstrip false -> true',
        "normalizer  equal",
        "pre_tokenizer  equal",
    ]
    _, values = printed(capsys, "diff", *paths, "--json")
    differences = json.loads(values)["differences"]
    assert [found["component"] for found in differences] == [
        "model",
        "vocabulary",
        "merges",
        "added_tokens",
    ]
    assert (differences[1]["added"], differences[1]["changed"]) == (1, 2)


def test_tokens_cannot_steer_the_terminal(tmp_path: Path, capsys: Printed) -> None:
    token = added_token("\x1b[31mred", 259, special=True)
    path = saved(tmp_path / "a.json", byte_level_json(added_tokens=[token]))
    other = saved(tmp_path / "b.json", byte_level_json())
    for arguments in (("show", path), ("diff", path, other)):
        _, shown = printed(capsys, *arguments)
        assert "\x1b" not in shown
        assert "red" in shown


def test_a_terminal_gets_the_same_facts_drawn(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = added_token("\x1b[31m[red]", 259, special=True)
    path = saved(tmp_path / "a.json", byte_level_json(added_tokens=[token]))
    _, plain = printed(capsys, "show", path)
    monkeypatch.setattr("tokenmill.cli.tables.use_colour", lambda stream=None: True)
    monkeypatch.setenv("COLUMNS", "1000")
    _, drawn = printed(capsys, "show", path)
    assert "\x1b[31m" not in drawn
    assert drawn.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain


def test_mistakes_end_with_code_2(tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "a.json").write_text('{"model": {}}')
    for arguments in (("show", tmp_path / "none.json"), ("fingerprint", tmp_path / "a.json")):
        code, _ = printed(capsys, *arguments)
        assert code == 2
    assert main(["tokenizer"]) == 2


def test_debug_shows_tracebacks_before_and_after_the_action(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.json")
    for arguments in (["--debug", "show", missing], ["show", missing, "--debug"]):
        with pytest.raises(ValueError, match="cannot find the tokenizer"):
            main(["tokenizer", *arguments])
