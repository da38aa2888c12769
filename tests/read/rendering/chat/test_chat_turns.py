"""Which characters of a conversation carry loss, and where that cannot be told."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from tokenmill.read.rendering.chat import turns as rules
from tokenmill.read.rendering.chat.conversations import CHATML
from tokenmill.read.rendering.chat.template import ChatTemplate
from tokenmill.read.rendering.chat.turns import Conversation, Turns, complement
from tokenmill.read.values import UnfitRecordError

PLAIN = """\
{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}</>\
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": " Hello "},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Ciao"},
]
TEXT = "[]<system>Be kind.</><user>Hi</><assistant>Hello</><user>Bye</><assistant>Ciao</>"


def turns(source: str, messages: list[dict[str, Any]] = TALK, **more: Any) -> Turns:
    template = ChatTemplate(source, {"bos_token": "[]", "eos_token": "</>"}, "2026-11-22")
    return Turns(template, Conversation(messages, **more))


def losses(source: str, *loss_on: str, messages: Any = TALK, **more: Any) -> list[str]:
    found = turns(source, messages, **more)
    return [found.text[start:stop] for start, stop in found.loss(loss_on, "</>")]


def test_a_template_without_markers_is_cut_where_its_prompts_end() -> None:
    found = turns(PLAIN)
    assert found.text == TEXT
    assert found.loss(["assistant"], "</>") == [(43, 51), (74, 81)]
    assert losses(PLAIN, "assistant") == ["Hello</>", "Ciao</>"]


def test_marked_ranges_are_those_of_the_template() -> None:
    assert losses(CHATML, "assistant") == [" Hello <|im_end|>\n", "Ciao<|im_end|>\n"]


@pytest.mark.parametrize(
    ("loss_on", "expected"),
    [
        (["last"], ["Ciao</>"]),
        (["user"], ["<user>Hi</>", "<user>Bye</>"]),
        (["system", "assistant"], ["[]<system>Be kind.</>", "Hello</>", "Ciao</>"]),
        (["all"], [TEXT]),
    ],
)
def test_loss_goes_by_role(loss_on: list[str], expected: list[str]) -> None:
    assert losses(PLAIN, *loss_on) == expected


def test_the_last_turn_of_a_marked_template_is_its_last_range() -> None:
    assert losses(CHATML, "last") == ["Ciao<|im_end|>\n"]


def test_a_message_of_weight_0_has_no_loss() -> None:
    messages = [*TALK[:2], {**TALK[2], "weight": 0}, TALK[3], {**TALK[4], "weight": 1}]
    assert losses(PLAIN, "assistant", messages=messages) == ["Ciao</>"]
    assert losses(CHATML, "assistant", messages=messages) == ["Ciao<|im_end|>\n"]
    with pytest.raises(UnfitRecordError, match=r"must be 0 or 1, got 0\.5"):
        losses(PLAIN, "assistant", messages=[TALK[1], {**TALK[2], "weight": 0.5}])


def test_a_completion_is_what_follows_the_prompt() -> None:
    assert losses(PLAIN, "assistant", messages=TALK, num_prompt=4) == ["Ciao</>"]


FORGETFUL = """\
{% for message in messages %}<{{ message.role }}>\
{% if message.role == 'assistant' and loop.last %}(thinking){% endif %}{{ message.content }}</>\
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
UNENDED = """\
{% for message in messages %}{% if loop.index0 and message.role == 'user' %}</>{% endif %}\
<{{ message.role }}>{{ message.content }}{% endfor %}\
{% if add_generation_prompt %}<assistant>{% endif %}"""


def test_a_template_that_forgets_its_thoughts_is_masked_in_the_last_turn_only() -> None:
    assert losses(FORGETFUL, "last") == ["(thinking)Ciao</>"]
    with pytest.raises(
        UnfitRecordError,
        match="template-rewrites-history: the text does not begin with the rendering of",
    ):
        losses(FORGETFUL, "assistant")


def test_an_end_of_turn_that_the_next_message_writes_is_refused() -> None:
    with pytest.raises(UnfitRecordError, match="end-of-turn-outside: the template"):
        losses(UNENDED, "assistant")


def test_a_marked_range_inside_a_macro_is_refused() -> None:
    source = "{% set x %}{% generation %}Hi{% endgeneration %}{% endset %}Bye {{ x }}"
    with pytest.raises(jinja2.TemplateError, match="must not be inside a macro"):
        turns(source)


def test_a_conversation_of_many_turns_takes_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_WORK", 10_000)
    messages = [*TALK[1:3]] * 1000
    assert len(losses(CHATML, "assistant", messages=messages)) == 1000
    with pytest.raises(UnfitRecordError, match="too-long: its 2,000 messages"):
        losses(PLAIN, "assistant", messages=messages)


def test_today_is_the_date_that_is_named_and_nothing_is_random() -> None:
    assert turns("{{ strftime_now('%d %b %Y') }}").text == "22 Nov 2026"
    for source in ("{{ [1, 2] | random }}", "{{ lipsum() }}"):
        with pytest.raises(jinja2.TemplateError):
            turns(source)


def test_what_spans_leave() -> None:
    assert complement([], 4) == [(0, 4)]
    assert complement([(1, 2), (2, 3)], 4) == [(0, 1), (3, 4)]
    assert complement([(0, 4)], 4) == []
    assert complement([(2, 4), (0, 1), (1, 1), (3, 3)], 4) == [(1, 2)]
    assert complement([(0, 1), (3, 3)], 4) == [(1, 3), (3, 4)]
    ranges = [(2 * place, 2 * place + 1) for place in range(100_000)]
    assert complement(ranges, 200_000) == [(start + 1, start + 2) for start, _ in ranges]
