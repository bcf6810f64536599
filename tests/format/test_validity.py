"""What arrays hold that their types do not allow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment import native
from lsm_fragment.arrays import validity
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.arrays.validity import ValueCheck, check_values
from tests.support.wording import refuses

NO_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
)


def _coded(codes: list[int | None], dictionary: pa.Array) -> pa.RecordBatch:
    indices = pa.array(codes, pa.int32())
    array = pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
    return pa.record_batch({"v": array})


def test_a_dictionary_that_batches_share_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[pa.Array] = []
    monkeypatch.setattr(validity, "check_values", looked_at.append)
    check, dictionary = ValueCheck(), pa.array(["a", "b"])
    batch = _coded([0, 1, None, 1], dictionary)
    for start in range(4):
        check.check(batch.slice(start, 1))
    assert len(looked_at) == 1
    check.check(_coded([0], pa.array(["c", "d"])))
    assert len(looked_at) == 2


def test_a_dictionary_that_comes_later_is_looked_at_too() -> None:
    check = ValueCheck()
    check.check(_coded([0, None], pa.array(["a"])))
    with pytest.raises(ValueError, match="column 'v': Invalid UTF8"):
        check.check(_coded([0], NO_TEXT))


@pytest.mark.parametrize("code", [-1, 2, 1000])
def test_a_code_without_a_value_is_refused_in_any_batch(code: int) -> None:
    check, dictionary = ValueCheck(), pa.array(["a", "b"])
    check.check(_coded([0, 1, None], dictionary))
    check.check(_coded([None], dictionary))
    with refuses(ValueError):
        check.check(_coded([0, code], dictionary))


@pytest.mark.parametrize("outer", [pa.list_(pa.uuid(), 2), pa.list_(pa.uuid())])
def test_lists_of_extensions_may_be_null(outer: pa.DataType) -> None:
    storage = pa.array([[bytes(16)] * 2, None], storage_type(outer))
    ValueCheck().check(pa.record_batch({"v": to_logical(storage, outer)}))


@given(
    st.lists(st.none() | st.text(max_size=20) | st.text("ab", max_size=40)),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 3),
)
def test_text_passes_whether_it_is_ascii_or_not(
    texts: list[str | None], dtype: pa.DataType, start: int
) -> None:
    array = pa.array(texts, dtype).slice(start)
    check_values(array)
    if len(array):
        offsets, data = binary_parts(array)
        is_ascii = all(text is None or text.isascii() for text in texts[start:])
        assert native.arrays.text.are_ascii(offsets, native.as_bytes(data)) == is_ascii


def test_bytes_that_are_no_text_are_refused_wherever_they_are() -> None:
    for data in (b"abc\xff", b"\x80abc", b"ab\xc3\xa9"):
        offsets = np.array([0, 1, 3, 4], np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        with pytest.raises(ValueError, match="Invalid UTF8"):
            check_values(pa.Array.from_buffers(pa.string(), 3, buffers))


def test_offsets_that_fall_are_no_text() -> None:
    for offsets in ([0, 3, 1, 4], [0, 1, 9, 4], [0, -1, 3, 4]):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abcd")]
        array = pa.Array.from_buffers(pa.string(), 3, buffers)
        with pytest.raises(ValueError, match="ffset"):
            check_values(array)
