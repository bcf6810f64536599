"""What memory a merge is given changes its footprint and never its output."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.merge.outputs.contract import MergeResult
from compactor.resources import budget as budget_module
from compactor.resources.errors import MemoryLimitError
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.gather.pieces import GatherArray
from tests.merge.test_oracle import Merged, numbered
from tests.support.arrow_pool import counting_pool
from tests.support.fragments import BytesSource, rows_of, sort_schema, write_fragment
from tests.support.loops import loops
from tests.support.oracle import stable_sorted
from tests.support.samples import SAMPLES, sample_array
from tests.support.strategies import AWKWARD_SIZES, keyed_tables
from tests.support.wording import refuses


def run(merged: Merged) -> tuple[list[bytes], MergeResult]:
    result = merged.run()
    return [bytes(output.data) for output in merged.outputs if output.state == "complete"], result


def run_spilling(merged: Merged, slice_bytes: int = 1) -> tuple[list[bytes], MergeResult]:
    """Everything that can be spilled is, as soon as it is there, in slices of so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "SOFT_RATIO", 0.0)
        merged.plan = replace(merged.plan, slice_bytes=slice_bytes)
        return run(merged)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    keyed_tables(max_tables=5, max_rows=60),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from(AWKWARD_SIZES),
    st.sampled_from([1, 3, 50, 1 << 20]),
    st.sampled_from([1, 100, 5000]),
    st.sampled_from([1, 2000, 1 << 30]),
    st.sampled_from([1, 60, 500, 1 << 20]),
)
def test_spilling_everything_changes_no_byte(
    case,
    rows_in: int,
    rows_out: int,
    batch_size: int,
    slice_bytes: int,
    fragment_bytes: int,
    group_bytes: int,
) -> None:
    tables, sort = case
    options = WriterOptions(max_rows=rows_in)
    fragments = [write_fragment(stable_sorted(t, sort), sort, options) for t in tables]
    knobs = {
        "max_rows": rows_out,
        "target_fragment_bytes": fragment_bytes,
        "target_row_group_bytes": group_bytes,
    }
    plain, result = run(Merged(fragments, tables[0].schema, sort, **knobs))
    tight = Merged(fragments, tables[0].schema, sort, batch_size=batch_size, **knobs)
    spilled, spilled_result = run_spilling(tight, slice_bytes)
    assert spilled == plain
    assert sorted(tight.opened) == list(range(len(fragments)))
    assert spilled_result.restarts == result.restarts
    if result.rows_in:
        assert spilled_result.spilled_bytes > result.spilled_bytes


@pytest.mark.long
@loops("name", SAMPLES)
def test_values_of_every_type_survive_being_spilled(name: str) -> None:
    array = sample_array(name, 60)
    rows = len(array)
    table = pa.table({"k": pa.array(range(rows)), "v": array})
    parts = [pa.concat_tables([table.slice(r, 1) for r in range(n, rows, 3)]) for n in range(3)]
    fragments = [write_fragment(part, "k", WriterOptions(max_rows=11)) for part in parts]
    plain, _ = run(Merged(fragments, table.schema, sort_schema("k"), max_rows=17))
    spilled, _ = run_spilling(Merged(fragments, table.schema, sort_schema("k"), max_rows=17))
    assert spilled == plain


@pytest.mark.long
def test_neither_read_ahead_nor_batches_nor_limits_change_a_byte() -> None:
    tables = [
        numbered(i, 3000, 5, t=lambda v: [f"text {n}" * (n % 4) for n in v]) for i in range(5)
    ]
    fragments = [write_fragment(t, "k", WriterOptions(max_rows=100)) for t in tables]
    results = []
    for limit, batch, window in itertools.product(
        (32 << 20, 1 << 30), (1, 77, 1 << 20), (1, 1 << 20)
    ):
        merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=128,
                        memory_limit_bytes=limit, batch_size=batch)  # fmt: skip
        merged.plan = replace(merged.plan, ahead_bytes=window, piece_bytes=window)
        results.append(run(merged)[0])
    assert all(result == results[0] for result in results)


