"""Rendering of a chat template as in transformers; runs in a separate process.

Templates come from untrusted sources. They run in Jinja's immutable sandbox, with the filters,
functions and options of `apply_chat_template` in transformers, so the text is the same. To keep
builds reproducible, `strftime_now` uses a date given by the user, and nothing is random. The
sandbox does not limit time and memory; `process.py` does.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 1 << 26
"""Most characters of a rendered conversation."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys for the reasoning in a message; templates read the first or the second one."""


class LimitError(Exception):
    """A template exceeded a limit."""


class Rendered(NamedTuple):
    """A rendered conversation."""

    text: str
    generated: list[tuple[int, int]]
    """The character ranges that the template marks with `{% generation %}`."""


class _Generation(jinja2.ext.Extension):
    """The tag `{% generation %}` ... `{% endgeneration %}`, which marks text of the assistant."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Parse the tag into a call of `_mark` with its body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: jinja2.runtime.Macro) -> str:
        text = str(caller())
        output: _Output | None = getattr(self.environment, "output", None)
        if output is not None:
            output.generated.append((output.num_characters, text))
        return text


class _Output:
    """The text rendered so far."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.num_characters = 0
        self.generated: list[tuple[int, str]] = []

    def add(self, part: str) -> None:
        self.parts.append(part)
        self.num_characters += len(part)
        if self.num_characters > MAX_CHARACTERS:
            raise LimitError(
                f"it wrote more than {MAX_CHARACTERS:,} characters for one conversation"
            )

    def finished(self) -> Rendered:
        """Return the text; raises a TemplateError if a marked range is misplaced."""
        text = "".join(self.parts)
        for start, marked in self.generated:
            if not text.startswith(marked, start):
                why = "{% generation %} must not be inside a macro or a {% set %}"
                raise jinja2.TemplateError(why)
        return Rendered(text, [(start, start + len(text)) for start, text in self.generated])


class _Namespace(jinja2.utils.Namespace):
    """Jinja's namespace without attributes that start with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            _refuse_private(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace must not have an attribute {name!r}")


class _Dict:
    """The `dict` of templates: a function without the attributes of the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class ChatTemplate:
    """A compiled template."""

    def __init__(self, source: str, tokens: Mapping[str, str], date: str | None) -> None:
        """Compile a template; `tokens` are variables such as bos_token, `date` is YYYY-MM-DD.

        Raises:
            jinja2.TemplateSyntaxError: the template cannot be compiled.
        """
        self._environment = _environment(date)
        self._template = self._environment.from_string(source)
        self._tokens = dict(tokens)
        tree = self._environment.parse(source)
        self.has_markers = any(
            isinstance(block.call.node, jinja2.nodes.ExtensionAttribute)
            for block in tree.find_all(jinja2.nodes.CallBlock)
        )
        """Whether the template marks the text of the assistant."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[Any] | None,
        options: Mapping[str, Any],
        *,
        prompt: bool = False,
    ) -> Rendered:
        """Render messages; with `prompt`, also the generation prompt.

        Raises:
            jinja2.TemplateError: the template refuses the conversation.
            LimitError: the template exceeds a limit.
        """
        output = _Output()
        self._environment.output = output  # type: ignore[attr-defined]
        values = {**self._tokens, **options, "messages": [_message(each) for each in messages]}
        values |= {"tools": tools, "documents": None, "add_generation_prompt": prompt}
        for part in self._template.generate(values):
            output.add(part)
        return output.finished()


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as transformers passes it to templates."""
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[key] for key in REASONING if key in found), None)
    if reasoning is None:
        return found
    return {"thinking": reasoning, **found, "reasoning_content": reasoning}


def _environment(date: str | None) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.filters.pop("random")
    environment.globals.pop("lipsum")
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": _Today(date),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


def _raise(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the escapes that Jinja adds for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _Today:
    """`strftime_now` with a fixed date, so that a build does not depend on the current day."""

    def __init__(self, date: str | None) -> None:
        self._date = None if date is None else datetime.datetime.fromisoformat(date)

    def __call__(self, form: str) -> str:
        if self._date is None:
            raise jinja2.TemplateError("it uses today's date; set it with --chat-date")
        return self._date.strftime(form)
