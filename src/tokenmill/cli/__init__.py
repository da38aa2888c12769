"""The command line: one file per command, which parses, calls and prints."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tokenmill.cli.signals import end_without_traceback, signals_as_errors
from tokenmill.core.errors import EngineError, InternalError, Interrupted, TokenmillError, UserError
from tokenmill.core.streams import lasting_streams
from tokenmill.core.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from tokenmill.cli.parser import Parser

UNCHANGED = "nothing was changed"
RESUMABLE = ("build", "export", "rows", "cp", "delete", "tokenizer count", "tokenizer train")
COMMANDS = {
    "build": "encode a corpus into a dataset; run the same command again to resume",
    "pack": "plan training sequences of a dataset, or compare packing strategies",
    "export": "write the rows of a plan as npy, pt, Parquet or Hugging Face datasets files",
    "rows": "turn a Hugging Face dataset into rows for a causal language model",
    "estimate": "estimate tokens, disk, time and memory from a sample; writes nothing",
    "analyze": "compare sequence lengths by fill, cuts, FLOPs and memory; recommend one",
    "status": "show the agents and the progress of a build, on any machine",
    "watch": "show running builds, exports and loaders live, as a page or in the terminal",
    "verify": "check every digest and count; optionally encode the sources again and compare",
    "inspect": "show a dataset, its documents, or a plan and its sequences",
    "report": "write a page with charts about a dataset, a plan, an analysis or tokenizers",
    "select": "choose documents of datasets, or merge datasets, without copying a token",
    "diff": "show how two datasets differ in sources, documents, tokens and options",
    "cp": "copy a dataset and its plans between folders and buckets",
    "delete": "delete a dataset or an unfinished build from a bucket",
    "tokenizer": "train, extend, trim, measure, describe and compare tokenizers",
    "recipe": "print a recipe to edit, or the JSON Schema of recipes",
    "completion": "print the completion script of a shell",
    "bench": "measure how fast each engine encodes with a tokenizer, on this machine",
}
OVERVIEW = """\
Turn raw text into training batches: read, encode, pack, verify, serve.
example: tokenmill build data/ --tokenizer tokenizer.json --out corpus/

{commands}

Run tokenmill COMMAND --help for options and examples, or tokenmill --version."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Only this function catches and reports errors."""
    if arguments is None:  # the process runs only this command
        end_without_traceback()
        arguments = sys.argv[1:]
    with lasting_streams():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    command = arguments[0] if arguments else ""
    try:
        with signals_as_errors():
            code = _carry_out(command, arguments)
            sys.stdout.flush()
            return code
    except Interrupted as error:
        notes = [str(error), *getattr(error, "__notes__", ())]
        resumes = " ".join(arguments[:2]).startswith(RESUMABLE)
        _report("tokenmill: " + "; ".join(notes if resumes else [*notes, UNCHANGED]))
        if resumes:
            import shlex

            command = shlex.join(["tokenmill", *sys.argv[1:]])
            _report(f"resume with the same command:\n  {command}")
        return error.exit_code
    except Exception as error:
        if "--debug" in arguments:
            raise
        told = _explained(error)
        _report(str(told), label="error:" if sys.stderr.isatty() else "tokenmill:")
        if "--json" in arguments:
            _print_as_json(told)
        return told.exit_code


def _carry_out(command: str, arguments: Sequence[str]) -> int:
    if command in ("", "-h", "--help"):
        _print_overview(OVERVIEW, COMMANDS)
        return 0 if command else 2
    if command == "--version":
        from importlib.metadata import version

        print(f"tokenmill {version('tokenmill')}")
        return 0
    if command not in COMMANDS:
        raise _unknown(command)
    if command != "tokenizer":
        return _run_command(parser_for(command), arguments[1:])
    from tokenmill.cli.tokenizers import ACTIONS
    from tokenmill.cli.tokenizers import OVERVIEW as ABOUT_TOKENIZERS

    words = [word for word in arguments[1:] if word != "--debug"]  # may stand before the action
    action = "".join(words[:1])
    if action in ("", "-h", "--help", "--help-all"):
        _print_overview(ABOUT_TOKENIZERS, {name: each.summary for name, each in ACTIONS.items()})
        return 0 if action else 2
    if action not in ACTIONS:
        raise UserError(
            f"{action!r} is not a valid value of ACTION",
            why=f"choose from {', '.join(ACTIONS)}",
            hint=did_you_mean(action, ACTIONS),
        )
    return _run_command(parser_for(command, action), words[1:])


