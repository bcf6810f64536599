"""What arrays hold that their types do not allow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from format import validity
from format.storage import to_logical
from format.types import storage_type
from format.validity import ValueCheck
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
