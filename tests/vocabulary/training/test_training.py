"""Trained tokenizers: what is written, that it encodes as predicted, and that others load it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tokenmill.core.errors import OutputConflictError, StorageError, UserError
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.encode.words.splits import named_split
from tokenmill.store.canonical import read_sealed
from tokenmill.vocabulary.training import output
from tokenmill.vocabulary.training import train as training
from tokenmill.vocabulary.training.bpe_models import rank_pattern
from tokenmill.vocabulary.training.options import make_train_options
from tokenmill.vocabulary.training.output import TRAINING_NAME, Training
from tokenmill.vocabulary.training.train import TrainReport, train
from vocabulary.training.training_kit import TEXTS, contents, counted, loaded, trained


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words of a few sentences, by Llama 3's split."""
    return counted(tmp_path_factory.mktemp("counts") / "counts", {"": TEXTS * 3})


def test_a_bpe_over_bytes_gives_every_text_back(counts: Path, tmp_path: Path) -> None:
    report = trained(tmp_path / "T", counts, vocabulary=500)
    tokenizer = loaded(report)
    assert tokenizer.get_vocab_size() == 500
    for text in (*TEXTS, "never \x00 seen \ud7ff\U0010ffff", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_corpus_takes_as_many_tokens_as_were_predicted(counts: Path, tmp_path: Path) -> None:
    report = trained(tmp_path / "T", counts, vocabulary=500, sizes=[300, 400])
    for size, entry in zip((500, 400, 300), report.training.sizes, strict=True):
        tokenizer = loaded(report, None if size == 500 else size)
        num_tokens = sum(len(tokenizer.encode(text).ids) for text in TEXTS * 3)
        assert (entry.vocabulary, entry.tokens) == (size, num_tokens)
        assert tokenizer.get_vocab_size() == size
    assert [size for size, _ in report.training.curve] == [257, 300, 400, 500]


@pytest.mark.parametrize("split", ["gpt2", "llama3", "o200k"])
def test_the_rank_file_gives_tiktoken_the_same_ids(split: str, tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS}, split)
    report = trained(tmp_path / "T", counts, vocabulary=450)
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    ranks = load_tiktoken_bpe(str(report.folder / "tokenizer.tiktoken"))
    encoding = tiktoken.Encoding(
        "trained",
        pat_str=rank_pattern(named_split(split)),
        mergeable_ranks=ranks,
        special_tokens=dict(report.training.special_ids),
    )
    tokenizer = loaded(report)
    for text in (*TEXTS, "aaaaaaa  aaa\n\n\naaaa freefree 10000001"):
        assert encoding.encode_ordinary(text) == tokenizer.encode(text).ids


def test_a_bpe_over_characters_spells_the_others_in_bytes(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS[:3]}, "metaspace")
    report = trained(tmp_path / "T", counts, vocabulary=400, byte_fallback=True, bos="<s>")
    tokenizer = loaded(report)
    ids = tokenizer.encode("free 人").ids
    assert [tokenizer.id_to_token(i) for i in ids][-4:] == ["▁", "<0xE4>", "<0xBA>", "<0xBA>"]
    assert tokenizer.decode(ids) == "free 人"
    assert tokenizer.id_to_token(ids[0]) == "<s>"
    assert rank_engines(load_tokenizer_file(report.folder), False).names[0] == "native"


