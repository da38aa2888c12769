"""What a user types, sees and gets back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, ClassVar, get_args

import pytest
from corpora import on_terminal, tokenmill, tokenmill_here

from conftest import Printed, write_jsonl
from tokenmill.cli import COMMANDS, RARE, main, tables, terminal
from tokenmill.cli.parser import Command, Parser
from tokenmill.cli.tables import print_table
from tokenmill.cli.terminal import fitted, folded_help
from tokenmill.core.errors import UserError
from tokenmill.core.options import Overwrite, about
from tokenmill.packing.options import Packing

FOREIGN = {
    "--num-workers": "did you mean --workers? ",
    "--num_proc": "did you mean --workers? ",
    "--output-dir": "did you mean --out? ",
    "--force": "did you mean --overwrite? ",
    "--cache_dir": "did you mean --cache-dir? ",
    "--input-dir": "inputs are positional: tokenmill build INPUT ...; ",
    "--batch-size": "tokenmill build chooses the batch size itself, within --memory; ",
    "--chunk_size": "set the length of sequences with --sequence-length of tokenmill build or ",
    "--sequences-per-chunk": "set the rows of each file with tokenmill export ",
    "--resume": "run the same command again to resume; ",
    "--max_chunks": "limit the sequences that are written with tokenmill export --max-sequences, ",
    "--dataset": "a dataset on the Hub is an input: tokenmill build hf://fineweb-edu ...; ",
    "--dataset_name": "a dataset on the Hub is an input: tokenmill build hf://datasets/OWNER/NAME ",
}
"""Flags of other scripts, and what to write here."""

HEAVY = ["numpy", "pyarrow", "tokenizers", "yaml", "msgspec", "psutil", "fastokens"]


@pytest.mark.parametrize(
    "statement", ["import tokenmill", "from tokenmill.cli import main; main(['--version'])"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement: str) -> None:
    code = f"""
import sys
try:
    {statement}
except SystemExit:
    pass
