"""One report: totals against the library, groups, intervals, and how it is printed."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import tokenizers

import tokenmill
from conftest import TEXTS, Printed, write_jsonl
from encode.trained_kit import trained
from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.packing.costs import named_shape
from tokenmill.read import units
from tokenmill.reports.tokenizers.figures import Ratio

FLORES = Path(__file__).parents[4] / "shared/data/flores"
PUBLISHED = Path(__file__).parents[4] / "shared/data/tokenizers"


@pytest.fixture(scope="module")
def llama2_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama2") / "tokenizer.json"
    path.write_bytes(trained("llama2").data)
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty documents in three languages, translations of each other in two of them."""
    path = tmp_path_factory.mktemp("corpus") / "a.jsonl"
    english = [f"The house number {i} is not mine." for i in range(8)]
    german = [f"Das Haus Nummer {i} gehört mir nicht." for i in range(8)]
    names = ["en"] * 8 + ["de"] * 8 + [None] * 5
    ids = [*map(str, range(8)), *map(str, range(8)), *"abcde"]
    return write_jsonl(path, [*english, *german, *TEXTS], language=names, id=ids)


def documents(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_totals_are_those_of_the_library(corpus: Path, tokenizer_path: Path) -> None:
    report = tokenmill.report_tokenizers(
        tokenizer_path, corpus, words="whitespace", sequence_lengths=[16, 64], model="gpt2"
    )
    library = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    texts = [document["text"] for document in documents(corpus)]
    encodings = library.encode_batch(texts)
    (found,) = report.tokenizers
    ids = Counter(i for encoding in encodings for i in encoding.ids)
    words = sum(len(text.split()) for text in texts)
    assert found.texts.documents == len(texts)
    assert found.texts.bytes == sum(len(text.encode()) for text in texts)
    assert found.texts.characters == sum(map(len, texts))
    assert found.texts.words == words
    assert found.texts.tokens == ids.total()
    assert found.texts.types_used == found.tokens.types_used == len(ids)
    assert found.tokens.types_unused == library.get_vocab_size() - len(ids)
    assert found.tokens.rank_frequency[0].count == ids.most_common(1)[0][1]
    assert found.texts.fertility.value == ids.total() / words
    assert found.texts.spelled_documents.value == found.texts.aligned_words.value == 1
    assert (found.groups, found.inequality, found.overlap) == ({}, None, None)
    lengths = [len(encoding) + 1 for encoding in encodings]
    of_64 = found.rows[1]
    assert (of_64.sequence_length, of_64.tokens) == (64, sum(lengths))
    assert of_64.concatenated_rows == -(-sum(lengths) // 64)
    assert of_64.fill == sum(lengths) / (64 * of_64.rows)
    pieces = [min(64, length - start) for length in lengths for start in range(0, length, 64)]
    squares = sum(piece**2 for piece in pieces)
    assert of_64.attention == squares / (64**2 * of_64.rows)
    assert of_64.flops == named_shape("gpt2").training_flops(
        library.get_vocab_size(), sum(lengths), squares
    )


def test_groups_add_up_and_translations_are_drawn_together(
    corpus: Path, tokenizer_path: Path, llama2_path: Path
) -> None:
    report = tokenmill.report_tokenizers(
        [tokenizer_path, llama2_path], [corpus], by="language", base="en", id_field="id"
    )
    for found in report.tokenizers:
        assert list(found.groups) == ["(none)", "de", "en"]
        for name in ("documents", "bytes", "words", "tokens"):
            parts = [getattr(figures, name) for figures in found.groups.values()]
            assert sum(parts) == getattr(found.texts, name)
        assert found.groups["en"].premium == Ratio(1.0, 1.0, 1.0)
        german = found.groups["de"]
        assert german.premium is not None
        assert german.premium.value == german.tokens / found.groups["en"].tokens
        assert german.premium.low is not None
        assert german.premium.high is not None
        # All sentences are alike, and with one id come in pairs: hardly anything is uncertain.
        assert german.premium.high - german.premium.low < 0.02
        assert found.inequality is not None
        assert found.inequality.gini is not None
    first, second = report.tokenizers
    assert first.texts.sequence_length_ratio == Ratio(1.0, 1.0, 1.0)
    assert second.texts.sequence_length_ratio.value == second.texts.tokens / first.texts.tokens
    assert second.overlap is not None


class Bytes:
    """A tokenizer that lists no tokens and tells no offsets."""

    eos_token_id = 256
    vocab_size = 257

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def test_a_python_object_must_say_how_many_tokens_it_has(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["one two"])
    endless = type("Endless", (), {**vars(Bytes)})
    del endless.vocab_size
    with pytest.raises(UserError, match="does not say how many tokens it has"):
        tokenmill.report_tokenizers(endless(), tmp_path)


def test_a_field_named_source_is_a_field_and_only_some_records_may_have_it(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    lines = ['{"text": "a"}'] * 200 + ['{"text": "a", "source": "web"}', '{"text": "a"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    report = tokenmill.report_tokenizers(tokenizer_path, tmp_path, by="source?")
    assert report.by == "source"
    assert {name: g.documents for name, g in report.tokenizers[0].groups.items()} == {
        "(none)": 201, "web": 1,
    }  # fmt: skip


def test_a_dataset_stands_for_its_sources(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    tokenmill.build(corpus, tokenizer_path, tmp_path / "set")
    of_dataset = tokenmill.report_tokenizers(tmp_path / "set", tmp_path / "set", by="language")
    of_files = tokenmill.report_tokenizers(tokenizer_path, corpus, by="language")
    assert of_dataset.tokenizers[0].groups == of_files.tokenizers[0].groups


def test_any_number_of_workers_gives_the_same_report(
    tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 2_000)
    for number in range(3):
        texts = [f"{text} {number} {i}" for i in range(20) for text in TEXTS]
        write_jsonl(tmp_path / f"{number}.jsonl", texts)
    one, two = (
        tokenmill.report_tokenizers(tokenizer_path, tmp_path, by="input", workers=workers)
        for workers in (1, 2)
    )
    assert one == two
    assert one.tokenizers[0].texts.documents == 300


def test_tokens_that_do_not_spell_their_texts_are_laid_by_offsets(tmp_path: Path) -> None:
    vocabulary = {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "dogs": 4}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    texts = write_jsonl(tmp_path / "a.jsonl", ["Unaffable dogs bark"])
    found = tokenmill.report_tokenizers(tokenizer, texts).tokenizers[0].texts
    assert found.continued_words.value == pytest.approx(1 / 3)
    assert found.unknown_tokens.value == pytest.approx(1 / 5)
    assert (found.spelled_documents.value, found.aligned_words.value) == (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "langage"}, "cannot find the field 'langage' in the first records"),
        ({"by": "language", "base": "e"}, "no group 'e'"),
        ({"words": "icu"}, "unknown rule for words 'icu'"),
        ({"model": "gpt5"}, "cannot find a model shape named 'gpt5'"),
        ({"sequence_lengths": [0]}, "a sequence length is out of bounds"),
    ],
)
def test_wrong_options_are_refused(
    corpus: Path, tokenizer_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        tokenmill.report_tokenizers(tokenizer_path, corpus, **options)  # type: ignore[arg-type]
    assert str(refused.value).startswith(message)


def test_a_report_is_printed_as_text_json_and_csv(
    corpus: Path, tokenizer_path: Path, llama2_path: Path, capsys: Printed
) -> None:
    command = ["tokenizer", "report", tokenizer_path, llama2_path, "--on", corpus]
    command += ["--by", "language", "--base", "en", "--model", "gpt2"]
    command = [str(word) for word in command]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for expected in ("tokens per word (fertility)", "rows of 2,048", "Gini", "worst", "digits"):
        assert expected in shown
    assert "docs/reference/tokenizer-training.md defines each" in shown
    assert re.search(r"^premium over en  +tokenizer0  +llama20$", shown, re.MULTILINE)
    assert "documents: premiums and Gini are for parallel texts" in shown
    assert "  no --id-field tells which documents are translations of each other: " in shown
    assert main([*command, "--id-field", "language"]) == 0
    assert "--id-field" not in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [found["texts"]["documents"] for found in report["tokenizers"]] == [21, 21]
    assert main([*command, "--csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    values = {(line["tokenizer"], line["group"], line["figure"]): line["value"] for line in lines}
    assert len(values) == len(lines)
    assert values[str(tokenizer_path), "de", "documents"] == "8"
    assert values[str(llama2_path), "", "rows_8192.rows"] == "1"
    assert main([*command, "--csv", "--json"]) == 2


PETROV = {
    "amh_Ethi": 409_343, "arb_Arab": 231_316, "ben_Beng": 507_509, "deu_Latn": 112_600,
    "ell_Grek": 343_953, "eng_Latn": 52_567, "fra_Latn": 104_971, "hin_Deva": 392_092,
    "jpn_Jpan": 157_858, "kat_Geor": 727_866, "kor_Hang": 266_663, "mya_Mymr": 887_930,
    "rus_Cyrl": 301_727, "shn_Mymr": 986_091, "spa_Latn": 104_549, "swh_Latn": 112_044,
    "tam_Taml": 819_110, "tha_Thai": 475_633, "tur_Latn": 127_797, "vie_Latn": 238_544,
    "yor_Latn": 204_447, "zho_Hans": 168_850,
}  # fmt: skip
"""Tokens of GPT-2 in the published table."""
PREMIUMS = {"shn_Mymr": 18.76, "mya_Mymr": 16.89, "tha_Thai": 9.05, "deu_Latn": 2.14}
LLAMA_PREMIUMS = {"mya_Mymr": 8.37, "zho_Hans": 2.00, "hin_Deva": 4.60, "rus_Cyrl": 1.64}


@pytest.mark.skipif(not FLORES.is_dir(), reason="needs FLORES-200, which is no part of this")
def test_tokens_and_premiums_are_those_of_petrov_et_al(tmp_path: Path) -> None:
    """All lines of a language, the empty last ones too, joined by a space and encoded at once."""
    texts = {
        name: " ".join(
            line
            for part in ("dev", "devtest")
            for line in (FLORES / f"{name}.{part}").read_text(encoding="utf-8").split("\n")
        )
        for name in PETROV
    }
    path = write_jsonl(tmp_path / "a.jsonl", texts.values(), language=texts)
    names = [PUBLISHED / "gpt2.json", PUBLISHED / "llama2.json"]
    report = tokenmill.report_tokenizers(names, path, by="language", base="eng_Latn")
    gpt2, llama = report.tokenizers
    assert {name: figures.tokens for name, figures in gpt2.groups.items()} == PETROV
    assert llama.groups["eng_Latn"].tokens == 60_621
    assert gpt2.groups["eng_Latn"].bytes == 259_396  # ByT5
    for expected, found in ((PREMIUMS, gpt2), (LLAMA_PREMIUMS, llama)):
        for name, premium in expected.items():
            told = found.groups[name].premium
            assert told is not None
            assert told.value == pytest.approx(premium, abs=0.005)
    assert gpt2.inequality is not None
    assert gpt2.inequality.worst == "shn_Mymr"


def test_counts_give_the_totals_of_their_texts(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    tokenmill.count_words(corpus, split="gpt2", out=tmp_path / "counts", by="language")
    texts = tokenmill.report_tokenizers(tokenizer_path, corpus, by="language")
    counted = tokenmill.report_tokenizers(tokenizer_path, tmp_path / "counts", by="language")
    (of_texts,), (of_counts,) = texts.tokenizers, counted.tokenizers
    assert of_counts.tokens == of_texts.tokens
    assert of_counts.texts.tokens == of_texts.texts.tokens
    assert of_counts.texts.bytes == of_texts.texts.bytes
    assert of_counts.texts.characters == of_texts.texts.characters
    assert of_counts.texts.bytes_per_token == Ratio(of_texts.texts.bytes_per_token.value)
    assert of_counts.groups["en"].tokens == of_texts.groups["en"].tokens
    assert of_counts.rows == []


def test_counts_that_were_cut_in_another_way_are_refused(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    tokenmill.count_words(corpus, split="cl100k", out=tmp_path / "counts")
    with pytest.raises(UserError, match="cut in another way"):
        tokenmill.report_tokenizers(tokenizer_path, tmp_path / "counts")
    with pytest.raises(UserError, match="cannot be grouped by 'language'"):
        tokenmill.report_tokenizers(tokenizer_path, tmp_path / "counts", by="language")
