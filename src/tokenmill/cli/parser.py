"""Commands: their flags follow from the fields of structs (`core/options.py`).

`--help` shows the options in `common`, `--help GROUP` the options of one group, and `--help-all`
every option. Without `common`, `--help` shows everything.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, NoReturn

import msgspec

from tokenmill.cli.terminal import coloured_help, columns_of, folded_help
from tokenmill.core.errors import UserError
from tokenmill.core.options import MISSING, Option, OptionError, about, make_options, options_of
from tokenmill.core.suggestions import advice_for, did_you_mean, nearest
from tokenmill.core.values import members_of

FIRST_COLUMN, NARROW = 30, 66
LONGEST_METAVAR = 40
UNSET = argparse.SUPPRESS
METAVARS = {"bytes": "SIZE", "escaped": "TEXT"}

Json = Annotated[bool, about("the result as JSON on stdout")]
Verbose = Annotated[bool, about("show all figures and what was chosen")]
Decoder = Annotated[
    str | None,
    about(
        "the Python tokenizer that built the dataset; not needed for other tokenizers",
        metavar="python:MODULE:NAME",
    ),
]
Events = Annotated[bool, about("events as JSON lines on stdout")]


def flag_of(option: str) -> str:
    """The flag of an option, from its name or its path in a recipe."""
    return f"--{option.rpartition('.')[2].replace('_', '-')}"


class Section(NamedTuple):
    """A group of flags that are fields of another struct than the command itself."""

    name: str
    kind: type[msgspec.Struct]
    summary: str = ""
    """By default the first line of the struct's docstring."""
    without: Collection[str] = ()
    only: Collection[str] = ()
    prefix: str = ""

    @property
    def options(self) -> dict[str, Option]:
        """The options by flag, without dashes."""
        names = self.only or options_of(self.kind)
        found = {name: options_of(self.kind)[name] for name in names if name not in self.without}
        return {f"{self.prefix}{name}".replace("_", "-"): each for name, each in found.items()}


class Flag(NamedTuple):
    """A flag of a command, or an argument that is a choice."""

    name: str
    """Empty for an argument without a flag."""
    help: str
    values: tuple[str, ...]
    """Its values if they are a choice."""
    takes_value: bool


class StoreOptions(msgspec.Struct, kw_only=True):
    """S3-compatible stores, public buckets."""

    endpoint: Annotated[
        str | None,
        about("address of an S3-compatible store (default: that of the cloud)", metavar="URL"),
    ] = None
    anonymous: Annotated[bool, about("read public buckets without credentials")] = False


class Command(msgspec.Struct, kw_only=True):
    """The base of commands. Its fields are options; `run` does the work."""

    usage: ClassVar[str]
    examples: ClassVar[str] = ""
    common: ClassVar[tuple[str, ...]] = ()
    """Names of the options that most people need, in this order."""
    sections: ClassVar[tuple[Section, ...]] = ()

    debug: Annotated[bool, about("show tracebacks")] = False
    given: dict[str, dict[str, Any]] = {}
    """The flags of each section, by the names of its options, with values as they were typed."""
    command_line: tuple[str, ...] = ()
    """All words of the command line, from the name of the command."""

    def run(self) -> int | None:
        """Do the work; returns the exit code, or None for 0."""
        raise NotImplementedError