def heavy_parts(heavy_rows: int, inputs: int = 4, rows: int = 2000) -> list[pa.Table]:
    """Each input has a few heavy rows, far apart; `k` makes them neighbours in the merged order."""
    rng = np.random.default_rng(1)
    parts = []
    for number in range(inputs):
        heavy = np.zeros(rows, dtype=bool)
        heavy[rng.choice(rows, heavy_rows, replace=False)] = True
        keys = np.where(
            heavy, 1_000_000 + np.arange(rows) * inputs + number, rng.integers(0, 900_000, rows)
        )
        text = [("h" * 2000 + str(n)) if is_heavy else f"t{n}" for n, is_heavy in enumerate(heavy)]
        part = pa.table({"k": keys, "a": np.arange(rows), "text": text, "z": keys * 7})
        parts.append(part.take(pa.array(np.argsort(keys, kind="stable"))))
    return parts


def overshooting(**knobs) -> tuple[Merged, list[pa.Table]]:
    """Heavy rows that the inputs' statistics, being averages of large row groups, hide."""
    parts = heavy_parts(30)
    options = WriterOptions(max_rows=2000, target_row_group_bytes=1 << 20)
    fragments = [write_fragment(part, "k", options) for part in parts]
    merged = Merged(fragments, parts[0].schema, sort_schema("k"), max_rows=500,
                    target_row_group_bytes=20_000, **knobs)  # fmt: skip
    return merged, parts


def test_heavy_rows_that_become_neighbours_are_divided_in_one_second_pass() -> None:
    merged, parts = overshooting()
    outputs, result = run(merged)
    expected = stable_sorted(pa.concat_tables(parts), sort_schema("k"))
    assert merged.rows_of_complete() == expected.to_pylist()
    assert result.restarts == 1
    heaviest = max(output.summary.peak_chunk_bytes for output in result.outputs)
    assert heaviest <= 4 * 20_000 + 200
    assert len(outputs) == 1


def test_a_second_pass_reads_from_local_disk_and_takes_no_second_get() -> None:
    merged, _ = overshooting()
    _, result = run(merged)
    assert result.replayed_inputs == 4
    assert sorted(merged.opened) == [0, 1, 2, 3]
    other, _ = overshooting(spool_limit_bytes=0)
    again, result = run(other)
    assert result.replayed_inputs == 0
    assert sorted(other.opened) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert again == run(overshooting()[0])[0]


def test_only_the_row_groups_that_are_too_heavy_are_divided() -> None:
    merged, _ = overshooting()
    run(merged)
    rows = merged.row_group_rows()
    assert max(rows) == 500
    assert sum(count < 100 for count in rows) >= 10


def test_what_was_written_before_a_second_pass_is_aborted() -> None:
    merged, _ = overshooting()
    run(merged)
    assert [output.state for output in merged.outputs] == ["aborted", "complete"]


def test_row_groups_follow_the_weight_of_the_inputs_row_groups() -> None:
    """A dense stretch of heavy rows is known from the inputs: no second pass."""
    light = numbered(0, 3000, v=lambda v: ["x" * 40] * len(v))
    heavy = numbered(3000, 3300, v=lambda v: [f"{n}" * 500 for n in v])
    options = WriterOptions(max_rows=1000, target_row_group_bytes=50_000)
    fragments = [write_fragment(part, "k", options) for part in (light, heavy)]
    merged = Merged(fragments, light.schema, sort_schema("k"), max_rows=1000,
                    target_row_group_bytes=50_000)  # fmt: skip
    _, result = run(merged)
    rows = merged.row_group_rows()
    assert result.restarts == 0
    assert max(rows[:2]) >= 900
    assert max(rows[-10:]) <= 30


