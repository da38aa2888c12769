"""A wrong name is answered with the one that was meant."""

from __future__ import annotations

import pytest

from tokenmill.cli import COMMANDS
from tokenmill.core.options import OptionError, make_options
from tokenmill.core.suggestions import WORDS, nearest
from tokenmill.load.steps.batch_size import OrderOptions
from tokenmill.run.recipe.checks import SECTIONS
from tokenmill.store.exports import ExportOptions
from tokenmill.vocabulary.training.options import SECTIONS as TRAINING

OPTIONS = [name for section in SECTIONS.values() for name in section.__struct_fields__]
KNOWN = ["tokenizer", "out", *OPTIONS]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tokeniser", "tokenizer"),
        ("workrs", "workers"),
        ("num-workers", "workers"),
        ("num_proc", "workers"),
        ("seq-len", "sequence_length"),
        ("--max-seq-length", "sequence_length"),
        ("context_length", "sequence_length"),
        ("output-dir", "out"),
        ("Text-Field", "text_field"),
        ("json-keys", "text_field"),
        ("colour", ""),
        ("sequences-per-chunk", ""),
        ("body", ""),
        ("keeps", "keep"),
        ("kep", "keep"),
        ("oot", "out"),
        ("txt-feld", "text_field"),
        ("tx-feld", ""),
        ("valid", "validation"),
        ("", ""),
    ],
)
def test_the_nearest_option_is_found(name: str, meant: str) -> None:
    assert nearest(name, KNOWN) == meant


def test_a_word_of_another_tool_counts_only_if_there_is_such_an_option() -> None:
    assert nearest("num-proc", ["columns", "labels"]) == ""


def test_every_word_leads_to_a_name_of_ours() -> None:
    ours = {*KNOWN, *COMMANDS, "overwrite", "config", "columns", "max_sequences"}
    ours |= {name for section in TRAINING.values() for name in section.__struct_fields__}
    assert set(WORDS) <= ours | set(OrderOptions.__struct_fields__)
    theirs = [word for words in WORDS.values() for word in words.split()]
    assert len(theirs) == len(set(theirs))


def test_a_wrong_item_of_a_list_is_answered_with_the_nearest_choice() -> None:
    with pytest.raises(OptionError) as caught:
        make_options(ExportOptions, {"columns": ["labels", "input_idz"]}, "the export")
    assert caught.value.why == (
        "columns: got ['labels', 'input_idz']; must be one or several of input_ids, labels, "
        "position_ids, attention_mask; did you mean input_ids?"
    )
