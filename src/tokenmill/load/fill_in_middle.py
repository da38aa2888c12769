"""Fill-in-the-middle: the model sees the start and the end of a text and predicts its middle.

As in M. Bavarian et al.: Efficient Training of Language Models to Fill in the Middle, 2022
(arXiv 2207.14255). It cuts segments of a row: a document, or the part of it in the row ("context
level" in the paper). So packing never separates a sentinel from its text. A segment grows by up to
four tokens, and the plan reserves positions for them.

Whether and where a segment is cut depends only on the seed, the source, the epoch, the sequence and
the segment, not on the order of reading, the ranks or the workers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.engine import Reference
from tokenmill.kernels import infilling as kernel
from tokenmill.kernels.infilling import Cutting, Sentinels
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.load.rows.provenance import AS_STORED, OUTCOMES, Layout, outcome
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.load.steps.state import decoded
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import open_reference

Share = Annotated[float, Meta(ge=0, le=1)]
Token = Annotated[str, Meta(min_length=1)] | Annotated[int, Meta(ge=0, lt=2**31)] | None
Names = tuple[str | int | None, str | int | None, str | int | None, str | int | None]
"""Prefix, middle and suffix, and the token that ends the middle if it is not EOS."""

KNOWN: dict[str, Names] = {
    "StarCoder": ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", None),
    "SantaCoder": ("<fim-prefix>", "<fim-middle>", "<fim-suffix>", None),
    "Qwen2.5-Coder": ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", None),
    "Code Llama": ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"),
    "DeepSeek-Coder": ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>", None),
}
"""The sentinels of known models."""
LEAST_PLACES = 3
"""Positions that a segment needs for three sentinels; a fourth is for the end of the middle."""
CUTS_ROWS = "the curriculum cuts rows, which would separate sentinels from their text"
OUTCOME_NAMES = {AS_STORED, *OUTCOMES.values()}
PURPOSE = 0x46494D
"""Makes these draws independent of others with the same seed."""


class FillInMiddle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of fill-in-the-middle: how often to cut a text, and the tokens that mark its parts.

    Give tokens by id, or by content if the dataset's tokenizer has them. Without any, tokenmill
    uses those of StarCoder, SantaCoder, Qwen2.5-Coder, Code Llama or DeepSeek-Coder if the
    tokenizer has them.
    """

    rate: Share = 0.5
    """Share of segments to cut. The others do not change."""
    spm_share: Share = 0.5
    """Share of cut segments in which the suffix comes first (SPM)."""
    prefix: Token = None
    middle: Token = None
    suffix: Token = None
    end: Token = None
    """Token that ends the middle, before the document's EOS. None: EOS ends it, also at a cut."""

    @staticmethod
    def of_identity(identity: Any) -> FillInMiddle:
        """Return the options of an `Infilling` with this identity.

        Raises:
            UserError: it is not one.
        """
        named = {name: value for name, value in dict(identity).items() if name != "eos"}
        if named.get("end") == -1:
            del named["end"]
        return decoded(named, FillInMiddle, "a loader")


class Infilling:
    """Applies fill-in-the-middle to the rows of readers, one for each source.

    Raises:
        UserError: a plan reserves no positions for sentinels, or its rows cannot be cut, or the
            tokenizer does not have the sentinels.
    """

    def __init__(self, rule: FillInMiddle, readers: list[RowReader], seed: int) -> None:
        for reader in readers:
            _check_plan(reader)
        self._rule, self._seed = rule, seed
        named = (rule.prefix, rule.middle, rule.suffix, rule.end)
        self.sentinels: Sentinels = find_sentinels(readers[0].dataset, named)

    @property
    def identity(self) -> dict[str, float | int]:
        """The settings that batches depend on, shares and ids, as plain values."""
        shares = {"rate": self._rule.rate, "spm_share": self._rule.spm_share}
        return {**shares, **self.sentinels._asdict()}

    def apply(
        self,
        reader: RowReader,
        content: tuple[Rows, Layout],
        drawn_from: tuple[Int64Array, Int64Array, int],
    ) -> tuple[Rows, Layout]:
        """Return the rows of a reader with some of their segments cut.

        `drawn_from` is what the random draws depend on: sequences, epochs and the source.

        Raises:
            VerificationError: segments with their reserved positions do not fit in a row.
        """
        rows, layout = content
        rules = reader.rules
        cutting = Cutting(
            float(self._rule.rate),  # an int would make Numba compile again
            float(self._rule.spm_share),
            self.sentinels,
            reader.plan.rows.reserved,
            len(reader.dataset.manifest.tokenizer.prefix_ids),
        )
        segments = (
            *(layout.rows, layout.columns, layout.starts, layout.lengths),
            *(layout.document_lengths, layout.kinds),
            reader.has_no_loss(layout).astype(np.int64),
        )
        ids, flags = np.empty_like(rows.ids), np.empty_like(rows.flags)
        labels = np.empty_like(rows.labels) if rules.own_labels else ids
        placed = np.stack([layout.columns, layout.kinds])
        fits = kernel.rewrite(
            ((rows.ids, rows.labels, rows.flags), (ids, labels, flags)),
            np.stack(segments),
            placed,
            self._draws(layout, *drawn_from),
            rules,
            cutting,
        )
        if not fits:
            raise reader.damaged("a sequence with its reserved positions is longer than its row")
        cut = Rows(ids, labels, flags, rows.aligned)
        return cut, replace(layout, columns=placed[0], kinds=placed[1])

    def count(self, layout: Layout, counts: Counter[str]) -> None:
        """Add the outcomes of the segments of these rows to counts."""
        bits = layout.kinds & sum(OUTCOMES)
        for kind, number in zip(*np.unique(bits, return_counts=True), strict=True):
            counts[outcome(int(kind))] += int(number)

    def _draws(
        self, layout: Layout, sequences: Int64Array, epochs: Int64Array, source: int
    ) -> npt.NDArray[np.uint64]:
        """Return four draws for each segment, shape (num_segments, 4)."""
        key = int(keyed_hash(np.array([PURPOSE], np.uint64), self._seed)[0])
        keys = keyed_hash(sequences.astype(np.uint64), key)
        keys = keyed_hash(keys + (epochs + (np.int64(source) << 48)).astype(np.uint64), key)
        keys = keyed_hash(keys[layout.rows] + layout.documents.astype(np.uint64), key)
        keys = keyed_hash(keys + layout.starts.astype(np.uint64), key)
        numbered = np.repeat(keys, 4) + np.tile(np.arange(4, dtype=np.uint64), len(keys))
        return keyed_hash(numbered, key).reshape(-1, 4)


