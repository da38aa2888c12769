"""`tokenmill completion`: scripts for shells, with every command, flag and fixed value.

A script holds all words, so that a completion starts no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from tokenmill.cli import ACTIONS, COMMANDS, parser_for
from tokenmill.cli.parser import Command, Flag
from tokenmill.core.options import about

BASH = """\
_tokenmill() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words=
    local command=${{COMP_WORDS[1]}}
    [[ " {groups} " == *" $command "* ]] && command+=" ${{COMP_WORDS[2]}}"
    [[ $previous == = ]] && previous=${{COMP_WORDS[COMP_CWORD - 2]}}  # bash cuts words at =
    [[ $word == = ]] && word=
    [[ $word == --*=* ]] && previous=${{word%%=*}}
    case "$COMP_CWORD $command $previous" in
        "1 "*) words="{commands} --help --version" ;;
{cases}
    esac
    local before=${{word%"${{word##*[,=]}}"}}
    COMPREPLY=($(compgen -P "$before" -W "$words" -- "${{word##*[,=]}}"))
}}
complete -o default -F _tokenmill tokenmill
"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
autoload -Uz bashcompinit && bashcompinit
"""
"""Lets zsh use the script of bash."""


class Completion(Command, kw_only=True):
    """Prints a script."""

    usage: ClassVar[str] = "{bash,zsh,fish}"
    examples: ClassVar[str] = """\
examples:
  tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill
  tokenmill completion zsh > ~/.tokenmill.zsh         # and source it in ~/.zshrc
  tokenmill completion fish > ~/.config/fish/completions/tokenmill.fish"""

    shell: Annotated[
        Literal["bash", "zsh", "fish"], about("the shell", example="bash", positional="SHELL")
    ]

    def run(self) -> None:
        """Print the script."""
        if self.shell == "fish":
            print("\n".join(_fish_lines()))
            return
        script = BASH.format(
            commands=" ".join(COMMANDS), groups=" ".join(ACTIONS), cases="\n".join(_bash_cases())
        )
        print(f"{ZSH if self.shell == 'zsh' else ''}{script}", end="")


def _flags() -> dict[str, list[Flag]]:
    """The flags of each command, which is named with its action."""
    names: list[tuple[str, ...]] = [(name,) for name in COMMANDS if name not in ACTIONS]
    names += [(command, name) for command, actions in ACTIONS.items() for name in actions]
    return {" ".join(name): list(parser_for(*name).flags()) for name in names}


def _bash_cases() -> Iterator[str]:
    for command, actions in ACTIONS.items():
        yield f'        "2 {command}"*) words="{" ".join(actions)}" ;;'
    for command, flags in _flags().items():
        for flag in flags:
            if flag.values and flag.name:
                yield f'        *" {command} {flag.name}") words="{" ".join(flag.values)}" ;;'
        names = " ".join(flag.name for flag in flags if flag.name)
        first = " ".join(value for flag in flags if not flag.name for value in flag.values)
        yield f"""\
        *" {command} "*)
            [[ $word == -* ]] && words="{names}" || ((COMP_CWORD > 2)) || words="{first}" ;;"""


def _fish_lines() -> Iterator[str]:
    seen = "__fish_seen_subcommand_from"
    words = {"__fish_use_subcommand": COMMANDS}
    for command, actions in ACTIONS.items():
        words[f"'{seen} {command}; and not {seen} {' '.join(actions)}'"] = actions
    for condition, summaries in words.items():
        for name, text in summaries.items():
            yield f"complete -c tokenmill -n {condition} -a {name} -d {_quoted(text)}"
    yield "complete -c tokenmill -n __fish_use_subcommand -l help -l version"
    for command, flags in _flags().items():
        condition = "; and ".join(f"{seen} {word}" for word in command.split())
        for flag in flags:
            name = f" -l {flag.name.removeprefix('--')}" if flag.name else ""
            values = f" -x -a {_quoted(' '.join(flag.values))}" if flag.values else " -r"
            values = values if flag.takes_value else ""
            yield f"complete -c tokenmill -n '{condition}'{name}{values} -d {_quoted(flag.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
