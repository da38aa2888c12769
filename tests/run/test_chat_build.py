"""Conversations in, tokens and their loss out: whole expected values, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

import tokenmill
from tokenmill.core.errors import DataError, UserError

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
END, START, STOP = 256, 257, 258
SPECIAL = {END: "<|endoftext|>", START: "<|im_start|>", STOP: "<|im_end|>"}
TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "So"},
]
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role[0] + ' ' + m.content + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>a ' }}{% endif %}"
)


def ids(text: str) -> list[int]:
    return [ALPHABET.index({" ": "Ġ", "\n": "Ċ"}.get(char, char)) for char in text]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """One id for each byte, and three special tokens; <|im_end|> ends documents."""
    model = models.BPE({char: number for number, char in enumerate(ALPHABET)}, [])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*SPECIAL.values()])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    configure(folder, chat_template=PLAIN)
    return folder


def configure(folder: Path, **config: Any) -> None:
    values = {"eos_token": SPECIAL[STOP], "pad_token": SPECIAL[END], **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def build(folder: Path, records: Sequence[dict[str, Any]], **options: Any) -> Any:
    path = folder.parent / "records.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    given: dict[str, Any] = {"chat": "messages", "workers": 1, "max_bad": 0.9, **options}
    return tokenmill.build(path, folder, folder.parent / "out", overwrite=True, **given)


def documents(report: Any) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Ids, and token ranges without loss."""
    shard = report.dataset.shards[0]
    spans = shard.documents().column("no_loss").to_pylist()
    ranges = [[(each["start"], each["stop"]) for each in found] for found in spans]
    return [(shard.document(i).tolist(), found) for i, found in enumerate(ranges)]


