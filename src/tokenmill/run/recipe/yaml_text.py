"""Read YAML that nobody has checked: it cannot grow, and errors say where and what to do next."""

from __future__ import annotations

from typing import Any

import yaml

from tokenmill.core.errors import UserError, one_line

HINTS = {
    "given twice": "keep one of them",
    r"character '\t'": "indent with spaces, not with tabs",
    "alias": "quote texts that begin with *, and write out values instead of repeating them with *",
    "mapping values": "quote texts with a colon, and write a space after the colon of an option",
    "expected ',' or": "close the bracket, and quote texts with brackets or commas",
    "found '<block": "indent all options of a section alike",
    "document start": "give a recipe in YAML; JSON Lines files are inputs, not recipes",
    "codec": "save the file in UTF-8",
}
"""What to do about a problem, by words in its description."""
OTHER_HINT = "indent with spaces, and quote texts with : # * & % @ ! or brackets"


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, without aliases, which can make a small text large, and double keys."""

    def fetch_alias(self) -> None:
        raise yaml.MarkedYAMLError(problem="an alias is not allowed", problem_mark=self.get_mark())

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key.value, str)):
            if key.value in seen:
                text = f"{key.value!r} is given twice"
                raise yaml.MarkedYAMLError(problem=text, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# Dates are texts.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: node.value)


def parse_yaml(data: bytes, what: str, where: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        UserError: `what`, with the place after `where`: the text is not YAML, or too large.
    """
    try:
        return yaml.load(data.decode(), _Loader)  # noqa: S506 - a safe loader
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        names = ("problem", "context", "problem_mark", "context_mark")
        problem, context, mark, begin = (getattr(error, name, None) for name in names)
        why = problem or str(error).partition("\n")[0]
        known = f"{why} {context}"
        hint = next((hint for words, hint in HINTS.items() if words in known), OTHER_HINT)
        if mark is not None:
            where += f", line {mark.line + 1}, column {mark.column + 1}"
            if begin is not None and begin.line != mark.line:
                why += f", {context} that begins in line {begin.line + 1}"
        raise UserError(what, where=where, why=one_line(why), hint=hint) from error