def _check_plan(reader: RowReader) -> None:
    where, targets = str(reader.plan.folder), reader.targets
    planned = reader.plan.rows
    problem = ""
    if targets.across_documents:
        problem = "with across_documents, a document would predict a sentinel of the next document"
    elif targets.without_prefix:
        problem = "without_prefix excludes the first tokens of a document, and they would move"
    elif reader.rules.overlap:
        problem = "tokens repeated by windows are excluded from the loss, and they would move"
    elif planned.joins_ends:
        problem = "with keep-both-ends, a long document is two segments of one text"
    if problem:
        raise UserError("cannot fill in the middle of these rows", where=where, why=problem)
    if planned.reserved < LEAST_PLACES:
        raise UserError(
            "the plan does not reserve enough positions for sentinels",
            where=where,
            why=f"it reserves {planned.reserved} for each segment; three sentinels, and an EOS if "
            "the document was cut, need 4",
            hint="make a plan with tokenmill pack --reserve 4 (--name sets its name)",
        )


def find_sentinels(dataset: Dataset, named: Names) -> Sentinels:
    """Return the ids of the `named` tokens (prefix, middle, suffix, end), or of a known model's.

    The tokenizer is opened only if an id has to be looked up.

    Raises:
        UserError: only some tokens are named, the tokenizer does not have a token, or two parts
            have the same token.
    """
    given = [name for name in named[:3] if name is not None]
    if given and len(given) < 3:
        why = "prefix, middle and suffix must be given together"
        raise UserError("some sentinels are missing", why=why)
    reference = None
    if not given or any(isinstance(name, str) for name in named):
        reference = open_reference(dataset)
    if reference is not None and not given:
        known = _of_a_known_model(reference, dataset)
        named = (*known[:3], known[3] if named[3] is None else named[3])
    ids = [-1 if name is None else _id_of(name, reference, dataset) for name in named]
    if len(set(ids)) < 4:
        raise UserError("the sentinels must be different tokens", why=f"their ids are {ids}")
    prefix, middle, suffix, end = ids
    return Sentinels(prefix, middle, suffix, end, dataset.manifest.tokenizer.eos_id)


def _of_a_known_model(reference: Reference, dataset: Dataset) -> Names:
    for names in KNOWN.values():
        if all(reference.token_id(str(name)) is not None for name in names[:3]):
            return names
    models = ", ".join(KNOWN)
    raise UserError(
        "the tokenizer has no known sentinels for fill-in-the-middle",
        where=dataset.location,
        why=f"it does not have the tokens of {models}",
        hint="name them, by content or id: FillInMiddle(prefix=..., middle=..., suffix=...)",
    )


def _id_of(name: str | int, reference: Reference | None, dataset: Dataset) -> int:
    if isinstance(name, int):
        largest = dataset.manifest.tokenizer.largest_id
        if name > largest:
            why = f"the largest id of the tokenizer is {largest}"
            raise UserError(f"no token has the id {name}", where=dataset.location, why=why)
        return name
    assert reference is not None
    found = reference.token_id(name)
    if found is None:
        hint = "give another token, or its id"
        raise UserError(f"the tokenizer has no token {name!r}", where=dataset.location, hint=hint)
    return found
