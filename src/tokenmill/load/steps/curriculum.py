"""Curricula: the sequences and the row length of each step.

A curriculum is a list of phases. A phase orders the sequences that earlier phases have not used: by
a key (short to long, shallow to deep, easy to hard by a document column), or at random. It can also
cut rows shorter, with the same number of tokens per step. A phase added during training is part of
the state, so a resumed run continues with exactly the same batches:

    phases  [0: by length] [100: shuffled]      steps 0 to 99 take the shortest sequences; from
                                                step 100 on, the rest follows in shuffled order
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import UserError
from tokenmill.core.records import FloatArray, Int64Array
from tokenmill.kernels.rows import IGNORE_INDEX, RESTART, TARGET
from tokenmill.load.rows.reader import Rows
from tokenmill.load.steps.order import Steps, banded, sequence_keys, shuffled, steps_of
from tokenmill.load.steps.schedule import GlobalBatch, OrderIdentity, Schedule, only_row_length
from tokenmill.load.steps.state import decoded, refuse_another
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

STATE_VERSION = 1


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The order and row length of a curriculum from one step on."""

    first_step: int = 0
    by: str | None = None
    """Key to order sequences by: "length", "depth" or a column. None: shuffled."""
    descending: bool = False
    bands: int = 100
    """Number of bands of the key. Sequences are shuffled inside each band."""
    row_length: int | None = None
    """Tokens in a row, to cut rows shorter than the sequences of the plan."""


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    batch_size: int
    order: str
    """Digest of the shuffled epoch. It changes with the plan, the seed and the epoch."""
    phases: list[Phase]


