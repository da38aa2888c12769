r"""Strings that forge a turn; runs in the template's process.

A content forges a turn if it contains a special token, or a text with which the template opens or
closes turns: a marker. Markers are found by rendering conversations whose contents are #:

    everything       <|im_start|>user\n#<|im_end|>\n<|im_start|>assistant\n#<|im_end|>\n
    messages[:1]     <|im_start|>user\n#<|im_end|>\n
    so <|im_end|> closes a turn, and <|im_start|>assistant opens one

Any role can follow `<|im_start|>`, so that is the marker. In `<|user|>` or `User:`, the marker
includes the role.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenmill.read.rendering.chat.template import ChatTemplate, LimitError

CONTENT = "\ue000"
"""A private character, which templates neither trim nor write."""
TURN = ("user", "assistant")
ROLES = (TURN, (*TURN, *TURN), ("system", *TURN, *TURN), (*TURN, "tool", "assistant"))
MIN_LENGTH = 2
MIN_SYMBOLS = 3
"""Least length of a marker without letters."""


class ControlStrings:
    """Finds special tokens in texts; checks their first characters first, as most have none."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        strings = tuple(sorted(filter(None, strings), key=len, reverse=True))
        self._starts = {string[:2] for string in strings}
        self._pattern = re.compile("|".join(map(re.escape, strings)) or "(?!)")

    def found(self, text: str) -> list[str]:
        """Return the special tokens in a text."""
        if not any(start in text for start in self._starts):
            return []
        return self._pattern.findall(text)


class TurnMarkers:
    """Finds the markers of a template in texts."""

    def __init__(
        self, template: ChatTemplate, tokens: Mapping[str, str], control: ControlStrings
    ) -> None:
        """Find the markers, without those that contain a special token.

        Raises:
            LimitError: the template exceeds a limit.
        """
        self._template = template
        self._bos, self._eos = tokens.get("bos_token", ""), tokens.get("eos_token", "")
        written = [*self._written(CONTENT)] or [*self._written([{"type": "text", "text": CONTENT}])]
        rules = {_rule(*each) for each in written if not control.found(each[-1])} - {""}
        self._pattern = re.compile("|".join(sorted(rules)), re.MULTILINE) if rules else None

    def found(self, text: str) -> list[str]:
        """Return the markers in a text. Compatible characters count as equal, as in NFKC."""
        if self._pattern is None:
            return []
        return self._pattern.findall(unicodedata.normalize("NFKC", text))

    def _written(self, content: Any) -> Iterator[tuple[str, str, str]]:
        """Yield for each text that opens or closes a turn: the role that it opens or "", the text
        before it, and itself.
        """
        for roles in ROLES:
            messages = [{"role": role, "content": content} for role in roles]
            before, (opening, *rest) = "", self._between(messages)
            for index, following in enumerate(rest):
                yield roles[index], before, opening.removeprefix(self._bos)
                end = self._between(messages[: index + 1])[-1]
                # Some templates add an EOS at the end.
                ends = (end, end.removesuffix(self._eos), "")
                closing = next(filter(following.startswith, ends))
                yield "", CONTENT, closing
                before, opening = CONTENT + closing, following.removeprefix(closing)

    def _between(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the texts around the contents; [""] if not each content is written once."""
        try:
            parts = self._template.render(messages, None, {}).text.split(CONTENT)
        except (LimitError, MemoryError, RecursionError):
            raise
        except Exception:  # a template can raise any exception
            return [""]
        return parts if len(parts) == len(messages) + 1 else [""]


def _rule(role: str, before: str, text: str) -> str:
    """Return a regular expression for a marker; "" if it is too short.

    Symbols around words, such as `[INST]` or `### Response:`, count anywhere. Others count only as
    the template writes them: at the start of a line, at its end, and not inside of words.
    """
    marker = unicodedata.normalize("NFKC", text.strip())
    if role:
        stem = re.split(rf"\b{role}\b", marker, maxsplit=1)[0].strip()
        marker = next(filter(_is_tag, (stem.partition("\n")[0], stem)), marker)
    if len(marker) < (MIN_LENGTH if any(map(str.isalpha, marker)) else MIN_SYMBOLS):
        return ""
    rule = r"\s+".join(map(re.escape, marker.split()))
    if _is_tag(marker):
        return rule
    starts_line = re.search(r"(^|\n)\s*$", before + text[: -len(text.lstrip())])
    ends_line = "\n" in text[len(text.rstrip()) :]
    first = r"^[^\S\n]*" if starts_line else r"(?<!\w)" if marker[0].isalnum() else ""
    last = r"[^\S\n]*$" if ends_line else r"(?!\w)" if marker[-1].isalnum() else ""
    return first + rule + last


def _is_tag(text: str) -> bool:
    """Whether a text is words between symbols."""
    ends = text[:1] + text[-1:]
    return any(map(str.isalpha, text)) and not any(map(str.isalnum, ends))
