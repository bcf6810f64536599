"""Numbers and times of conditions, against Python's exact ones."""

from __future__ import annotations

import decimal
import operator
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.predicate.numbers import comparison, exactly, in_units
from compactor.predicate.parse import parse_where
from compactor.predicate.times import time_units
from compactor.predicate.tree import Compare, IsIn, Op, matching
from tests.support.wording import refuses

OPERATORS = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
NUMBERS = st.sampled_from(
    ["0", "1", "-1", "1.00", "1.005", "0.995", "-1.001", "127", "127.5", "128", "255.0000000001",
     "1e90", "-1e90", "99.99", "1e999999999", "-1e-999999999", "9223372036854775807.5",
     "1.0000000000000000000000000000000001"]
).map(Decimal)  # fmt: skip


@given(
    st.sampled_from(
        [pa.int8(), pa.uint8(), pa.int64(), pa.decimal32(4, 2), pa.decimal128(20, 2), pa.decimal256(60, 30)]
    ),
    st.sampled_from(list(Op)),
    NUMBERS,
)  # fmt: skip
def test_a_number_of_any_scale_and_size_is_compared_as_it_is(
    dtype: pa.DataType, op: Op, number: Decimal
) -> None:
    values = pa.array([Decimal(text) for text in ("0", "1", "2", "99")]).cast(dtype)
    predicate = comparison("n", dtype, op, in_units(number, dtype))
    assert predicate.value.type == dtype
    expected = [OPERATORS[op](Decimal(value), number) for value in values.to_pylist()]
    assert matching(predicate, {"n": values}, 4).to_pylist() == expected


def test_values_of_a_set_are_of_the_columns_type() -> None:
    schema = pa.schema({"price": pa.decimal128(18, 2), "x": pa.float32()})
    condition = parse_where("price IN (100, 1.0, 1.005, 1e90)", schema)
    assert isinstance(condition, IsIn)
    assert condition.values == pa.array([Decimal("100.00"), Decimal("1.00")], schema[0].type)
    assert parse_where("price IN (1.005)", schema) == IsIn("price", pa.array([], schema[0].type))
    zeros = parse_where("x IN (0)", schema)
    array = pa.array([0.0, -0.0, 1.0, None], pa.float32())
    assert matching(zeros, {"x": array}, 4).to_pylist() == [True, True, False, None]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_beyond_all_floats_is_not_infinity(sign: int) -> None:
    infinity = sign * float("inf")
    values = pa.array([infinity, -infinity, 1.0, float("nan")], pa.float32())
    for text in ("1e39", "1e400", "1e999999999"):
        number = Decimal(text).copy_sign(Decimal(sign))
        for op, compare in OPERATORS.items():
            predicate = comparison("x", values.type, op, number)
            expected = [compare(Decimal(v), number) for v in (infinity, -infinity, 1.0)]
            assert matching(predicate, {"x": values}, 4).to_pylist() == [*expected, False], op


def test_times_finer_than_a_columns_unit_lie_between_its_values() -> None:
    assert time_units("1969-12-31 23:59:59.5", pa.timestamp("s")) == Decimal("-0.5")
    assert time_units("1970-01-01T02:00:00.0005+02:00", pa.timestamp("ms", "UTC")) == Decimal("0.5")
    assert time_units("00:00:01.123456789", pa.time64("ns")) == 1_123_456_789
    assert time_units("3000-01-01", pa.timestamp("ns")) > 2**63
    assert time_units("1970-01-02", pa.date64()) == 86_400_000
    assert exactly(pa.timestamp("s"), Decimal("-0.5")) is None
    schema = pa.schema({"at": pa.timestamp("ms")})
    condition = parse_where("at > '1970-01-01 00:00:00.0015'", schema)
    assert condition == Compare("at", Op.GT, pa.scalar(1, pa.int64()).cast(schema[0].type))


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("-0001-12-31T23:59:59", -62_167_219_201),
        ("0000-01-01", -62_167_219_200),
        ("+10000-01-01 00:00:00", 253_402_300_800),
        ("+10000-01-01T01:00:00.000+01:00", 253_402_300_800),
        ("+292277026596-12-04T15:30:07Z", 2**63 - 1),
    ],
)
def test_times_of_any_year_are_read_as_they_are_printed(text: str, second: int) -> None:
    assert time_units(text, pa.timestamp("us", "UTC")) == second * 10**6
    zone = pa.timestamp("ns", "Europe/Vienna")
    assert time_units(text, zone) == second * 10**9


def test_days_of_any_year_are_read_as_they_are_printed() -> None:
    assert time_units("-0001-12-31", pa.date32()) == -719_529
    assert time_units("+5881580-07-11", pa.date32()) == 2**31 - 1
    assert time_units("+10000-01-01", pa.date64()) == 2_932_897 * 86_400_000
    for text in ("+5881580-07-12", "+2020-01-01", "10000-01-01", "-0000-01-01"):
        with pytest.raises(ValueError, match="write a date"):
            time_units(text, pa.date32())


@pytest.mark.parametrize(
    "text", ["24:00", "8:30", "08:30:60", "08:30+02:00", "08:30:00.", "noon", ""]
)
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with refuses(ValueError):
        time_units(text, pa.time64("us"))


def test_no_digit_of_a_long_number_is_lost() -> None:
    digits = "12345678901234567890123456789012345678"
    schema = pa.schema({"n": pa.decimal128(38, 0)})
    with decimal.localcontext(prec=50):
        array = pa.array([Decimal(digits), Decimal(digits) + 1], schema[0].type)
    found = matching(parse_where(f"n = {digits}", schema), {"n": array}, 2)
    assert found.to_pylist() == [True, False]
    found = matching(parse_where(f"n = -{digits}", schema), {"n": pc.negate(array)}, 2)
    assert found.to_pylist() == [True, False]
