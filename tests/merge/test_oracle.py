"""The merge against concatenating and sorting, with awkward sizes of everything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import fields, replace

import lsm_fragment.gather.columns
from compactor.merge.errors import InputMismatchError, MergeCheckError
from compactor.merge.groups import group_work
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.merge_pass import merge_fragments
from compactor.merge.outputs.contract import MergeResult, MergeSettings
from compactor.planner.shape import decoded_bytes
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_plan import KeyGroups, MemorySettings, MergeShape, plan_merge
from compactor.resources.upload_memory import UploadMemory
from compactor.rows.flags import RowRule
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings
from lsm_fragment.arrays import moves
from lsm_fragment.arrays.buffers import fixed_width_bytes
from lsm_fragment.arrays.types import storage_type, value_type
from lsm_fragment.container.footer import ColumnBytes, FragmentSummary
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import CorruptFragmentError, OrderError
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.sort_schema import SortSchema
from tests.support.fragments import (
    BytesSource,
    NonSeekableSource,
    read_random,
    read_stream,
    rows_of,
    sort_schema,
    write_fragment,
)
from tests.support.loops import loops
from tests.support.oracle import stable_sorted
from tests.support.samples import SAMPLES, sample_array
from tests.support.strategies import AWKWARD_SIZES, keyed_tables
from tests.support.wording import refuses


class MemoryOutput(Struct):
    data: bytearray = field(default_factory=bytearray)
    state: str = "open"

    def write(self, data: bytes) -> None:
        assert self.state == "open"
        self.data += data

    def complete(self) -> None:
        assert self.state == "open"
        self.state = "complete"

    def abort(self) -> None:
        self.state = "aborted"

    def spill(self, disk: LocalDisk) -> None: ...


MEMORY_KNOBS = [knob.name for knob in fields(MemorySettings)]


def shape_of(fragments: Sequence[bytes], schema: pa.Schema, sort: SortSchema) -> MergeShape:
    """What a log would know of these fragments."""
    footers = [FragmentReader(BytesSource(data), len(data), "mem").footer for data in fragments]
    summaries = [footer.summary() for footer in footers]
    raw: dict[str, int] = {}
    for summary in summaries:
        for name, column in summary.columns.items():
            raw[name] = raw.get(name, 0) + column.raw
    rows = sum(summary.rows for summary in summaries)

    def width_of(name: str) -> int | None:
        return fixed_width_bytes(storage_type(schema.field(name).type))

    def key_group(summary: FragmentSummary) -> int:
        raw = (summary.columns.get(column.column, ColumnBytes(0, 0)).raw for column in sort)
        return (sum(raw) + 8 * summary.rows) // max(1, summary.row_groups)

    peaks = [summary.peak_chunk_bytes for summary in summaries]
    return MergeShape(
        inputs=len(fragments),
        rows=rows,
        stored_bytes=sum(map(len, fragments)),
        peak_chunk_bytes=max(peaks, default=0),
        run_chunk_bytes=sum(peaks),
        heaviest_column_bytes=sum(s.peak_chunk_bytes * s.row_groups for s in summaries),
        sort_columns=len(sort),
        key_row_bytes=sum(
            -(
                -decoded_bytes(width_of(column.column), raw.get(column.column, 0), rows)
                // max(1, rows)
            )
            for column in sort
        ),
        key_groups=KeyGroups(max(map(key_group, summaries), default=0), 0, 0),
        columns=len(raw),
    )


class Merged:
    """One run of the merge over fragments in memory."""

    def __init__(
        self, fragments: Sequence[bytes], schema: pa.Schema, sort: SortSchema, **knobs
    ) -> None:
        self.outputs: list[MemoryOutput] = []
        self.opened: list[int] = []
        options = WriterOptions(
            knobs.pop("max_rows", 50), knobs.pop("target_row_group_bytes", 1 << 20)
        )
        memory = replace(
            CompactionSettings().memory(),
            **{name: knobs.pop(name) for name in MEMORY_KNOBS if name in knobs},
        )
        self.settings = MergeSettings(
            schema=schema,
            sort=sort,
            options=options,
            **{"target_fragment_bytes": 1 << 30} | knobs,
            memory=memory,
        )
        self.inputs = [self._input(i, data) for i, data in enumerate(fragments)]
        self.plan = plan_merge(
            shape_of(fragments, schema, sort),
            memory,
            target_row_group_bytes=options.target_row_group_bytes,
            target_fragment_bytes=self.settings.target_fragment_bytes,
            max_rows_per_row_group=options.max_rows,
        )

    def run(self) -> MergeResult:
        return merge_fragments(self.inputs, self.settings, self.plan, self._open_output)

    def tables(self) -> list[pa.Table]:
        assert all(output.state == "complete" for output in self.outputs)
        return [read_random(bytes(output.data)) for output in self.outputs]

    def rows(self) -> list[dict[str, object]]:
        return [row for table in self.tables() for row in rows_of(table)]

    def rows_of_complete(self) -> list[dict[str, object]]:
        """Rows of those outputs that are not of a pass that was given up."""
        complete = [o for o in self.outputs if o.state == "complete"]
        return [row for o in complete for row in rows_of(read_random(bytes(o.data)))]

    def row_group_rows(self) -> list[int]:
        complete = [bytes(o.data) for o in self.outputs if o.state == "complete"]
        footers = [FragmentReader(BytesSource(d), len(d), "mem").footer for d in complete]
        return [group.rows for footer in footers for group in footer.row_groups]

    def _input(self, index: int, data: bytes) -> InputFragment:
        footer = FragmentReader(BytesSource(data), len(data), "mem").footer

        def open_source() -> NonSeekableSource:
            self.opened.append(index)
            return NonSeekableSource(data, 97)

        summary = footer.summary()
        heaviest = max((column.raw for column in summary.columns.values()), default=0)
        return InputFragment(
            name=f"input {index}",
            source_id=str(index),
            rows=footer.rows,
            size_bytes=len(data),
            row_hash=footer.row_hash,
            open_source=open_source,
            mean_row_bytes=-(-heaviest // max(1, footer.rows)),
            peak_row_bytes=summary.peak_row_bytes,
        )

    def _open_output(self, memory: UploadMemory) -> MemoryOutput:
        self.outputs.append(MemoryOutput())
        return self.outputs[-1]


MERGES = given(
    keyed_tables(max_tables=6, max_rows=60),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from([1, 2, 7, 1 << 20]),
    st.sampled_from([1, 500, 2000, 1 << 30]),
)


@settings(max_examples=40, deadline=None)
@MERGES
def test_merging_is_concatenating_and_sorting_stably(
    case, rows_in: int, rows_out: int, batch_size: int, fragment_bytes: int
) -> None:
    check_merge(case, rows_in, rows_out, batch_size, fragment_bytes)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@MERGES
def test_many_more_merges_are_concatenating_and_sorting_stably(
    case, rows_in: int, rows_out: int, batch_size: int, fragment_bytes: int
) -> None:
    check_merge(case, rows_in, rows_out, batch_size, fragment_bytes)


def check_merge(case, rows_in: int, rows_out: int, batch_size: int, fragment_bytes: int) -> None:
    tables, sort = case
    fragments = [
        write_fragment(stable_sorted(table, sort), sort, WriterOptions(max_rows=rows_in))
        for table in tables
    ]
    merged = Merged(
        fragments,
        tables[0].schema,
        sort,
        max_rows=rows_out,
        batch_size=batch_size,
        target_fragment_bytes=fragment_bytes,
    )
    result = merged.run()
    expected = stable_sorted(pa.concat_tables(tables), sort)
    assert repr(merged.rows()) == repr(rows_of(expected))
    assert sorted(merged.opened) == list(range(len(tables)))
    assert result.rows_in == result.rows_out == expected.num_rows
    assert_disjoint(result, tables[0].schema, sort, merged.tables())
    for output in merged.outputs:
        assert repr(rows_of(read_stream(bytes(output.data)))) == repr(
            rows_of(read_random(bytes(output.data)))
        )


def assert_disjoint(
    result: MergeResult, schema: pa.Schema, sort: SortSchema, tables: list[pa.Table]
) -> None:
    compare = KeyComparator(schema, sort)
    keys = []
    for output, table in zip(result.outputs, tables, strict=True):
        assert output.summary.rows == table.num_rows > 0
        keys.append([tuple(repr(row[c.column]) for c in sort) for row in table.to_pylist()])
        summary = output.summary
        assert compare.key(summary.first_key) <= compare.key(summary.last_key)
    for before, after in itertools.pairwise(keys):
        equal_floats = {("-0.0",), ("0.0",)}
        assert before[-1] != after[0] or before[-1] in equal_floats


@pytest.mark.parametrize("inputs", [3, 20])
@loops("name", SAMPLES)
def test_values_of_every_type_are_carried_from_few_and_from_many_inputs(
    name: str, inputs: int
) -> None:
    array = sample_array(name, 6)
    rows = len(array)
    whole = pa.table(
        {"k": pa.array([n * 7 % 5 for n in range(rows)]), "i": pa.array(range(rows)), "v": array}
    )
    sort = sort_schema("k,i")
    size = rows // inputs + 1
    parts = [whole.slice(start, size) for start in range(0, rows, size)]
    fragments = []
    for part in parts:
        ids = list(zip(part["k"].to_pylist(), part["i"].to_pylist(), range(len(part)), strict=True))
        order = [row for _, _, row in sorted(ids)]
        ordered = pa.concat_tables([part.slice(r, 1) for r in order])
        fragments.append(write_fragment(ordered, sort, WriterOptions(max_rows=3)))
    merged = Merged(fragments, whole.schema, sort, max_rows=4)
    merged.run()
    expected = sorted(rows_of(whole), key=lambda row: (row["k"], row["i"]))
    assert repr(merged.rows()) == repr(expected)


def numbered(start: int, stop: int, step: int = 1, **columns) -> pa.Table:
    values = list(range(start, stop, step))
    return pa.table({"k": values} | {n: make(values) for n, make in columns.items()})


def test_columns_that_inputs_lack_come_out_null() -> None:
    parts = [
        numbered(0, 100, 3, b=lambda v: [f"b{n % 4}" for n in v]),
        numbered(1, 100, 3, a=lambda v: v, c=lambda v: [None] * len(v)),
        numbered(2, 100, 3),
    ]
    schema = pa.schema(
        [("k", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("never", pa.int8())]
    )
    parts[1] = parts[1].drop_columns(["c"])
    merged = Merged(
        [write_fragment(part, "k", WriterOptions(max_rows=7)) for part in parts],
        schema,
        sort_schema("k"),
    )
    merged.run()
    (table,) = merged.tables()
    assert table.schema.names == ["k", "a", "b"]
    assert table["a"].to_pylist() == [n if n % 3 == 1 else None for n in range(100)]
    assert table["b"].to_pylist() == [f"b{n % 4}" if n % 3 == 0 else None for n in range(100)]


@pytest.mark.parametrize("inputs", [1, 2, 200])
def test_all_keys_equal_keeps_input_order_and_makes_one_fragment(inputs: int) -> None:
    tables = [pa.table({"k": [7] * 5, "n": [i * 5 + j for j in range(5)]}) for i in range(inputs)]
    merged = Merged(
        [write_fragment(t, "k", WriterOptions(max_rows=2)) for t in tables],
        tables[0].schema, sort_schema("k"), target_fragment_bytes=1, max_rows=3,
    )  # fmt: skip
    merged.run()
    assert len(merged.outputs) == 1
    assert [row["n"] for row in merged.rows()] == list(range(inputs * 5))


def test_a_damaged_input_aborts_every_output() -> None:
    tables = [numbered(i, 1000, 2, t=lambda v: [str(n) for n in v]) for i in range(2)]
    fragments = [write_fragment(t, "k", WriterOptions(max_rows=50)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), target_fragment_bytes=2000)
    damaged = bytearray(fragments[1])
    damaged[len(damaged) // 2] ^= 1
    merged.inputs[1] = InputFragment(
        name="broken one",
        source_id="1",
        rows=500,
        size_bytes=len(damaged),
        row_hash=merged.inputs[1].row_hash,
        open_source=lambda: NonSeekableSource(bytes(damaged)),
    )
    with refuses(CorruptFragmentError):
        merged.run()
    assert merged.outputs
    assert {output.state for output in merged.outputs} == {"aborted"}


def test_an_input_that_is_not_the_logs_is_refused() -> None:
    table = numbered(0, 10)
    merged = Merged([write_fragment(table, "k")], table.schema, sort_schema("k"))
    original = merged.inputs[0]
    merged.inputs[0] = replace(original, row_hash=original.row_hash ^ 1)
    with refuses(InputMismatchError):
        merged.run()
    assert merged.outputs[0].state == "aborted"


def test_rows_lost_on_the_way_are_noticed_before_anything_is_complete(monkeypatch) -> None:
    tables = [numbered(i, 100, 2, v=lambda v: v) for i in range(2)]
    fragments = [write_fragment(t, "k") for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=1000, threads=1)
    honest = lsm_fragment.gather.columns.gather
    calls = itertools.count()

    def swapping(*arguments, **options):
        array = honest(*arguments, **options)
        is_key = not next(calls)
        return array if is_key else array.take(pa.array([1, 0, *range(2, len(array))]))

    monkeypatch.setattr(group_work, "gather", swapping)
    with refuses(MergeCheckError):
        merged.run()
    assert merged.outputs[0].state == "aborted"


@pytest.mark.parametrize("kind", [RowKind.FIRST, RowKind.AGGREGATE])
def test_a_filter_that_changes_rows_that_stay_is_noticed(kind: RowKind, monkeypatch) -> None:
    """The row hash of what is written is that of the rows taken, so what is written has to be compared."""
    tables = [numbered(0, 20, v=lambda keys: [[n] for n in keys]) for _ in range(2)]
    policy = RowPolicy(
        kind, aggregates=(("v", RowFunction.LAST),) if kind.value == "aggregate" else ()
    )
    rule = RowRule(policy, None, tables[0].schema, sort_schema("k"), is_bottom=True)
    fragments = [write_fragment(table, "k") for table in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), threads=1, rule=rule)

    def changed(move: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
        def moved(array: pa.Array, *arguments: Any) -> pa.Array:
            found = move(array, *arguments)
            is_list = pa.types.is_list(value_type(array.type))
            return moves.take(found, np.arange(len(found))[::-1]) if is_list else found

        return moved

    for name in ("kept_rows", "take"):
        monkeypatch.setattr(group_work, name, changed(getattr(group_work, name)))
    with refuses(MergeCheckError):
        merged.run()
    assert merged.outputs[0].state == "aborted"


def test_an_unsorted_input_is_refused(monkeypatch) -> None:
    from lsm_fragment.container import writer

    monkeypatch.setattr(writer.FragmentWriter, "_check_order", lambda self, columns: None)
    bad = write_fragment(pa.table({"k": [1, 3, 2]}), "k")
    worse = write_fragment(pa.table({"k": [1, 3, 2]}), "k", WriterOptions(max_rows=2))
    for data in (bad, worse):
        merged = Merged([data], pa.schema([("k", pa.int64())]), sort_schema("k"))
        with refuses(OrderError):
            merged.run()


def test_inputs_of_another_sort_schema_or_type_are_refused() -> None:
    table = numbered(0, 10)
    with refuses(InputMismatchError):
        Merged([write_fragment(table, "k")], table.schema, sort_schema("k:nulls_first")).run()
    other = pa.schema([("k", pa.int32())])
    with refuses(InputMismatchError):
        Merged([write_fragment(table, "k")], other, sort_schema("k")).run()
