"""Messages about options that were given as flags: they name the flags, not parts of a recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tokenmill.core.errors import UserError

EXAMPLES = {
    "INPUT": "data/*.jsonl",
    "--tokenizer": "--tokenizer tokenizer.json",
    "--out": "--out corpus/",
    "--sequence-length": "--sequence-length 4096",
    "--export-out": "--export-out rows/",
}
_TOP = {"inputs": "INPUT", "tokenizer": "--tokenizer", "out": "--out"}
_NAME = re.compile(r"(?<![\w'\"./-])([a-z]+)\.([a-z_]+)\b")


def flags_error(
    command: str, problems: Sequence[str], sections: Mapping[str, type[msgspec.Struct]]
) -> UserError:
    """Return the error about problems with the options of `sections`, for users of a command."""

    def flag(found: re.Match[str]) -> str:
        section, name = found.groups()
        if section not in sections or name not in sections[section].__struct_fields__:
            return found[0]
        fields = msgspec.structs.fields(sections[section])
        negated = any(field.name == name and field.default is True for field in fields)
        prefix = "no-" if negated else "export-" if section == "export" else ""
        return f"--{prefix}{name.replace('_', '-')}"

    lines = []
    for problem in problems:
        name, colon, rest = problem.partition(":")
        line = _NAME.sub(flag, f"{_TOP.get(name, name)}{colon}{rest}")
        lines.append(line.replace(": is missing", " is missing", 1))
    missing = {line.split()[0] for line in lines if " is missing" in line}
    examples = " ".join(EXAMPLES[name] for name in EXAMPLES if name in missing)
    hint = f"{command} --help-all lists every option"
    if examples:
        which = "it" if len(missing) == 1 else "them"
        hint = f"add {which}, for example: {examples}; {command} --help shows the options"
    if len(lines) == 1:
        return UserError(lines[0], hint=hint)
    what = f"the command has {len(lines)} problems"
    return UserError(what, why="\n       ".join(lines), hint=hint)
