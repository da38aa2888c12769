"""Read YAML that nobody has checked: it cannot grow, and errors say where and what to do next."""

from __future__ import annotations

from typing import Any

import yaml

from tokenmill.core.errors import UserError, one_line

MAX_DEPTH = 50
MAX_REPEATED = 1 << 20
"""Characters that aliases may repeat, including those that they repeat inside each other."""
HINTS = {
    "given twice": "keep one of them",
    r"character '\t'": "indent with spaces, not with tabs",
    "cannot start any token": "quote texts that begin with @ % or `",
    " alias": "quote texts that begin with *, such as '*.jsonl'",
    "mapping values": "quote texts with a colon, and write a space after the colon of an option",
    "expected ':'": "write `option: value` or `- value`, with the space",
    "expected ',' or": "close the bracket, and quote texts with brackets or commas",
    "end of stream while scanning a quoted": "close the quotation mark",
    "escape character": r"use single quotes, or write \\ for \ in double quotes",
    "found '<block": "indent all options of a section alike",
    "the tag": "remove the tag, which begins with !",
    "another document": "remove the line with ---",
    "levels deep": "close the brackets; a recipe has options in sections, no deeper",
    "aliases": "write the values out instead of repeating them with *",
    "a valid date": "correct it, or quote it if it is a text",
    "codec": "save the file in UTF-8",
}
"""What to do about a problem, by words in its description."""
OTHER_HINT = "indent with spaces, and quote texts with : # * & % or brackets"


class _Loader(yaml.SafeLoader):
    """YAML's safe loader with bounds, and without keys that are given twice."""

    depth = 0
    repeated = 0

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lengths: dict[str | None, int] = {}
        """The length of each complete value with an anchor, with what aliases repeat in it."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        before = self.repeated
        if isinstance(event, yaml.AliasEvent) and event.anchor in self.anchors:
            # A value without a length is not complete: the alias is inside it.
            self.repeated += self.lengths.get(event.anchor, MAX_REPEATED + 1)
            if self.repeated > MAX_REPEATED:
                raise _problem(f"aliases repeat over {MAX_REPEATED:,} characters", event)
        if self.depth == MAX_DEPTH:
            raise _problem(f"values are nested over {MAX_DEPTH} levels deep", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and not isinstance(event, yaml.AliasEvent) and event.anchor:
            length = node.end_mark.index - node.start_mark.index
            self.lengths[event.anchor] = length + self.repeated - before
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # the 13th month, or a number of over 4,300 digits
            raise _problem(f"{node.value[:20]!r} is not a valid date or number", node) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key.value, str)):
            if key.value in seen:
                raise _problem(f"{key.value!r} is given twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(data: bytes, what: str, where: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        UserError: `what`, with the place after `where`: the text is not YAML, or too large.
    """
    try:
        return yaml.load(data.decode(), _Loader)  # noqa: S506 - a safe loader
    except (UnicodeDecodeError, yaml.YAMLError) as error:
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


def _problem(text: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=at.start_mark)
