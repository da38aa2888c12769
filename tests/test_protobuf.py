"""The wire format of protocol buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.encode.words.sentencepiece import read_fields, write_field

VALUES = st.integers(0, 2**64 - 1) | st.binary(max_size=300) | st.floats(width=32, allow_nan=False)


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), VALUES)))
def test_fields_are_read_as_they_were_written(fields):
    assert list(read_fields(b"".join(write_field(*each) for each in fields))) == fields


def test_fields_of_the_documentation():
    assert write_field(1, 150) == b"\x08\x96\x01"
    assert write_field(2, b"testing") == b"\x12\x07testing"


@pytest.mark.parametrize(
    "data", [b"\x08", b"\x08\x80", b"\x12\x07test", b"\x0b", b"\x0d\0", b"\xff" * 20]
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError, match="at byte"):
        list(read_fields(data))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data):
    try:
        list(read_fields(data))
    except ValueError:
        pass
