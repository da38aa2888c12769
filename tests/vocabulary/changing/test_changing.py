"""The folders of extended and trimmed tokenizers, and the commands that make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer

import tokenmill
from conftest import Printed
from encode.tokenizer_kit import added_token, byte_level_json
from encode.trained_kit import SENTENCES, trained
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import named_split, split_of
from tokenmill.store.counts.folder import CountsManifest, write_counts
from tokenmill.store.embedding_plan import read_embedding_plan
from vocabulary.changing.changing_kit import counted, opened

END = added_token("<|end|>", 259, special=True)
WORDS = WordCounts.of({b"bcbc": 5, b"bcd": 3, b" abc": 2})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder as transformers saves it: " a" (256), "bc", "abc", <|end|> (259)."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(byte_level_json(added_tokens=[END])))
    config = {"eos_token": "<|end|>", "added_tokens_decoder": {"259": {"content": "<|end|>"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "vocab.json").write_text("{}")
    return folder


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    split = split_of(byte_level_json())
    write_counts(tmp_path / "counts", CountsManifest(split=split), {"": [WORDS]})
    return tmp_path / "counts"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def loaded(path: Path) -> Any:
    return json.loads(path.read_bytes())


def test_an_extended_tokenizer_comes_with_its_files(
    base: Path, counts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    change = tokenmill.extend_tokenizer(base, counts, out, add=2)
    assert change.tokens == ["bcbc", "bcd"]
    assert names(out) == [
        "chat_template.jinja",
        "embeddings.json",
        "extend.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert tokenizer.encode("bcbc<|end|>bcd").ids == [260, 259, 261]
    assert loaded(out / "tokenizer_config.json") == loaded(base / "tokenizer_config.json")
    assert loaded(out / "extend.json")["figures"] == {
        "ids_before": 260,
        "ids_after": 262,
        "added": 2,
        "revived": 0,
        "tokens_before": 5 * 2 + 3 * 2 + 2 * 2,
        "tokens_after": 5 + 3 + 2 * 2,
        "words_left_out": 0,
    }
    plan = read_embedding_plan(out)
    assert (plan.num_old_ids, plan.num_unchanged) == (260, 260)
    assert plan.rows == [[257, 257], [257, 100]]
    assert (
        change.record.tokenizer
        == tokenmill.extend_tokenizer(base, counts, tmp_path / "again", add=2).record.tokenizer
    )
    for path in out.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_trimmed_tokenizer_comes_with_the_new_id_of_each_old_one(
    base: Path, counts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    change = tokenmill.trim_tokenizer(base, counts, out, to=258)
    assert change.tokens == ["abc", " a"]
    assert loaded(out / "ids.json")["ids"] == [*range(256), None, 256, None, 257]
    plan = read_embedding_plan(out / "embeddings.json")
    assert (plan.num_old_ids, plan.num_unchanged, plan.rows) == (260, 256, [[257], [259]])
    assert plan.new_ids() == {**{i: i for i in range(256)}, 257: 256, 259: 257}
    config = loaded(out / "tokenizer_config.json")
    assert config["added_tokens_decoder"] == {"257": {"content": "<|end|>"}}
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert tokenizer.encode("bc<|end|>").ids == [256, 257]


def test_texts_are_counted_first(base: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("bcbc bcd abc")
    words = counted(opened(byte_level_json()), ["bcbc bcd abc"])
    write_counts(tmp_path / "counts", CountsManifest(split=named_split("gpt2")), {"": [words]})
    trimmed = [tmp_path / "of_texts", tmp_path / "of_counts"]
    tokenmill.trim_tokenizer(base, tmp_path / "a.txt", trimmed[0], to=258)
    tokenmill.trim_tokenizer(base, tmp_path / "counts", trimmed[1], to=258)
    files = [(out / "tokenizer.json").read_bytes() for out in trimmed]
    assert files[0] == files[1]
    assert names(tmp_path) == ["a.txt", "base", "counts", "of_counts", "of_texts"]


def test_words_of_another_split_are_refused(base: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    write_counts(counts, CountsManifest(split=named_split("llama3")), {"": [WORDS]})
    with pytest.raises(UserError, match="not split like the tokenizer splits them") as caught:
        tokenmill.extend_tokenizer(base, counts, tmp_path / "out", add=2)
    assert "they were counted with the split llama3" in str(caught.value)
    assert "tokenmill tokenizer count INPUTS --split gpt2 --out OTHER_COUNTS" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_rank_file_becomes_a_tokenizer_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenmill.encode import encodings
    from tokenmill.encode.published_encodings import ENCODINGS

    file = trained("gpt2.tiktoken")
    num_ranks = len(file.data.splitlines())
    small = encodings.Encoding(
        encodings.ENCODINGS["gpt2"].pattern, num_ranks, {"<|endoftext|>": 2000}, json_split=""
    )
    monkeypatch.setitem(ENCODINGS, "gpt2", small)
    (tmp_path / "gpt2.tiktoken").write_bytes(file.data)
    split = named_split("gpt2")
    words = counted(opened(byte_level_json()), SENTENCES * 2)
    write_counts(tmp_path / "counts", CountsManifest(split=split), {"": [words]})
    out = tmp_path / "out"
    tokenmill.extend_tokenizer(tmp_path / "gpt2.tiktoken", tmp_path / "counts", out, add=5)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert tokenizer.token_to_id("<|endoftext|>") == 2000
    assert tokenizer.get_vocab_size() == num_ranks + 6
    assert loaded(out / "tokenizer_config.json") == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
    }
    trimmed = tmp_path / "trimmed"
    tokenmill.trim_tokenizer(tmp_path / "gpt2.tiktoken", tmp_path / "counts", trimmed, to=600)
    tokenizer = Tokenizer.from_file(str(trimmed / "tokenizer.json"))
    ranks = encodings.parse_ranks((trimmed / "tokenizer.tiktoken").read_bytes())
    assert len(ranks) == 599
    encoding = tiktoken.Encoding(
        "trimmed", pat_str=small.pattern, mergeable_ranks=ranks, special_tokens={}
    )
    for text in [*SENTENCES, "Kardiomyopathie"]:
        assert encoding.encode_ordinary(text) == tokenizer.encode(text).ids


def test_what_has_the_name_already_stays(base: Path, counts: Path) -> None:
    with pytest.raises(OutputConflictError, match="already exists"):
        tokenmill.trim_tokenizer(base, counts, base, to=258)


def test_a_configuration_that_disagrees_is_refused(
    base: Path, counts: Path, tmp_path: Path
) -> None:
    config = {"added_tokens_decoder": {"260": {"content": "<|more|>"}}}
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"gives '<\|more\|>' the id 260, but tokenizer.json"):
        tokenmill.extend_tokenizer(base, counts, tmp_path / "out", add=2)


def test_the_commands_say_what_they_did(
    base: Path, counts: Path, tmp_path: Path, capsys: Printed
) -> None:
    more, fewer = str(tmp_path / "more"), str(tmp_path / "fewer")
    common = [str(base), "--on", str(counts)]
    assert main(["tokenizer", "extend", *common, "--add", "9", "--out", more]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "  tokens  3 tokens added: no other pair occurs 2 times or more",
        "     ids  260 -> 263",
        "  corpus  20 -> 10 tokens, 50.0% saved",
        "examples  'bcbc', 'bcd', ' abc'",
    ]
    assert main(["tokenizer", "trim", *common, "--to", "258", "--out", fewer, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == ["abc", " a"]
    assert found["figures"]["words_changed"] == 1
    assert main(["tokenizer", "extend", *common, "--add", "0", "--out", more + "2"]) == 2
