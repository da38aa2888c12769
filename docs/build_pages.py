"""Adds pages that are not in docs/: the command line's help, and files that pages link to.

A page links to `../../bench/RESULTS.md`, which works in the repository. The site holds a copy of
each such file below `repository/`, and the link is changed to lead there.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tokenmill.cli import ACTIONS, COMMANDS, parser_for
from tokenmill.cli.parser import Parser
from tokenmill.core.options import options_of
from tokenmill.core.values import valid_values

ROOT = Path(__file__).resolve().parents[1]
COPIES = "repository/"
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
OPTIONS = re.compile(r"<!-- options (.+?) -->")
COMMAND_LINE = """\
# Command line

`tokenmill COMMAND --help` shows the options that most people need, and `--help-all` shows every
option. This page holds the same text.
"""


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page of the command line, and the files outside docs/ that pages link to."""
    files.append(File.generated(config, "reference/command-line.md", content=_command_line()))
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        for path in _outside(waiting.pop(), files):
            copy = File.generated(config, COPIES + path, abs_src_path=str(ROOT / path))
            files.append(copy)
            waiting += [copy.src_uri] if copy.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the copies of their targets, and fill in tables of options."""

    def changed(found: re.Match[str]) -> str:
        target = _in_site(_target(page.file.src_uri, found[1]))
        return "](" + os.path.relpath(target, os.path.dirname(page.file.src_uri) or ".")

    return OPTIONS.sub(lambda found: _options(found[1].split()), LINK.sub(changed, markdown))


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Let the search of pages that are opened from disk use our script, not one of another host."""
    script = os.path.relpath("search-from-disk.js", os.path.dirname(page.file.dest_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", script)


def _outside(uri: str, files: Files) -> list[str]:
    """Files of the repository that this page links to, and that the site does not have."""
    place = ROOT / _in_repository(uri)
    text = place.read_text(encoding="utf-8") if place.is_file() else ""
    targets = dict.fromkeys(_target(uri, found[1]) for found in LINK.finditer(text))
    return [
        path
        for path in targets
        if (ROOT / path).is_file() and files.get_file_from_path(_in_site(path)) is None
    ]


def _target(uri: str, link: str) -> str:
    """The path in the repository that a link on this page leads to."""
    return os.path.normpath(os.path.join(os.path.dirname(_in_repository(uri)), link))


def _in_repository(uri: str) -> str:
    return uri.removeprefix(COPIES) if uri.startswith(COPIES) else f"docs/{uri}"


def _in_site(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path


def _command_line() -> str:
    sections = [_command(name, summary) for name, summary in COMMANDS.items()]
    return "\n".join([COMMAND_LINE, *sections])


def _command(name: str, summary: str) -> str:
    parts = [f"## tokenmill {name}\n\n{summary[0].upper()}{summary[1:]}.\n"]
    if name not in ACTIONS:
        return "\n".join([*parts, _help(parser_for(name))])
    for action in ACTIONS[name]:
        parts.append(f"### tokenmill {name} {action}\n\n{_help(parser_for(name, action))}")
    return "\n".join(parts)


def _options(structs: list[str]) -> str:
    """A table of the fields of option structs, each given as MODULE:NAME."""
    lines = ["| option | values | default | |", "|---|---|---|---|"]
    for place in structs:
        module, _, name = place.partition(":")
        for option in options_of(getattr(importlib.import_module(module), name)).values():
            values = valid_values(option.hint)
            default = "required" if option.is_required else f"`{option.default!r}`"
            cells = (f"`{option.name}`", values, default, option.description)
            lines.append("".join(f"| {cell.replace('|', '&#124;')} " for cell in cells) + "|")
    return "\n".join(lines) + "\n"


def _help(parser: Parser) -> str:
    return f"```text\n{parser.help_of('all').strip()}\n```\n"
