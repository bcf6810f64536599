"""What is kept of values: it may say too much, and never too little."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import UsageError
from compactor.predicate.prune import Bounds, Summary, may_match
from compactor.predicate.skipping.spec import SkipKind, check_skip_column
from compactor.predicate.skipping.summary import AnyOf, build, summary_of
from compactor.predicate.tree import Compare, IsIn, Like, Op, matching
from tests.support.wording import refuses

TEXTS = st.text(alphabet="abÄ%_\\x", max_size=12)
BUDGETS = st.sampled_from([40, 64, 100, 400, 1 << 16])
TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), st.binary(max_size=5)),
    (pa.int16(), st.integers(-5, 5)),
    (pa.uint64(), st.integers(2**63, 2**64 - 1)),
    (pa.decimal128(9, 2), st.integers(-99, 99).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1999, 1, 1), dt.datetime(2030, 1, 1))),
    (pa.date32(), st.dates(dt.date(1999, 1, 1), dt.date(1999, 1, 9))),
]


def knows(summary: Summary) -> Any:
    return lambda _column: Bounds(None, None, summary=summary)


@given(data=st.data(), budget=BUDGETS, kind=st.sampled_from(SkipKind), coded=st.booleans())
def test_a_row_group_is_never_skipped_that_has_a_row(
    data: st.DataObject, budget: int, kind: SkipKind, coded: bool
) -> None:
    dtype, values = data.draw(st.sampled_from(TYPES[:2] if kind is SkipKind.VALUES else TYPES))
    array = pa.array(data.draw(st.lists(st.none() | values, max_size=30)), dtype)
    asked = pa.array(data.draw(st.lists(values, min_size=1, max_size=4)), dtype)
    packed = build(kind, array.dictionary_encode() if coded else array, budget)
    if packed is None:
        return
    assert len(packed) <= budget + 12
    summary = summary_of(packed, dtype)
    assert summary is not None
    conditions: list[Any] = [Compare("x", Op.EQ, asked[0]), IsIn("x", asked.unique())]
    if kind is SkipKind.VALUES:
        pattern = data.draw(st.text(alphabet="ab%_x", max_size=5))
        conditions += [Like("x", pattern), Like("x", pattern, ignores_case=True)]
    for condition in conditions:
        holds = matching(condition, {"x": array}, len(array)).to_pylist()
        assert may_match(condition, knows(summary)) or True not in holds
        assert may_match(condition, knows(AnyOf([summary, summary]))) or True not in holds


def test_few_absent_values_pass_a_filter_of_enough_bytes() -> None:
    numbers = pa.array(np.arange(50_000))
    packed = build(SkipKind.BLOOM, numbers, 1 << 20)
    assert packed is not None
    summary = summary_of(packed, numbers.type)
    assert summary is not None
    absent = pa.array(np.arange(10**9, 10**9 + 20_000))
    passed = sum(summary.may_equal(value) for value in absent)
    assert passed < 200  # about 0.5% where 12 bits a value are spent
    assert all(summary.may_equal(value) for value in numbers[:500])


def test_a_filter_that_would_say_yes_to_everything_is_not_kept() -> None:
    assert build(SkipKind.BLOOM, pa.array(np.arange(100_000)), 4096) is None


def test_values_are_cut_as_little_as_the_budget_asks_for() -> None:
    texts = pa.array([f"{kind}/{n:06d}" for kind in ("api", "web") for n in range(500)])
    whole, cut = build(SkipKind.VALUES, texts, 1 << 16), build(SkipKind.VALUES, texts, 300)
    assert whole is not None and cut is not None

    def may(packed: bytes, condition: Any) -> bool:
        summary = summary_of(packed, pa.string())
        assert summary is not None
        return may_match(condition, knows(summary))

    assert not may(whole, Like("x", "%777%")) and may(whole, Like("x", "%477%"))
    assert may(cut, Like("x", "api/%")) and may(cut, Like("x", "%777%"))
    assert not may(cut, Like("x", "db/%"))
    assert not may(cut, Compare("x", Op.EQ, pa.scalar("db/000001")))
    assert not may(whole, Compare("x", Op.EQ, pa.scalar("api/000777")))


@pytest.mark.parametrize(
    ("made_of", "asked_as"),
    [
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.int32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
    ],
)
def test_of_values_that_have_been_converted_nothing_is_known(
    made_of: pa.DataType, asked_as: pa.DataType
) -> None:
    packed = build(
        SkipKind.BLOOM,
        pa.array([1, 2], pa.int32())
        .cast(pa.int64())
        .cast(pa.decimal128(30, 2) if pa.types.is_decimal(made_of) else made_of),
        100,
    )
    assert packed is not None
    assert summary_of(packed, asked_as) is None


def test_wider_types_ask_for_the_same_values() -> None:
    packed = build(SkipKind.BLOOM, pa.array([1, -2, 3], pa.int8()), 100)
    assert packed is not None
    summary = summary_of(packed, pa.int64())
    assert summary is not None
    assert all(summary.may_equal(pa.scalar(n, pa.int64())) for n in (1, -2, 3))


def test_a_row_group_of_nulls_holds_no_value() -> None:
    for kind, dtype in ((SkipKind.BLOOM, pa.int64()), (SkipKind.VALUES, pa.string())):
        for array in (pa.nulls(3), pa.nulls(3, dtype)):
            packed = build(kind, array, 100)
            assert packed is not None
            summary = summary_of(packed, dtype)
            assert summary is not None
            assert not summary.may_equal(pa.scalar(1).cast(dtype))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (SkipKind.VALUES, pa.int64()),
        (SkipKind.BLOOM, pa.float64()),
        (SkipKind.BLOOM, pa.list_(pa.int64())),
        (SkipKind.BLOOM, pa.bool_()),
    ],
)
def test_columns_of_other_types_are_refused(kind: SkipKind, dtype: pa.DataType) -> None:
    with refuses(UsageError, "'x'"):
        check_skip_column("x", kind, dtype)