class Curriculum:
    """The order of sequences in one epoch, by phases. Pass it to `Dataset.batches`.

    `Curriculum.of_plan` creates one for a plan.

    Args:
        order: the shuffled sequences of the epoch, shape (num_sequences,).
        keys: returns the values of a key for all sequences.
        batch_size: sequences of the plan in a step, over all ranks.
        phases: the phases, sorted by their first step.
        steps: steps that the plan defines. Their sequences stay together.
    """

    def __init__(
        self,
        order: Int64Array,
        keys: Callable[[str], FloatArray],
        batch_size: int,
        phases: tuple[Phase, ...] = (Phase(),),
        steps: Steps | None = None,
    ) -> None:
        size = 1 if steps is None else steps.size
        if batch_size < 1 or batch_size % size:
            rule = "at least 1" if size == 1 else f"a multiple of {size}, the ranks of the plan"
            raise UserError(f"batch_size must be {rule}", why=f"got {batch_size}")
        self._order, self._keys, self.batch_size = order, keys, batch_size
        self._steps = steps
        self.plan_id = ""
        """Id of the plan, if the curriculum was created from one."""
        self.revision = 0
        """Number of times that phases were added."""
        self._phases: list[Phase] = []
        self._orders: list[Int64Array] = []
        self._set_phases(phases)

    @staticmethod
    def of_plan(
        plan: Plan,
        dataset: Dataset,
        batch_size: int,
        phases: tuple[Phase, ...] = (Phase(),),
        *,
        seed: int = 0,
        epoch: int = 0,
    ) -> Curriculum:
        """Return the curriculum for one epoch of a plan."""
        made = Curriculum(
            shuffled(plan, seed, epoch),
            partial(sequence_keys, plan, dataset=dataset),
            batch_size,
            phases,
            steps_of(plan),
        )
        made.plan_id = plan.manifest.plan_id
        return made

    @property
    def num_sequences(self) -> int:
        """Number of sequences in the epoch."""
        return len(self._order)

    @property
    def num_steps(self) -> int:
        """Number of complete steps in the epoch."""
        return len(self._order) // self.batch_size

    def change(self, phase: Phase) -> None:
        """Add a phase that begins after all others.

        Raises:
            UserError: the phase does not begin later, or the first phase does not begin at 0.
        """
        last = self._phases[-1].first_step if self._phases else -1
        if phase.first_step <= last or (not self._phases and phase.first_step):
            raise UserError(
                "a phase starts at the wrong step",
                why=f"it starts at step {phase.first_step}, and the previous one at {last}"
                if self._phases
                else f"the first phase starts at step {phase.first_step}",
                hint="start the first phase at step 0, and each phase after the previous one",
            )
        if phase.bands < 1 or (phase.row_length is not None and phase.row_length < 1):
            raise UserError("bands and row_length of a phase must be at least 1")
        rest = self._order
        if self._phases:
            used = (phase.first_step - last) * self.batch_size
            left = np.zeros(len(self._order), np.bool_)
            left[self._orders[-1][used:]] = True
            rest = self._order[left[self._order]]
        if phase.by is not None:
            keys = self._keys(phase.by)
            keys = -keys if phase.descending else keys
            rest = banded(rest, keys, phase.bands, self._steps)
        self._orders.append(rest)  # first: another thread may be asking for a step
        self._phases.append(phase)
        self.revision += 1

    def batch(self, step: int) -> Int64Array:
        """Return the sequences of a step, shape (batch_size,). They depend only on the phases.

        Raises:
            UserError: the epoch has no such step.
        """
        if not 0 <= step < self.num_steps:
            why = f"the epoch has {self.num_steps} steps of {self.batch_size} sequences"
            raise UserError(f"step {step} does not exist", why=why)
        number = self._phase_of(step)
        first = (step - self._phases[number].first_step) * self.batch_size
        return self._orders[number][first : first + self.batch_size]

    @property
    def row_lengths(self) -> list[int]:
        """The row lengths that phases set."""
        return [phase.row_length for phase in self._phases if phase.row_length is not None]

    def row_length(self, step: int) -> int | None:
        """Return the tokens in a row in this step, or None for the length of the plan."""
        return self._phases[self._phase_of(step)].row_length

    def state_dict(self) -> dict[str, Any]:
        """Return the phases. With the plan, the seed and the step they determine every batch."""
        state = _State(
            version=STATE_VERSION,
            batch_size=self.batch_size,
            order=self._order_digest,
            phases=self._phases,
        )
        values: dict[str, Any] = msgspec.to_builtins(state)
        return values

    @cached_property
    def _order_digest(self) -> str:
        """Digest of the shuffled epoch. It is cached because every checkpoint needs it."""
        return xxhash.xxh3_64_hexdigest(self._order.astype("<i8").data)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the phases by those of a state.

        Raises:
            UserError: the state is of another version, or damaged.
        """
        found, own = decoded(state, _State, "a curriculum"), self.state_dict()
        there = msgspec.structs.asdict(found)
        for settings in (there, own):
            del settings["phases"]
        refuse_another("curriculum", there, own)
        before = self._phases, self._orders
        try:
            self._set_phases(found.phases)
        except UserError:
            self._phases, self._orders = before
            raise

    def _set_phases(self, phases: Sequence[Phase]) -> None:
        if not phases:
            raise UserError("a curriculum needs at least one phase")
        self._phases, self._orders = [], []
        for phase in phases:
            self.change(phase)

    def _phase_of(self, step: int) -> int:
        starts = [phase.first_step for phase in self._phases]
        return int(np.searchsorted(starts, step, side="right")) - 1


class CurriculumSchedule(Schedule):
    """The steps of a curriculum: one epoch of a plan.

    Raises:
        UserError: the curriculum belongs to another plan, or cuts rows unevenly.
    """

    def __init__(self, plan: Plan, curriculum: Curriculum) -> None:
        if curriculum.plan_id != plan.manifest.plan_id:
            why = f"it was made for {curriculum.plan_id or 'none'}, not {plan.manifest.plan_id}"
            hint = "create it with Curriculum.of_plan(plan, dataset, ...)"
            raise UserError("the curriculum belongs to another plan", why=why, hint=hint)
        self._curriculum = curriculum
        self._row_length = only_row_length(plan)
        for length in curriculum.row_lengths:
            if self._row_length % length:
                why = f"{self._row_length} is not a multiple of {length}"
                raise UserError("cannot cut the rows of a phase evenly", why=why)

    @property
    def num_steps(self) -> int | None:
        return self._curriculum.num_steps

    @property
    def row_counts(self) -> list[int]:
        """Number of sequences of the plan in a step, before they are cut."""
        return [self._curriculum.batch_size]

    @property
    def rows_left(self) -> int:
        return self._curriculum.num_sequences % self._curriculum.batch_size

    def batch(self, step: int) -> GlobalBatch | None:
        if step >= self._curriculum.num_steps:
            return None
        sequences = self._curriculum.batch(step)
        zeros = np.zeros_like(sequences)
        cut = self._curriculum.row_length(step)
        return GlobalBatch(zeros, sequences, zeros, self._row_length, cut)

    def identity(self) -> OrderIdentity:
        """Return nothing: the curriculum checks its own state."""
        return OrderIdentity()

    def progress(self, step: int) -> dict[str, Any]:  # noqa: ARG002 - phases know their steps
        """Return the phases. With the step, they determine every batch."""
        return {"curriculum": self._curriculum.state_dict()}

    def resume(self, step: int, progress: dict[str, Any]) -> None:  # noqa: ARG002
        """Load the phases of a state."""
        self._curriculum.load_state_dict(progress.get("curriculum", {}))

    def epochs(self, step: int) -> dict[str, float]:
        return {"epoch": step / max(self._curriculum.num_steps, 1)}

    @property
    def revision(self) -> int:
        return self._curriculum.revision


def shortened(rows: Rows, row_length: int) -> Rows:
    """Cut rows into shorter rows of `row_length` tokens each, without losing tokens.

    A segment that is cut begins at position 0 in its new row. If labels are aligned, its first
    token there has no label.

    Raises:
        UserError: the rows cannot be divided evenly into `row_length` tokens.
    """
    whole = rows.ids.shape[1]
    if whole % row_length:
        why = f"{whole} is not a multiple of {row_length}"
        raise UserError(f"cannot cut rows evenly into {row_length} tokens", why=why)
    shape = (-1, row_length)
    flags = rows.flags.reshape(shape).copy()
    flags[:, 0] |= RESTART
    ids, labels = rows.ids.reshape(shape), rows.labels.reshape(shape)
    if rows.aligned:
        flags[:, 0] &= ~TARGET
        if rows.labels is not rows.ids:
            labels = labels.copy()
            labels[:, 0] = IGNORE_INDEX
    return Rows(ids, ids if rows.labels is rows.ids else labels, flags, rows.aligned)
