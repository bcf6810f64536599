"""The folder of a table: found around a file by the table's log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from compactor.common.table_folder import table_around


@pytest.mark.parametrize("inner", ["x.csv", "data/x.csv", "_log/x.csv", "a/b/x.csv"])
def test_a_file_at_any_depth_of_a_table_is_inside_it(inner: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    Table.create(folder, pa.table({"k": [1]}), sort_by="k")
    assert table_around(folder / inner) == folder


def test_a_file_beside_a_table_or_other_logs_is_inside_none(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", pa.table({"k": [1]}), sort_by="k")
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "today.json").touch()
    assert table_around(tmp_path / "x.csv") is None
    assert table_around(tmp_path / "t") is None
