"""Order by plain Python: what all vectorised ordering is held against."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lsm_fragment.keys.sort_schema import Nulls, Order, SortSchema


def compare_values(a: Any, b: Any) -> int:
    """Compares values that are not null by SPEC section 6. Returns -1, 0 or 1."""
    if isinstance(a, float) and isinstance(b, float) and (math.isnan(a) or math.isnan(b)):
        return int(math.isnan(a)) - int(math.isnan(b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return int(a > b) - int(a < b)


def compare_keys(a: Sequence[Any], b: Sequence[Any], sort: SortSchema) -> int:
    for x, y, column in zip(a, b, sort, strict=True):
        if column.order is Order.NONE:
            continue
        if x is None or y is None:
            if (x is None) != (y is None):
                null_sign = -1 if column.nulls is Nulls.FIRST else 1
                return null_sign if x is None else -null_sign
            continue
        result = compare_values(x, y)
        if result:
            return -result if column.order is Order.DESC else result
    return 0


def stable_sorted(table: pa.Table, sort: SortSchema) -> pa.Table:
    """Returns the table in sort order; rows of equal keys keep their order."""
    keys = list(zip(*(table[c.column].to_pylist() for c in sort), strict=True))

    def compare_rows(i: int, j: int) -> int:
        return compare_keys(keys[i], keys[j], sort)

    order: list[int] = sorted(range(len(keys)), key=functools.cmp_to_key(compare_rows))
    return pa.Table.from_batches(
        [pa.RecordBatch.from_arrays([_take(c, order) for c in table.columns], schema=table.schema)]
    )


def _take(column: pa.ChunkedArray, order: list[int]) -> pa.Array:
    values: list[Any] = column.to_pylist()
    return pa.array([values[i] for i in order], column.type)


def ordered_rows(table: pa.Table, key: str) -> list[dict[str, Any]]:
    """Returns the rows by a key; NaN as text, since it equals nothing."""
    is_nan = lambda value: isinstance(value, float) and math.isnan(value)  # noqa: E731
    rows = table.sort_by(key).to_pylist()
    return [{name: "NaN" if is_nan(v) else v for name, v in row.items()} for row in rows]
