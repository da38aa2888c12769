"""Megatron's `.idx`, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.errors import VerificationError
from tokenmill.store.layout import pack_index, token_dtype, unpack_index

UINT16, INT32 = np.dtype("<u2"), np.dtype("<i4")

GOLDEN = bytes.fromhex(
    "4d4d494449445800 00"  # "MMIDIDX", two zero bytes
    "0100000000000000"  # version 1
    "08"  # uint16
    "0300000000000000"  # 3 sequences
    "0400000000000000"  # 4 document indices
    "02000000 01000000 04000000"  # tokens of each
    "0000000000000000 0400000000000000 0600000000000000"  # byte offsets
    "0000000000000000 0100000000000000 0200000000000000 0300000000000000"  # 0, 1, 2, 3
)


def test_three_documents_of_2_1_and_4_tokens_have_these_bytes() -> None:
    assert pack_index(np.array([2, 1, 4]), UINT16) == GOLDEN


@pytest.mark.parametrize("dtype", [UINT16, INT32], ids=str)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
@settings(deadline=None)
def test_what_is_packed_is_unpacked(dtype: np.dtype[np.integer], lengths: list[int]) -> None:
    packed = pack_index(np.array(lengths, np.int64), dtype)
    assert len(packed) == 42 + 20 * len(lengths)
    found_dtype, found = unpack_index(packed, "here")
    assert found_dtype == dtype
    assert found.dtype == np.int64
    assert found.tolist() == lengths


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_every_flipped_byte_is_seen_or_is_another_valid_index(place: int) -> None:
    """Only the last length can change alone: no offset follows from it."""
    flipped = bytearray(GOLDEN)
    flipped[place] ^= 0x40
    if 42 <= place < 46:
        assert unpack_index(bytes(flipped), "here")[1].tolist()[:2] == [2, 1]
    else:
        with pytest.raises(VerificationError, match="token index") as caught:
            unpack_index(bytes(flipped), "here")
        assert caught.value.where == "here"


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_a_truncated_index_is_refused(size: int) -> None:
    with pytest.raises(VerificationError, match="the file is not a token index"):
        unpack_index(GOLDEN[:size], "here")


def test_ids_take_two_bytes_where_all_of_them_fit() -> None:
    assert [token_dtype(largest) for largest in (0, 65_535, 65_536, 2**31 - 1)] == [
        UINT16, UINT16, INT32, INT32,
    ]  # fmt: skip
