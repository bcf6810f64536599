"""Lists of fixed size within such lists keep their values on every way in, which Arrow's `take` changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import IngestOptions, Table
from compactor.rows.policy import RowKind, RowPolicy
from compactor.table.metadata import TimeWindows

MATRIX = pa.list_(pa.list_(pa.int64(), 1), 2)
KINDS = {
    "a matrix": (MATRIX, lambda n: [[n], [n + 100]]),
    "three deep": (pa.list_(pa.list_(pa.list_(pa.float32(), 2), 1), 2), lambda n: [[[n, 1]], [[2, n]]]),
    "in a struct": (pa.struct([("m", MATRIX)]), lambda n: {"m": [[n], [n + 100]]}),
    "in lists": (pa.list_(MATRIX), lambda n: [[[n], [n + 100]]] * (n % 3)),
    "in a map": (pa.map_(pa.string(), MATRIX), lambda n: [("a", [[n], [n + 100]])]),
    "of size 0": (pa.list_(pa.list_(pa.int64(), 0), 2), lambda _: [[], []]),
    "some null": (MATRIX, lambda n: None if n % 4 == 0 else [[n], [n + 100]]),
}  # fmt: skip
WAYS: dict[str, tuple[bool, IngestOptions]] = {
    "a slice": (False, IngestOptions()),
    "several fragments": (False, IngestOptions(rows_per_fragment=7)),
    "a Parquet file": (True, IngestOptions(rows_per_fragment=7)),
    "time windows": (False, IngestOptions(windows=TimeWindows("k", 5 * 86_400))),
    "the last row of a key": (False, IngestOptions(rows=RowPolicy(RowKind.LAST))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_fixed_size_within_such_lists_keep_their_values(
    kind: str, way: str, tmp_path: Path
) -> None:
    dtype, value = KINDS[kind]
    make: Callable[[int], Any] = value
    days = pa.array([(7 * n) % 20 for n in range(20)], pa.int32()).view(pa.date32())
    rows = pa.table({"k": days, "v": pa.array([make(n) for n in range(20)], dtype)}).slice(1)
    is_file, options = WAYS[way]
    source: Any = rows
    if is_file and kind != "of size 0":  # Arrow's reader of Parquet divides by it
        source = tmp_path / "in.parquet"
        pq.write_table(rows, source)
    table = Table.create(tmp_path / "t", source, "k", options)
    expected = sorted(rows.to_pylist(), key=lambda row: row["k"])
    assert table.scan().to_table().to_pylist() == expected
    assert not table.verify().faults
