"""What units can do: one tagged struct a task, sent to workers as JSON with the `Setup`.

A task is added in three steps:

1. Its struct here, with a tag of its own, and its name in `Task`. It holds what the worker needs to
   know beside what every task needs (`Setup`): as numbers, names and paths, never as objects.
2. A module beside this one with two classes. A `TaskRunner` loads what a worker needs, once. A
   `UnitTask` does one unit: it is given groups of documents, and finishes with files. Reading,
   digests, books, times, audits and blame are the `UnitAttempt`'s (`attempt.py`).
3. A case in `load_task` (`unit.py`).

The main path beside `run/build.py` then prepares the inputs (`run/start/inputs.py`), runs all units
(`Job` in `run/job.py`), and makes something of the files that the receipts name.
"""

from __future__ import annotations

import msgspec

from tokenmill.errors import DataError
from tokenmill.store.policies import EncodePolicies
from tokenmill.words.splits import Split


class TokenizerTask(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks with a tokenizer are told of it."""

    tokenizer_dir: str
    tokenizer_kind: str
    tokenizer_source: str
    """What makes a Python tokenizer in a worker process; "" for all others."""
    encoding: str
    largest_id: int
    unk_id: int | None


class EncodeTask(TokenizerTask, tag="encode", frozen=True, kw_only=True):
    """Documents become tokens in a shard."""

    policies: EncodePolicies
    validation: float
    """The share of documents in the validation subset."""
    prefix: list[int]
    eos_id: int
    special_tokens: list[str]
    control_tokens: bool
    """Whether special tokens inside text are control tokens."""
    is_chat: bool = False
    """Whether texts are conversations, which may end with the EOS themselves."""
    added_eos_has_loss: bool = True
    """Whether the EOS of those that do not has loss."""


LARGEST_HASH = 2**32 - 1
"""Splitters answer the exam with hashes of words."""
MAX_GROUPS = 4_096
NO_VALUE = "(none)"
"""The group of documents without a value, or with an empty one, in the column."""
RUN_PREFIX = "words-"
"""Of the parts of a unit that are runs of words; a number follows."""


class CountTask(msgspec.Struct, tag="count", frozen=True, kw_only=True):
    """The words of documents are counted into sorted runs."""

    split: Split
    groups: list[str]
    """The group of each source, by its index; empty if `column` says it, or there is one group."""
    column: str
    """The kept column whose values are groups; "" if groups do not come from the documents."""
    table_bytes: int
    """Tables that have grown to so much memory are written as a run."""


class MeasureTask(TokenizerTask, tag="measure", frozen=True, kw_only=True):
    """What a tokenizer makes of documents is added up."""

    control_tokens: bool
    num_around: int
    """Tokens that a build puts around a document."""
    words: str
    """The rule by which texts are cut into words."""
    sequence_lengths: list[int]
    groups: list[str]
    """The group of each source, by its index; empty if `column` says it, or there is one group."""
    column: str
    """The kept column whose values are groups; "" if groups do not come from the documents."""
    offsets_share: float
    """Of the documents that tokens do not spell, how many are encoded again with offsets."""


Task = EncodeTask | CountTask | MeasureTask


def too_many_groups(what: str) -> DataError:
    """The error for a column that has a value for each document or so."""
    return DataError(
        f"there are more than {MAX_GROUPS:,} groups",
        why=f"{what!r} has too many values",
        hint="group by a column with few values, as a language or a domain",
    )
