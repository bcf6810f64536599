"""Columns of ids, which are stored as letters: whatever their inputs store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import choice, letters
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.template import encode_by_templates
from tests.format.test_letters import ids, uuids
from tests.merge.test_codes import encodings, interleaved, merged_rows
from tests.merge.test_oracle import Merged
from tests.merge.test_templates import data_of, messages, words
from tests.support.fragments import BytesSource, rows_of, sort_schema, write_fragment

ROWS = 2000


@pytest.fixture(autouse=True)
def _no_templates_of_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves ids of random letters text, whatever templates take for them."""
    by_templates, as_strings = encode_by_templates, encode_strings

    def chosen(array: pa.Array, *known: Any) -> Node | None:
        is_packed = as_strings(array).encoding is Encoding.LETTERS
        return None if is_packed else by_templates(array, *known)

    monkeypatch.setattr(choice, "encode_by_templates", chosen)


def some_ids(seed: int) -> pa.Array:
    return pa.array(ids(ROWS, seed), mask=np.arange(ROWS) % 37 == 5)


def test_ids_of_several_inputs_merge_and_are_packed_again() -> None:
    tables = interleaved([some_ids(seed) for seed in range(3)])
    one, two = (merged_rows(tables, max_rows=700, threads=threads) for threads in (1, 3))
    assert encodings(one) == {"LETTERS"}
    assert data_of(one) == data_of(two)


def test_values_merge_to_the_frame_that_they_share() -> None:
    columns = [
        pa.array(
            [f"{value[:14]}{version}{value[15:]}" for value in uuids(ROWS, version)],
            mask=np.arange(ROWS) % 41 == 3,
        )
        for version in (1, 4, 7)
    ]
    one, two = (
        merged_rows(interleaved(columns), max_rows=700, threads=threads) for threads in (1, 3)
    )
    assert encodings(one) == {"LETTERS"}
    assert data_of(one) == data_of(two)


@pytest.mark.parametrize(
    "other",
    [
        words(1, ROWS),
        messages(1, ROWS),
        pa.array([f"few {n % 4}" for n in range(ROWS)]),
        pa.array(ids(100) * 20),
        pa.array(uuids(ROWS)),
        pa.array([value.upper()[:30] for value in ids(ROWS, 3)]),
        pa.nulls(ROWS, pa.string()),
    ],
    ids=["words", "templates", "few values", "few ids", "uuids", "other letters", "nulls"],
)
def test_ids_merge_with_columns_that_are_stored_otherwise(other: pa.Array) -> None:
    tables = interleaved([some_ids(1), other, some_ids(2)])
    one, two = (merged_rows(tables, max_rows=700, threads=threads) for threads in (1, 3))
    assert data_of(one) == data_of(two)


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary()])
def test_ids_are_merged_as_keys(dtype: pa.DataType) -> None:
    tables = [
        pa.table({"k": pa.array(sorted(ids(ROWS, seed))).cast(dtype), "v": range(ROWS)})
        for seed in range(3)
    ]
    merged = merged_rows(tables, max_rows=700)
    for data in data_of(merged):
        footer = FragmentReader(BytesSource(data), len(data), "out").footer
        assert {chunk.encoding for chunk in footer.columns["k"]} == {"LETTERS"}


def test_spilling_ids_changes_no_byte() -> None:
    tables = interleaved([pa.concat_arrays([some_ids(s) for s in range(n, n + 4)]) for n in (1, 9)])
    knobs = {"target_row_group_bytes": 100_000, "max_rows": 3200}
    plain = merged_rows(tables, **knobs)
    tight = merged_rows(tables, memory_limit_bytes=plain.plan.stages.need_bytes, **knobs)
    assert encodings(plain) == {"LETTERS"}
    assert data_of(plain) == data_of(tight)


def test_row_groups_of_ids_have_as_many_rows_as_those_of_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows are counted as text, so that row groups do not grow with every merge."""
    tables = interleaved([some_ids(seed) for seed in range(3)])
    knobs = {"max_rows": 5000, "target_row_group_bytes": 40_000}

    def rows_of_groups() -> list[int]:
        merged = merged_rows(tables, **knobs)
        again = Merged(data_of(merged), tables[0].schema, sort_schema("k"), **knobs)
        again.run()
        assert repr(again.rows_of_complete()) == repr(merged.rows_of_complete())
        readers = [FragmentReader(BytesSource(data), len(data), "out") for data in data_of(again)]
        return [group.rows for reader in readers for group in reader.footer.row_groups]

    packed = max(rows_of_groups())
    monkeypatch.setattr(letters, "_by_letters", lambda *_, **__: None)
    assert packed == pytest.approx(max(rows_of_groups()), rel=0.2)


def test_written_fragments_pack_ids_and_their_bytes_come_back() -> None:
    table = pa.table({"k": range(ROWS), "v": some_ids(1)})
    data = write_fragment(table, "k", WriterOptions(max_rows=700))
    reader = FragmentReader(BytesSource(data), len(data), "in")
    assert {chunk.encoding for chunk in reader.footer.columns["v"]} == {"LETTERS"}
    found = pa.chunked_array([c for g in reader.read_storage(["v"], [0, 1, 2]) for c in g])
    assert rows_of(pa.table({"v": found})) == rows_of(table.select(["v"]))
