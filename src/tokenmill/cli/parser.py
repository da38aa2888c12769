"""An argument parser with a short help and short error messages.

`--help` shows the options in `common`, `--help GROUP` the options of one group, and `--help-all`
every option. Without `common`, `--help` shows everything.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from tokenmill.cli.terminal import coloured_help
from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import advice_for, did_you_mean, nearest

FIRST_COLUMN = 30


class Parser(argparse.ArgumentParser):
    """A parser that reports mistakes as UserErrors and suggests the nearest known name."""

    common: Sequence[str] = ()
    """Names of the options that most people need, in this order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, **options)
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action="help", help="show every option")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does, but report unknown options before missing ones."""
        given = [] if args is None else list(_before_separator(args))
        if self._subparsers is None or given[:1] in (["-h"], ["--help"], ["--help-all"]):
            self._show_help(given)
            self._refuse_unknown(given)
        return super().parse_known_args(args, namespace)

    def _show_help(self, arguments: Sequence[str]) -> None:
        for flag in ("--help-all", "--help", "-h"):
            if flag in arguments:
                following = arguments[arguments.index(flag) + 1 :][:1]
                group = "".join(word for word in following if not word.startswith("-"))
                text = self.help_of("all" if flag == "--help-all" else group)
                print(coloured_help(text), end="", flush=True)
                self.exit()

    def _refuse_unknown(self, arguments: Sequence[str]) -> None:
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        given = [argument.partition("=")[0] for argument in arguments]
        unknown = [flag for flag in given if flag.startswith("--") and flag not in known]
        if not unknown:
            return
        advice = [text for flag in unknown if (text := advice_for(flag, known))]
        others = [flag for flag in unknown if not advice_for(flag, known)]
        close = [name for name in (nearest(flag, known) for flag in others) if name]
        hint = f"did you mean {' and '.join(close)}? " if close else ""
        hint += "".join(f"{text}; " for text in advice)
        raise UserError(
            f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}",
            hint=f"{hint}{self.prog} --help-all lists every option",
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        name = action.option_strings[-1] if action.option_strings else str(action.metavar)
        raise UserError(
            f"{value!r} is not a valid value of {name}",
            why=f"choose from {', '.join(choices)}",
            hint=did_you_mean(str(value), choices),
        )

    def error(self, message: str) -> NoReturn:
        """Raise a UserError."""
        missing = "the following arguments are required: "
        if message.startswith(missing):
            names = message.removeprefix(missing)
            message = f"{names} {'are' if ', ' in names else 'is'} required"
        hint = f"{self.prog} --help shows the options and an example"
        raise UserError(message.removeprefix("argument "), hint=hint)

    def format_help(self) -> str:
        """Return the short help."""
        return self.help_of("")

    def help_of(self, group: str) -> str:
        """Return the help of a group of options, of all options ("all"), or the short help ("").

        Raises:
            UserError: the group does not exist.
        """
        groups = {title: actions for title, _, actions in self._groups()}
        if group not in ("", "all", *groups):
            raise UserError(
                f"unknown group of options {group!r}",
                why=f"the groups are {', '.join(groups)}",
                hint=did_you_mean(group, groups, "--help-all shows every option"),
            )
        width = min(shutil.get_terminal_size().columns, 100) - 2
        formatter = _Formatter(self.prog, 2, FIRST_COLUMN, width)
        if group in groups:
            _add_section(formatter, f"{group} options", groups[group])
            return formatter.format_help()
        formatter.add_text(self.description)
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.epilog)
        own = [action for action in self._own() if self.common or action.dest != "help_all"]
        _add_section(formatter, "arguments", [a for a in own if not a.option_strings])
        short = bool(self.common) and group != "all"
        options = [action for action in own if action.option_strings]
        _add_section(formatter, "options", self._most_used(options) if short else options)
        if short:
            formatter.add_text(self._more())
        else:
            for title, actions in groups.items():
                _add_section(formatter, f"{title} options", actions)
        return formatter.format_help()

    def _own(self) -> list[argparse.Action]:
        """The actions that are in no group."""
        grouped = {id(action) for _, _, actions in self._groups() for action in actions}
        return [action for action in self._actions if id(action) not in grouped]

    def _groups(self) -> list[tuple[str, str, list[argparse.Action]]]:
        """Title, summary and options of each group."""
        return [
            (group.title or "", group.description or "", group._group_actions)
            for group in self._action_groups[2:]  # argparse itself makes the first two
        ]

    def _most_used(self, others: Iterable[argparse.Action]) -> list[argparse.Action]:
        by_name = {action.dest: action for action in self._actions}
        chosen = [by_name[name] for name in self.common if name in by_name]
        return [*chosen, *(a for a in others if a not in chosen and a.dest in ("json", "help"))]

    def _more(self) -> str:
        lines = [f"more options: {self.prog} --help GROUP or --help-all"]
        lines += [f"  {title:<12}{summary}" for title, summary, _ in self._groups()]
        return "\n".join(lines)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that does not break lines inside names such as best-fit."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def whole_number(text: str) -> int:
    """Parse a whole number; for the `type` of an argument."""
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from error


def length(text: str) -> int:
    """Parse a number of tokens, such as 4096 or 4k; for the `type` of an argument."""
    from tokenmill.run.recipe.spellings import parse_length

    try:
        return parse_length(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def lengths(text: str) -> list[int]:
    """Parse numbers of tokens separated by commas."""
    return [length(part) for part in text.split(",")]


def _before_separator(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == "--":
            return
        yield argument


def _add_section(
    formatter: argparse.HelpFormatter, title: str, actions: Iterable[argparse.Action]
) -> None:
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()