def test_a_value_far_above_the_target_gets_a_row_group_of_its_own() -> None:
    parts = [numbered(i, 200, 2, v=lambda v: ["x"] * len(v)) for i in range(2)]
    parts[1] = parts[1].set_column(1, "v", pa.array(["y" * 3_000_000] + ["x"] * 99))
    fragments = [
        write_fragment(p, "k", WriterOptions(target_row_group_bytes=10_000)) for p in parts
    ]
    merged = Merged(fragments, parts[0].schema, sort_schema("k"), max_rows=200,
                    target_row_group_bytes=10_000)  # fmt: skip
    run(merged)
    assert 1 in merged.row_group_rows()
    assert (
        merged.rows_of_complete()
        == stable_sorted(pa.concat_tables(parts), sort_schema("k")).to_pylist()
    )


def test_a_limit_below_the_need_is_refused_before_anything_is_read() -> None:
    table = numbered(0, 100, v=lambda v: ["x" * 100_000] * len(v))
    fragments = [write_fragment(table, "k", WriterOptions(max_rows=100)) for _ in range(3)]
    merged = Merged(fragments, table.schema, sort_schema("k"), memory_limit_bytes=1 << 20)
    with refuses(MemoryLimitError):
        merged.run()
    assert merged.opened == []
    assert merged.outputs == []


def test_inputs_that_lie_about_their_chunks_end_in_a_clear_error_and_no_output() -> None:
    """The plan goes by the log's statistics; should they be wrong, the budget stops the merge."""
    table = numbered(0, 100, v=lambda v: [str(n) * 400_000 for n in v])
    fragments = [write_fragment(table, "k", WriterOptions(100, 1 << 30)) for _ in range(2)]
    merged = Merged(fragments, table.schema, sort_schema("k"), memory_limit_bytes=1 << 30)
    low = replace(merged.plan.stages, limit_bytes=30 << 20, need_bytes=1)
    merged.plan = replace(merged.plan, stages=low, order_bytes=0)
    with refuses(MemoryLimitError):
        merged.run()
    assert {output.state for output in merged.outputs} <= {"aborted"}


@pytest.mark.long
@pytest.mark.parametrize("spill", [False, True])
def test_nothing_stays_charged_and_every_charge_is_of_a_stage_of_the_plan(
    monkeypatch, spill: bool
) -> None:
    budgets = []
    honest = budget_module.MemoryBudget.__init__

    def noted(self, plan) -> None:
        honest(self, plan)
        budgets.append(self)

    monkeypatch.setattr(budget_module.MemoryBudget, "__init__", noted)
    merged, _ = overshooting()
    _, result = run_spilling(merged) if spill else run(merged)
    (budget,) = budgets
    assert budget.used_bytes == 0
    assert set(result.stage_peak_bytes) == set(merged.plan.stages.names)
    for stage in merged.plan.stages:
        assert budget.held_bytes(stage.name) == 0


def sparse_parts(
    columns: int, inputs: int = 8, present: int = 20
) -> tuple[list[pa.Table], pa.Schema]:
    """Inputs that each have some of so many columns; the same values whatever `columns` is."""
    rng = np.random.default_rng(4)
    schema = pa.schema([("k", pa.int64()), *((f"c{n:05d}", pa.int64()) for n in range(columns))])
    parts = []
    for _ in range(inputs):
        chosen = np.sort(rng.choice(columns, present, replace=False))
        values = {f"c{n:05d}": rng.integers(0, 1 << 40, 300) for n in chosen}
        parts.append(pa.table({"k": np.sort(rng.integers(0, 1 << 40, 300)), **values}))
    return parts, schema


@pytest.mark.long
def test_columns_that_most_inputs_lack_cost_neither_memory_nor_bytes() -> None:
    peaks, sizes = {}, {}
    for columns in (200, 5_000):
        parts, schema = sparse_parts(columns)
        fragments = [write_fragment(part, "k", WriterOptions(max_rows=100)) for part in parts]
        merged = Merged(fragments, schema, sort_schema("k"), max_rows=500)
        tracemalloc.start()
        outputs, result = run(merged)
        _, peaks[columns] = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        sizes[columns] = len(outputs[0]) / len(result.outputs[0].summary.columns)
        assert result.rows_out == 2_400
        assert len(result.outputs[0].schema) == len(result.outputs[0].summary.columns) <= 161
    assert peaks[5_000] < 1.25 * peaks[200]
    assert sizes[5_000] < 1.1 * sizes[200]


