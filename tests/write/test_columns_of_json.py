"""Columns that become JSON: old fragments stay as they are, and are read as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor import Table
from compactor.errors import InputError
from compactor.read.verify import verify
from compactor.settings.compaction import Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.support.tables import compact_table
from tests.support.wording import refuses

TEXTS = ["Rome", 'a"b\\c', "x\ny\x01é\U0001f600", "", "null", None]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.string(), TEXTS),
    "coded": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "integers": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), 1000, None]),
    "small": (pa.uint8(), [0, 1, 255, 7, 9, None]),
    "doubles": (pa.float64(), [1.0, -0.0, 1e16, 0.1, 5e-324, None]),
    "flags": (pa.bool_(), [True, False, True, True, False, None]),
    "lists": (pa.list_(pa.string()), [["a", None], [], ['"'], [""], ["b", "c"], None]),
    "nothing": (pa.list_(pa.null()), [[], [None], [None, None], [], [], None]),
    "numbers": (pa.large_list(pa.float64()), [[1.0, 2.5], [], [None], [1e300], [0.0], None]),
}


def strict(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("strategy", [None, Strategy.FULL])
def test_stored_values_are_read_and_compacted_as_json(
    tmp_path: Path, name: str, strategy: Strategy | None
) -> None:
    dtype, values = COLUMNS[name]
    url = str(tmp_path / "t")
    made = Table.create(url, pa.table({"k": [*range(6)], "v": pa.array(values, dtype)}), "k")
    mixed = pa.array(['{"n":1}', '"text"', None], pa.string())
    made.append(pa.table({"k": [6, 7, 8], "v": pa.ExtensionArray.from_storage(pa.json_(), mixed)}))
    store = LocalStore(Path(url))
    if strategy is not None:
        compact_table(store, strategy=strategy)
    table = Table.open(url)
    assert table.schema.field("v").type == pa.json_()
    found = table.scan().to_table()["v"].combine_chunks()
    texts = found.storage.to_pylist()
    assert [None if t is None else strict(json.loads(t)) for t in texts] == [
        None if v is None else strict(v) for v in [*values, {"n": 1}, "text", None]
    ]
    assert table.scan(where="v IS NULL").to_table().num_rows == 2
    assert verify(store, CommitLog(store).current()).faults == []


@pytest.mark.parametrize("strategy", [None, Strategy.FULL])
def test_lists_that_were_always_empty_get_the_type_of_later_elements(
    tmp_path: Path, strategy: Strategy | None
) -> None:
    url, empty = str(tmp_path / "t"), [[], [None], None]
    nothing = pa.array(empty, pa.list_(pa.null()))
    made = Table.create(url, pa.table({"k": [1, 2, 3], "v": nothing}), "k")
    made.append(pa.table({"k": [4], "v": pa.array([["a"]])}))
    store = LocalStore(Path(url))
    if strategy is not None:
        compact_table(store, strategy=strategy)
    found = Table.open(url).scan().to_table()["v"]
    assert found.type == pa.list_(pa.string())
    assert found.to_pylist() == [*empty, ["a"]]
    assert verify(store, CommitLog(store).current()).faults == []


def test_other_types_do_not_become_json(tmp_path: Path) -> None:
    day = pa.table({"k": [1], "v": pa.array([1], pa.date32())})
    made = Table.create(str(tmp_path / "t"), day, "k")
    value = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"]))
    with refuses(InputError):
        made.append(pa.table({"k": [1], "v": value}))


def test_a_sort_column_does_not_become_json(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), pa.table({"k": [1]}), "k")
    value = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"]))
    with refuses(InputError):
        made.append(pa.table({"k": value}))
