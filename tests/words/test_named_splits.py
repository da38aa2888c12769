"""Published splits by name, and the split of somebody's own tokenizer.json."""

import pytest

from tokenmill.core.errors import UserError
from tokenmill.encode.words.splits import byte_level, named_split, split_of


def test_sentencepiece_s_splits_hold_the_tables_of_its_rules():
    pytest.importorskip("sentencepiece")
    normalizers = named_split("sentencepiece").normalizer["normalizers"]
    assert [step["type"] for step in normalizers] == ["Precompiled", "Replace", "Strip"]
    assert named_split("sentencepiece-nmt_nfkc").normalizer == {
        "type": "Sequence",
        "normalizers": normalizers,
    }
    assert "Precompiled" not in str(named_split("sentencepiece-identity").normalizer)


def test_an_unknown_split_is_answered_with_the_nearest():
    with pytest.raises(
        UserError, match=r"cannot find the split 'lama3'(.|\n)*did you mean llama3\?"
    ):
        named_split("lama3")


SEQUENCE = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, byte_level(False)]}


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "in_bytes"),
    [
        (None, None, False),
        (None, {"type": "Whitespace"}, False),
        ({"type": "NFC"}, byte_level(True), True),
        (None, {"type": "Sequence", "pretokenizers": [SEQUENCE]}, True),
        ({"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]}, None, True),
    ],
    ids=["none", "characters", "bytes", "bytes within sequences", "bytes of a normalizer"],
)
def test_a_tokenizers_own_split(normalizer, pre_tokenizer, in_bytes):
    split = split_of({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": {}})
    assert split.name == ""
    assert (split.normalizer, split.pre_tokenizer) == (normalizer, pre_tokenizer)
    assert split.byte_level is in_bytes


@pytest.mark.parametrize("wrong", [{"kind": "x"}, [], "NFC", {"type": "Sequence"}])
def test_steps_that_are_none_are_a_users_mistake(wrong):
    with pytest.raises(UserError, match="cannot read the normalizer and the pre-tokenizer"):
        split_of({"pre_tokenizer": wrong})