def test_a_row_of_a_column_that_its_input_lacks_is_null_wherever_it_lands() -> None:
    parts, schema = sparse_parts(40, inputs=5, present=7)
    merged = Merged([write_fragment(p, "k", WriterOptions(max_rows=64)) for p in parts], schema,
                    sort_schema("k"), max_rows=90)  # fmt: skip
    run(merged)
    expected = pa.concat_tables(parts, promote_options="default").sort_by("k")
    names = expected.schema.names
    found = [{name: row.get(name) for name in names} for row in merged.rows()]
    assert found == expected.to_pylist()


@pytest.mark.long
@pytest.mark.parametrize(
    ("heavy", "light"),
    [
        (lambda n: [True, False, n % 2 == 0] * 1700, lambda n: [True] * (n % 5)),
        (lambda n: {"a": [True] * 7, "b": [f"q{n}" * 300]}, lambda n: {"a": [False] * 3, "b": []}),
        (lambda n: "h" * 1000 + str(n), lambda n: f"l{n}"),
        (lambda n: "h" * 1000 + str(n % 7), lambda n: f"l{n % 3}"),
    ],
)
def test_row_groups_are_divided_at_the_same_rows_however_rows_were_sliced(heavy, light) -> None:
    parts = []
    for part in heavy_parts(40):
        is_heavy = [len(text) > 100 for text in part["text"].to_pylist()]
        values = [heavy(n) if is_one else light(n) for n, is_one in enumerate(is_heavy)]
        parts.append(pa.table({"k": part["k"], "v": values}))
    options = WriterOptions(max_rows=2000, target_row_group_bytes=1 << 20)
    fragments = [write_fragment(part, "k", options) for part in parts]

    def merged() -> Merged:
        return Merged(fragments, parts[0].schema, sort_schema("k"), max_rows=500,
                      target_row_group_bytes=8000)  # fmt: skip

    plain, result = run(merged())
    for slice_bytes in (1, 50, 1000, 5000):
        spilled, again = run_spilling(merged(), slice_bytes)
        assert again.restarts == result.restarts
        assert spilled == plain


@pytest.mark.parametrize(("coded", "max_bytes"), [(False, 3 << 20), (True, 8 << 20)])
def test_slices_on_disk_are_even_by_weight_where_few_rows_have_all_of_it(
    coded: bool, max_bytes: int
) -> None:
    """16 inputs of 1,000 rows: 800 kB each, of which 40 rows at the end have nearly all.

    With even numbers of rows 5 and 10 MB are held. Dictionaries of one row group are held together.
    """
    rng = np.random.default_rng(1)
    heavy = [rng.bytes(10_000).hex() for _ in range(40)]
    light = ["a"] * 960 if coded else [f"{n}x" for n in range(960)]
    tables = [
        pa.table({"k": [*range(960), *range(10_000 + i, 10_040 + i)], "v": [*light, *heavy]})
        for i in range(16)
    ]
    fragments = [write_fragment(t, "k", WriterOptions(65_536, 1 << 20)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=65_536, threads=1,
                    target_row_group_bytes=1 << 18)  # fmt: skip
    outputs, result = run_spilling(merged, slice_bytes=50_000)
    assert result.stage_peak_bytes["chunks"] < max_bytes
    again = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=65_536,
                   target_row_group_bytes=1 << 18)  # fmt: skip
    assert outputs == run(again)[0]