class Parser(argparse.ArgumentParser):
    """A parser of one command. It reports mistakes as UserErrors and suggests known names."""

    def __init__(self, name: str, kind: type[Command], summary: str) -> None:
        description = f"{summary[0].upper()}{summary[1:]}."
        super().__init__(
            f"tokenmill {name}", description=description, add_help=False, allow_abbrev=False
        )
        self.usage, self.epilog, self._kind = f"{self.prog} {kind.usage}", kind.examples, kind
        self._flags: dict[str, tuple[str, Option]] = {}
        """The flag of each option by its path and by its name, with the option."""
        self._in_file: set[str] = set()
        """The options that a file can hold and this command line does not."""
        self._sections = [
            *kind.sections,
            Section("store", StoreOptions, "S3-compatible stores, public buckets"),
        ]
        self.add_argument("-h", "--help", action="help", help="show this help")
        if kind.common:
            self.add_argument("--help-all", action="help", help="show every option")
        own = [name for name in options_of(kind) if name not in options_of(Command)]
        self._add_all(self, Section("", kind, only=(*own, "debug")))
        for section in self._sections:
            doc = (section.kind.__doc__ or "").splitlines()[0].rstrip(".")
            summary = section.summary or doc[:1].lower() + doc[1:]
            self._add_all(self.add_argument_group(section.name, summary), section)

    def read(self, words: Sequence[str]) -> tuple[Command, StoreOptions] | None:
        """Make the command, and the options of stores, from the words after its name.

        If they ask for help, it is printed, and the result is None.

        Raises:
            UserError: a word or a value is wrong.
        """
        given = list(itertools.takewhile(lambda word: word != "--", words))
        if self._has_shown_help(given):
            return None
        self._refuse_unknown(given)
        values: dict[str, dict[str, Any]] = {}
        typed = vars(self.parse_args(words))
        if {"json", "csv"} <= typed.keys():
            raise UserError("--json and --csv cannot be combined")
        if "config" in typed or "set" in typed:
            names = {name for path in typed for name in (path, path.rpartition(".")[2])}
            self._in_file = self._flags.keys() - names
        for path, value in typed.items():
            section, _, name = path.rpartition(".")
            values.setdefault(section, {})[name] = value
        own = values.pop("", {})
        stores = make_options(StoreOptions, values.pop("store", {}), "the command")
        command = make_options(self._kind, own, "the command")
        return msgspec.structs.replace(
            command, given=values, command_line=(*self.prog.split()[1:], *words)
        ), stores

    def flags(self) -> Iterator[Flag]:
        """All flags that the help shows, and the arguments that are choices."""
        for action in self._actions:
            option = self._flags.get(action.dest, ("", None))[1]
            text = option.description if option is not None else str(action.help)
            values: tuple[str, ...] = ()
            if option is not None and action.nargs != 0:
                values = option.names or tuple(option.extra.get("known", ()))
            for flag in action.option_strings:
                if flag.startswith("--") and action.help != argparse.SUPPRESS:
                    yield Flag(flag, text, values, action.nargs != 0)
            if values and not action.option_strings:
                yield Flag("", text, values, takes_value=True)

    def in_flags(self, error: OptionError) -> UserError:
        """The error about options as the user of this command typed them."""
        lines = [problem.said(self.flag) for problem in error.problems]
        where = "" if all(line.startswith("--") for line in lines) else error.where
        absent = [each.option for each in error.problems if each.text.startswith(MISSING)]
        known = [self._flags[path] for path in map(self._known, absent) if path]
        examples = [
            f"{flag} {option.examples[0]}" if flag.startswith("-") else option.examples[0]
            for flag, option in known
            if option.examples
        ]
        hint = f"{self.prog} --help-all lists every option"
        if examples:
            which = "it" if len(examples) == 1 else "them"
            example = " ".join(dict.fromkeys(examples))
            hint = f"add {which}, for example: {example}; {self.prog} --help shows the options"
        if len(lines) == 1:
            return UserError(lines[0], where=where, hint=hint)
        what = f"{error.subject} has {len(lines)} problems"
        return UserError(what, where=where, why="\n       ".join(lines), hint=hint)

    def flag(self, path: str) -> str:
        """The flag of an option, or its path if this command has no such flag."""
        known = self._known(path)
        return path if not known or known in self._in_file else self._flags[known][0]

    def _known(self, path: str) -> str:
        names = (path, path.rpartition(".")[2])
        return next((name for name in names if name in self._flags), "")

    def _add_all(self, group: argparse._ActionsContainer, section: Section) -> None:
        for name, option in section.options.items():
            path = f"{section.name}.{option.name}".lstrip(".")
            flag = _add(group, name, path, option)
            for known in (path, option.name):
                self._flags.setdefault(known, (flag, option))

    def _has_shown_help(self, words: Sequence[str]) -> bool:
        for flag in ("--help-all", "--help", "-h"):
            if flag in words:
                following = words[words.index(flag) + 1 :][:1]
                group = "".join(word for word in following if not word.startswith("-"))
                text = self.help_of("all" if flag == "--help-all" else group)
                print(coloured_help(text), end="", flush=True)
                return True
        return False

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        given = [word.partition("=")[0] for word in words]
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

    def error(self, message: str) -> NoReturn:
        """Raise a UserError."""
        absent = "the following arguments are required: "
        if message.startswith(absent):
            names = message.removeprefix(absent)
            message = f"{names} {'are' if ', ' in names else 'is'} missing"
        hint = f"{self.prog} --help shows the options and an example"
        raise UserError(message.removeprefix("argument "), hint=hint)

    def help_of(self, group: str) -> str:
        """Return the help of a group of options, of all options ("all"), or the short help ("").

        Raises:
            UserError: the group does not exist.
        """
        self._name_installed()
        arguments, options, *groups = self._action_groups
        titles = {each.title or "": each for each in groups}
        if group not in ("", "all", *titles):
            raise UserError(
                f"unknown group of options {group!r}",
                why=f"the groups are {', '.join(titles)}",
                hint=did_you_mean(group, titles, "--help-all shows every option"),
            )
        width = min(shutil.get_terminal_size().columns, 100) - 2
        formatter = _Formatter(self.prog, 2, FIRST_COLUMN if width > NARROW else 20, width)
        if group in titles:
            _show(formatter, f"{group} options", titles[group]._group_actions)
            return formatter.format_help()
        room = columns_of(sys.stdout) or 100
        formatter.add_text(folded_help(self.description or "", room))
        usage = textwrap.fill(self.usage or "", room - 7, subsequent_indent=" " * 6)
        formatter.add_usage(usage, self._actions, [])
        formatter.add_text(folded_help(self.epilog or "", room))
        _show(formatter, "arguments", arguments._group_actions)
        if group == "all" or not self._kind.common:
            _show(formatter, "options", options._group_actions)
            for title, each in titles.items():
                _show(formatter, f"{title} options", each._group_actions)
        else:
            _show(formatter, "options", self._most_used())
            more = f"more options: {self.prog} --help GROUP or --help-all"
            lines = [more, *(f"  {title:<12}{each.description}" for title, each in titles.items())]
            formatter.add_text(folded_help("\n".join(lines), room))
        return formatter.format_help()

    def _name_installed(self) -> None:
        """Add names that installed packages define, such as formats, to the help."""
        for action in self._actions:
            option = self._flags.get(action.dest, ("", None))[1]
            if option is not None and "names" in option.extra:
                told = re.findall(r"[\w-]+", option.description)
                if new := [name for name in option.extra["names"]() if name not in told]:
                    action.help = f"{action.help}; installed: {', '.join(new)}"

    def _most_used(self) -> list[argparse.Action]:
        known = self._option_string_actions
        flags = map(flag_of, (*self._kind.common, "help", "json"))
        return [known[flag] for flag in flags if flag in known]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that does not break lines inside names such as best-fit."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _show(
    formatter: argparse.HelpFormatter, title: str, actions: Iterable[argparse.Action]
) -> None:
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()


