"""The command line: one file per command, which parses, calls and prints."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from tokenmill.cli.signals import signals_as_errors
from tokenmill.errors import EngineError, Interrupted, TokenmillError
from tokenmill.streams import lasting_streams

UNCHANGED = "nothing was changed"
COMMANDS = {
    "build": "a corpus in, a verified token dataset out; the same command resumes",
    "pack": "documents into training sequences: a plan, with the gap to optimal",
    "export": "rows of a plan as files: npy, pt, Parquet, Hugging Face datasets",
    "estimate": "files, tokens, disk, time and memory from a sample; writes nothing",
    "verify": "digests, counts, bounds; re-encode the sources and compare",
    "inspect": "what is in a dataset, documents decoded with their boundaries",
    "tokenizer": "what a tokenizer is, its fingerprint, and how two of them differ",
    "bench": "how fast a tokenizer encodes, in every arrangement that this machine offers",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; the only place that catches and reports errors."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with lasting_streams():
        return _run(arguments)


def _parser(command: str) -> argparse.ArgumentParser:
    """The parser; only the command that is used is imported and filled in."""
    parser = argparse.ArgumentParser(
        prog="tokenmill",
        description="Raw text to training batches: read, encode, pack, verify, serve.",
        epilog="tokenmill COMMAND --help shows the options and examples of a command.",
    )
    parser.add_argument("--version", action="version", version=_Version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            module = importlib.import_module(f"tokenmill.cli.{name}")
            module.add_arguments(subparser)
            subparser.add_argument("--debug", action="store_true", help="show tracebacks")
            subparser.set_defaults(run=module.run)
    return parser


class _Version(str):
    """Looked up only when it is shown."""

    def __mod__(self, _: object) -> str:
        from importlib.metadata import version

        return f"tokenmill {version('tokenmill')}"


def _run(arguments: Sequence[str]) -> int:
    command = arguments[0] if arguments else ""
    try:
        with signals_as_errors():
            return _carry_out(command, arguments)
    except Interrupted as error:
        notes = [str(error), *getattr(error, "__notes__", ())]
        _report("tokenmill: " + "; ".join(notes if command == "build" else [*notes, UNCHANGED]))
        if command == "build":
            _report("resume with the same command:\n  " + _command_line())
        return error.exit_code
    except Exception as error:
        if "--debug" in arguments:
            raise
        text, code = _explained(error)
        _report(f"tokenmill: {text}")
        return code


def _carry_out(command: str, arguments: Sequence[str]) -> int:
    parser = _parser(command)
    options = parser.parse_args(arguments)
    if not options.command:
        parser.print_help()
        return 2
    code = int(options.run(options))
    sys.stdout.flush()
    return code


def _explained(error: Exception) -> tuple[str, int]:
    """What to say about an error, and the exit code."""
    if isinstance(error, MemoryError):
        hint = "give the process more memory; --debug shows where it ran out"
        error = EngineError("there is not enough memory", hint=hint)  # as for a worker
    elif isinstance(error, OSError) and not isinstance(error, TokenmillError):
        from tokenmill.store.files import storage_error

        error = storage_error(error, "read or write a file")
    if isinstance(error, TokenmillError):
        return str(error), error.exit_code
    report = "run again with --debug, and report what it prints"
    return f"a bug: {type(error).__name__}: {error}\n  next: {report}", 1


def _command_line() -> str:
    import shlex

    return shlex.join(["tokenmill", *sys.argv[1:]])


def _report(text: str) -> None:
    from tokenmill.cli.terminal import safe_text

    print(safe_text(text), file=sys.stderr, flush=True)
