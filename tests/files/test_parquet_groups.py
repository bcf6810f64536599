"""Row groups of Parquet files that are told from each other by their bytes."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import InputError
from compactor.files.columnar import ParquetBatches
from compactor.files.parquet_groups import stored_groups

NUMBERS = pa.table({"n": range(10), "t": [f"text {n}" for n in range(10)]})


def digests(path: Path, table: pa.Table, **how: Any) -> list[str]:
    pq.write_table(table, path, **{"row_group_size": 4, **how})
    found = stored_groups(str(path))
    sizes = [min(4, len(table) - start) for start in range(0, len(table), 4)]
    assert [group.rows for group in found] == sizes[: len(found)]
    return [group.digest for group in found]


def test_equal_row_groups_are_equal_in_any_file(tmp_path: Path) -> None:
    first = digests(tmp_path / "a.parquet", NUMBERS)
    assert len(set(first)) == 3
    moved = pa.concat_tables([NUMBERS.slice(4, 4), NUMBERS.slice(0, 4)])
    assert digests(tmp_path / "b.parquet", moved) == [first[1], first[0]]


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize("column", ["n", "t"])
def test_another_value_makes_another_row_group(tmp_path: Path, column: str, place: int) -> None:
    values = NUMBERS[column].to_pylist()
    values[place] = {"n": 77, "t": "text X"}[column]
    number = NUMBERS.schema.get_field_index(column)
    other = NUMBERS.set_column(number, column, pa.array(values))
    before, after = digests(tmp_path / "a", NUMBERS), digests(tmp_path / "b", other)
    assert [n for n in range(3) if before[n] != after[n]] == [place // 4]


TIMES = pa.array([dt.datetime(2026, 1, 1)] * 4, pa.timestamp("us"))


@pytest.mark.parametrize(
    ("table", "other"),
    [
        (pa.table({"a": [1, 2]}), pa.table({"b": [1, 2]})),
        (pa.table({"a": TIMES}), pa.table({"a": TIMES.cast(pa.timestamp("us", "UTC"))})),
        (pa.table({"a": TIMES}), pa.table({"a": TIMES.view(pa.int64())})),
        (
            pa.table({"a": TIMES.cast(pa.timestamp("us", "UTC"))}),
            pa.table({"a": TIMES.cast(pa.timestamp("us", "Europe/Paris"))}),
        ),
        (pa.table({"a": ["x"]}), pa.table({"a": pa.array([b"x"])})),
        (pa.table({"a": ["x"]}), pa.table({"a": pa.array(["x"], pa.large_string())})),
    ],
    ids=["name", "zone", "no times", "another zone", "bytes", "large strings"],
)
def test_other_types_or_names_make_other_row_groups(
    tmp_path: Path, table: pa.Table, other: pa.Table
) -> None:
    assert digests(tmp_path / "a", table) != digests(tmp_path / "b", other)


def test_what_programs_note_beside_the_types_makes_no_other_row_groups(tmp_path: Path) -> None:
    noted = NUMBERS.replace_schema_metadata({"pandas": "rows: 7", "written": "today"})
    assert digests(tmp_path / "a", NUMBERS) == digests(tmp_path / "b", noted)


def test_none_of_writers_whose_columns_readers_read_beyond(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    digests(path, NUMBERS)
    data = path.read_bytes()
    writer = pq.read_metadata(path).created_by.encode()
    assert data.count(writer) == 1
    old = b"parquet-mr version 1.2.8".ljust(len(writer))
    path.write_bytes(data.replace(writer, old))
    assert stored_groups(str(path)) == ()


def test_none_where_the_unit_of_times_is_the_files(tmp_path: Path) -> None:
    table = pa.table({"a": TIMES})
    assert digests(tmp_path / "a", table, use_deprecated_int96_timestamps=True) == []


def test_only_chosen_row_groups_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    digests(path, NUMBERS)
    with ParquetBatches(str(path), 1 << 20) as file:
        file.read_only([0, 2])
        assert [n for batch in file for n in batch["n"].to_pylist()] == [0, 1, 2, 3, 8, 9]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(InputError, match=re.escape(str(path))):
        stored_groups(str(path))