@pytest.mark.long
def test_keys_that_are_coded_in_one_input_and_plain_in_another_stay_within_the_plan() -> None:
    """Put together they are plain: 20 keys of 2 KB, 4,000 times, are 8 MB."""
    long = [f"{n:02d}" * 1000 for n in range(20)]
    coded = pa.table({"k": sorted(long * 200), "n": range(4000)})
    plain = pa.table({"k": sorted(f"{n:05d}" for n in range(400)), "n": range(400)})
    fragments = [write_fragment(t, "k") for t in (coded, plain, coded)]
    merged = Merged(fragments, coded.schema, sort_schema("k"), max_rows=65_536, threads=1,
                    target_row_group_bytes=1 << 20, memory_limit_bytes=32 << 20)  # fmt: skip
    outputs, result = run(merged)
    assert result.rows_out == 8_400
    # 16 MB as plain strings, never all at a time.
    assert result.peak_bytes < 12 << 20
    assert outputs == run_spilling(merged_again(fragments, coded.schema))[0]


def merged_again(fragments: list[bytes], schema: pa.Schema) -> Merged:
    return Merged(fragments, schema, sort_schema("k"), max_rows=65_536,
                  target_row_group_bytes=1 << 20, batch_size=97)  # fmt: skip


def test_heavy_keys_wait_for_their_row_group_by_weight_not_by_number() -> None:
    tables = [
        pa.table({"k": [f"{n * 3 + i:06d}" + "k" * 20_000 for n in range(300)]}) for i in range(3)
    ]
    fragments = [write_fragment(t, "k", WriterOptions(65_536, 1 << 20)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=65_536,
                    target_row_group_bytes=1 << 20)  # fmt: skip
    _, result = run(merged)
    assert result.rows_out == 900
    assert result.stage_peak_bytes["order"] <= merged.plan.stages["order"].memory_bytes
    tight = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=65_536,
                   target_row_group_bytes=1 << 20, memory_limit_bytes=40 << 20)  # fmt: skip
    _, result = run(tight)
    assert result.stage_peak_bytes["order"] < 10 << 20


@pytest.mark.parametrize("threads", [1, 2])
def test_a_merge_of_heavy_sort_columns_takes_no_more_than_its_need(threads: int) -> None:
    rng = np.random.default_rng(1)
    names = [f"k{number}" for number in range(4)]

    def rows(rows: int) -> pa.Table:
        columns = [[rng.bytes(4_000) for _ in range(rows)] for _ in names]
        keys = sorted(zip(*columns, strict=True))
        return pa.table(dict(zip(names, map(list, zip(*keys, strict=True)), strict=True)))

    parts = [rows(1_000) for _ in range(3)]
    sort = sort_schema(",".join(names))
    fragments = [write_fragment(part, sort, WriterOptions(1_000, 1 << 30)) for part in parts]

    def merged(limit_bytes: int) -> Merged:
        return Merged(fragments, parts[0].schema, sort, max_rows=2_000, threads=threads,
                      target_row_group_bytes=1 << 20, memory_limit_bytes=limit_bytes)  # fmt: skip

    need = merged(1 << 30).plan.stages.need_bytes
    assert need < 96 << 20
    assert run(merged(need))[1].rows_out == 3_000


def constants(rows: int) -> tuple[list[bytes], pa.Table]:
    """Two fragments of one row group each, which takes a few bytes stored and 8 bytes a value decoded."""
    table = pa.table({name: pa.repeat(pa.scalar(7, pa.int64()), rows) for name in ("k", "v")})
    options = WriterOptions(max_rows=rows, target_row_group_bytes=1 << 30)
    return [write_fragment(table, "k", options)] * 2, table


@pytest.mark.long
def test_constants_count_as_decoded_when_a_merge_is_planned() -> None:
    fragments, table = constants(1 << 20)
    assert sum(map(len, fragments)) < 4096
    merged = Merged(fragments, table.schema, sort_schema("k"), memory_limit_bytes=16 << 20)
    with refuses(MemoryLimitError):
        merged.run()
    assert not merged.opened
    need = merged.plan.stages.need_bytes
    assert need >= 4 * 8 * (1 << 20)
    enough = Merged(fragments, table.schema, sort_schema("k"), memory_limit_bytes=2 * need)
    assert run(enough)[1].rows_out == 2 << 20