def test_rare_characters_are_unknown_where_nothing_spells_them(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": ["aa ab ba z"]}, "whitespace")
    report = trained(tmp_path / "T", counts, vocabulary=5, character_coverage=0.8)
    tokenizer = loaded(report)
    assert tokenizer.get_vocab() == {"<unk>": 0, "</s>": 1, "a": 2, "b": 3, "aa": 4}
    assert tokenizer.encode("aa z").tokens == ["aa", "<unk>"]
    assert report.training.sizes[0].fallback_bytes == 1
    assert report.training.curve == []  # merges alone do not know how many tokens are unknown


def test_special_tokens_come_first_or_last_or_where_they_are_told_to(
    counts: Path, tmp_path: Path
) -> None:
    first = trained(tmp_path / "a", counts, vocabulary=300, special=["<|a|>"], reserve=2)
    assert dict(first.training.special_ids) == {
        "<|endoftext|>": 0,
        "<|a|>": 1,
        "<|reserved_0|>": 2,
        "<|reserved_1|>": 3,
    }
    last = trained(tmp_path / "b", counts, vocabulary=300, special=["<|a|>"], special_at="end")
    assert dict(last.training.special_ids) == {"<|endoftext|>": 298, "<|a|>": 299}
    fixed = trained(
        tmp_path / "c", counts, vocabulary=300, special=["<|a|>=100", "<pad>=7"], pad="<pad>"
    )
    assert dict(fixed.training.special_ids) == {"<|endoftext|>": 0, "<pad>": 7, "<|a|>": 100}
    for report in (first, last, fixed):
        tokenizer = loaded(report)
        assert sorted(tokenizer.get_vocab().values()) == list(range(300))
        ids = [tokenizer.token_to_id(token) for token in report.training.special_ids]
        assert ids == list(report.training.special_ids.values())


def test_roles_are_told_to_transformers(counts: Path, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}")
    report = trained(
        tmp_path / "T",
        counts,
        vocabulary=400,
        special=["<|im_start|>"],
        bos="<s>",
        pad="<pad>",
        chat_template=str(template),
    )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(report.folder)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "<|endoftext|>")
    assert tokenizer.pad_token_id == report.training.special_ids["<pad>"]
    assert tokenizer("free")["input_ids"] == loaded(report).encode("free").ids
    assert tokenizer("free")["input_ids"][0] == tokenizer.bos_token_id
    messages = [{"role": "user", "content": "free"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<|im_start|>free"


def test_weights_count_a_group_several_times(tmp_path: Path) -> None:
    by_language = counted(tmp_path / "a", {"de": TEXTS[1:2], "en": TEXTS[:1]})
    repeated = counted(tmp_path / "b", {"": [*TEXTS[1:2] * 7, *TEXTS[:1] * 2]})
    weighted = trained(tmp_path / "T", by_language, vocabulary=300, weight=["de=7", "en=2"])
    plain = trained(tmp_path / "U", repeated, vocabulary=300)
    name = "tokenizer.json"
    assert contents(weighted.folder)[name] == contents(plain.folder)[name]
    assert dict(weighted.training.counts.weights) == {"de": 7, "en": 2}
    with pytest.raises(UserError, match="there are no words to learn from"):
        trained(tmp_path / "V", by_language, vocabulary=300, weight=["de=0", "en=0"])


def test_alpha_needs_groups(tmp_path: Path) -> None:
    alike = counted(tmp_path / "a", {"": TEXTS})
    with pytest.raises(UserError, match="--alpha has no groups to weigh"):
        trained(tmp_path / "T", alike, vocabulary=300, alpha=0.3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"vocabulary": 100}, "a vocabulary of 100 is too small"),
        ({"vocabulary": 300, "byte_fallback": True}, "--byte-fallback works only with models over"),
        ({"vocabulary": 300, "sizes": [400]}, "sizes: 400 is larger than the vocabulary of 300"),
        ({"vocabulary": 300, "split": "gpt2"}, "the words were counted with another split"),
        ({"vocabulary": 300, "special": ["<a>", "<a>"]}, "'<a>' is named twice"),
        ({"vocabulary": 300, "special": ["<a>=9", "<b>=9"]}, "two special tokens have id 9"),
        ({"vocabulary": 300, "special": ["<a>=300"]}, "'<a>' cannot have id 300"),
        ({"vocabulary": 300, "special": ["a"]}, "'a' cannot be a special token"),
        ({"vocabulary": 300, "weight": ["th=3"]}, "cannot find the group 'th'"),
        ({"parity": "base", "byte_premium": ["th=3"]}, "there is no group 'th'"),
        ({"alpha": 0.3, "byte_premium": ["de=1e308"]}, "GROUP=NUMBER from 0.01 to 100"),
        ({"vocab_size": 300}, "vocab_size: unknown option; did you mean vocabulary"),
        ({"weight": ["th"], "alpha": 2}, "the tokenizer has 1 problem"),
        ({"reserve": 10**11}, "reserve"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, object], problem: str, counts: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=problem):
        trained(tmp_path / "T", counts, **options)


def test_only_a_trained_tokenizer_is_replaced(counts: Path, tmp_path: Path) -> None:
    report = trained(tmp_path / "T", counts, vocabulary=300, sizes=[280])
    with pytest.raises(OutputConflictError, match="already holds a trained tokenizer"):
        trained(tmp_path / "T", counts, vocabulary=300)
    options = make_train_options({"vocabulary": 320})
    train([str(counts)], report.folder, options, overwrite=True)
    assert {path.name for path in report.folder.iterdir()} == {
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer.tiktoken",
        "tokenizer_config.json",
        "train.json",
    }
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(OutputConflictError, match="is not empty and holds no trained tokenizer"):
        train([str(counts)], tmp_path / "other", options, overwrite=True)
    (report.folder / "280").mkdir()
    (report.folder / "280" / "notes.txt").write_text("mine")
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        train([str(counts)], report.folder, options, overwrite=True)
    assert caught.value.why == "it holds '280/notes.txt'"


