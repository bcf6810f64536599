"""Values at the bounds of their types, and texts that grow."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest

from compactor.errors import ConfigError, DataError
from compactor.predicate.computed import Expression
from compactor.predicate.holding import holding
from compactor.predicate.parse import parse_where
from compactor.predicate.tree import matching
from tests.support.wording import refuses


def value_of(text: str, values: pa.Array) -> list[Any]:
    batch = pa.record_batch({"v": values})
    found: list[Any] = Expression(text, batch.schema, "node 't'")(batch).to_pylist()
    return found


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pa.array(["1e39"]), "FLOAT"),
        (pa.array(["-1e400"]), "DOUBLE"),
        (pa.array(["1e400"]).dictionary_encode(), "DOUBLE"),
        (pa.array([1e308]), "FLOAT"),
        (pa.array([10**40], pa.decimal256(76, 0)), "FLOAT"),
    ],
)
def test_no_cast_makes_a_finite_value_infinite(values: pa.Array, dtype: str) -> None:
    assert value_of(f"TRY_CAST(v AS {dtype})", values) == [None]
    with refuses(pa.ArrowInvalid, "is beyond the values of"):
        value_of(f"CAST(v AS {dtype})", values)


def test_infinities_and_rounded_fractions_are_cast() -> None:
    texts = pa.array(["inf", "-Infinity", "0.1", None])
    assert value_of("CAST(v AS DOUBLE)", texts) == [math.inf, -math.inf, 0.1, None]
    assert value_of("CAST(v AS FLOAT)", pa.array([math.inf, 0.5])) == [math.inf, 0.5]


def test_a_float_too_large_for_a_fraction_is_rounded_to_itself() -> None:
    values = [1e308, -1e308, 2.0**52, 2.25, math.inf, None]
    rounded = [1e308, -1e308, 2.0**52, 2.3, math.inf, None]
    assert value_of("round(v, 1)", pa.array(values)) == rounded
    assert value_of("round(v, 30)", pa.array([3e38, 2.25], pa.float32())) == [
        pa.scalar(3e38, pa.float32()).as_py(),
        2.25,
    ]
    assert value_of("round(1e308, 1)", pa.array([1])) == [1e308]


@pytest.mark.parametrize("new", [r"\9", r"\x"])
def test_a_wrong_replacement_is_found_before_rows_are_read(new: str) -> None:
    schema = pa.schema([("v", pa.string())])
    with refuses(ConfigError, "Invalid replacement string"):
        Expression(f"regexp_replace(v, '(a)b', '{new}')", schema, "node 't'")
    assert value_of(r"regexp_replace(v, '(a)b', '\1')", pa.array(["ab"])) == ["a"]


@pytest.mark.parametrize("dtype", [pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin")])
@pytest.mark.parametrize(
    "time",
    [
        "timestamptz '2024-03-31 00:30:00-02:00'",
        "'2024-03-31T02:30:00Z'",
        "'2024-03-31 02:30:00'",
    ],
)
def test_a_time_with_a_zone_compares_as_an_instant(dtype: pa.DataType, time: str) -> None:
    start = datetime(2024, 3, 31, 2, 29, 59)
    rows = {
        "t": pa.array([start, start + timedelta(seconds=1)]).cast(pa.timestamp("us")).cast(dtype)
    }
    where = parse_where(f"t >= {time}", pa.schema([("t", dtype)]))
    assert matching(where, rows, 2).to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("lpad(v, 1000000, 'x')", 1_000_000),
        ("rpad(v, length(v) * 10000)", 1_000_000),
        ("replace(v, 'a', lpad('', 10000, 'y'))", 1_000_000),
        ("replace(v, left(v, 1), lpad('', 10000, 'y'))", 1_000_000),
        ("regexp_replace(v, 'a', lpad('', 10000, 'y'), 'g')", 1_000_000),
        ("regexp_replace(v, 'a+', lpad('', 1000000, 'y'))", 1_000_000),
        ("concat(lpad('', 1000000, 'y'), v)", 1_000_100),
        ("concat_ws(lpad('', 1000000, 'y'), v, v)", 1_000_200),
    ],
)
def test_texts_too_large_together_are_computed_in_slices(text: str, length: int) -> None:
    values = pa.array(["a" * 100] * 80 + [None])
    assert value_of(f"length({text})", values) == [length] * 80 + [
        None if "concat" not in text else ANY
    ]
    where = parse_where(f"{text} = 'b'", pa.schema([("v", pa.string())]))
    assert matching(where, {"v": values[:80]}, 80).to_pylist() == [False] * 80


@pytest.mark.parametrize(
    "text",
    [
        "replace(v, 'a', v)",
        "replace(v, 'a', lpad('', 9000, 'y'))",
        "regexp_replace(v, 'a', lpad('', 9000, 'y'), 'g')",
    ],
)
def test_a_text_too_large_by_itself_is_an_error_of_its_row(text: str) -> None:
    schema = pa.schema([("v", pa.string())])
    rows = {"v": pa.array(["b", "a" * 100_000, "b"])}
    with refuses(DataError, "row 2"):
        holding(parse_where(f"{text} = 'x'", schema), rows, 3, lambda row: f"row {row + 1}")