def parser_for(command: str, action: str = "") -> Parser:
    """The parser of a command, or of an action of `tokenmill tokenizer`."""
    from tokenmill.cli.parser import Parser
    from tokenmill.cli.tokenizers import ACTIONS

    summary, place = COMMANDS[command], f"{command}:{command.capitalize()}"
    if action:
        summary, place = ACTIONS[action].summary, f"tokenizers.{ACTIONS[action].place}"
    module, _, kind = place.partition(":")
    found = getattr(importlib.import_module(f"tokenmill.cli.{module}"), kind)
    return Parser(f"{command} {action}".rstrip(), found, summary)


def _run_command(parser: Parser, words: Sequence[str]) -> int:
    from tokenmill.core.options import OptionError
    from tokenmill.store.cloud.stores import set_options

    try:
        parsed = parser.read(words)
        if parsed is None:
            return 0
        command, stores = parsed
        set_options(endpoint=stores.endpoint, anonymous=stores.anonymous)
        return command.run() or 0
    except OptionError as error:
        raise parser.in_flags(error) from error


def _print_overview(text: str, summaries: Mapping[str, str]) -> None:
    from tokenmill.cli.terminal import coloured_help, columns_of, folded_help

    rows = "\n".join(f"  {name:<13}{summary}" for name, summary in summaries.items())
    print(coloured_help(folded_help(text.format(commands=rows), columns_of(sys.stdout) or 100)))


def _unknown(command: str) -> UserError:
    if command.startswith("-"):
        hint = "put options after a command; tokenmill COMMAND --help lists them"
        return UserError(f"unknown option {command}", hint=hint)
    close = nearest(command, COMMANDS)
    hint = f"did you mean tokenmill {close}?" if close else "tokenmill --help lists all commands"
    return UserError(f"unknown command {command!r}", hint=hint)


def _explained(error: Exception) -> TokenmillError:
    """The error to report instead of any error."""
    if isinstance(error, MemoryError):
        hint = "give the process more memory; --debug shows what needed it"
        error = EngineError("out of memory", hint=hint)  # as for a worker
    elif isinstance(error, OSError) and not isinstance(error, TokenmillError):
        from tokenmill.store.files import storage_error

        error = storage_error(error, "read or write a file")
    if isinstance(error, TokenmillError):
        return error
    report = "run again with --debug and report the output"
    return InternalError(f"a bug in tokenmill: {type(error).__name__}: {error}", hint=report)


def _print_as_json(error: TokenmillError) -> None:
    """Print an error on standard output, as one object."""
    from tokenmill.cli.tables import print_json

    parts = {"what": error.what, "where": error.where, "why": error.why, "next": error.hint}
    given = {name: text for name, text in parts.items() if text}
    print_json({"event": "error", **given, "exit_code": error.exit_code})


def _report(text: str, label: str = "") -> None:
    """Print a message on standard error, after the label of an error."""
    from tokenmill.cli.terminal import BOLD, RED, fitted, painted, use_colour
    from tokenmill.core.values import safe_text

    text = fitted(safe_text(f"{label} {text}" if label else text), sys.stderr)
    if use_colour(sys.stderr):
        if label:
            text = painted(label, BOLD, RED) + text.removeprefix(label)
        for part in ("where", "why", "next"):
            text = text.replace(f"\n  {part}: ", f"\n  {painted(f'{part}:', BOLD)} ")
    print(text, file=sys.stderr, flush=True)