def test_constants_of_which_the_log_says_too_little_are_refused_before_memory_is_taken() -> None:
    fragments, table = constants(8 << 20)
    merged = Merged(fragments, table.schema, sort_schema("k"), memory_limit_bytes=48 << 20)
    stages = replace(merged.plan.stages, need_bytes=1 << 20)
    merged.plan = replace(merged.plan, stages=stages)
    tracemalloc.start()
    with refuses(MemoryLimitError):
        merged.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_nulls_of_a_wide_type_make_no_row_group_heavier_than_its_values_would() -> None:
    wide = pa.list_(pa.float32(), 1000)
    keys = [pa.table({"k": pa.array(range(n, 4000, 2))}) for n in range(2)]
    parts = [keys[0], keys[1].append_column("v", pa.nulls(2000, wide))]
    fragments = [write_fragment(part, "k", WriterOptions(max_rows=2000)) for part in parts]
    merged = Merged(fragments, parts[1].schema, sort_schema("k"), max_rows=4000,
                    target_row_group_bytes=100_000, memory_limit_bytes=16 << 20)  # fmt: skip
    outputs, _ = run(merged)
    reader = FragmentReader(BytesSource(outputs[0]), len(outputs[0]), "mem")
    assert max(group.rows for group in reader.footer.row_groups) <= 100
    assert len(merged.rows_of_complete()) == 4000


