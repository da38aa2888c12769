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

from tokenmill.store.policies import EncodePolicies


class EncodeTask(msgspec.Struct, tag="encode", frozen=True, kw_only=True):
    """Documents become tokens in a shard."""

    policies: EncodePolicies
    validation: float
    """The share of documents in the validation subset."""
    tokenizer_dir: str
    tokenizer_kind: str
    tokenizer_source: str
    """What makes a Python tokenizer in a worker process; "" for all others."""
    encoding: str
    largest_id: int
    prefix: list[int]
    eos_id: int
    unk_id: int | None
    special_tokens: list[str]

    @property
    def control_tokens(self) -> bool:
        """Whether special tokens inside text are control tokens."""
        return self.policies.special_tokens == "control"


Task = EncodeTask
