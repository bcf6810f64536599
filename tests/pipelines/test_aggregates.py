"""Groups of every type, sums without rounding, and as many groups as do not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.errors import ConfigError
from compactor.pipelines import database
from tests.pipelines.support import MIB, run_of, sources
from tests.pipelines.test_carried import arrays, shown
from tests.support.wording import refuses

NAN = float("nan")


def grouped(
    table: pa.Table, columns: Mapping[str, str], path: Path, *keys: str, **settings: Any
) -> tuple[pa.Table, Any]:
    """The groups of a table, and the report."""
    node = {"input": "a", "group_by": list(keys or "k"), "columns": columns}
    nodes = {
        **sources("a"),
        "g": {"aggregate": node},
        "out": {"output": {"input": "g", "path": str(path / "o.arrow")}},
    }
    report = run_of(nodes, {"a": table}, **settings).run()
    with pa.ipc.open_file(path / "o.arrow") as file:
        return file.read_all(), report


@pytest.mark.parametrize("values", arrays(), ids=lambda array: str(array.type))
def test_keys_and_extremes_of_every_type_are_values_of_their_column(
    values: pa.Array, tmp_path: Path
) -> None:
    count = len(values)
    table = pa.table({"k": pa.concat_arrays([values, values]), "one": [1] * 2 * count})
    by_key, _ = grouped(table, {"n": "count", "low": "min(k)", "high": "max(k)"}, tmp_path)
    keys = by_key["k"].combine_chunks()
    groups: dict[str, int] = {}
    for value in shown(values):
        groups[value] = groups.get(value, 0) + 2
    assert dict(zip(shown(keys), by_key["n"].to_pylist(), strict=True)) == groups
    for name in ("low", "high"):
        assert shown(by_key[name].combine_chunks()) == shown(keys)
    extremes, _ = grouped(
        table, {"low": "min(k)", "high": "max(k)", "n": "count(k)"}, tmp_path, "one"
    )
    known = [k for k in shown(keys) if k not in ("None", "nan")] or ["None"]
    assert extremes["n"].to_pylist() == [2 * (count - values.null_count)]
    assert [str(shown(extremes[n].combine_chunks())[0]) for n in ("low", "high")] == [
        str(known[0]),
        str(known[-1]),
    ]


@pytest.mark.parametrize("dtype", [pa.decimal128(38, 1), pa.decimal256(76, 1)], ids=str)
def test_sums_of_decimals_may_exceed_their_type_on_the_way(
    dtype: pa.DataType, tmp_path: Path
) -> None:
    nines = "9" * (dtype.precision - 1)
    most, least = Decimal(nines), Decimal(f"-{nines}")
    values = [most, most, most, None, least, least, Decimal("0.5")]
    table = pa.table({"k": [1] * len(values), "v": pa.array(values, dtype)})
    found, _ = grouped(table, {"s": "sum(v)", "n": "count(v)", "m": "mean(v)"}, tmp_path)
    assert found.to_pylist() == [
        {"k": 1, "s": Decimal(f"{nines}.5"), "n": 6, "m": pytest.approx(float(most) / 6)}
    ]
    assert found.schema.field("s").type == dtype


def test_sums_of_flags_halves_and_nothing_have_a_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": [1, 1, 2],
            "flag": [True, True, None],
            "half": pa.array([0.5, 1.5, None]).cast(pa.float16()),
            "none": pa.nulls(3),
        }
    )
    names = ("flag", "half", "none")
    columns = {f"{f}_{name}": f"{f}({name})" for f in ("sum", "mean") for name in names}
    found, _ = grouped(table, columns, tmp_path)
    assert found.drop_columns(["k"]).to_pylist() == [
        dict(zip(columns, [2, 2.0, None, 1.0, 1.0, None], strict=True)),
        dict.fromkeys(columns),
    ]
    types = [pa.uint64(), pa.float64(), pa.int64(), *[pa.float64()] * 3]
    assert found.schema.types[1:] == types


def test_sums_of_decimals_of_a_negative_scale_are_exact(tmp_path: Path) -> None:
    values = [Decimal(3000), Decimal(-5000), None, None]
    table = pa.table({"k": [1, 1, 1, 2], "v": pa.array(values, pa.decimal128(10, -3))})
    columns = {"n": "count", "sum": "sum(v)", "mean": "mean(v)", "low": "min(v)"}
    found, _ = grouped(table, columns, tmp_path)
    assert found.drop(["k"]).to_pylist() == [
        {"n": 3, "sum": Decimal(-2000), "mean": -1000.0, "low": Decimal(-5000)},
        {"n": 1, "sum": None, "mean": None, "low": None},
    ]


def test_a_greatest_value_is_not_a_number_only_if_there_is_no_other(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 1, 2, 2, 3], "v": [NAN, 1.0, NAN, NAN, None]})
    found, _ = grouped(table, {"low": "min(v)", "high": "max(v)"}, tmp_path)
    rows = [tuple(map(str, row.values())) for row in found.to_pylist()]
    assert rows == [("1", "1.0", "1.0"), ("2", "nan", "nan"), ("3", "None", "None")]


def test_more_groups_of_long_keys_than_memory_are_the_same_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MIN_BYTES", 32 * MIB)
    count = 150_000
    numbers = [(n * 7919) % count for n in range(count)]
    texts = [f"key-{n:09d}" + "x" * 300 for n in numbers]
    table = pa.table({"k": texts * 2, "v": numbers + numbers[::-1]})
    columns = {"n": "count", "s": "sum(v)", "low": "min(v)"}
    plenty, _ = grouped(table, columns, tmp_path, batch_size=2000)
    little, report = grouped(table, columns, tmp_path, batch_size=2000, memory={"limit": "8MiB"})
    assert report.spills and report.peak_bytes <= 8 * MIB
    assert little.equals(plenty) and little["k"].to_pylist() == sorted(texts)


@pytest.mark.parametrize(
    ("key", "call"),
    [("l", "count"), ("i", "sum(l)"), ("i", "min(l)"), ("i", "mean(t)"), ("i", "max(m)")],
)
def test_what_has_no_sum_or_order_is_refused(key: str, call: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": [1],
            "l": [[1]],
            "t": ["x"],
            "m": pa.array([{"a": 1}], pa.struct([("a", pa.int64())])),
        }
    )
    with refuses(ConfigError, "node 'g'"):
        grouped(table, {"c": call}, tmp_path, key)
