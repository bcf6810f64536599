"""A sample of random tables that Spark writes and reads: `python -m tests.generated.tables --spark 20`.

A session takes seconds to start and a job a tenth of a second, so these are few, and never among the others.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from compactor import Policy, Strategy, Table
from compactor.spark import register
from tests.generated.arrays import Builder
from tests.generated.bits import Value, values_of
from tests.generated.values import Values

_LEAVES: Final = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
    pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(38, 10),
    pa.decimal128(5, 0),
)  # fmt: skip
_APPENDS: Final = 2


def spark_type(rng: random.Random, depth: int) -> pa.DataType:
    """Returns a type that Spark has."""
    if depth <= 0 or rng.random() < 0.6:
        return rng.choice(_LEAVES)
    inner = spark_type(rng, depth - 1)
    match rng.randrange(3):
        case 0:
            return pa.list_(pa.field("element", inner))
        case 1:
            return pa.struct([pa.field("a", inner), pa.field("b.c", spark_type(rng, depth - 1))])
    return pa.map_(pa.string(), inner)


def check(session: Any, seed: int) -> str | None:
    """Returns what is wrong with the table of a seed, written by Spark, and read by it and from Python."""
    rng = random.Random(f"spark {seed}")
    types = {
        "k": rng.choice(_LEAVES),
        **{f"c{n}": spark_type(rng, 2) for n in range(rng.randint(0, 4))},
    }
    written: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "table")
        for number in range(_APPENDS):
            values = Values(rng, null_share=0.2, extremes=0.0, distinct=5)
            rows = rng.choice((1, 5, 30))
            columns = {name: values.column(dtype, rows) for name, dtype in types.items()}
            builder = Builder(rng, 0.0)
            table = pa.table({name: builder.array(types[name], columns[name]) for name in types})
            written.update(_rows(columns))
            frame = session.createDataFrame(table)
            writer = frame.write.format("fragments").mode("append")
            (writer if number else writer.option("sort_by", "k")).save(url)
            if rng.random() < 0.3:
                Table.open(url).compact(policy=Policy(strategy=Strategy.FULL))
        if fault := _difference("the table", written, Table.open(url).scan().to_table()):
            return fault
        read = session.read.format("fragments").load(url).toArrow()
        return _difference("what Spark reads", written, read)


def _difference(what: str, written: Counter[str], table: pa.Table) -> str | None:
    columns = {name: values_of(table.column(at)) for at, name in enumerate(table.column_names)}
    found = _rows(columns)
    for row in written - found:
        return f"{what}: a row is missing: {row[:500]}"
    for row in found - written:
        return f"{what}: a row too many: {row[:500]}"
    return None


def _rows(columns: dict[str, list[Value]]) -> Counter[str]:
    """Returns rows as texts, each with how often it comes; Spark has one NaN."""
    names = sorted(columns)
    rows = zip(*(columns[name] for name in names), strict=True)
    return Counter(str([_plain(value) for value in row]) for row in rows)


def _plain(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return "nan" if isinstance(value, str) and value.startswith("nan") else value


def run(count: int, start: int) -> list[tuple[int, str]]:
    """Returns the findings of that many seeds."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(session)
    findings = []
    try:
        for seed in range(start, start + count):
            fault = check(session, seed)
            if fault is not None:
                findings.append((seed, fault))
    finally:
        session.stop()
    return findings
