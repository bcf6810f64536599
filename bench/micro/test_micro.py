"""Measures encoding, decoding, ordering and gathering of one row group, by kind of column.

    python -m pytest bench/micro --benchmark-json=bench/results/micro.json

The file says which commit and machine its figures come from (pytest-benchmark).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from bench.workload import make_overlapping_inputs, sort_rows
from lsm_fragment.arrays.hashing import add_column
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.blocks.layout import BlockKind, unpack_block_header
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.gather.columns import gather, gather_arrays
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import pieces_of
from lsm_fragment.keys.normalised import sort_keys, stable_order
from lsm_fragment.keys.sort_schema import parse_sort_schema

ROWS = 65_536
RUNS = 16
COLUMNS = ["timestamp", "service", "host", "level", "status", "duration_us", "trace_id", "message",
           "tags", "cpu_ratio"]  # fmt: skip


@cache
def runs() -> list[pa.Table]:
    """Returns sorted runs of log rows that make one row group."""
    tables = make_overlapping_inputs(ROWS, RUNS, seed=3)
    return [sort_rows(table, [("timestamp", "ascending")]) for table in tables]


def pieces(column: str) -> list[pa.Array]:
    return [to_storage(run[column].combine_chunks()) for run in runs()]


@cache
def origins() -> Origins:
    """Returns the source run of each merged row."""
    stamps = np.concatenate([run["timestamp"].cast(pa.int64()).to_numpy() for run in runs()])
    of_rows = np.repeat(np.arange(len(runs())), [run.num_rows for run in runs()])
    ordered = of_rows[np.argsort(stamps, kind="stable")].astype(np.uint16)
    return Origins.of(ordered, len(runs()))


def merged(column: str) -> pa.Array:
    return gather_arrays([[piece] for piece in pieces(column)], origins())


def block_of(array: pa.Array) -> Block:
    chunk = make_chunk(array, level=1)
    head, meta, stored = chunk.parts(BlockKind.DATA)
    return Block(
        header=unpack_block_header(head, name="", offset=0),
        meta=meta,
        stored=stored,
        offset=0,
        name="",
    )


@pytest.mark.parametrize("column", COLUMNS)
def test_encode_a_row_group(benchmark, column: str) -> None:
    array = merged(column)
    assert benchmark(make_chunk, array, level=1).rows == ROWS


@pytest.mark.parametrize("column", COLUMNS)
def test_decode_a_row_group(benchmark, column: str) -> None:
    array = merged(column)
    block = block_of(array)
    decoded = benchmark(block.decode, array.type, keep_dictionary=True)
    assert len(decoded) == ROWS


def values_of(kind: str) -> pa.Array:
    """Returns a row group of one kind of value; string lengths vary by a quarter around their mean."""
    random = np.random.default_rng(1)
    numbers = pa.array(random.integers(0, 1 << 60, ROWS))
    name, _, size = kind.partition(" of ")
    match name:
        case "strings":
            spread = int(size) // 4
            lengths = int(size) + random.integers(-spread, spread + 1, ROWS)
            return pa.array([random.bytes(length).hex()[:length] for length in lengths])
        case "codes":
            return pa.array([f"service-{n % 40}" for n in range(ROWS)]).dictionary_encode()
        case "lists":
            return pa.array([[f"tag{j}" for j in range(n % 4)] for n in range(ROWS)])
        case "nulls":
            return pa.array(numbers.to_numpy(), mask=random.random(ROWS) < 0.1)
        case _:
            return numbers.cast(pa.decimal128(38, 2) if "decimal" in name else name, safe=False)


@pytest.mark.parametrize(
    "kind",
    ["int64", "int32", "nulls", "double", "decimal128(38, 2)", "codes", "lists",
     "strings of 8", "strings of 36", "strings of 150", "strings of 1000"],
)  # fmt: skip
def test_hash_a_row_group(benchmark, kind: str) -> None:
    array, numbers = values_of(kind), np.zeros(ROWS, dtype=np.uint64)
    benchmark(add_column, "c", array, numbers)
    assert numbers.any()


@pytest.mark.parametrize("column", COLUMNS)
def test_gather_a_row_group_from_sixteen_runs(benchmark, column: str) -> None:
    """Gathers as a merge does: by codes where chunks are dictionary-coded."""
    arrays = [block_of(p).decode(p.type, keep_dictionary=True) for p in pieces(column)]
    chunks = pieces_of([[array] for array in arrays], pieces(column)[0].type)
    assert len(benchmark(gather, chunks, origins(), 1 << 30)) == ROWS


@pytest.mark.parametrize("sort", ["timestamp", "service,host,timestamp"])
def test_order_sixteen_runs(benchmark, sort: str) -> None:
    schema = parse_sort_schema(sort)
    columns = [concat_storage(pieces(key.column)) for key in schema]

    def order() -> int:
        return len(stable_order(sort_keys(columns, schema)))

    assert benchmark(order) == ROWS