@pytest.mark.parametrize("name", ["mine/x", "new/tokens/00000.bin", "replaced/x", "counts/x"])
def test_files_of_someone_else_beside_a_tokenizer_are_kept(
    name: str, counts: Path, tmp_path: Path
) -> None:
    mine = tmp_path / ".T.unfinished" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        trained(tmp_path / "T", counts, vocabulary=300)
    assert caught.value.why == f"it holds {name!r}"
    assert mine.read_text() == "mine"
    assert not (tmp_path / "T").exists()


def test_an_old_tokenizer_stays_until_the_new_one_is_complete(
    counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = trained(tmp_path / "T", counts, vocabulary=300).training
    monkeypatch.setattr(output, "write_sealed", full)
    options = make_train_options({"vocabulary": 320})
    with pytest.raises(StorageError, match="cannot train the tokenizer") as caught:
        train([str(counts)], tmp_path / "T", options, overwrite=True)
    assert caught.value.where == str(tmp_path / "T")
    assert caught.value.hint == "free some space and run the same command again"
    assert read_sealed(tmp_path / "T" / TRAINING_NAME, Training) == before
    assert [path.name for path in tmp_path.iterdir()] == ["T"]


def test_a_stopped_training_with_other_texts_is_refused_or_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    options = make_train_options({"vocabulary": 300})

    def run(name: str, *, overwrite: bool) -> TrainReport:
        (tmp_path / name).write_text('{"text": "aa ab aa"}\n')
        counting = {"resources": {"workers": 1}}
        inputs = [str(tmp_path / name)]
        return train(inputs, tmp_path / "T", options, counting=counting, overwrite=overwrite)

    with monkeypatch.context() as patch:
        patch.setitem(training.MODELS, "bpe", killed)
        with pytest.raises(KeyboardInterrupt):
            run("a.jsonl", overwrite=False)
    with pytest.raises(OutputConflictError, match="holds other word counts"):
        run("b.jsonl", overwrite=False)
    assert run("b.jsonl", overwrite=True).training.counts.occurrences == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T", "a.jsonl", "b.jsonl"]


def test_the_counts_of_a_training_are_not_kept_in_its_folder(counts: Path, tmp_path: Path) -> None:
    options = make_train_options({"vocabulary": 300})
    with pytest.raises(UserError, match="the counts cannot be kept there"):
        train([str(counts)], tmp_path / "T", options, counts_folder=tmp_path / "T" / "counts")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts as JSON Lines, with a language each."""
    path = tmp_path_factory.mktemp("texts") / "corpus.jsonl"
    records = [{"text": text, "lang": "de" if i == 1 else "other"} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_texts_are_counted_first_and_the_counts_go(corpus: Path, tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS})
    from_counts = trained(tmp_path / "T", counts, vocabulary=300)
    report = tokenmill.train_tokenizer(corpus, tmp_path / "U", vocabulary=300, workers=1)
    assert contents(report.folder) == contents(from_counts.folder)


def test_counts_are_kept_and_trained_from_again(corpus: Path, tmp_path: Path) -> None:
    kept = tmp_path / "counts"
    options: dict[str, Any] = {"vocabulary": 300, "digits": "groups-right", "weight": ["de=5"]}
    first = tokenmill.train_tokenizer(
        corpus, tmp_path / "T", counts=kept, by="lang", workers=1, **options
    )
    again = tokenmill.train_tokenizer(kept, tmp_path / "U", **options)
    assert contents(first.folder) == contents(again.folder)
    assert dict(first.training.counts.weights) == {"de": 5, "other": 1}
    with pytest.raises(UserError, match="the words are already counted"):
        tokenmill.train_tokenizer(kept, tmp_path / "V", by="lang")


def test_a_wordpiece_is_bert_s(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS[:3]}, "bert")
    report = trained(tmp_path / "T", counts, model="wordpiece", vocabulary=150, sizes=[120])
    assert list(report.training.special_ids) == ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    tokenizer = loaded(report)
    assert tokenizer.encode("all human beings").tokens[0] == "[CLS]"
    assert tokenizer.encode("All Human", "beings").tokens.count("[SEP]") == 2
    assert tokenizer.decode(tokenizer.encode("all human beings").ids) == "all human beings"
    assert [entry.vocabulary for entry in report.training.sizes] == [150, 120]
    assert rank_engines(load_tokenizer_file(report.folder), False).names[0] == "native"


def test_a_wordlevel_knows_the_most_frequent_words(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": ["b a a c", "a b d"]}, "whitespace")
    report = trained(tmp_path / "T", counts, model="wordlevel", vocabulary=5, sizes=[3])
    assert loaded(report).get_vocab() == {"[UNK]": 0, "</s>": 1, "a": 2, "b": 3, "c": 4}
    assert loaded(report, 3).get_vocab() == {"[UNK]": 0, "</s>": 1, "a": 2}
    assert [(entry.tokens, entry.fallback_bytes) for entry in report.training.sizes] == [
        (7, 1),
        (7, 4),
    ]
    with pytest.raises(UserError, match="a vocabulary of 2 is too small"):
        trained(tmp_path / "U", counts, model="wordlevel", vocabulary=5, sizes=[2])


@pytest.mark.parametrize("content", ["a", "▁", "<0x41>"])
def test_no_sentencepiece_model_loses_a_character_to_a_special_token(
    content: str, tmp_path: Path
) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS}, "sentencepiece")
    options: dict[str, Any] = {"model": "sentencepiece-bpe", "byte_fallback": True}
    with pytest.raises(UserError, match="cannot be a special token"):
        trained(tmp_path / "T", counts, vocabulary=400, special=[content], **options)


@pytest.mark.parametrize("model", ["sentencepiece-bpe", "sentencepiece-unigram"])
def test_sentencepiece_models_are_its_own_files(model: Any, tmp_path: Path) -> None:
    import sentencepiece

    counts = counted(tmp_path / "counts", {"": TEXTS * 3}, "sentencepiece")
    report = trained(
        tmp_path / "T", counts, model=model, vocabulary=400, byte_fallback=True, special=["<|a|>"]
    )
    assert dict(report.training.special_ids) | {"<|a|>": 3} == {
        "<unk>": 0,
        "<s>": 1,
        "</s>": 2,
        "<|a|>": 3,
    }
    processor = sentencepiece.SentencePieceProcessor(str(report.folder / "tokenizer.model"))
    assert (processor.vocab_size(), processor.decode(processor.encode("frei 猫"))) == (
        400,
        "frei 猫",
    )
    num_tokens = sum(len(ids) for ids in processor.encode(TEXTS * 3))
    assert report.training.sizes[0].tokens == num_tokens
    assert load_tokenizer_file(report.folder).kind == "sentencepiece"


def test_a_unigram_is_a_tokenizer_json(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts", {"": TEXTS * 3}, "sentencepiece")
    report = trained(tmp_path / "T", counts, model="unigram", vocabulary=180)
    tokenizer = loaded(report)
    assert tokenizer.get_vocab_size() == 180
    assert tokenizer.decode(tokenizer.encode("geboren frei").ids) == "geboren frei"
    other = counted(tmp_path / "other", {"": TEXTS})
    with pytest.raises(UserError, match="unigram cannot be trained on words of the split 'llama3'"):
        trained(tmp_path / "U", other, model="unigram", vocabulary=180)


def test_parity_is_for_the_group_that_is_worst_off(tmp_path: Path) -> None:
    groups = {"de": TEXTS[1:2] * 9, "ru": TEXTS[2:3]}
    counts = counted(tmp_path / "counts", groups)
    parallel = counted(tmp_path / "parallel", {"de": TEXTS[1:2], "ru": TEXTS[2:3]})
    plain = trained(tmp_path / "plain", counts, vocabulary=290)
    alike = trained(tmp_path / "alike", counts, vocabulary=290, parity="base")
    told = trained(
        tmp_path / "told", counts, vocabulary=290, parity="window", parity_counts=parallel
    )
    russian = TEXTS[2]
    lengths = [len(loaded(report).encode(russian).ids) for report in (plain, alike, told)]
    assert lengths[0] > max(lengths[1:])
    with pytest.raises(UserError, match="parity: takes no weight"):
        trained(tmp_path / "T", counts, parity="base", weight=["de=2"])


def test_parity_by_bytes_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counts = counted(tmp_path / "counts", {"de": TEXTS[1:2], "ru": TEXTS[2:3]})
    told = [{}, {"parity_counts": counts}, {"byte_premium": ["ru=1.8"]}]
    warned = []
    for number, options in enumerate(told):
        report = trained(tmp_path / str(number), counts, vocabulary=260, parity="base", **options)
        warned.append([record.getMessage() for record in caplog.records])
        assert training.PARITY_WARNING not in report.remarks  # it is said once
        caplog.clear()
    assert warned == [[training.PARITY_WARNING], [], []]