def _add(group: argparse._ActionsContainer, name: str, path: str, option: Option) -> str:
    """Add the flag of an option to a parser, and return it. Its value stays as it is typed."""
    text = f"{option.description}{_default_text(option.default)}"
    if "positional" in option.extra:
        flag = str(option.extra["positional"])
        nargs = None if option.item is None else "+" if option.is_required else "*"
        shown = text.replace("%", "%%")
        group.add_argument(path, nargs=nargs, default=UNSET, metavar=flag, help=shown)
        return flag
    flag = f"--{name}"
    if option.default is True:
        flag = f"--no-{name}"
        how: dict[str, Any] = {"action": "store_const", "const": False}
        text = f"do not {option.description}"
    elif option.kind is bool and type(None) in members_of(option.hint):
        how = {"action": argparse.BooleanOptionalAction}
    elif option.kind is bool:
        how = {"action": "store_const", "const": True}
    else:
        metavar = _metavar(option)
        if option.choices and "{" not in metavar:
            text = (
                f"{option.description}; one of {', '.join(option.choices)}"
                f"{_default_text(option.default)}"
            )
        how = {"metavar": metavar}
        if option.extra.get("unit") == "escaped":
            how["type"] = with_line_ends
        if typing.get_origin(option.kind) is list:
            how |= {"nargs": "+"} if "nargs" in option.extra else {"action": "append"}
    group.add_argument(flag, dest=path, default=UNSET, help=text.replace("%", "%%"), **how)
    for choice in option.choices[:-2] if option.kind is bool else ():
        group.add_argument(  # a flag of its own, so that --overwrite does not take the next word
            f"{flag}={choice}",
            dest=path,
            default=UNSET,
            action="store_const",
            const=choice,
            help=argparse.SUPPRESS,
        )
    return flag


def _metavar(option: Option) -> str:
    unit = option.extra.get("unit", "")
    if given := option.extra.get("metavar") or METAVARS.get(unit):
        return str(given)
    names = option.choices
    if names:
        metavar = f"{{{','.join(names)}}}"
        return metavar if len(metavar) <= LONGEST_METAVAR else "NAME"
    if typing.get_origin(option.kind) is tuple:
        return "N,N" if option.item is int else "NAME,NAME"
    if option.kind is int or unit:
        return "N"
    return "SHARE" if option.kind is float else "NAME"


def _default_text(default: Any) -> str:
    """The default value as shown in the help; empty if the option is off by default."""
    if default in (msgspec.NODEFAULT, msgspec.UNSET, None, False, "", 0, 0.0, ()):
        return ""
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f" (default: {shown})"


def with_line_ends(text: str) -> str:
    r"""Replace `\n` by a line end, `\t` by a tab and `\\` by a backslash: shells do not."""
    meant = {r"\n": "\n", r"\t": "\t", "\\\\": "\\"}
    return re.sub(r"\\[nt\\]", lambda found: meant[found.group()], text)
