"""`CASE` and `COALESCE` of nested values, which are not left to Arrow's kernels."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.errors import ConfigError
from compactor.predicate.computed import Expression
from tests.support.wording import refuses

MATRIX = pa.list_(pa.list_(pa.int64(), 1), 2)
BATCH = pa.record_batch(
    {
        "a": pa.array([[[n], [n]] if n % 3 else None for n in range(9)], MATRIX),
        "b": pa.array([[[-n], [n]] for n in range(9)], MATRIX),
        "n": pa.array([None, *range(1, 9)], pa.int64()),
        "s": pa.array([{"x": n} for n in range(9)]),
    }
).slice(1)
A, B, N = (BATCH.column(name).to_pylist() for name in "abn")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("coalesce(a, b)", [one or other for one, other in zip(A, B, strict=True)]),
        ("coalesce(a, NULL, b)", [one or other for one, other in zip(A, B, strict=True)]),
        ("coalesce(NULL, b)", B),
        (
            "CASE WHEN n > 4 THEN a ELSE b END",
            [a if n > 4 else b for a, b, n in zip(A, B, N, strict=True)],
        ),
        ("CASE WHEN n > 4 THEN a END", [a if n > 4 else None for a, n in zip(A, N, strict=True)]),
        ("CASE WHEN TRUE THEN a ELSE b END", A),
        ("CASE WHEN n > 4 THEN s END", [{"x": n} if n > 4 else None for n in N]),
    ],
)
def test_nested_values_are_chosen_row_by_row(text: str, expected: list[object]) -> None:
    expression = Expression(text, BATCH.schema, "node 'x'")
    found = expression(BATCH)
    assert found.to_pylist() == expected
    assert found.type == expression.type


def test_nested_values_of_two_types_have_no_type_in_common() -> None:
    with refuses(ConfigError):
        Expression("coalesce(a, s)", BATCH.schema, "node 'x'")
