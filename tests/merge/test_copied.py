"""Row groups that go out as they came in, and those that must not."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.arrays.types import storage_type
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import CorruptFragmentError, OrderError
from lsm_fragment.keys.extremes import min_max
from tests.merge.test_oracle import Merged
from tests.support.fragments import BytesSource, rows_of, sort_schema, write_fragment
from tests.support.oracle import stable_sorted
from tests.support.wording import refuses

GOLDEN = Path(__file__).parent.parent / "golden"


def table(keys, name: str = "n") -> pa.Table:
    keys = list(keys)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            name: pa.array([k * 7 for k in keys], pa.int64()),
            "text": [f"row {k % 5}" for k in keys],
        }
    )


def merged_of(tables: list[pa.Table], max_rows: int = 100, rows_in: int = 100, **knobs) -> Merged:
    options = WriterOptions(max_rows=rows_in)
    fragments = [write_fragment(t, "k", options) for t in tables]
    schema = pa.unify_schemas([t.schema for t in tables])
    return Merged(fragments, schema, sort_schema("k"), max_rows=max_rows, **knobs)


def data_blocks(data: bytes) -> list[bytes]:
    reader = BlockReader(io.BytesIO(data), "x")
    reader.read_prologue()
    payloads = []
    while (block := reader.read_block()).header.kind is not BlockKind.DIRECTORY:
        if block.header.kind in (BlockKind.KEY, BlockKind.DATA):
            payloads.append(b"".join(block.parts()))
    return payloads


def check_footer(data: bytes) -> None:
    """Least and greatest values, null counts, rows: as the chunks have them."""
    reader = FragmentReader(BytesSource(data), len(data), "out")
    for name, chunks in reader.footer.columns.items():
        dtype = storage_type(reader.schema.field(name).type)
        for group, (stats, block) in enumerate(
            zip(chunks, reader.read_blocks(name, range(len(chunks))), strict=True)
        ):
            array = block.decode(dtype)
            assert (stats.min, stats.max) == min_max(array), (name, group)
            assert stats.null_count == array.null_count
            assert stats.raw_bytes == block.header.raw_bytes
            assert stats.stored_bytes == block.header.block_bytes
            assert stats.encoding == block.encoding


def test_row_groups_of_disjoint_inputs_go_out_byte_for_byte() -> None:
    tables = [table(range(1000, 1400)), table(range(0, 300)), table(range(400, 700))]
    merged = merged_of(tables)
    result = merged.run()
    assert result.copied_rows == result.rows_out == 1000
    out = bytes(merged.outputs[0].data)
    ours = [write_fragment(t, "k", WriterOptions(max_rows=100)) for t in tables]
    assert sorted(data_blocks(out)) == sorted(b for data in ours for b in data_blocks(data))
    assert [row["k"] for row in merged.rows()] == [
        *range(300),
        *range(400, 700),
        *range(1000, 1400),
    ]
    assert sorted(merged.opened) == [0, 1, 2]
    check_footer(out)


def test_only_row_groups_that_others_have_keys_in_are_merged() -> None:
    tables = [table(range(0, 20_000, 2)), table([5001, 5003, 5005, 12_345])]
    merged = merged_of(tables)
    result = merged.run()
    assert merged.rows() == rows_of(stable_sorted(pa.concat_tables(tables), sort_schema("k")))
    assert result.copied_rows == 10_000 - 2 * 100
    check_footer(bytes(merged.outputs[0].data))


def test_few_rows_between_whole_row_groups_make_no_small_one() -> None:
    tables = [table([*range(0, 300), *range(400, 700)]), table([350, 351])]
    merged = merged_of(tables)
    result = merged.run()
    assert merged.row_group_rows() == [100, 100, 100, 51, 51, 100, 100]
    assert result.copied_rows == 500


def test_equal_keys_of_another_input_keep_a_row_group_from_being_copied() -> None:
    first, second = table(range(0, 200)), table([99, *range(200, 299)])
    merged = merged_of([first, second])
    result = merged.run()
    assert merged.rows() == rows_of(
        stable_sorted(pa.concat_tables([first, second]), sort_schema("k"))
    )
    assert result.copied_rows == 100  # the rows from 100 to 199, which lie between 99 and 200


def test_a_column_that_the_input_of_a_passed_row_group_lacks_is_null_in_it() -> None:
    merged = merged_of([table(range(100)), table(range(100, 200), name="other")])
    assert merged.run().copied_rows == 200
    rows = merged.rows()
    assert [row["n"] for row in rows] == [k * 7 for k in range(100)] + [None] * 100
    assert [row["other"] for row in rows] == [None] * 100 + [k * 7 for k in range(100, 200)]
    check_footer(bytes(merged.outputs[0].data))


def test_a_cut_key_within_a_row_group_is_kept_to() -> None:
    merged = merged_of(
        [table(range(300)), table(range(300, 600))],
        cut_keys=[(250,), (400,)], target_fragment_bytes=1200,
    )  # fmt: skip
    merged.run()
    starts = [t["k"][0].as_py() for t in merged.tables()]
    assert 250 in starts
    assert 400 in starts
    assert [row["k"] for row in merged.rows()] == list(range(600))


def test_small_row_groups_and_weakly_compressed_ones_are_made_anew() -> None:
    tables = [table(range(i * 10, i * 10 + 10)) for i in range(30)]
    merged = merged_of(tables, rows_in=10)
    assert merged.run().copied_rows == 0
    assert merged.row_group_rows() == [100, 100, 100]
    weak = [
        write_fragment(table(range(i, i + 100)), "k", WriterOptions(100, compression_level=0))
        for i in (0, 100)
    ]
    again = Merged(weak, tables[0].schema, sort_schema("k"), max_rows=100)
    assert again.run().copied_rows == 0


def test_a_damaged_chunk_is_noticed_although_it_is_not_read() -> None:
    fragments = [
        bytearray(write_fragment(table(range(i, i + 100)), "k", WriterOptions(100)))
        for i in (0, 100)
    ]
    reader = FragmentReader(BytesSource(bytes(fragments[1])), len(fragments[1]), "x")
    chunk = reader.footer.columns["text"][0]
    fragments[1][chunk.offset + chunk.stored_bytes - 3] ^= 1
    merged = Merged([bytes(f) for f in fragments], reader.schema, sort_schema("k"), max_rows=100)
    with refuses(CorruptFragmentError):
        merged.run()
    assert merged.outputs[0].state == "aborted"


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 3)), min_size=1, max_size=6
    ),
    st.sampled_from([1, 3, 10, 100]),
    st.sampled_from([1, 4, 10, 50]),
    st.sampled_from([1, 7, 1 << 20]),
    st.sampled_from([300, 1 << 30]),
)
def test_nearly_disjoint_inputs_merge_to_the_same_bytes_in_any_batches(
    stretches, rows_in: int, rows_out: int, batch_size: int, fragment_bytes: int
) -> None:
    tables = [
        table(range(start * 5, start * 5 + rows * step, step)) for start, rows, step in stretches
    ]
    fragments = [write_fragment(t, "k", WriterOptions(max_rows=rows_in)) for t in tables]
    knobs = {"max_rows": rows_out, "target_fragment_bytes": fragment_bytes}
    whole = Merged(fragments, tables[0].schema, sort_schema("k"), **knobs)
    batched = Merged(fragments, tables[0].schema, sort_schema("k"), batch_size=batch_size, **knobs)
    assert whole.run().copied_rows == batched.run().copied_rows
    assert whole.rows() == rows_of(stable_sorted(pa.concat_tables(tables), sort_schema("k")))
    assert [o.data for o in whole.outputs] == [o.data for o in batched.outputs]
    assert max(whole.row_group_rows()) <= rows_out
    for output in whole.outputs:
        check_footer(bytes(output.data))


@pytest.mark.parametrize("seed", range(12))
def test_keys_of_any_weight_are_cut_the_same_in_any_batches(seed: int) -> None:
    """Keys decide where row groups end, and rows that wait before a copied row group are weighed ahead."""
    rng = random.Random(seed)
    tables = []
    for number in range(3):
        keys = []
        for shared in range(0, 3000, 1000):
            places = sorted(rng.sample(range(shared, shared + 200), rng.randrange(5, 25)))
            keys += [f"{place:06}" + "x" * rng.randrange(rng.choice([10, 400])) for place in places]
            alone = shared + 300 + 100 * number
            keys += [f"{place:06}" + "x" * 40 for place in range(alone, alone + 60)]
        tables.append(pa.table({"k": keys, "n": range(len(keys))}))
    fragments = [write_fragment(t, "k", WriterOptions(max_rows=20)) for t in tables]
    knobs = {"max_rows": 30, "target_row_group_bytes": 2000}
    runs = []
    for batch_size in (1, 9, 1 << 20):
        merged = Merged(
            fragments, tables[0].schema, sort_schema("k"), batch_size=batch_size, **knobs
        )
        copied = merged.run().copied_rows
        assert copied
        runs.append(([output.data for output in merged.outputs], copied))
        assert merged.rows() == rows_of(stable_sorted(pa.concat_tables(tables), sort_schema("k")))
    assert runs[0] == runs[1] == runs[2]
    keys, start = [str(row["k"]) for row in merged.rows()], 0
    for rows in merged.row_group_rows():
        assert rows == 1 or sum(4 + len(key) for key in keys[start : start + rows]) <= 2000
        start += rows


# --- what a review found --------------------------------------------------------------------


def test_an_unsorted_row_group_is_refused_although_nobody_else_has_keys_in_it(monkeypatch) -> None:
    from lsm_fragment.container import writer

    monkeypatch.setattr(writer.FragmentWriter, "_check_order", lambda self, columns: None)
    bad = write_fragment(pa.table({"k": [0, 9, 3, 1, 5, 2]}), "k", WriterOptions(6))
    merged = Merged([bad], pa.schema([("k", pa.int64())]), sort_schema("k"), max_rows=6)
    with refuses(OrderError):
        merged.run()


def test_row_groups_far_heavier_than_the_target_are_divided_and_not_passed_on() -> None:
    rng = np.random.default_rng(0)
    heavy = pa.table({"k": range(200), "text": [rng.bytes(1000).hex() for _ in range(200)]})
    data = write_fragment(heavy, "k", WriterOptions(100))
    merged = Merged(
        [data], heavy.schema, sort_schema("k"), max_rows=100, target_row_group_bytes=20_000
    )
    assert merged.run().copied_rows == 0
    assert max(merged.row_group_rows()) <= 40


@pytest.mark.long
def test_keys_kept_for_copying_go_to_disk_when_memory_is_short() -> None:
    rng = np.random.default_rng(1)
    tables = [
        pa.table({"k": pa.array(sorted(rng.bytes(64) for _ in range(4000)), pa.binary())})
        for _ in range(30)
    ]
    options = WriterOptions(65_536, 1 << 19)
    fragments = [write_fragment(t, "k", options) for t in tables]
    knobs = {"max_rows": 65_536, "target_row_group_bytes": 1 << 19}
    plenty = Merged(fragments, tables[0].schema, sort_schema("k"), **knobs)
    plenty.run()
    need = plenty.plan.stages.need_bytes
    tight = Merged(fragments, tables[0].schema, sort_schema("k"), memory_limit_bytes=need, **knobs)
    assert tight.run().peak_bytes <= need
    assert [o.data for o in tight.outputs] == [o.data for o in plenty.outputs]