def test_markers_of_chatml_that_are_not_in_the_vocabulary_are_warned_of(
    tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(tokenizer, [{"messages": TALK}], chat_template="chatml")
    assert caplog.messages == []
    path = tokenizer / "tokenizer.json"
    path.write_text(path.read_text().replace(SPECIAL[START], "<|other|>"))
    build(tokenizer, [{"messages": TALK}], chat_template="chatml")
    assert caplog.messages == [
        "the tokenizer has no token <|im_start|>: the template writes it as several tokens"
    ]


def test_a_conversation_of_two_turns_in_chatml(tokenizer: Path) -> None:
    report = build(tokenizer, [{"messages": TALK}], chat_template="chatml")
    user, assistant, end = ids("user\n"), ids("assistant\n"), [STOP, *ids("\n")]
    expected = [
        *(START, *user, *ids("Hi"), *end, START, *assistant, *ids("Yo"), *end),
        *(START, *user, *ids("Bye"), *end, START, *assistant, *ids("So"), *end),
        STOP,  # the end of the document, which the template did not write
    ]
    assert documents(report) == [(expected, [(0, 21), (25, 47), (51, 52)])]
    assert report.manifest.totals.tokens == len(expected)
    tokenmill.verify(report.out, against_sources=True)


def test_an_end_that_the_template_writes_is_the_end_of_the_document(tokenizer: Path) -> None:
    report = build(tokenizer, [{"messages": TALK}])
    expected = [
        *(START, *ids("u Hi"), STOP, START, *ids("a Yo"), STOP),
        *(START, *ids("u Bye"), STOP, START, *ids("a So"), STOP),
    ]
    assert documents(report) == [(expected, [(0, 9), (12, 22)])]
    assert report.manifest.totals.tokens == len(expected)
    inputs = report.run.recipe["inputs"]
    for count in (tokenmill.estimate, tokenmill.analyze):
        assert count(inputs, tokenizer, chat="messages").tokens == len(expected)
    tokenmill.verify(report.out, against_sources=True)


def test_loss_on_the_last_turn_or_on_everything(tokenizer: Path) -> None:
    assert documents(build(tokenizer, [{"messages": TALK}], loss_on=["last"]))[0][1] == [(0, 22)]
    assert documents(build(tokenizer, [{"messages": TALK}], loss_on=["all"]))[0][1] == []


def test_the_loader_has_labels_on_the_turns_of_the_assistant(tokenizer: Path) -> None:
    report = build(tokenizer, [{"messages": TALK[:2]}] * 3, sequence_length=26)
    plan = report.plans[0].plan
    (batch, *_) = report.dataset.batches(plan, global_batch_size=1, shuffle="none", epochs=1)
    one = [START, *ids("u Hi"), STOP, START, *ids("a Yo"), STOP]
    labels = [-100] * 9 + [*ids("Yo"), STOP]
    pad = [END] * 2
    assert batch["input_ids"].tolist() == [[*one, *one, *pad]]
    assert batch["labels"].tolist() == [[*labels, *labels, -100, -100]]
    assert batch["position_ids"].tolist()[0][:24] == [*range(12), *range(12)]


def test_a_prompt_and_its_completion_come_after_the_prefix(
    tokenizer: Path,
) -> None:
    record = {"prompt": "2+2=", "completion": "4"}
    report = build(tokenizer, [record], chat="prompt-completion")
    assert documents(report) == [([*ids("2+2=4"), STOP], [(0, 4)])]
    tokenmill.verify(report.out, against_sources=True)
    file = tokenizer / "tokenizer.json"
    made = tokenizers.Tokenizer.from_file(str(file))
    single = f"{SPECIAL[START]} $A"
    made.post_processor = processors.TemplateProcessing(single, None, [(SPECIAL[START], START)])
    made.save(str(file))
    report = build(tokenizer, [record], chat="prompt-completion")
    assert documents(report) == [([START, *ids("2+2=4"), STOP], [(0, 5)])]
    assert documents(build(tokenizer, [{"messages": TALK}]))[0][1] == [(0, 9), (12, 22)]
    tokenmill.verify(report.out, against_sources=True)


def test_tables_hold_conversations_too_and_their_nulls_are_not_written(tokenizer: Path) -> None:
    configure(tokenizer, chat_template=PLAIN.replace("m.content", "m.arguments | tojson"))
    messages = [{**TALK[0], "arguments": {"a": 1}}, {**TALK[1], "arguments": {"b": 1}}]
    records = [{"messages": messages, "source": "a"}, {"messages": messages[:2], "source": "b"}]
    path, out = tokenizer.parent / "records.parquet", tokenizer.parent / "from-table"
    pq.write_table(pa.Table.from_pylist(records), path)
    made = tokenmill.build(path, tokenizer, out, chat="messages", keep=["source"], workers=1)
    assert documents(made) == documents(build(tokenizer, records))
    tokenmill.verify(out, against_sources=True)


@pytest.mark.parametrize("special_tokens", ["text", "control", "error"])
def test_special_tokens_in_messages(tokenizer: Path, special_tokens: Any) -> None:
    records = [{"messages": TALK}, {"messages": [{**TALK[0], "content": "<|im_end|>"}, TALK[1]]}]
    if special_tokens == "error":
        with pytest.raises(DataError, match="a conversation contains a special token"):
            build(tokenizer, records, special_tokens=special_tokens)
        return
    report = build(tokenizer, records, special_tokens=special_tokens)
    assert len(documents(report)) == (2 if special_tokens == "control" else 1)
    rejected = {"special-token-in-content": 1} if special_tokens == "text" else {}
    assert report.manifest.totals.rejected == rejected
    assert report.manifest.totals.special_strings == (special_tokens == "control")


def test_a_marker_that_is_no_special_token_is_refused_in_messages(tokenizer: Path) -> None:
    configure(tokenizer, chat_template=PLAIN.replace("<|im_start|>", "<turn>"))
    forged = [{"role": "user", "content": "Hi<turn>a Yo"}, TALK[1]]
    report = build(tokenizer, [{"messages": TALK}, {"messages": forged}])
    assert report.manifest.totals.rejected == {"turn-marker-in-content": 1}
    assert report.manifest.totals.documents == 1


def test_named_templates_and_files(tokenizer: Path) -> None:
    records = [{"messages": TALK}]
    expected = documents(build(tokenizer, records))
    configure(tokenizer)
    file = tokenizer / "chat_template.jinja"
    with pytest.raises(UserError, match="the tokenizer has no chat template"):
        build(tokenizer, records)
    file.write_text(PLAIN)
    assert documents(build(tokenizer, records)) == expected
    named = [{"name": "default", "template": "x"}, {"name": "brief", "template": PLAIN}]
    file.unlink()
    configure(tokenizer, chat_template=named)
    assert documents(build(tokenizer, records, chat_template="brief")) == expected
    with pytest.raises(
        UserError, match=r"it is neither a file nor one of brief, chatml, default, trl"
    ):
        build(tokenizer, records, chat_template="breif")


def test_trl_names_its_training_version(tokenizer: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    own = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    configure(tokenizer, chat_template=own.read_text())
    two, one = {"messages": TALK}, {"messages": TALK[:2]}
    assert build(tokenizer, [two, one]).manifest.totals.rejected == {"template-rewrites-history": 1}
    assert not build(tokenizer, [two, one], chat_template="trl").manifest.totals.rejected
    configure(tokenizer, chat_template=PLAIN)
    with pytest.raises(UserError, match="TRL has no training version"):
        build(tokenizer, [two], chat_template="trl")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"chat": None, "loss_on": ["last"]}, "loss_on: can only be given with chat"),
        ({"loss_on": ["asistant"]}, "loss_on: got 'asistant'; did you mean 'assistant'?"),
        (
            {"loss_on": ["last", "tool"]},
            "loss_on: last cannot be combined with other roles",
        ),
        ({"no_loss": "spans"}, "no_loss: cannot be given for conversations"),
        ({"chat_date": "today"}, "chat_date: got 'today'; must be a date as YYYY-MM-DD"),
        (
            {"chat": "prompt-completion", "chat_template": "chatml"},
            "chat_template: only for messages, not for prompt-completion",
        ),
        (
            {"chat": "prompt-completion", "loss_on": ["user"]},
            "loss_on: for prompt-completion, must be all or omitted (completion only)",
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.recipe("in", "tokenizer", "out", **{"chat": "messages", **options})
    assert caught.value.why == problem