def repeating(rows: int) -> list[str]:
    """Strings that are stored by a dictionary, and whose middle hardly repeats."""
    distinct = range(rows * 11 // 80)
    values = [f"d{n:05d}" for n in distinct]
    before = ["same"] * (rows * 14 // 80)
    return [*before, *values, *["same"] * (rows - len(before) - len(values))]


@pytest.mark.parametrize("heavy", [False, True])
def test_where_an_input_is_null_for_long_spilling_changes_no_byte(heavy: bool) -> None:
    """Slices of nothing but nulls do not decide whether a chunk or its weight is that of a dictionary."""
    rows, sort = 8000, sort_schema("k")
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    nulls = [None] * (rows // 2) + [f"u{n:06d}" for n in range(rows // 2)]
    other = repeating(rows)
    if heavy:
        other = [f"{n % 50}" + "v" * 300 if 1000 <= n < 1500 else f"{n % 3}" for n in range(rows)]
    step = 1 if heavy else 8
    tables = [
        pa.table({"k": [2 * step * n for n in range(rows)], "s": nulls}, schema=schema),
        pa.table({"k": [2 * n + 1 for n in range(rows)], "s": other}, schema=schema),
    ]
    fragments = [write_fragment(t, sort, WriterOptions(rows, 1 << 24)) for t in tables]

    def merged() -> Merged:
        return Merged(fragments, schema, sort, max_rows=2000 if heavy else 4000,
                      target_row_group_bytes=35_000 if heavy else 1 << 24)  # fmt: skip

    assert run_spilling(merged(), 20_000)[0] == run(merged())[0]


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_without_the_column_weigh_alike_however_they_are_weighed(threads: int) -> None:
    """What a pass that only measures finds light enough, the second pass does not find too heavy."""
    rows, sort = 1000, sort_schema("k")
    schema = pa.schema([("k", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    heavy = ["x" * 5000, *[""] * (rows - 1)]
    nearly = [f"{n:04d}" + "y" * 347 * (300 <= n < 310) for n in range(rows)]
    tables = [
        pa.table({"k": range(0, 2 * rows, 2), "a": heavy, "b": nearly}, schema=schema),
        pa.table({"k": pa.array(range(1, 2 * rows, 2), pa.int64())}),
    ]
    fragments = [write_fragment(t, sort, WriterOptions(rows, 1 << 20)) for t in tables]
    merged = Merged(fragments, schema, sort, max_rows=100, target_row_group_bytes=1000,
                    threads=threads)  # fmt: skip
    assert merged.run().restarts == 1
    assert sum(merged.row_group_rows()) == 2 * rows


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
@loops("name", SAMPLES)
def test_the_last_rows_of_a_chunk_are_the_same_in_memory_of_their_own(
    name: str, threads: int
) -> None:
    array = sample_array(name, 240)
    table = pa.table({"k": pa.array(range(len(array))), "v": array})
    rows = len(array)
    parts = [pa.concat_tables([table.slice(r, 1) for r in range(n, rows, 3)]) for n in range(3)]
    fragments = [write_fragment(part, "k", WriterOptions(max_rows=31)) for part in parts]
    outputs = {}
    for slice_bytes in (0, 1 << 30):
        merged = Merged(fragments, table.schema, sort_schema("k"), max_rows=20, threads=threads)
        merged.plan = replace(merged.plan, slice_bytes=slice_bytes)
        outputs[slice_bytes], _ = run(merged)
    assert outputs[0] == outputs[1 << 30]


@pytest.mark.parametrize("is_templated", [False, True])
def test_inputs_that_go_on_to_their_next_chunk_at_the_same_time_do_not_hold_two(
    is_templated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, chunks, rows = 4, 3, 8_000
    rng = np.random.default_rng(1)

    def text(number: int) -> str:
        if is_templated:
            return f"request {number} took " + " ".join(map(str, rng.integers(0, 1 << 10, 150)))
        return "".join(map(chr, rng.integers(ord("a"), ord("w"), 200)))

    keys = np.arange(inputs * chunks * rows)
    table = pa.table({"k": keys, "text": list(map(text, keys.tolist()))})
    load, allocated = ColumnCursors._load, list[int]()

    def noted(cursors: ColumnCursors, index: int) -> None:
        load(cursors, index)
        allocated.append(pa.default_memory_pool().bytes_allocated())

    monkeypatch.setattr(ColumnCursors, "_load", noted)

    def peaks(table: pa.Table) -> tuple[int, int]:
        places = [pa.array(range(n, table.num_rows, inputs)) for n in range(inputs)]
        options = WriterOptions(max_rows=rows)
        fragments = [write_fragment(table.take(place), "k", options) for place in places]
        merged = Merged(fragments, table.schema, sort_schema("k"), max_rows=3_000, threads=1)
        merged.plan = replace(merged.plan, slice_bytes=64 << 10)
        allocated.clear()
        with counting_pool():
            _, result = run(merged)
        assert len(allocated) == table.num_rows // rows
        return result.stage_peak_bytes["chunks"], max(allocated)

    charged, held = peaks(table.slice(0, inputs * rows))
    all_charged, all_held = peaks(table)
    assert all_charged < 1.25 * charged
    assert all_held < 1.25 * held


def test_last_rows_of_a_chunk_that_are_not_light_are_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, rows = np.random.default_rng(1), 4_000

    def text(size: int) -> str:
        return "".join(map(chr, rng.integers(ord("a"), ord("z"), size)))

    known = [text(400) for _ in range(200)]
    table = pa.table(
        {
            "k": range(rows),
            "even": [text(40) for _ in range(rows)],
            "heavy at the end": [text(400 if n >= rows - 1_000 else 4) for n in range(rows)],
            "of a dictionary": [known[n] for n in rng.integers(0, len(known), rows)],
        }
    )
    parts = [table.take(pa.array(range(n, rows, 2))) for n in range(2)]
    fragments = [write_fragment(part, "k", WriterOptions(max_rows=2_000)) for part in parts]
    copy, shares = GatherArray.copied, list[float]()

    def noted(array: GatherArray, start: int, count: int) -> GatherArray:
        few = copy(array, start, count)
        shares.append(few.array.get_total_buffer_size() / array.array.get_total_buffer_size())
        return few

    monkeypatch.setattr(GatherArray, "copied", noted)
    merged = Merged(fragments, table.schema, sort_schema("k"), max_rows=1_500, threads=1)
    merged.plan = replace(merged.plan, slice_bytes=1)
    merged.run()
    assert merged.rows_of_complete() == rows_of(table)
    assert len(shares) == 2  # of the even column, one for each input
    assert max(shares) < 0.26
