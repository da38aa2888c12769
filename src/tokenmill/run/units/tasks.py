"""The tasks of units: one tagged struct for each, sent to workers as JSON with the `Setup`.

To add a task:

1. Add a struct with its own tag here, and add it to `Task`. It holds what the worker needs in
   addition to the `Setup`, as numbers, names and paths, never as objects.
2. Add a module in this package with two classes. A `TaskRunner` loads once what a worker needs. A
   `UnitTask` runs one unit: it gets groups of documents and returns files. Reading, digests,
   counts, timing, audits and error reports are the `UnitAttempt`'s job (`attempt.py`).
3. Add a case to `load_task` (`unit.py`).
4. Add a main path next to `run/build.py` that prepares the inputs (`run/start/inputs.py`), runs all
   units (`Job` in `run/job.py`), and uses the files that the receipts name.
"""

from __future__ import annotations

import msgspec

from tokenmill.core.errors import DataError
from tokenmill.encode.words.splits import Split
from tokenmill.store.policies import EncodePolicies


class TokenizerTask(msgspec.Struct, frozen=True, kw_only=True):
    """The description of the tokenizer for all tasks that use one."""

    tokenizer_dir: str
    tokenizer_kind: str
    tokenizer_source: str
    """The description that creates a Python tokenizer in a worker. "" for other tokenizers."""
    encoding: str
    largest_id: int
    unk_id: int | None


class EncodeTask(TokenizerTask, tag="encode", frozen=True, kw_only=True):
    """Encode documents into a shard."""

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
    """Whether the EOS has loss if the build adds it to a conversation."""


LARGEST_HASH = 2**32 - 1
"""The largest hash of a word. Splitters return hashes of words in the exam."""
MAX_GROUPS = 4_096
NO_VALUE = "(none)"
"""The group of documents with no value, or an empty value, in the column."""
RUN_PREFIX = "words-"
"""The prefix of the parts of a unit that are sorted runs of words. A number follows."""


class CountTask(msgspec.Struct, tag="count", frozen=True, kw_only=True):
    """Count the words of documents into sorted runs."""

    split: Split
    groups: list[str]
    """The group of each source by index. Empty if groups come from `column`, or there is one."""
    column: str
    """The kept column with the groups. "" if groups do not come from the documents."""
    table_bytes: int
    """The memory at which tables are written as a run."""


class MeasureTask(TokenizerTask, tag="measure", frozen=True, kw_only=True):
    """Measure how a tokenizer encodes documents."""

    control_tokens: bool
    num_around: int
    """The number of boundary tokens that a build adds to a document."""
    words: str
    """The rule that cuts texts into words."""
    sequence_lengths: list[int]
    groups: list[str]
    """The group of each source by index. Empty if groups come from `column`, or there is one."""
    column: str
    """The kept column with the groups. "" if groups do not come from the documents."""
    offsets_share: float
    """The share of documents to encode again with offsets, among those whose tokens do not spell
    their text."""


Task = EncodeTask | CountTask | MeasureTask


def too_many_groups(what: str) -> DataError:
    """Return the error for a column with too many values."""
    return DataError(
        f"there are more than {MAX_GROUPS:,} groups",
        why=f"{what!r} has too many values",
        hint="group by a column with few values, such as a language or a domain",
    )
