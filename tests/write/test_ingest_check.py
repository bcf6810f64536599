"""What is stored hashes as what came in, or nothing is committed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import lsm_fragment.arrays.batches
from compactor import IngestOptions, Table
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.table.metadata import TimeWindows
from compactor.write.ingest import sorting
from compactor.write.ingest.incoming import IngestCheckError
from lsm_fragment.arrays.moves import take as honest
from tests.support.wording import refuses

Take = Callable[[pa.Array, np.ndarray], pa.Array]
ROWS = pa.table(
    {
        "k": pa.array([5, 3, 3, 1, 4, 2], pa.int32()).view(pa.date32()),
        "tags": [["a"], ["b", "c"], None, [], ["d"], ["e"]],
        "n": [1, 2, 3, 4, 5, 6],
        "text": ["u", "v", "w", "x", "y", "z"],
    }
)
POLICIES = {
    "all rows": None,
    "the last row of a key": RowPolicy(RowKind.LAST),
    "rows of a key folded": RowPolicy(
        RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM), ("tags", RowFunction.FIRST))
    ),
}


def off_by_one(column: str) -> Take:
    """Returns a `take` that gives each row of a type the value of the row after."""

    def take(array: pa.Array, places: np.ndarray) -> pa.Array:
        if array.type == ROWS.schema.field(column).type:
            places = np.roll(places, 1)
        return honest(array, places)

    return take


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("column", ["tags", "text"])
def test_a_gather_that_mixes_up_values_is_found_before_anything_is_committed(
    column: str, policy: RowPolicy | None, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, take = IngestOptions(rows=policy), off_by_one(column)
    monkeypatch.setattr(sorting, "take", take)
    monkeypatch.setattr(
        sorting, "take_columns", lambda arrays, places: {n: take(a, places) for n, a in arrays}
    )
    with refuses(IngestCheckError):
        Table.create(tmp_path / "t", ROWS, "k", options)
    assert not Table.exists(tmp_path / "t")


def test_rows_that_are_mixed_up_between_windows_are_found(tmp_path, monkeypatch) -> None:
    def take(array: pa.Array, places: np.ndarray) -> pa.Array:
        return honest(array, np.zeros_like(places) if pa.types.is_list(array.type) else places)

    options = IngestOptions(windows=TimeWindows("k", 3 * 86_400))
    monkeypatch.setattr(lsm_fragment.arrays.batches, "take", take)
    with refuses(IngestCheckError):
        Table.create(tmp_path / "t", ROWS, "k", options)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_what_row_policies_leave_out_and_compute_is_not_taken_for_a_fault(
    policy: RowPolicy | None, tmp_path
) -> None:
    table = Table.create(tmp_path / "t", ROWS, "k", IngestOptions(rows=policy))
    table.append(ROWS.slice(1, 4))
    assert not table.verify().faults
    if policy is not None:
        assert table.scan().to_table().num_rows == 5
