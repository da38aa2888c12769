"""The command line: one file per command, which parses, calls and prints."""

from __future__ import annotations

import gc
import importlib
import os
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
RESUMABLE = (
    "build",
    "adopt",
    "export",
    "rows",
    "cp",
    "delete",
    "tokenizer count",
    "tokenizer train",
)
COMMANDS = {
    "build": "encode a corpus into a dataset; run the same command again to resume",
    "adopt": "make a dataset of token files of Megatron, OLMo, datatrove, nanoGPT or datasets",
    "pack": "plan training sequences of a dataset, or compare packing strategies",
    "export": "write rows as Parquet, npy, pt, datasets or MDS, or documents for Megatron",
    "rows": "turn a Hugging Face dataset into rows for a causal language model",
    "estimate": "estimate tokens, disk, time and memory from a sample; writes nothing",
    "analyze": "compare sequence lengths by fill, cuts, FLOPs and memory; recommend one",
    "status": "show the agents and the progress of a build, on any machine",
    "watch": "show running builds, exports and loaders live, as a page or in the terminal",
    "verify": "check every digest and count; optionally encode the sources again and compare",
    "inspect": "show a dataset, a document, a plan, a sequence, or a step of a training run",
    "report": "write a page with charts about a dataset, a plan, an analysis or tokenizers",
    "amend": "change the shares, data or batch size of a training run from a step on",
    "provenance": "count what a training run has given, by source; write a data statement",
    "select": "choose documents of datasets, or merge datasets, without copying a token",
    "find": "find documents by their text, and the sequences that have them",
    "diff": "show how two datasets differ in sources, documents, tokens and options",
    "cp": "copy a dataset and its plans between folders and buckets",
    "delete": "delete a dataset or an unfinished build from a bucket",
    "tokenizer": "train, extend, trim, measure, describe and compare tokenizers",
    "recipe": "print a recipe to edit, or the JSON Schema of recipes",
    "completion": "print the completion script of a shell",
    "bench": "measure engines and loaders on this machine",
}
RARE = ("diff", "delete", "recipe", "completion", "bench")
"""Commands that the overview only names."""
ACTIONS = {
    "tokenizer": {
        "show": "show kind, model, special tokens, engine and digests of a tokenizer",
        "fingerprint": "print a fingerprint; equal tokenizers have the same one",
        "count": "count the words of a corpus, for training and reports",
        "train": "train a tokenizer on texts or word counts",
        "advise": "recommend a vocabulary size for a model and show its costs",
        "diff": "compare two tokenizers component by component; exit code 5 if they differ",
        "extend": "add the tokens that a corpus needs to a BPE tokenizer",
        "trim": "remove the tokens of a BPE tokenizer that a corpus needs least",
        "report": "measure one or several tokenizers on the same text",
    },
    "bench": {
        "tokenizers": "measure how fast each engine encodes with a tokenizer, on this machine",
        "loader": "measure whether a loader keeps up with training, from this disk or bucket",
    },
}
"""The actions of the commands that have some."""
PLACES = {
    "tokenizer show": "tokenizers.facts:Show",
    "tokenizer fingerprint": "tokenizers.facts:ShowFingerprint",
    "tokenizer count": "tokenizers.count:Count",
    "tokenizer train": "tokenizers.train:Train",
    "tokenizer advise": "tokenizers.advise:Advise",
    "tokenizer diff": "tokenizers.facts:Diff",
    "tokenizer extend": "tokenizers.changes:Extend",
    "tokenizer trim": "tokenizers.changes:Trim",
    "tokenizer report": "tokenizers.report:ReportOn",
    "bench tokenizers": "bench:Bench",
    "bench loader": "bench_loader:BenchLoader",
}
"""The modules and classes of actions."""
OVERVIEW = """\
Turn raw text into training batches: read, encode, pack, verify, serve.
example: tokenmill build data/ --tokenizer tokenizer.json --out corpus/

{commands}

also: {rare}
Run tokenmill COMMAND --help for options and examples, or tokenmill --version."""
ACTIONS_OVERVIEW = """\
{summary}.

usage: tokenmill {command} ACTION ... [options]

examples:
{examples}

actions:
{{commands}}

Run tokenmill {command} ACTION --help for options and examples."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Only this function catches and reports errors."""
    if arguments is not None:
        with lasting_streams():
            return _run(arguments)
    # The process runs only this command.
    end_without_traceback()
    # NumPy would start threads for linear algebra, which no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return main(sys.argv[1:])
    finally:
        gc.freeze()  # as it exits, Python would look through all objects for garbage


def _run(arguments: Sequence[str]) -> int:
    command = arguments[0] if arguments else ""
    try:
        with signals_as_errors():
            code = _carry_out(command, arguments)
            sys.stdout.flush()
            return code
    except Interrupted as error:
        resumes = " ".join(arguments[:2]).startswith(RESUMABLE)
        notes = [*getattr(error, "__notes__", ()), *([] if resumes else [UNCHANGED])]
        _report("; ".join([f"tokenmill: {error}", *notes]))
        if "--json" in arguments:
            hint = "run the same command again to resume" if resumes else ""
            told = TokenmillError(str(error), why="; ".join(notes), hint=hint)
            _print_as_json(told, error.exit_code)
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
            _print_as_json(told, told.exit_code)
        return told.exit_code


def _carry_out(command: str, arguments: Sequence[str]) -> int:
    if command in ("", "-h", "--help"):
        shown = {name: summary for name, summary in COMMANDS.items() if name not in RARE}
        _print_overview(OVERVIEW.replace("{rare}", ", ".join(RARE)), shown)
        return 0 if command else 2
    if command == "--version":
        from importlib.metadata import version

        print(f"tokenmill {version('tokenmill')}")
        return 0
    if command not in COMMANDS:
        raise _unknown(command)
    if command not in ACTIONS:
        return _run_command(parser_for(command), arguments[1:])
    actions = ACTIONS[command]
    words = [word for word in arguments[1:] if word != "--debug"]  # may stand before the action
    action = "".join(words[:1])
    if action in ("", "-h", "--help", "--help-all"):
        texts = [str(parser_for(command, name).epilog) for name in actions]
        examples = "\n".join(line for text in texts for line in text.splitlines()[1:2])
        text = ACTIONS_OVERVIEW.format(
            summary=COMMANDS[command].capitalize(), command=command, examples=examples
        )
        _print_overview(text, actions)
        return 0 if action else 2
    if action not in actions:
        raise UserError(
            f"{action!r} is not a valid value of ACTION",
            why=f"choose from {', '.join(actions)}",
            hint=did_you_mean(action, actions),
        )
    return _run_command(parser_for(command, action), words[1:])


def parser_for(command: str, action: str = "") -> Parser:
    """The parser of a command, or of an action of a command."""
    from tokenmill.cli.parser import Parser

    name = f"{command} {action}".rstrip()
    summary = ACTIONS[command][action] if action else COMMANDS[command]
    module, _, kind = PLACES.get(name, f"{command}:{command.capitalize()}").partition(":")
    found = getattr(importlib.import_module(f"tokenmill.cli.{module}"), kind)
    return Parser(name, found, summary)


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


def _print_as_json(error: TokenmillError, exit_code: int) -> None:
    """Print an error on standard output, as one object."""
    from tokenmill.cli.tables import print_json

    why = error.why.replace("\n       ", "\n")
    parts = {"what": error.what, "where": error.where, "why": why, "next": error.hint}
    given = {name: text for name, text in parts.items() if text}
    print_json({"event": "error", **given, "exit_code": exit_code})


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
