"""SPEC.md is enough to read a fragment: a second reader made from it agrees with ours."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from lsm_fragment.arrays.storage import decoded, to_storage
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings.node import Encoding
from tests.support.fragments import BytesSource, read_random, rows_of, write_fragment
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.spec_example import MARK, SPEC, example_fragment, example_table
from tests.support.spec_reader import Fragment


def spec_values(array: pa.Array) -> list[Any]:
    """Values in the second reader's terms: integers for temporal types, bytes for the odd ones."""
    array = to_storage(array)
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    return [spec_value(scalar) for scalar in array]


def spec_value(scalar: Any) -> Any:
    dtype = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_temporal(dtype) and not pa.types.is_interval(dtype):
        return scalar.cast(pa.int32() if dtype.bit_width == 32 else pa.int64()).as_py()
    if pa.types.is_interval(dtype):
        months, days, nanos = scalar.as_py()
        return b"".join(
            n.to_bytes(size, "little", signed=True)
            for n, size in ((months, 4), (days, 4), (nanos, 8))
        )
    if pa.types.is_struct(dtype):
        return tuple(spec_value(scalar[i]) for i in range(dtype.num_fields))
    if pa.types.is_nested(dtype):
        return [spec_value(item) for item in scalar.values]
    return scalar.as_py()


@loops("name", SAMPLES)
@pytest.mark.parametrize("repeat", [1, 40])
def test_a_second_reader_made_from_the_specification_agrees(name: str, repeat: int) -> None:
    array = sample_array(name, repeat if name != "long_strings" else 2)
    table = pa.table({"row": pa.array(range(len(array)), pa.int32()), "value": array})
    fragment = Fragment(write_fragment(table, "row", WriterOptions(max_rows=64)))
    assert fragment.columns["row"] == list(range(len(array)))
    assert list(map(repr, fragment.columns["value"])) == list(map(repr, spec_values(array)))


@loops("name", SAMPLES)
def test_the_row_hash_is_that_of_the_specification(name: str) -> None:
    array = sample_array(name, 3)
    table = pa.table({"row": pa.array(range(len(array)), pa.int32()), "value": array})
    fragment = Fragment(write_fragment(table, "row", WriterOptions(max_rows=4)))
    assert f"{fragment.row_hash():016x}" == fragment.footer["row_hash"]


def test_integer_encodings_read_alike() -> None:
    shapes = {
        "constant": [7] * 1000,
        "sorted": [n * n for n in range(1000)],
        "runs": [n // 100 for n in range(1000)],
        "small": [n * 7919 % 200 for n in range(1000)],
        "wide": [(n * 0x9E3779B97F4A7C15) % 2**63 for n in range(1000)],
        "narrow": [1_000_000_000 + n * 7919 % 70_000 for n in range(1000)],
        "negative": [-(n % 3) * 2**40 for n in range(1000)],
        "multiples": [n * 7919 % 977 * 1000 for n in range(1000)],
        "patched": [2**62 if n % 97 == 3 else n * 7919 % 31 for n in range(1000)],
    }
    table = pa.table({"k": pa.array(range(1000))} | {k: pa.array(v) for k, v in shapes.items()})
    data = write_fragment(table, "k")
    fragment = Fragment(data)
    for name, values in shapes.items():
        assert fragment.columns[name] == values, name
    used = {c["name"]: Encoding(c["encoding"][0]).name for c in fragment.footer["columns"]}
    assert used["constant"] == "CONSTANT"
    assert used["runs"] == "RUN_LENGTH"
    assert used["multiples"] == "MULTIPLE"
    assert used["sorted"] == used["narrow"] == used["patched"] == "PACKED"


def example_bytes() -> bytes:
    text = SPEC.read_text().split(MARK)[1]
    return bytes.fromhex("".join(re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", text, re.M)))


def test_the_worked_example_of_the_specification_is_what_the_writer_writes() -> None:
    assert example_fragment().hex() == example_bytes().hex()


def test_the_worked_example_reads_as_the_specification_says() -> None:
    data = example_bytes()
    assert rows_of(read_random(data)) == rows_of(example_table())
    assert Fragment(data).columns == {
        "host": ["a", "a", "b"],
        "ts": [3, 1, 2],
        "msg": ["hi", None, "ho"],
    }


def test_statistics_bound_what_the_chunks_hold() -> None:
    table = pa.table(
        {
            "k": pa.array(range(6)),
            "s": ["b", "a", None, "z" * 100, "zzz" + "z" * 98, "\U0010ffff" * 40],
            "f": [1.0, float("nan"), None, -2.0, float("nan"), float("inf")],
        }
    )
    data = write_fragment(table, "k", WriterOptions(max_rows=3))
    columns = FragmentReader(BytesSource(data), len(data), "mem").footer.columns
    assert [(c.min, c.max) for c in columns["k"]] == [(0, 2), (3, 5)]
    assert (columns["s"][0].min, columns["s"][0].max) == ("a", "b")
    assert columns["s"][1].min == "z" * 64
    assert columns["s"][1].max is None  # nothing bounds a run of the last character from above
    assert [(c.min, c.max) for c in columns["f"]] == [(1.0, "NaN"), (-2.0, "NaN")]
    assert [c.null_count for c in columns["s"]] == [1, 0]
