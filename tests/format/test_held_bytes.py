"""What batches take that are held together."""

from __future__ import annotations

import pyarrow as pa

from format.sizes import HeldBytes


def test_a_dictionary_that_batches_share_counts_once() -> None:
    values = pa.array([f"a long value, number {number}" for number in range(1000)])
    codes = pa.array([number % 1000 for number in range(4000)], pa.int32())
    batch = pa.record_batch({"n": codes, "v": pa.DictionaryArray.from_arrays(codes, values)})
    held = HeldBytes()
    added = [held.add(batch.slice(start, 1000)) for start in range(0, 4000, 1000)]
    assert added == [8000 + values.nbytes, 8000, 8000, 8000]
    assert sum(added) == batch.nbytes
    assert HeldBytes().add(batch.slice(0, 1)) == 8 + values.nbytes
