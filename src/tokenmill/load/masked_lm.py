"""Masked language modelling: some tokens are hidden, and the model predicts them.

As in J. Devlin et al.: BERT, 2019 (arXiv 1810.04805): most chosen tokens become the mask token,
some become a random token, and some stay. The choice depends on the seed, the epoch, the sequence
and the position in it: each epoch masks other tokens, and a resumed run masks the same ones.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tokenmill.core.records import Int64Array
from tokenmill.kernels.batches import mask_row
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.kernels.rows import IGNORE_INDEX
from tokenmill.load.rows.reader import Rows

Share = Annotated[float, Meta(ge=0, le=1)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]


class MaskedLM(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masked language modelling: which tokens to mask, and how."""

    mask_id: TokenId
    vocab_size: Annotated[int, Meta(ge=1, le=2**31)]
    """Random replacement tokens are drawn from ids below this."""
    probability: Share = 0.15
    """Share of tokens to predict."""
    mask_share: Share = 0.8
    """Share of the predicted tokens that are replaced by the mask token."""
    random_share: Share = 0.1
    """Share of the predicted tokens that are replaced by a random token."""
    keep: tuple[TokenId, ...] = ()
    """Ids that are never masked, such as EOS."""


def mask_tokens(
    rows: Rows, origins: tuple[Int64Array, ...], seed: int, rule: MaskedLM
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return masked ids, and labels (IGNORE_INDEX if not predicted), in the dtype of the rows.

    `origins` are the sequence, the epoch, the first position in the sequence, and the source of
    each row, shape (num_rows,) each.
    """
    sequences, epochs, firsts, sources = origins
    keys = keyed_hash(sequences.astype(np.uint64), seed)
    keys = keyed_hash(keys + (epochs + (sources << 48)).astype(np.uint64), seed)
    places = np.arange(3 * rows.ids.shape[1], dtype=np.uint64)  # three draws for each token
    skipped = 3 * firsts.astype(np.uint64)
    ids, labels = rows.ids.copy(), np.full(rows.ids.shape, IGNORE_INDEX, rows.ids.dtype)
    kept = np.array(sorted(rule.keep), np.int64)
    shares = (rule.probability, rule.mask_share, rule.mask_share + rule.random_share)
    for row, key in enumerate(keys.tolist()):
        draws = keyed_hash(skipped[row] + places, key)
        others = (rule.mask_id, rule.vocab_size)
        mask_row((ids[row], labels[row], rows.flags[row]), draws, shares, others, kept)
    return ids, labels
