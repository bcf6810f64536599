"""Expressions: DuckDB is the oracle where it means the same, Python where it does not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError, UsageError
from compactor.predicate.computed import Expression
from compactor.predicate.expressions.binder import _SPECIAL
from compactor.predicate.expressions.functions import _ALIASES, FUNCTIONS
from compactor.predicate.parse import parse_where
from compactor.predicate.prune import UNKNOWN, Bounds, may_match
from compactor.predicate.sql import parsed, with_instant
from compactor.predicate.tree import matching
from tests.support.wording import refuses

ROME = ZoneInfo("Europe/Rome")
EPOCH = date(1970, 1, 1)
INTEGERS = [0, 1, -1, 2, 7, -7, 100, 2**53 + 1, 2**62, -(2**63), 2**63 - 1]
FLOATS = [0.0, -0.0, 1.5, -2.5, 0.1, 2.0, 1e300, -1e300, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "ab", "A", "ä", "a,b,c", "  x ", "%", "日本", "a\nb", "12", "x1y22", "aaa"]
JSON_TEXTS = [
    '{"a": "x", "b": {"c": [1, 2.5, {"d": "é"}]}}', '{"a": null, "x y": true}', '{"a": {"b": "\\"q\\""}}',
    '[{"a": 7}, "s", null]', '"text"', "12", "null", " { } ", "{", "", '{"a.b": "dot", "a": -1}',
]  # fmt: skip
MOMENTS = [
    datetime(2026, 1, 31, 12, 30, 15, 123456),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29),
    datetime(2, 1, 1),
    datetime(9997, 12, 31, 23, 59, 59, 999999),
    datetime(2027, 1, 3, 4, 5, 6),
]
FAR = [datetime(2040, 7, 1, 12, 0, 0, 7), datetime(2055, 1, 1), datetime(2399, 4, 1)]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.int64(), INTEGERS),
    "b": (pa.int64(), INTEGERS),
    "i": (pa.int32(), [0, 3, -3, 2**31 - 1]),
    "p": (pa.int64(), [-6, -2, -1, 0, 1, 2, 3, 5]),
    "x": (pa.float64(), FLOATS),
    "y": (pa.float64(), FLOATS),
    "d": (pa.decimal128(9, 2), [Decimal("0"), Decimal("1.25"), Decimal("-1.25"), Decimal("9999999.99")]),
    "e": (pa.decimal128(5, 1), [Decimal("0"), Decimal("1.5"), Decimal("-2.5"), Decimal("1.2")]),
    "s": (pa.string(), TEXTS),
    "t": (pa.string(), TEXTS),
    "ts": (pa.timestamp("us"), MOMENTS),
    "us": (pa.timestamp("ms"), [m.replace(microsecond=0) for m in MOMENTS]),
    "far": (pa.timestamp("us"), FAR),
    "day": (pa.date32(), [m.date() for m in MOMENTS]),
    "j": (pa.string(), JSON_TEXTS),
    "tm": (pa.time64("us"), [time(0), time(1, 2, 3, 4), time(23, 59, 59)]),
    "ok": (pa.bool_(), [True, False]),
    "no": (pa.bool_(), [True, False]),
    "l": (pa.list_(pa.int64()), [[], [1], [7, None, 1], [-1, 2, 7, 100]]),
    "m": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("", 3), ("ab", None)]]),
    "st": (
        pa.struct({"f": pa.int64(), "g": pa.struct({"h": pa.string()})}),
        [{"f": 1, "g": {"h": "x"}}, {"f": None, "g": None}],
    ),
}  # fmt: skip

SAME = """
a < b | a >= b | a <> i | i = a | a < d | d >= e | d = a | ts > day | us <= ts | day = ts | s < t
ok = no
a IN (7, b, i) | s IN ('a', t) | a NOT IN (1, NULL) | p + 1 IN (3, 2) | upper(s) IN ('A', 'AB')
s LIKE t | s LIKE '%' || t || '%' | s NOT LIKE t | upper(s) LIKE 'A%' | s ILIKE t
a BETWEEN b AND i | d BETWEEN e AND 3 | ts BETWEEN day AND us | p + 1 BETWEEN 0 AND i
a NOT BETWEEN b AND 5
a IS DISTINCT FROM b | s IS NOT DISTINCT FROM t | a IS DISTINCT FROM NULL | (a < b) IS TRUE
a + 1 IS NULL
ok AND a < b | ok OR a < b | NOT (a < b) | NOT ok AND no OR a = i | (a > b) = ok
a + b | a - b | a * b | i + a | p * p | -a | d + e | d - a | d * e | -d | x + y | x - y | x * y | -x
a % p | i % p | mod(a, 7) | mod(a, p) | d % 2 | ts - us
CASE WHEN p <> 0 THEN 100 % p END | CASE WHEN a > b THEN s WHEN a < b THEN t ELSE 'equal' END
CASE WHEN NULL THEN a ELSE b END | CASE WHEN ok THEN a WHEN NULL AND no THEN b END
CASE p WHEN 1 THEN 'one' WHEN i THEN 'i' ELSE s END | CASE WHEN ok THEN a ELSE d END | if(ok, a, i)
if(ok, s, NULL)
coalesce(a, b, 0) | coalesce(s, t) | coalesce(d, a) | ifnull(a, 1) | nullif(a, b) | nullif(s, 'a')
nullif(p, i)
lower(s) | upper(s) | length(s) | len(s) | char_length(s) | length(l) | len(l)
trim(s, 'ax') | ltrim(s, t) | rtrim(s, ' x') | trim(both 'a' from s) | trim(leading 'a' from s)
trim(s, t)
substring(s, 2) | substring(s, p) | substring(s, p, i) | substring(s, 1, 2) | substr(s, p, p)
substring(s from 2 for 1)
left(s, 2) | left(s, p) | right(s, 2) | right(s, p) | left(s, -1) | right(s, -1)
replace(s, 'a', 'bb') | replace(s, t, 'z') | replace(s, '', 'z')
concat(s, t) | concat(s, a, NULL, t) | concat_ws('-', s, t) | concat_ws(t, s, s) | s || t || 'x' | s || a
split_part(s, ',', 2) | split_part(s, ',', -1) | split_part(s, 'a', p) | split_part(s, t, 1)
lpad(s, 4, '*') | rpad(s, 3, 'xy')
starts_with(s, 'a') | starts_with(s, t) | prefix(s, t) | ends_with(s, 'b') | suffix(s, t)
contains(s, 'a') | contains(s, t)
strpos(s, 'b') | strpos(s, t) | instr(s, t) | position(t in s)
regexp_matches(s, '[0-9]+') | regexp_matches(s, 'A', 'i') | regexp_matches(s, '^a.b$', 's')
regexp_extract(s, '[a-z]+') | regexp_extract(s, '([a-z])([0-9]+)', 2)
regexp_extract(s, '(?:a|x)(\\w)?', 1)
regexp_replace(s, 'a', 'b') | regexp_replace(s, '([a-z])', '<\\1>', 'g')
regexp_replace(s, '[(]?A', '', 'ig')
abs(a) | abs(d) | abs(x) | round(x) | round(d, 1) | floor(x) | floor(d) | ceil(x) | ceiling(d) | trunc(x)
sign(a) | sign(d)
sqrt(abs(i)) | exp(p) | power(p, 2) | pow(p, p) | power(x, 2) | ln(abs(p) + 1) | log10(abs(p) + 1)
log2(abs(p) + 1) | log(p * p + 1)
isnan(x) | greatest(a, b) | least(a, i) | greatest(s, t) | least(ts, us) | greatest(d, e, 1)
least(day, day)
date_trunc('year', ts) | date_trunc('quarter', ts) | date_trunc('month', day) | date_trunc('week', ts)
date_trunc('day', ts)
date_trunc('hour', ts) | date_trunc('minute', ts) | date_trunc('second', ts)
date_trunc('millisecond', ts) | date_trunc('day', day)
year(ts) | quarter(ts) | month(day) | week(ts) | isoyear(ts) | day(ts) | dayofmonth(day) | dayofweek(ts)
isodow(day) | dayofyear(ts)
hour(ts) | minute(ts) | second(ts) | millisecond(ts) | microsecond(ts) | epoch(ts) | epoch(day)
weekofyear(day)
extract(year from day) | extract(dow from ts) | extract(doy from ts) | date_part('hour', tm)
extract(epoch from tm) | minute(tm)
ts + INTERVAL '1 hour' | ts - INTERVAL '90 seconds' | INTERVAL '2 days' + ts
ts - INTERVAL '3 milliseconds'
CAST(a AS INT) | CAST(p AS DOUBLE) | CAST(s AS BIGINT) | CAST(ts AS DATE) | CAST(day AS TIMESTAMP)
CAST(ts AS TIME) | CAST(d AS DECIMAL(12, 4))
TRY_CAST(a AS INT) | TRY_CAST(a AS SMALLINT) | p::TINYINT | CAST(i AS DECIMAL(38, 10)) | CAST(a AS TEXT)
CAST(ok AS TEXT)
l[1] | l[-1] | l[p] | list_contains(l, 7) | list_contains(l, a) | array_contains(l, p) | contains(l, 1)
list_contains([1, 2, -7], a) | list_contains(['a', 'ab'], s) | [1, 2][i] | length([1, 2, 3]) + a
string_split(s, ',') | string_split(s, 'a')[2] | split(s, '') | md5(s) | sha256(t)
date_diff('year', ts, us) | date_diff('quarter', ts, day) | date_diff('month', day, ts)
date_diff('day', ts, us) | date_diff('hour', day, ts)
date_diff('minute', us, ts) | date_diff('second', ts, us) | date_diff('millisecond', us, ts)
strftime(ts, '%Y-%m-%d %H:%M:%S.%f') | strftime(day, '%d/%m/%y, %A %j') | strftime(ts, '%%%I%p %b %B %a')
strftime(ts, '%G-W%V-%u %w %f%f') | strftime(ts, 'plain')
ts + INTERVAL '-3 hours'
json_extract_string(j, '$.a') | json_extract_string(j, 'x y') | json_extract_string(j, '$.b.c[0]')
j ->> '$.a.b' | j ->> 'a.b' | j ->> '$."a.b"' | j ->> 0 | j ->> '$[0].a' | j ->> '$[-1]'
json_valid(j) | CASE WHEN json_valid(j) THEN j ->> 'a' END
j ->> concat('$', '.a')
json_extract(j, '$.b.c[2].d') | j -> '$.b' | j -> 'b' -> 'c' ->> 1 | j ->> '$' | lower(j ->> 'a') = 'x'
m['a'] | m[s] | st.f | st.g.h | st['f'] | (st).g.h | cardinality(m) | st.f + 1 | length(st.g.h)
"""
"""Expressions that mean the same to DuckDB."""

MOVED = {
    "lpad(s, p, 'z')": "lpad(s, p::INT, 'z')",
    "rpad(s, p, t)": "rpad(s, p::INT, t)",
    "a / p": "a // p",
    "a / b": "a // b",
    "CASE WHEN b <> 0 THEN a / b END": "CASE WHEN b <> 0 THEN a // b END",
    "iff(ok, a, 0)": "if(ok, a, 0)",
    "ends_with(s, t)": "suffix(s, t)",
    "ucase(s)": "upper(s)",
    "lcase(s)": "lower(s)",
    "character_length(s)": "length(s)",
    "startswith(s, t)": "starts_with(s, t)",
    "endswith(s, t)": "suffix(s, t)",
    "array_length(l)": "len(l)",
    "list_has(l, 1)": "list_contains(l, 1)",
    "array_has(l, 1)": "list_contains(l, 1)",
    "is_nan(x)": "isnan(x)",
    "datetrunc('day', ts)": "date_trunc('day', ts)",
    "datepart('year', ts)": "year(ts)",
    "dow(ts)": "dayofweek(ts)",
    "doy(ts)": "dayofyear(ts)",
    "weekday(ts)": "dayofweek(ts)",
    "regexp_like(s, 'a')": "regexp_matches(s, 'a')",
    "nanosecond(us)": "second(us) * 1000000000",
    "ts - day": "ts - day::TIMESTAMP",
    "epoch(us)": "epoch(us::TIMESTAMP)",
    "epoch_ms(us)": "epoch_ms(us::TIMESTAMP)",
    "ts - INTERVAL -3 hour": "ts + INTERVAL 3 hour",
    "str_split(s, 'b')": "string_split(s, 'b')",
    "datediff('day', day, ts)": "date_diff('day', day, ts)",
    "strptime(strftime(ts, '%Y/%m/%d %H:%M:%S.%f'), '%Y/%m/%d %H:%M:%S.%f')": "ts",
}
"""Expressions that DuckDB writes in another way."""


def whole(value: Decimal | None) -> Decimal | None:
    return None if value is None else value.quantize(Decimal(1), ROUND_HALF_UP)


def known(of: Callable[..., Any]) -> Callable[..., Any]:
    """The function, null if an argument is null."""
    return lambda *values: None if None in values else of(*values)


def months_later(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    for back in range(4):
        try:
            return moment.replace(year=year, month=month + 1, day=moment.day - back)
        except ValueError:
            if not 1 <= year <= 9999:
                break
    raise OverflowError


def json_value(text: str, name: str) -> str | None:
    """The JSON of a field, in lower case."""
    found = json.loads(text)
    if not isinstance(found, dict) or name not in found:
        return None
    return json.dumps(found[name], ensure_ascii=False, separators=(",", ":")).lower()


OTHERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    # NaN satisfies no comparison, not even <>.
    "x < y": lambda r: known(lambda x, y: x < y)(r["x"], r["y"]),
    "x = y": lambda r: known(lambda x, y: x == y)(r["x"], r["y"]),
    "x <> y": lambda r: known(lambda x, y: x < y or x > y)(r["x"], r["y"]),
    "x > a": lambda r: known(lambda x, a: x > float(a))(r["x"], r["a"]),
    # An error, where DuckDB says NaN or infinity; floats too are not divided by zero.
    "sqrt(x)": lambda r: known(math.sqrt)(r["x"]),
    "ln(x)": lambda r: known(lambda x: math.inf if x == math.inf else math.log(x))(r["x"]),
    "x / y": lambda r: known(lambda x, y: x / y)(r["x"], r["y"]),
    # White space of every kind, not only blanks; characters, not graphemes.
    "trim(s)": lambda r: known(str.strip)(r["s"]),
    "ltrim(s)": lambda r: known(str.lstrip)(r["s"]),
    "rtrim(s)": lambda r: known(str.rstrip)(r["s"]),
    "reverse(s)": lambda r: known(lambda s: s[::-1])(r["s"]),
    "lpad(s, 5)": lambda r: known(lambda s: s.rjust(5)[:5] if len(s) < 5 else s[:5])(r["s"]),
    "a % -1": lambda r: known(lambda a: 0)(r["a"]),
    # NaN is left out, as null is.
    "greatest(x, 0.5)": lambda r: 0.5 if r["x"] is None or r["x"] != r["x"] else max(r["x"], 0.5),
    "least(x, 0.5)": lambda r: 0.5 if r["x"] is None or r["x"] != r["x"] else min(r["x"], 0.5),
    # A value that does not fit is refused, and not rounded.
    "CAST(d AS INT)": lambda r: known(lambda d: int(d) if d == int(d) else 1 // 0)(r["d"]),
    "TRY_CAST(d AS INT)": lambda r: known(lambda d: int(d) if d == int(d) else None)(r["d"]),
    "TRY_CAST(s AS BIGINT)": lambda r: known(
        lambda s: int(s) if re.fullmatch("-?[0-9]+", s) else None
    )(r["s"]),
    "TRY_CAST(s AS DATE)": lambda r: None,
    "CAST(concat('1', s) AS DECIMAL(6, 2))": lambda r: Decimal(
        "1" + (r["s"] or "") if re.fullmatch("[0-9]*", r["s"] or "") else "no number"
    ),
    "CAST('2026-01-31T10:00:00+02:00' AS TIMESTAMPTZ)": lambda r: datetime(2026, 1, 31, 8, tzinfo=UTC),
    "CAST('08:30' AS TIME)": lambda r: time(8, 30),
    # The day is clipped to the month; the result of a date is a timestamp.
    "ts + INTERVAL '1 month'": lambda r: known(lambda t: months_later(t, 1))(r["ts"]),
    "ts - INTERVAL '1 year'": lambda r: known(lambda t: months_later(t, -12))(r["ts"]),
    "INTERVAL '1 quarter' + ts": lambda r: known(lambda t: months_later(t, 3))(r["ts"]),
    "day - day": lambda r: known(lambda _: timedelta(0))(r["day"]),
    # Decimals are divided exactly to a fixed number of digits, and the rest is cut off.
    "strptime(s, '%y')": lambda r: known(lambda s: datetime.strptime(s, "%y"))(r["s"]),
    "to_timestamp(p)": lambda r: known(lambda p: datetime.fromtimestamp(p, UTC))(r["p"]),
    "to_timestamp(d)": lambda r: known(lambda d: datetime.fromtimestamp(float(d), UTC))(r["d"]),
    # Mondays are counted, where DuckDB counts whole weeks.
    "date_diff('week', us, day)": lambda r: known(
        lambda t, d: ((d - EPOCH).days + 3) // 7 - ((t.date() - EPOCH).days + 3) // 7
    )(r["us"], r["day"]),
    "timezone('America/New_York', far)": lambda r: known(
        lambda t: t.replace(tzinfo=ZoneInfo("America/New_York"))
    )(r["far"]),
    "far::TIMESTAMPTZ AT TIME ZONE 'Europe/Rome'": lambda r: known(
        lambda t: t.replace(tzinfo=UTC).astimezone(ROME).replace(tzinfo=None)
    )(r["far"]),
    "lower(j -> 'a')": lambda r: known(lambda j: json_value(j, "a"))(r["j"]),
    "timezone('Europe/Rome', us)": lambda r: known(lambda t: t.replace(tzinfo=ROME))(r["us"]),
    "d / 4": lambda r: known(lambda d: d / 4)(r["d"]),
    "round(e)": lambda r: whole(r["e"]),
    "round(a, 1)": lambda r: r["a"],
    "floor(a)": lambda r: r["a"],
    "sign(x)": lambda r: known(lambda x: x if x != x else (x > 0) - (x < 0))(r["x"]),
    "length(m)": lambda r: known(len)(r["m"]),
}  # fmt: skip
"""Expressions that DuckDB takes otherwise, with what they mean. An exception of Python means an error."""


def texts_of(block: str) -> list[str]:
    return [text.strip() for line in block.strip().splitlines() for text in re.split(r" \| ", line)]


PAIRS = {**{text: text for text in texts_of(SAME)}, **MOVED}


@st.composite
def batches(draw: st.DrawFn, names: list[str]) -> pa.RecordBatch:
    rows = draw(st.integers(0, 6))
    columns = {
        name: pa.array(
            draw(st.lists(st.none() | st.sampled_from(values), min_size=rows, max_size=rows)), dtype
        )
        for name, (dtype, values) in VALUES.items()
        if name in names
    }
    schema = pa.schema([(name, VALUES[name][0]) for name in columns])
    padding = draw(st.integers(0, 1))
    if padding and rows:
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema).slice(padding)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def columns_in(text: str) -> list[str]:
    bare = re.sub(r"'[^']*'", "", text)
    return [name for name in VALUES if re.search(rf"\b{name}\b(?!\()", bare)] or ["a"]


FAILED = object()


def outcomes(text: str, batch: pa.RecordBatch) -> list[Any]:
    """The value of each row, or `FAILED`. The whole batch fails exactly if a row does."""
    expression = Expression(text, batch.schema, "node 't'")
    found = []
    for row in range(batch.num_rows):
        try:
            [value] = expression(batch.slice(row, 1)).to_pylist()
        except pa.ArrowInvalid:
            value = FAILED
        found.append(value)
    try:
        at_once = expression(batch)
    except pa.ArrowInvalid:
        assert FAILED in found
    else:
        assert at_once.type == expression.type
        assert FAILED not in found
        assert all(map(alike, at_once.to_pylist(), found))
    return found


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        one, other = float(one), float(other)
        return (
            one == other
            or (one != one and other != other)
            or math.isclose(one, other, rel_tol=1e-12)
        )
    if isinstance(other, pa.MonthDayNano):
        other = timedelta(days=other.days, microseconds=other.nanoseconds // 1000)
    if type(one) is date and isinstance(other, datetime):
        one = datetime(one.year, one.month, one.day)
    return bool(one == other)


@pytest.mark.parametrize("text", PAIRS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_expressions_mean_what_they_mean_to_duckdb(text: str, data: st.DataObject) -> None:
    batch = data.draw(batches(columns_in(text)))
    found = outcomes(text, batch)
    with duckdb.connect() as con:
        # DuckDB refuses structs in slices.
        con.register("rows", pa.Table.from_pylist(batch.to_pylist(), batch.schema))
        found_there: Any = con.execute(f"SELECT TRY({PAIRS[text]}) AS z FROM rows")
        expected = found_there.to_arrow_table()["z"].to_pylist()
    for value, wanted in zip(found, expected, strict=True):
        if value is FAILED:
            assert wanted is None, (text, batch.to_pylist())
        else:
            assert alike(value, wanted), (text, value, wanted, batch.to_pylist())


@pytest.mark.parametrize("text", OTHERS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_expressions_that_duckdb_takes_otherwise_mean_what_the_page_says(
    text: str, data: st.DataObject
) -> None:
    batch = data.draw(batches(columns_in(text)))
    for value, row in zip(outcomes(text, batch), batch.to_pylist(), strict=True):
        try:
            wanted = OTHERS[text](row)
        except (ArithmeticError, ValueError):
            wanted = FAILED
        assert alike(value, wanted), (text, value, wanted, row)


@pytest.mark.parametrize(
    ("text", "ours", "of_duckdb"),
    [
        (r"'a\b' LIKE 'a\b'", False, True),
        (r"'a_b' LIKE 'a\_b'", True, False),
        (r"'a_b' LIKE 'a\_b' ESCAPE '\'", True, True),
        ("'\u017f' ILIKE 's'", True, False),
        ("'\u0130' ILIKE '\u0130'", True, True),
        ("'\u0130' ILIKE 'i'", False, True),
        ("'i' ILIKE '\u0130'", False, True),
        ("CAST(CAST('1' AS DOUBLE) AS TEXT)", "1", "1.0"),
        ("CAST('-0.0' AS DOUBLE) || ''", "-0", "-0.0"),
        ("CAST(CAST('1e10' AS DOUBLE) AS TEXT)", "1e+10", "10000000000.0"),
        ("CAST(CAST('1e-5' AS DOUBLE) AS TEXT)", "0.00001", "1e-05"),
        ("CAST(CAST('1e-7' AS DOUBLE) AS TEXT)", "1e-7", "1e-07"),
        ("CAST(TIMESTAMP '2026-01-02 03:04:05.12' AS TEXT)",
         "2026-01-02 03:04:05.120000", "2026-01-02 03:04:05.12"),
        ("CAST(TIMESTAMPTZ '2026-01-02 03:04:05Z' AS TEXT)",
         "2026-01-02 03:04:05.000000Z", "2026-01-02 03:04:05+00"),
        ("CAST(CAST('08:30:00' AS TIME) AS TEXT)", "08:30:00.000000", "08:30:00"),
        ("epoch_ms(TIMESTAMP '1970-01-01 00:00:00.0019')", 1, 2),
        ("epoch_ms(TIMESTAMP '1969-12-31 23:59:59.9999')", -1, 0),
    ],
)  # fmt: skip
def test_the_differences_from_duckdb_are_as_the_page_says(
    text: str, ours: object, of_duckdb: object
) -> None:
    batch = pa.record_batch({"k": [1]})
    assert Expression(text, batch.schema, "node 't'")(batch).to_pylist() == [ours]
    with duckdb.connect() as con:
        con.execute("SET timezone = 'UTC'")
        assert con.execute(f"SELECT {text}").fetchall() == [(of_duckdb,)]


@pytest.mark.parametrize("text", [*PAIRS, *OTHERS])
def test_expressions_that_are_written_out_are_read_the_same(text: str) -> None:
    """Reports and other processes get expressions as SQL."""
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    written = with_instant(parsed(text), instant)
    schema = pa.schema([(name, dtype) for name, (dtype, _) in VALUES.items()])
    types = [Expression(each, schema, "node 't'").type for each in (text, written)]
    assert types[0] == types[1]
    assert with_instant(parsed(written), instant) == written


def test_every_function_is_held_against_an_oracle() -> None:
    tried = {name.lower() for text in [*PAIRS, *OTHERS] for name in re.findall(r"(\w+)\(", text)}
    synonyms = {"strpos": "position"}
    for name in {*FUNCTIONS, *_SPECIAL} - {"now"}:
        assert name in tried or synonyms.get(name) in tried or _ALIASES.get(name) in tried, name


def test_every_function_stands_on_the_page_of_expressions() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/expressions.md").read_text()
    for name in {*FUNCTIONS, *_SPECIAL}:
        assert re.search(rf"`{name}[(`]", page), name


def test_the_number_of_an_element_may_be_of_any_type_of_integers() -> None:
    numbers = [1, 2, 3, None, 0, 255]
    for dtype in (pa.uint8(), pa.int16(), pa.uint32(), pa.uint64()):
        last = 2**64 - 1 if dtype == pa.uint64() else 4
        batch = pa.record_batch(
            {"l": [[7, None, 8]] * 7, "n": pa.array([*numbers, last], dtype)},
        )
        found = Expression("l[n]", batch.schema, "node 't'")(batch)
        assert found.to_pylist() == [7, None, 8, None, None, None, None]


@pytest.mark.parametrize("text", ["h", "i", "0", "5", "-5", "9223372036854775807"])
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_integers_of_64_bits_with_and_without_a_sign_are_calculated_exactly(
    op: str, text: str
) -> None:
    highs = [2**64 - 1, 2**63, 7, 0]
    batch = pa.record_batch(
        {"h": pa.array(highs * 3, pa.uint64()), "i": [-(2**63)] * 4 + [2**63 - 1] * 4 + [-1] * 4}
    )
    for sides in ((text, "h"), ("h", text)):
        for row in range(len(batch)):
            given = batch.slice(row, 1)
            known = {name: given[name][0].as_py() for name in ("h", "i")}
            left, right = (known.get(side) if side in known else int(side) for side in sides)
            assert left is not None
            assert right is not None
            exact = _whole(op, left, right)
            expression = Expression(f" {op} ".join(sides), batch.schema, "node 't'")
            is_unsigned = expression.type == pa.uint64()
            if exact is None or (is_unsigned and not 0 <= exact < 2**64):
                assert exact is None or "-" not in (op, text[0]), "only overflow is an error"
                with pytest.raises(pa.ArrowInvalid):
                    expression(given)
            else:
                assert expression(given).to_pylist() == [exact]


def _whole(op: str, left: int, right: int) -> int | None:
    """Calculates as integers of SQL do; None for a division by zero."""
    if op in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[op]
    if right == 0:
        return None
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if op == "/" else left - quotient * right


def test_constants_beyond_64_bits_are_exact() -> None:
    high = 2**64 - 1
    batch = pa.record_batch(
        {"h": pa.array([high, None], pa.uint64()), "d": pa.array([1, None], pa.decimal128(38, 0))}
    )
    for text, dtype, expected in (
        (f"{high}", pa.uint64(), [high, high]),
        (f"h IS DISTINCT FROM {high}", pa.bool_(), [False, True]),
        (f"coalesce(h, {high - 1})", pa.uint64(), [high, high - 1]),
        (f"d + {10**30}", pa.decimal256(39, 0), [10**30 + 1, None]),
        (f"-{2**63}", pa.int64(), [-(2**63)] * 2),
        (f"-{high}", pa.decimal128(20, 0), [-high] * 2),
    ):
        expression = Expression(text, batch.schema, "node 't'")
        assert expression(batch).to_pylist() == expected, text
        assert expression.type == dtype, text
    with refuses(ConfigError, "77 digits", "1e80"):
        Expression("h + " + "9" * 77, batch.schema, "node 't'")


def test_choices_between_integers_of_64_bits_with_and_without_a_sign_are_exact() -> None:
    high = 2**64 - 1
    batch = pa.record_batch(
        {"h": pa.array([high, 5, None], pa.uint64()), "i": [-1, 9, 2], "b": [True, False, None]}
    )
    for text, dtype, expected in (
        ("coalesce(h, 0)", pa.uint64(), [high, 5, 0]),
        ("coalesce(h, i)", pa.decimal128(20, 0), [high, 5, 2]),
        ("if(b, h, 1)", pa.uint64(), [high, 1, 1]),
        ("CASE WHEN b THEN -1 ELSE h END", pa.decimal128(20, 0), [-1, 5, None]),
        ("greatest(h, 7)", pa.uint64(), [high, 7, 7]),
        ("least(h, i)", pa.decimal128(20, 0), [-1, 5, 2]),
        ("mod(h, 4)", pa.uint64(), [3, 1, None]),
        ("-h", pa.decimal128(20, 0), [-high, -5, None]),
    ):
        expression = Expression(text, batch.schema, "node 't'")
        assert (expression.type, expression(batch).type) == (dtype, dtype), text
        assert expression(batch).to_pylist() == expected, text


def test_a_branch_is_evaluated_for_its_rows_only() -> None:
    batch = pa.record_batch({"a": [1, 2, None], "b": [0, 2, 0], "s": ["x", "7", None]})
    for text, expected in {
        "CASE WHEN b <> 0 THEN a / b ELSE -1 END": [-1, 1, -1],
        "if(s = 'x', 0, CAST(s AS INT))": [0, 7, None],
        "coalesce(nullif(s, 'x'), CAST(1 / b AS TEXT))": FAILED,
        "b <> 0 AND a / b = 1": [False, True, False],
        "a / b = 1 AND b <> 0": [False, True, False],
        "b = 0 OR a / b = 1": [True, True, True],
    }.items():
        expression = Expression(text, batch.schema, "node 't'")
        if expected is FAILED:
            with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
                expression(batch)
        else:
            assert expression(batch).to_pylist() == expected, text


@pytest.mark.parametrize("text", ["CAST(d AS DOUBLE)", "d + x", "coalesce(d, x)"])
def test_decimals_are_rounded_to_the_nearest_double(text: str) -> None:
    numbers = [Decimal("-365.84"), Decimal("0.07"), Decimal("9999999999.99"), None]
    types = {"d": pa.decimal128(12, 2), "x": pa.float64()}
    batch = pa.record_batch([pa.array(numbers, types["d"]), [-0.0] * 4], schema=pa.schema(types))
    found = Expression(text, batch.schema, "node 't'")(batch).to_pylist()
    assert found[:3] == [float(number) for number in numbers[:3] if number is not None]


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
def test_a_float_becomes_the_decimal_that_its_shortest_text_says_or_none(
    dtype: pa.DataType,
) -> None:
    fit = [0.1, -2.0, 99.9, 1e4, -0.0, None]
    odd = [1.25, 0.05, 99999.95, 1e-9, 1e30, float("nan"), float("inf")]
    batch = pa.record_batch({"x": pa.array(fit + odd, dtype)})
    tried = Expression("TRY_CAST(x AS DECIMAL(6, 1))", batch.schema, "node 't'")(batch)
    assert tried.to_pylist()[: len(fit)] == [v if v is None else Decimal(str(v)) for v in fit]
    assert tried.null_count == 1 + len(odd)
    cast = Expression("CAST(x AS DECIMAL(6, 1))", batch.schema, "node 't'")
    assert cast(batch[: len(fit)]) == tried[: len(fit)]
    for row in range(len(fit), len(batch)):
        with pytest.raises(pa.ArrowInvalid):
            cast(batch[row : row + 1])


def test_the_time_of_a_call_is_one_instant() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    before = datetime.now(UTC)
    expression = Expression(
        "CASE WHEN a = 1 THEN now() ELSE current_timestamp END", batch.schema, "x"
    )
    first, second = expression(batch).to_pylist()
    assert [first, second] == expression(batch).to_pylist()
    assert first == second
    assert before <= first <= datetime.now(UTC)
    day, _ = Expression("current_date", batch.schema, "x")(batch).to_pylist()
    assert day in (before.date(), datetime.now(UTC).date())


@pytest.mark.parametrize(
    "text",
    [
        "upper(a)", "a + s", "a < s", "l < l", "foo(a)", "lenght(s)", "if(a, 1, 2)", "if(ok)",
        "CAST(a AS FOO)", "CAST(a AS DECIMAL(99, 2))", "coalesce()", "nullif(a)", "now(1)",
        "coalesce(a, s)", "st.zz", "a.b", "l['x']", "a[1]", "m", "regexp_matches(s, '(')",
        "regexp_matches(s, t)", "regexp_extract(s, 'a', 2)", "regexp_matches(s, 'a', 'q')",
        "date_trunc('eon', ts)", "date_part('year', tm)", "round(x, -1)", "greatest(ok, no)", "1 / 0",
        "s LIKE a", "-s", "ts + ts", "a IN (SELECT 1)", "count(*) > 1", "l[1:2]", "concat_ws(',')",
        "year(a)", "CAST(l AS TEXT)", "TRY_CAST(st AS INT)",
    ],
)  # fmt: skip
def test_what_an_expression_cannot_mean_is_said_before_rows_are_read(text: str) -> None:
    schema = pa.schema([(name, dtype) for name, (dtype, _) in VALUES.items()])
    with refuses(UsageError if text == "m" else ConfigError):
        if text == "m":
            parse_where(text, schema)
        else:
            Expression(text, schema, "node 't'")


def test_only_columns_compared_with_values_prune() -> None:
    schema = pa.schema([("a", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.string())])
    low = Bounds(10, 20)

    def may(condition: str) -> bool:
        return may_match(
            parse_where(condition, schema), lambda name: low if name == "a" else UNKNOWN
        )

    assert not may("a < 5 AND upper(s) = 'X'")
    assert not may("a + a > 3 AND a > 5 + 100")
    assert may("a < 5 OR upper(s) = 'X'")
    assert may("NOT (length(s) > 3)")
    assert may("a + 1 < 5")


def test_a_time_computed_from_constants_prunes_exactly() -> None:
    schema = pa.schema([("ts", pa.timestamp("s")), ("day", pa.date32())])
    rows = {
        "ts": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 1)], pa.timestamp("s")),
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2)]),
    }
    for condition, expected in {
        "ts > TIMESTAMP '2026-01-01' + INTERVAL '1 millisecond'": [False, True],
        "ts = TIMESTAMP '2026-01-01' + INTERVAL '1 millisecond'": [False, False],
        "ts >= DATE '2026-01-01'": [True, True],
        "day > TIMESTAMP '2026-01-01 12:00'": [False, True],
        "day <= TIMESTAMP '2026-01-01 12:00'": [True, False],
        "ts < now() - INTERVAL '1 day' AND ts > now() - INTERVAL '900000 years'": [None, None],
    }.items():
        if expected == [None, None]:
            with refuses(UsageError):
                parse_where(condition, schema)
            continue
        predicate = parse_where(condition, schema)
        assert type(predicate).__name__ == "Compare"
        assert matching(predicate, rows, 2).to_pylist() == expected, condition


@pytest.mark.parametrize("offset", ["", "Z", " Z", "-02:00", " -02:00", "+0530", " +14", "-02"])
@pytest.mark.parametrize(
    "time", ["2024-01-01 00:00:00", "2024-01-01T02:00:00.25", "2024-01-01 02:00"]
)
@pytest.mark.parametrize("column", ["ts", "tz", "day", "ts + INTERVAL '0 seconds'"])
def test_the_offset_of_a_timestamp_is_ignored_as_in_duckdb(
    column: str, time: str, offset: str
) -> None:
    moments = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (0, 2)]
    rows = {
        "ts": pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("us")),
        "tz": pa.array(moments, pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
    }
    table = pa.table(rows)
    own, exact = column.partition(" ")[0], f"TIMESTAMP '{time}{offset}'"
    for condition in (f"{column} <= {exact}", f"{exact} = {column}", f"{column} IN ({exact})"):
        found = matching(parse_where(condition, table.schema), {own: rows[own]}, 2).to_pylist()
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'").register("rows_", table)
            expected = database.execute(f"SELECT {condition} FROM rows_").fetchall()
        assert found == [value for (value,) in expected], condition


def test_the_offset_of_a_moment_counts() -> None:
    schema = pa.schema([("tz", pa.timestamp("us", "UTC"))])
    rows = {"tz": pa.array([datetime(2024, 1, 1, 2, tzinfo=UTC)], schema.field("tz").type)}
    time = "2024-01-01 00:00:00"
    for text in (f"TIMESTAMPTZ '{time}-02:00'", f"TIMESTAMPTZ '{time} -02:00'", f"'{time}-02'"):
        assert matching(parse_where(f"tz = {text}", schema), rows, 1).to_pylist() == [True]


def test_coded_times_are_compared_as_finely_as_others() -> None:
    coded = pa.array([0, 1, 1], pa.timestamp("ms")).dictionary_encode()
    schema = pa.schema([("ts", coded.type)])
    for type_name in ("TIMESTAMP", "TIMESTAMPTZ"):
        condition = f"ts >= {type_name} '1970-01-01T00:00:00.000000001'"
        found = matching(parse_where(condition, schema), {"ts": coded}, 3)
        assert found.to_pylist() == [False, True, True], condition


@pytest.mark.parametrize("op", ["+", "-"])
@pytest.mark.parametrize("low", [-(2**63), 2**63 - 1])
def test_what_stands_below_a_null_does_not_overflow(op: str, low: int) -> None:
    given = pa.array([1, low], pa.int64()).view(pa.timestamp("us"))
    validity = pa.py_buffer(b"\x01")
    column = pa.Array.from_buffers(given.type, 2, [validity, given.buffers()[1]])
    batch = pa.record_batch({"ts": column})
    made = Expression(f"ts {op} INTERVAL '40 seconds'", batch.schema, "node 't'")(batch)
    assert made.is_valid().to_pylist() == [True, False]
    empty = pa.record_batch({"ts": pa.nulls(2, given.type)})
    least = Expression(f"least(ts, ts) {op} INTERVAL '40 seconds'", empty.schema, "node 't'")(empty)
    assert least.to_pylist() == [None, None]


@pytest.mark.parametrize("text", ["x * 10", "x + x", "-x - x", "x / 1e-10", "-x * 1e200"])
@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32()])
def test_a_finite_float_does_not_become_infinite(text: str, dtype: pa.DataType) -> None:
    greatest = {pa.float64(): 1.7e308, pa.float32(): 3.4e38}[dtype]
    text = f"CAST({text} AS DOUBLE)" if dtype == pa.float64() else text
    rows = pa.record_batch({"x": pa.array([1.0, None, math.inf, math.nan], dtype)})
    given = Expression(text, rows.schema, "node 't'")
    assert given(rows)[1].as_py() is None
    assert math.isinf(given(rows)[2].as_py())
    assert math.isnan(given(rows)[3].as_py())
    if dtype == pa.float64() or "e" not in text:  # a literal makes doubles of the others
        with pytest.raises(pa.ArrowInvalid, match="overflow"):
            given(pa.record_batch({"x": pa.array([1.0, greatest], dtype)}))


@pytest.mark.parametrize(
    ("number", "dtype", "is_exact"),
    [
        (2**53, "DOUBLE", True),
        (2**60, "DOUBLE", True),
        (2**60 + 1, "DOUBLE", False),
        (-(2**63), "DOUBLE", True),
        (2**63 - 1, "DOUBLE", False),
        (2**25, "FLOAT", True),
        (2**25 + 1, "FLOAT", False),
    ],
)
def test_an_integer_is_cast_to_a_float_that_has_it_exactly(
    number: int, dtype: str, is_exact: bool
) -> None:
    rows = pa.record_batch({"n": pa.array([1, None, number])})
    cast = Expression(f"CAST(n AS {dtype})", rows.schema, "node 't'")
    if is_exact:
        assert cast(rows).to_pylist() == [1, None, number]
    else:
        with pytest.raises(pa.ArrowInvalid, match=f"{number} exactly"):
            cast(rows)
        attempt = Expression(f"TRY_CAST(n AS {dtype})", rows.schema, "node 't'")
        assert attempt(rows).to_pylist() == [1, None, None]


@pytest.mark.parametrize("text", ["concat(l, 1)", "concat_ws(',', s)", "l || 'x'"])
def test_what_has_no_text_is_refused_by_its_type(text: str) -> None:
    schema = pa.schema({"l": pa.list_(pa.int64()), "s": pa.struct({"a": pa.int64()})})
    with refuses(ConfigError, "has no text"):
        Expression(text, schema, "node 't'")