print(sorted(set({HEAVY}) & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_is_short_and_has_an_example(
    command: str, capsys: Printed
) -> None:
    out = helped(capsys, command, "--help")
    assert f"\n  tokenmill {command} " in out
    assert len(out.splitlines()) <= 45


def test_the_help_shows_ten_options_of_a_build_and_the_rest_by_group(capsys: Printed) -> None:
    out = helped(capsys, "build", "--help")
    shown = [line.split()[0] for line in out.splitlines() if line.startswith("  --")]
    assert shown == [
        *("--tokenizer", "--out", "--format", "--text-field", "--validation", "--max-documents"),
        *("--workers", "--sequence-length", "--config", "--overwrite", "--json"),
    ]
    for group, option in (("read", "--keep NAME"), ("pack", "--packing NAME")):
        assert f"\n  {group:<12}" in out
        assert option not in out
        assert option in helped(capsys, "build", "--help", group)
        assert option in helped(capsys, "build", "--help-all")


@pytest.mark.parametrize("command", [(), ("build", "--help"), ("pack", "--help-all")])
def test_help_fits_a_narrow_terminal(command: tuple[str, ...]) -> None:
    shown = on_terminal(60, "-m", "tokenmill", *command)
    assert [line for line in shown.splitlines() if len(line) > 60] == []
    if command[:1] == ("build",):
        assert "build data/*.jsonl.zst --tokenizer \\\n      tokenizer.json --out corpus/" in shown


def test_without_colours_a_terminal_shows_the_same_words() -> None:
    plain = on_terminal(80, "-m", "tokenmill", "verify", "nowhere", NO_COLOR="1")
    assert plain == on_terminal(
        80, "-m", "tokenmill", "verify", "nowhere", TERM="xterm", NO_COLOR=""
    )
    assert plain.startswith("error: cannot find a dataset\n")


def test_errors_are_json_too(capsys: Printed) -> None:
    assert main(["verify", "nowhere", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "event": "error",
        "what": "cannot find a dataset",
        "where": "nowhere",
        "why": "the folder does not exist",
        "next": "check the path",
        "exit_code": 2,
    }
    assert err.startswith("tokenmill: cannot find a dataset\n")


def test_a_wide_table_becomes_several_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(tables, "columns_of", lambda _: 14)
    print_table(["name", "one", "two", "three"], [["a", "1", "2", "3"], ["b", "4", "5", "6"]])
    assert capsys.readouterr().out == (
        "name  one  two\na       1    2\nb       4    5\n\nname  three\na         3\nb         6\n"
    )


def test_first_cells_that_leave_no_room_are_on_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(tables, "columns_of", lambda _: 14)
    print_table(["source", "one", "two"], [["folder/a.jsonl", "1", "2"], ["b\nc\x1b", "3", "4"]])
    assert capsys.readouterr().out == (
        "source\n  one  two\nfolder/a.jsonl\n    1    2\nb\\nc\\x1b\n    3    4\n"
    )


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (
            "error: cannot find the plan 'x', which is long\n  next: check its name",
            ["error: cannot find the plan 'x',", "       which is long", "  next: check its name"],
        ),
        (
            "  next: create one: tokenmill pack corpus/ --sequence-length 4096",
            [
                "  next: create one:",
                "        tokenmill pack corpus/ \\",
                "            --sequence-length \\",
                "            4096",
            ],
        ),
        (
            "  next: add it; tokenmill pack --help lists every option",
            ["  next: add it;", "        tokenmill pack --help", "        lists every option"],
        ),
        (
            "  why: tokenmill can only read these",
            ["  why: tokenmill can only read", "       these"],
        ),
        ("- as/long/as/a/name/of/a/file/can/be", ["- as/long/as/a/name/of/a/file/can/be"]),
    ],
)
def test_messages_fit_the_terminal_and_commands_can_be_copied(
    message: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "columns_of", lambda _: 33)
    assert fitted(message).split("\n") == lines
    monkeypatch.setattr(terminal, "columns_of", lambda _: None)
    assert fitted(message) == message


def test_examples_in_help_can_be_copied_from_a_narrow_terminal() -> None:
    text = "examples:\n  tokenmill a --b c \\\n      --d e    the letters\n  tokenmill b   all"
    assert folded_help(text, 24).split("\n") == [
        "examples:",
        "  tokenmill a --b c \\",
        "      --d e",
        "      the letters",
        "  tokenmill b   all",
    ]


def test_no_name_of_a_source_adds_a_line_or_steers_the_terminal(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    source, out = tmp_path / "a\nb\x1b[31m.jsonl", tmp_path / "out"
    write_jsonl(source, ["one two three"] * 5)
    build = ("build", source, "--tokenizer", tokenizer_path, "--out", out)
    analyze = ("analyze", source, "--tokenizer", tokenizer_path, "--sequence-lengths", "8")
    shown = [tokenmill_here(*build), tokenmill_here(*analyze)]
    shown += [tokenmill_here("inspect", out, *words) for words in ((), ("--document", 0))]
    os.utime(source, (1, 1))
    shown += [tokenmill_here(*build)]  # compares the file
    write_jsonl(source, ["changed"])
    shown += [tokenmill_here(*build), tokenmill_here("verify", out, "--against-sources")]
    named = [done.stdout + done.stderr for done in shown]
    assert [text for text in named[1:] if "a\\nb\\x1b[31m.jsonl" not in text] == []
    assert [text for text in named if "a\nb" in text or "\x1b" in text] == []


def helped(capsys: Printed, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--help",), 0)])
def test_without_a_command_the_commands_are_listed(
    arguments: tuple[str, ...], code: int, capsys: Printed
) -> None:
    assert main(arguments) == code
    out = capsys.readouterr().out
    shown = [name for name in COMMANDS if f"\n  {name} " in out]
    assert shown == [name for name in COMMANDS if name not in RARE]
    assert "\nalso: diff, delete, recipe, completion, bench\n" in out
    assert len(out.splitlines()) < 25


@pytest.mark.parametrize(
    ("line", "what", "last"),
    [
        ("bild", "unknown command 'bild'", "did you mean tokenmill build?"),
        ("tokenize", "unknown command 'tokenize'", "did you mean tokenmill build?"),
        ("zzz", "unknown command 'zzz'", "tokenmill --help lists all commands"),
        ("--workers 2 build", "unknown option --workers", "put options after a command; "),
        ("build --tokeniser a", "unknown option --tokeniser", "did you mean --tokenizer? "),
        ("build --workrs=3", "unknown option --workrs", "did you mean --workers? "),
        ("pack out --seq-len 8", "unknown option --seq-len", "did you mean --sequence-length? "),
        ("build --work 2", "unknown option --work", "did you mean --workers? "),
        (
            "build --num-proc 2 --output x",
            "unknown options --num-proc, --output",
            "did you mean --workers and --out? ",
        ),
        (
            "pack out --packing bestfit",
            f"--packing: got 'bestfit'; must be one of {', '.join(get_args(Packing))}; did you "
            "mean best-fit?",
            "tokenmill pack --help-all",
        ),
        ("tokenizer dif a b", "'dif' is not a valid value of ACTION", "did you mean diff?"),
        ("tokenizer show a --enc b", "unknown option --enc", "did you mean --encoding? "),
        ("build --help reed", "unknown group of options 'reed'", "did you mean read?"),
        (
            "pack a --sequence-length 8 --max-segments x",
            "--max-segments: got 'x'; must be a whole number, at least 1 and at most 16777216, "
            "or none",
            "tokenmill pack",
        ),
        ("bench tokenizers", "--tokenizer: is missing", "add it, for example: --tokenizer "),
        ("bench loader", "DIR is missing", "tokenmill bench loader --help"),
        ("bench loaders", "'loaders' is not a valid value of ACTION", "did you mean loader?"),
        *((f"build {flag} 8", f"unknown option {flag}", hint) for flag, hint in FOREIGN.items()),
        (
            "build --input-dir data/ --num-workers 8",
            "unknown options --input-dir, --num-workers",
            "did you mean --workers? inputs are positional: tokenmill build INPUT ...; ",
        ),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one_in_three_lines(
    line: str, what: str, last: str, capsys: Printed
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (out, lines[0]) == ("", f"tokenmill: {what}")
    assert lines[-1].startswith(f"  next: {last}")
    assert len(lines) <= 3


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A build as JSON, kept in `events`, of documents with odd names and ids."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "data").mkdir()
    name = "-rf \x1b[31m 😀\n.jsonl"
    path = write_jsonl(folder / "data" / name, ["one", "two", ""], id=["\x1b[31mred", "b", "c"])
    arguments = ["build", path.parent, "--tokenizer", tokenizer_path, "--id-field", "id", "--json"]
    result = tokenmill_here(*arguments, "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    (folder / "events").write_text(result.stdout)
    return folder


def test_the_whole_way_from_the_command_line(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two", ""])
    out = tmp_path / "out"
    built = tokenmill("build", path, "--tokenizer", tokenizer_path, "--out", out)
    assert built.returncode == 0, built.stderr
    assert "only known end-of-document token" in built.stderr
    assert "2 of 3 records" in built.stdout
    assert "verified: " in tokenmill_here("verify", out, "--against-sources").stdout
    shown = tokenmill_here("inspect", out, "--document", 1).stdout
    assert "two⟦<|endoftext|>⟧" in shown
    assert "a.jsonl" in tokenmill_here("inspect", out).stdout
    assert "tokens" in tokenmill_here("estimate", path, "--tokenizer", tokenizer_path).stdout


def test_the_summary_of_a_build_that_encoded_nothing_names_no_bottleneck(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n{"text": 1}\n')
    arguments = ("build", path, "--tokenizer", tokenizer_path, "--out", tmp_path / "out")
    assert tokenmill_here(*arguments).returncode == 3
    shown = tokenmill_here(*arguments, "--max-bad", "60%", "--verbose").stdout
    assert "   documents  1 of 2 records\n" in shown
    assert "    start-up  " in shown
    assert "bottleneck" not in shown


def test_machines_get_json_on_standard_output(built: Path) -> None:
    events = [json.loads(line) for line in (built / "events").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] != "progress"] == [
        "prepared",
        "engine",
        "finished",
    ]
    assert events[-1]["totals"]["documents"] == 2
    out = built / "out"
    assert json.loads(tokenmill_here("verify", out, "--json").stdout)["verified"] is True
    assert json.loads(tokenmill_here("inspect", out, "--json").stdout)["totals"]["documents"] == 2
    document = json.loads(tokenmill_here("inspect", out, "--document", 0, "--json").stdout)
    assert document["pieces"][0]["text"] == "one"


@pytest.mark.parametrize(
    "line",
    [
        "build nowhere --tokenizer x.json --out out",
        "verify nowhere",
        "verify nowhere --sample 0%",
        "inspect nowhere",
    ],
)
def test_user_mistakes_end_with_code_2_and_no_traceback(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tokenmill_here(*line.split())
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("tokenmill: ")


def test_names_and_ids_from_outside_cannot_steer_the_terminal(built: Path) -> None:
    for arguments, part in ((("--document", 0), "red"), ((), "😀")):
        shown = tokenmill_here("inspect", built / "out", *arguments).stdout
        assert "\x1b" not in shown
        assert part in shown


class Overwriting(Command, kw_only=True):
    usage: ClassVar[str] = ""
    inputs: Annotated[list[str], about("", positional="INPUT")] = []  # noqa: RUF012
    overwrite: Overwrite = False


def test_an_overwrite_takes_no_word_that_follows() -> None:
    def overwrite(*words: str) -> object:
        parsed = Parser("x", Overwriting, "summary").read([*words, "first"])
        assert parsed is not None
        options = parsed[0]
        assert isinstance(options, Overwriting)
        assert options.inputs == ["first"]
        return options.overwrite

    assert overwrite() is False
    assert overwrite("--overwrite") is True
    assert overwrite("--overwrite=first") == "first"
    with pytest.raises(UserError, match="ignored explicit argument 'last'"):
        overwrite("--overwrite=last")
