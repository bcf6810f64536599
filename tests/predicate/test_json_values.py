"""Conditions on columns of JSON, which compare by value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from compactor.errors import UsageError
from compactor.predicate.parse import parse_where
from compactor.predicate.tree import matching
from tests.support.wording import refuses

TEXTS = ['"Rome"', '"caf\\u00e9"', "1", "1.0", "-2.5", "12345678901234567890", "true", "null",
         '["Rome",1,null]', '{"a":1}', "[]", '"1"', None]  # fmt: skip
SCHEMA = pa.schema([("x", pa.json_()), ("y", pa.json_()), ("s", pa.string()), ("n", pa.int32())])


def found(where: str) -> list[Any]:
    predicate = parse_where(where, SCHEMA)
    rows = len(TEXTS)
    columns = {
        "x": pa.array(TEXTS, pa.string()),
        "y": pa.array(TEXTS[::-1], pa.string()),
        "s": pa.array(["Rome"] * rows),
        "n": pa.array([1] * rows, pa.int32()),
    }
    holds = matching(predicate, columns, rows).to_pylist()
    return [text for text, holds_here in zip(TEXTS, holds, strict=True) if holds_here]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 'Rome'", ['"Rome"']),
        ("'Rome' = x", ['"Rome"']),
        ("x = 'café'", ['"caf\\u00e9"']),
        ("x = 1", ["1", "1.0"]),
        ("x = '1'", ['"1"']),
        ("x = 12345678901234567890.0", ["12345678901234567890"]),
        ("x < 0", ["-2.5"]),
        ("x BETWEEN 0 AND 2", ["1", "1.0"]),
        ("x > 'A'", ['"Rome"', '"caf\\u00e9"']),
        ("x = true", ["true"]),
        ("x IS TRUE", ["true"]),
        ("x = s", ['"Rome"']),
        ("n = x", ["1", "1.0"]),
        ("x IN ('Rome', 1, true)", ['"Rome"', "1", "1.0", "true"]),
        ("x IN ('Rome', NULL)", ['"Rome"']),
        ("x <> 'Rome'", [t for t in TEXTS if t not in ('"Rome"', "null", None)]),
        ("NOT x = 1", [t for t in TEXTS if t not in ("1", "1.0", "null", None)]),
        ("x IS NULL", [None]),
        ("x IS NOT NULL AND x = NULL", []),
        ("x LIKE 'Ro%'", ['"Rome"']),
        ("lower(x) = 'rome'", ['"Rome"']),
        ("TRY_CAST(x AS BIGINT) = 1", ["1", '"1"']),
        ("list_contains(x, 'Rome')", ['"Rome"', '["Rome",1,null]']),
        ("list_contains(x, 1)", ["1", "1.0", '["Rome",1,null]']),
        ("x = y", ["true"]),
        ("upper(s) = 'ROME' AND x = lower('ROME')", []),
    ],
)  # fmt: skip
def test_values_are_compared_with_those_of_their_kind(where: str, expected: list[Any]) -> None:
    assert found(where) == expected


def test_a_kind_that_json_lacks_is_refused() -> None:
    with refuses(UsageError):
        parse_where("x = DATE '2026-01-01'", SCHEMA)
    with refuses(UsageError):
        parse_where("x", SCHEMA)


def test_long_integers_are_compared_exactly() -> None:
    schema = pa.schema([("x", pa.json_()), ("d", pa.decimal128(38, 0))])
    numbers = [2**63 - 1, 2**63, 2**63 + 1]
    columns = {
        "x": pa.array([str(n) for n in numbers]),
        "d": pa.array([Decimal(2**63)] * 3, pa.decimal128(38, 0)),
    }
    holds = matching(parse_where("x = d", schema), columns, 3)
    assert holds.to_pylist() == [False, True, False]
