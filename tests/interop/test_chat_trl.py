"""Conversations for TRL: the same tokens and masks, and training on packed rows."""

from __future__ import annotations

import datetime
import importlib.util
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from tokenmill.encode.spans import ranges_outside
from tokenmill.read.rendering.chat.conversations import CHATML
from tokenmill.read.rendering.chat.template import ChatTemplate
from tokenmill.read.rendering.chat.turns import Conversation, Turns, complement

TRL = importlib.util.find_spec("trl")  # to import it takes a second, at each collection
if TRL is None:
    pytest.skip("TRL is not installed", allow_module_level=True)
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

TEMPLATES = Path(str(TRL.origin)).parent / "chat_templates"
EXAMPLES = Path(__file__).parents[2] / "examples"
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}
USER, ANSWER = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4, äh 5."}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[Any] | None]] = {
    "one turn": ([USER, ANSWER], None),
    "two turns": ([{"role": "system", "content": "Hm."}, USER, ANSWER, USER, ANSWER], None),
    "thoughts": ([USER, {**ANSWER, "reasoning_content": "Hm."}] * 2, None),
    "tools": (
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "add", "content": "5"},
            ANSWER,
        ],
        [TOOL],
    ),
}
IN_PARTS = {"llava_next", "idefics3", "smolvlm"}
"""Templates that want contents as lists of parts."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of bytes, with the special tokens of ChatML."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE({char: number for number, char in enumerate(alphabet)}, [])
    words = Tokenizer(model)
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    return made


def masks(tokenizer: Any, template: str, messages: Any, tools: Any) -> tuple[list[int], list[int]]:
    """Ids and 1 where there is loss, as transformers gives them to TRL."""
    found = tokenizer.apply_chat_template(
        messages, tools=tools, chat_template=template,
        tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
    )  # fmt: skip
    return found["input_ids"], found["assistant_masks"]


def ours(tokenizer: Any, template: str, messages: Any, tools: Any) -> tuple[list[int], list[int]]:
    """The same from our text and character ranges."""
    tokens = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
    today = datetime.date.today().isoformat()  # which transformers writes
    made = ChatTemplate(template, tokens, today)
    turns = Turns(made, Conversation(messages, tools))
    no_loss = complement(turns.loss(["assistant"], None), len(turns.text))
    encoded = tokenizer.backend_tokenizer.encode(turns.text, add_special_tokens=False)
    starts, stops = np.array(encoded.offsets, np.int64).T
    mask = np.ones(len(encoded.ids), int)
    for start, stop in ranges_outside(no_loss, starts, stops, len(turns.text)):
        mask[start:stop] = 0
    return encoded.ids, mask.tolist()


def given(template: str, name: str) -> tuple[list[dict[str, Any]], list[Any] | None]:
    messages, tools = CONVERSATIONS[name]
    if not any(template.startswith(each) for each in IN_PARTS):
        return messages, tools
    in_parts = [
        {**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages
    ]
    return in_parts, tools


@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*_training.jinja")))
def test_masks_of_training_templates_are_those_of_trl(tokenizer: Any, name: str) -> None:
    template = (TEMPLATES / f"{name}.jinja").read_text()
    compared = 0
    for each in CONVERSATIONS:
        messages, tools = given(name, each)
        try:
            expected = masks(tokenizer, template, messages, tools)
        except Exception as error:  # what transformers refuses, we refuse
            with pytest.raises(type(error)):
                ours(tokenizer, template, messages, tools)
            continue
        assert ours(tokenizer, template, messages, tools) == expected
        compared += 1
    assert compared


SAME = {
    "cohere", "cohere2", "gemma", "gemma3", "idefics3", "llama3", "lfm2", "lfm2_v2", "phi3",
    "phi3_5", "qwen2_5_vl", "qwen3", "qwen3_instruct_2507", "qwen3_vl", "smolvlm",
}  # fmt: skip
"""Templates without markers whose turns are those that TRL marks in its version."""
HEADERS = {
    "gptoss", "muse_glimmer", "qwen2_5", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8",
}  # fmt: skip
"""Here TRL also trains on parts of the prompt that generation starts with."""


@pytest.mark.parametrize("name", sorted(SAME | HEADERS))
def test_turns_without_markers_are_those_that_trl_marks(tokenizer: Any, name: str) -> None:
    template = (TEMPLATES / f"{name}.jinja").read_text()
    training = (TEMPLATES / f"{name}_training.jinja").read_text()
    compared = 0
    for each in CONVERSATIONS:
        messages, tools = given(name, each)
        try:
            ids, mask = ours(tokenizer, template, messages, tools)
        except Exception:  # refused, by the template or by us
            continue
        expected_ids, expected = masks(tokenizer, training, messages, tools)
        if ids != expected_ids:
            continue  # the training version writes another text
        more = sum(b and not a for a, b in zip(mask, expected, strict=True))
        fewer = sum(a and not b for a, b in zip(mask, expected, strict=True))
        assert (fewer, more > 0) == (0, name in HEADERS)
        compared += 1
    assert compared


def test_our_chatml_is_that_of_transformers(tokenizer: Any) -> None:
    plain = (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    )
    messages, _ = CONVERSATIONS["two turns"]
    expected = tokenizer.apply_chat_template(messages, chat_template=plain, tokenize=False)
    assert tokenizer.apply_chat_template(messages, chat_template=CHATML, tokenize=False) == expected
    assert ours(tokenizer, CHATML, messages, None) == masks(tokenizer, CHATML, messages, None)


def test_our_chatml_has_the_masks_of_trls_templates_for_chatml(tokenizer: Any) -> None:
    """TRL also trains on the line break after <|im_end|>."""
    training = (TEMPLATES / "qwen3_instruct_2507_training.jinja").read_text()
    messages, _ = CONVERSATIONS["two turns"]
    assert ours(tokenizer, CHATML, messages, None) == masks(tokenizer, training, messages, None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_conversations_to_packed_rows_to_30_steps_of_sft_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_on_conversations as example

    losses = example.train(tmp_path, steps=30)
    assert len(losses) == 30
    assert all(map(math.isfinite, losses))
    assert sum(losses[-5:]) < sum(losses[:5]) / 2

    tokenmill.verify(tmp_path / "dataset", against_sources=True)
    known = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "tokenizer")
    lines = (tmp_path / "conversations.jsonl").read_text().splitlines()
    expected = sorted(trl_labels(known, json.loads(line)["messages"]) for line in lines)
    assert sorted(exported(datasets.load_from_disk(str(tmp_path / "rows")))) == expected


def trl_labels(known: Any, messages: Any) -> list[tuple[int, int]]:
    """The (id, label) of each token of a conversation, and of the EOS that ends our document."""
    ids, mask = masks(known, CHATML, messages, None)
    labels = [token if has_loss else -100 for token, has_loss in zip(ids, mask, strict=True)]
    return [*zip(ids, labels, strict=True), (known.eos_token_id, -100)]


def exported(rows: Any) -> Iterator[list[tuple[int, int]]]:
    """The same of each conversation in exported rows, where positions begin again with 0."""
    for row in rows:
        pairs = list(zip(row["input_ids"], row["labels"], strict=True))
        starts = [place for place, position in enumerate(row["position_ids"]) if position == 0]
        for start, stop in zip(starts, [*starts[1:], len(pairs)], strict=True):
            if row["input_ids"][start] != 0:  # padding
                yield pairs[start:stop]
