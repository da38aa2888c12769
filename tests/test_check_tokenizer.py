"""Training and inference use the tokenizer that a dataset was built with, or are told not to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tokenizers

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.store.manifest import dataset_id

GOLDEN = Path(__file__).parent / "golden" / "v2" / "dataset"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> tokenmill.Dataset:
    folder = tmp_path_factory.mktemp("corpus")
    path = write_jsonl(folder / "a.jsonl", TEXTS)
    return tokenmill.build(path, tokenizer_path, folder / "out", workers=1).dataset


@pytest.fixture
def tokenizer(tokenizer_path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(tokenizer_path))


def edited(path: Path, out: Path, **changes: Any) -> Path:
    """A tokenizer.json with other values at its top."""
    out.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return out


def test_the_manifest_names_the_fingerprint_and_the_identity_of_a_dataset_does_not_follow_it(
    dataset: tokenmill.Dataset, tokenizer_path: Path
) -> None:
    manifest = dataset.manifest
    assert manifest.tokenizer.fingerprint == tokenmill.check_tokenizer(dataset, tokenizer_path)
    older = msgspec.structs.replace(manifest.tokenizer, fingerprint=msgspec.UNSET)
    assert dataset_id(manifest.shards, older, manifest.policies) == manifest.dataset_id


def test_the_same_tokenizer_passes_in_every_form(
    dataset: tokenmill.Dataset, tokenizer_path: Path, tokenizer: tokenizers.Tokenizer
) -> None:
    transformers = pytest.importorskip("transformers")
    forms = [
        tokenizer_path,
        str(tokenizer_path.parent),
        dataset.folder,
        dataset,
        tokenizer,
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token="<|endoftext|>", model_max_length=8
        ),
    ]
    expected = {dataset.manifest.tokenizer.fingerprint}
    assert {tokenmill.check_tokenizer(dataset.folder, form) for form in forms} == expected


def test_truncation_and_padding_of_an_object_are_not_the_tokenizers(
    dataset: tokenmill.Dataset, tokenizer: tokenizers.Tokenizer
) -> None:
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5)
    tokenmill.check_tokenizer(dataset, tokenizer)


def test_what_differs_is_told(
    dataset: tokenmill.Dataset, tokenizer_path: Path, tmp_path: Path
) -> None:
    other = edited(tokenizer_path, tmp_path / "tokenizer.json", normalizer={"type": "NFC"})
    with pytest.raises(UserError) as caught:
        tokenmill.check_tokenizer(dataset, other)
    assert caught.value.why == ('normalizer: 1 added, 0 removed, 0 changed: + 1 {"type": "NFC"}')
    assert caught.value.where == f"{dataset.folder}, compared with {other}"


def test_a_token_that_was_added_is_told(
    dataset: tokenmill.Dataset, tokenizer: tokenizers.Tokenizer
) -> None:
    tokenizer.add_special_tokens(["<|pad|>"])
    with pytest.raises(UserError, match=r'added_tokens: 1 added, .*\+ "<\|pad\|>" {"id":'):
        tokenmill.check_tokenizer(dataset, tokenizer)


def test_another_end_of_documents_is_told(
    dataset: tokenmill.Dataset, tokenizer: tokenizers.Tokenizer
) -> None:
    class Named:
        """A tokenizer that calls another token the end of a document."""

        backend_tokenizer = tokenizer
        eos_token_id = 7
        pad_token_id = 3  # the dataset names none

    with pytest.raises(UserError) as caught:
        tokenmill.check_tokenizer(dataset, Named())
    assert caught.value.why == "eos_token_id: 0 in the dataset, 7 in the tokenizer"


def test_another_beginning_of_texts_is_told(
    dataset: tokenmill.Dataset, tokenizer: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    with pytest.raises(UserError) as caught:
        tokenmill.check_tokenizer(dataset, tokenizer)
    assert caught.value.why == "ids before a text: [] in the dataset, [0] by the tokenizer"
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    begun = tokenmill.build(source, tokenizer, tmp_path / "out", workers=1).dataset
    tokenmill.check_tokenizer(begun, tokenizer)
    with pytest.raises(UserError, match=r"ids before a text: \[0\] in the dataset, \[\] by"):
        tokenmill.check_tokenizer(begun, dataset)


def test_a_dataset_whose_tokenizer_was_exchanged_is_damaged(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "out")
    stored = tmp_path / "out" / "tokenizer" / "tokenizer.json"
    stored.write_bytes(stored.read_bytes().replace(b'"version": "1.0"', b'"version": "1.1"', 1))
    with pytest.raises(VerificationError, match="not the one that encoded it"):
        tokenmill.check_tokenizer(tmp_path / "out", tokenizer_path)


def test_tokenizers_of_two_kinds_are_not_compared(dataset: tokenmill.Dataset) -> None:
    class Letters:
        def encode(self, text: str) -> list[int]:
            return list(text.encode())

    with pytest.raises(UserError, match="kind: huggingface -> python: their parts cannot"):
        tokenmill.check_tokenizer(dataset, Letters())


def test_a_python_tokenizer_is_known_by_its_answers(tmp_path: Path) -> None:
    class Letters:
        vocab_size = 257
        eos_token, eos_token_id = "<end>", 256
        shift = 0

        def encode(self, text: str) -> list[int]:
            return [(byte + self.shift) % 256 for byte in text.encode()]

    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    built = tokenmill.build(path, Letters(), tmp_path / "out", workers=1).dataset
    assert tokenmill.check_tokenizer(built, Letters()) == built.manifest.tokenizer.fingerprint
    other = Letters()
    other.shift = 1
    with pytest.raises(UserError, match=r'answers: 0 added, 0 removed, 1 changed: "answers_sha'):
        tokenmill.check_tokenizer(built, other)


def test_what_is_no_tokenizer_is_refused(dataset: tokenmill.Dataset, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nothing.json", object(), 7):
        with pytest.raises(UserError):
            tokenmill.check_tokenizer(dataset, wrong)
