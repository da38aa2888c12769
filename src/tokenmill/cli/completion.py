"""`tokenmill completion`: scripts for shells, with every command, flag and fixed value.

A script holds all words, so that a completion starts no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

from tokenmill.cli.parser import Command
from tokenmill.core.options import about

BASH = """\
_tokenmill() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words=
    local command=${{COMP_WORDS[1]}}
    case $command:$COMP_CWORD in
        *:1) words="{commands}" ;;
{groups}
        *)
            [[ " {group_names} " == *" $command "* ]] && command+=" ${{COMP_WORDS[2]}}"
            case "$command $previous" in
{values}
            esac
            if [[ -z $words && $word == -* ]]; then
                case $command in
{flags}
                esac
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _tokenmill tokenmill
"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
autoload -Uz bashcompinit && bashcompinit
"""
"""Lets zsh use the script of bash."""
FOLDERS = """\
examples:
  tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill
  tokenmill completion zsh > ~/.tokenmill.zsh         # and source it in ~/.zshrc
  tokenmill completion fish > ~/.config/fish/completions/tokenmill.fish"""


class Flag(NamedTuple):
    """A flag of a command."""

    name: str
    help: str
    choices: tuple[str, ...]
    takes_value: bool


class Words(NamedTuple):
    """Everything that can be completed."""

    commands: dict[str, str]
    groups: dict[str, dict[str, str]]
    """The summaries of the actions of a command that has actions."""
    flags: dict[str, list[Flag]]
    """By command, with its action."""


class Completion(Command, kw_only=True):
    """Prints a script."""

    usage: ClassVar[str] = "{bash,zsh,fish}"
    examples: ClassVar[str] = FOLDERS

    shell: Annotated[
        Literal["bash", "zsh", "fish"], about("the shell", example="bash", positional="SHELL")
    ]

    def run(self) -> None:
        """Print the script."""
        script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[self.shell]
        print(script(_words()), end="")


def _words() -> Words:
    from tokenmill.cli import COMMANDS, parser_for
    from tokenmill.cli.tokenizers import ACTIONS

    actions = {name: action.summary for name, action in ACTIONS.items()}
    parsers = {name: parser_for(name) for name in COMMANDS if name != "tokenizer"}
    parsers |= {f"tokenizer {name}": parser_for("tokenizer", name) for name in actions}
    flags = {name: [Flag(*each) for each in parser.words()] for name, parser in parsers.items()}
    return Words(COMMANDS, {"tokenizer": actions}, flags)


def _bash(words: Words) -> str:
    groups = [f'        {name}:2) words="{" ".join(of)}" ;;' for name, of in words.groups.items()]
    values = [
        f'                "{command} {flag.name}") words="{" ".join(flag.choices)}" ;;'
        for command, flags in words.flags.items()
        for flag in flags
        if flag.choices
    ]
    names = [
        f'                    "{command}") words="{" ".join(flag.name for flag in flags)}" ;;'
        for command, flags in words.flags.items()
    ]
    return BASH.format(
        commands=" ".join(words.commands),
        groups="\n".join(groups),
        group_names=" ".join(words.groups),
        values="\n".join(values),
        flags="\n".join(names),
    )


def _zsh(words: Words) -> str:
    return ZSH + _bash(words)


def _fish(words: Words) -> str:
    return "\n".join(_fish_lines(words)) + "\n"


def _fish_lines(words: Words) -> Iterator[str]:
    yield from (
        f"complete -c tokenmill -n __fish_use_subcommand -a {name} -d {_quoted(text)}"
        for name, text in words.commands.items()
    )
    for group, actions in words.groups.items():
        seen = f"__fish_seen_subcommand_from {group}"
        none = f"not __fish_seen_subcommand_from {' '.join(actions)}"
        for name, text in actions.items():
            yield f"complete -c tokenmill -n '{seen}; and {none}' -a {name} -d {_quoted(text)}"
    for command, flags in words.flags.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.split())
        for flag in flags:
            line = f"complete -c tokenmill -n '{seen}' -l {flag.name.removeprefix('--')}"
            values = f" -x -a {_quoted(' '.join(flag.choices))}" if flag.choices else " -r"
            yield f"{line}{values if flag.takes_value else ''} -d {_quoted(flag.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
