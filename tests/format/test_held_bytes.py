"""What batches take that are held together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_fragment.arrays import sizes
from lsm_fragment.arrays.sizes import HeldBytes, cumulative_bytes, take_at_most, total_bytes
from lsm_fragment.arrays.storage import decoded, to_storage
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array


def test_a_dictionary_that_batches_share_counts_once() -> None:
    values = pa.array([f"a long value, number {number}" for number in range(1000)])
    codes = pa.array([number % 1000 for number in range(4000)], pa.int32())
    batch = pa.record_batch({"n": codes, "v": pa.DictionaryArray.from_arrays(codes, values)})
    held = HeldBytes()
    added = [held.add(batch.slice(start, 1000)) for start in range(0, 4000, 1000)]
    assert added == [8000 + values.nbytes, 8000, 8000, 8000]
    assert sum(added) == batch.nbytes
    assert HeldBytes().add(batch.slice(0, 1)) == 8 + values.nbytes


@loops("name", SAMPLES)
def test_the_sum_of_all_rows_is_what_they_take_one_by_one(name: str) -> None:
    array = to_storage(sample_array(name, 40))
    for part in (array, array.slice(3, 30), array.slice(5, 0)):
        assert total_bytes(part) == cumulative_bytes(part)[-1]
        if pa.types.is_dictionary(part.type):
            assert cumulative_bytes(part).tolist() == cumulative_bytes(decoded(part)).tolist()


def test_codes_are_read_only_if_the_heaviest_value_for_every_row_would_be_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coded = pa.array(["a", "a", "a", "heavy"]).dictionary_encode()
    plain = pa.array([1, 2, 3, 4])
    exact = total_bytes(coded) + total_bytes(plain)
    assert take_at_most([coded, plain], exact)
    assert not take_at_most([coded, plain], exact - 1)
    monkeypatch.setattr(sizes, "dictionary_codes", None)
    assert take_at_most([coded, plain], 4 * (4 + len("heavy") + 1) + total_bytes(plain))
