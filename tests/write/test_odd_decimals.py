"""Decimals whose scale is negative or above their precision: sort columns, conditions, sums and texts."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import IngestOptions, Policy, RowKind, RowPolicy, Strategy, Table
from compactor.errors import CompactorError
from compactor.files.read import open_table_file
from compactor.rows.policy import RowFunction
from tests.generated.bits import values_of

KINDS = (
    pa.decimal32(5, 11), pa.decimal64(5, 20), pa.decimal128(5, 39), pa.decimal256(5, 80),
    pa.decimal32(1, 2), pa.decimal128(5, -3), pa.decimal128(5, -50), pa.decimal256(76, 78),
)  # fmt: skip
UNITS = [7, -3, 0, 2, -9, 5]


def decimals(kind: pa.DataType, units: Sequence[int | None]) -> pa.Array:
    width = kind.bit_width // 8
    data = b"".join((unit or 0).to_bytes(width, "little", signed=True) for unit in units)
    valid = pa.array([unit is not None for unit in units], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(units), [valid, pa.py_buffer(data)])


def value(kind: pa.DataType, unit: int) -> decimal.Decimal:
    return decimal.Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -kind.scale))


def rows(kind: pa.DataType) -> pa.Table:
    return pa.table({"k": decimals(kind, UNITS), "v": decimals(kind, [*UNITS[:-1], None])})


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_they_sort_rows_and_are_found(tmp_path: Path, kind: pa.DataType) -> None:
    table = Table.create(tmp_path / "t", rows(kind), "k")
    table.append(rows(kind))
    sorted_units = sorted(UNITS * 2)
    for _ in range(2):
        found = table.scan().to_table()["k"]
        assert found.type == kind
        assert values_of(found) == [value(kind, unit) for unit in sorted_units]
        for op, holds in (("=", 2), ("<", 6), (">=", 6), ("<>", 10)):
            for column in ("k", "v"):
                where = f"{column} {op} {value(kind, 2)}"
                nulls = 2 if column == "v" and op in (">=", "<>") else 0
                assert len(table.scan(where=where).to_table()) == holds - nulls
        table.compact(policy=Policy(strategy=Strategy.FULL))
        table.refresh()
    assert table.verify().faults == []
    assert table.delete(f"v = {value(kind, 7)}").rows == 2


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("ending", ["ndjson", "csv", "arrow"])
def test_what_is_written_as_text_is_read_again(
    tmp_path: Path, kind: pa.DataType, ending: str
) -> None:
    table = Table.create(tmp_path / "t", rows(kind), "k")
    path = tmp_path / f"a.{ending}"
    table.scan().to_file(path)
    whole = table.scan().to_table()
    with open_table_file(str(path), whole.schema) as file:
        assert pa.Table.from_batches(file, file.schema).equals(whole)
    if ending == "ndjson":
        texts = [json.loads(line)["k"] for line in path.read_text().splitlines()]
        assert [decimal.Decimal(text) for text in texts] == values_of(whole["k"])


@pytest.mark.parametrize(
    "text", ["1e400", "0.000000000001", "x", "", "1e", "0.1e99999", "nan", "1 "]
)
def test_a_text_that_is_no_value_of_them_is_refused(tmp_path: Path, text: str) -> None:
    kind = pa.decimal32(5, 11)
    path = tmp_path / "a.ndjson"
    path.write_text(f'{{"k": "2E-11"}}\n{{"k": "{text}"}}\n')
    with pytest.raises(CompactorError), open_table_file(str(path), pa.schema({"k": kind})) as file:
        list(file)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("function", "expected"),
    [(RowFunction.SUM, 6), (RowFunction.MIN, -4), (RowFunction.MAX, 5)],
)
def test_they_are_added_up_and_compared(
    tmp_path: Path, kind: pa.DataType, function: RowFunction, expected: int
) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("v", function),))
    table = pa.table({"k": [1, 1, 1, 2], "v": decimals(kind, [5, -4, 5, 1])})
    found = Table.create(tmp_path / "t", table, "k", IngestOptions(rows=policy))
    found.append(table.slice(3))
    found.compact(policy=Policy(strategy=Strategy.FULL))
    found.refresh()
    assert values_of(found.scan().to_table()["v"])[0] == value(kind, expected)
