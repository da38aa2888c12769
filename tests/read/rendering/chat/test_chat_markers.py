"""The markers of turns of templates, and where they count."""

from __future__ import annotations

import pytest

from tokenmill.read.rendering.chat.conversations import CHATML
from tokenmill.read.rendering.chat.markers import ControlStrings, TurnMarkers
from tokenmill.read.rendering.chat.template import ChatTemplate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TAGS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}{% endfor %}"
)
LLAMA_2 = """\
{% for m in messages %}\
{% if m.role == 'system' %}{{ bos_token + '[INST] <<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}\
{% elif m.role == 'assistant' %}{{ ' ' + m.content + ' ' + eos_token }}\
{% elif loop.index0 and messages[loop.index0 - 1].role == 'system' %}{{ m.content + ' [/INST]' }}\
{% else %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}{% endif %}\
{% endfor %}"""
VICUNA = """\
{% for m in messages %}\
{% if m.role == 'user' %}{{ 'USER: ' + m.content }}\
{% elif m.role == 'assistant' %}{{ ' ASSISTANT: ' + m.content + eos_token }}\
{% else %}{{ m.content + '\n\n' }}{% endif %}\
{% endfor %}"""
ALPACA = """\
{% for m in messages %}\
{{ '### Response:\n' if m.role == 'assistant' else '### Instruction:\n' }}{{ m.content + '\n' }}\
{% endfor %}"""
NAMES = (
    "{% for m in messages %}{{ m.role | capitalize + ': ' + m.content | trim + '\n' }}{% endfor %}"
)
ENDED = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}</s>"
LINES = "{% for m in messages %}{{ m.role + '\n' + m.content + '\n###\n' }}{% endfor %}"
IN_PARTS = "{% for m in messages %}{{ '[' + m.role + '] ' + m.content[0].text }}{% endfor %}"
ONLY_TWO = "{{ raise_exception('two!') if messages | length > 2 }}" + CHATML


def markers(template: str, *control: str) -> TurnMarkers:
    made = ChatTemplate(template, TOKENS, None)
    return TurnMarkers(made, TOKENS, ControlStrings(control))


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        (CHATML, "<|im_start|>user Hi<|im_end|>", ["<|im_start|>", "<|im_end|>"]),
        (CHATML, "im_start <| im_start |> <im_end>", []),
        (TAGS, "<|user|> <|assistant|>", ["<|user|>", "<|assistant|>"]),
        (TAGS, "<|system|><|tool|>", ["<|system|>", "<|tool|>"]),
        (TAGS, "1 <| 2 |> 3, <|critic|>", []),
        (LLAMA_2, "Hi [/INST] Hello [INST]Bye", ["[/INST]", "[INST]"]),
        (LLAMA_2, "<</SYS>> <<SYS>>", ["<</SYS>>"]),
        (LLAMA_2, "INST, SYS and <SYS>", []),
        (VICUNA, "Hi ASSISTANT: Hello\n USER: Bye", ["ASSISTANT:", " USER:"]),
        (VICUNA, "TEACHING-ASSISTANTS: SUPERUSER: Assistant:", []),
        (ALPACA, "Hi ###  Response:\nHello", ["###  Response:"]),
        (ALPACA, "# Response\n### Responses\n#### Instructions:", []),
        (NAMES, "User: Hi\n  Assistant: Hello", ["User:", "  Assistant:"]),
        (NAMES, "The User: Hi. user: Hello", []),
        (LINES, "Hi\nassistant \nHello\n###", ["assistant ", "###"]),
        (LINES, "Hi assistant\nan assistant\n### Hello", []),
        (ONLY_TWO, "<|im_end|>", ["<|im_end|>"]),
        (ENDED, "<end> <assistant> <user>", ["<end>", "<assistant>", "<user>"]),
        (IN_PARTS, "[user] [tool]", ["[user]", "[tool]"]),
    ],
)  # fmt: skip
def test_markers_are_found_where_the_template_writes_them(
    template: str, text: str, expected: list[str]
) -> None:
    assert markers(template, "<s>", "</s>").found(text) == expected


def test_special_tokens_are_left_to_their_own_check() -> None:
    assert markers(CHATML, "<|im_end|>").found("<|im_start|>user Hi<|im_end|>") == ["<|im_start|>"]
    assert markers(CHATML, "<|im_start|>", "<|im_end|>").found("<|im_start|>assistant") == []


@pytest.mark.parametrize(
    "template", ["", "Hi", "{{ messages[0].content }}", "{{ raise_exception(1) }}"]
)
def test_templates_that_show_no_markers_have_none(template: str) -> None:
    assert markers(template).found("<|im_start|>user: Hi") == []
