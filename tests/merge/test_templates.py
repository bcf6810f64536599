"""Columns of log messages, which are merged as templates and variables: whatever their inputs store."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.merge.groups import group_work
from compactor.merge.groups.group_work import ColumnRows, make_column_chunk
from compactor.resources.budget import MemoryBudget
from compactor.rows.flags import RowRule
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, Ttl, sort_with_policy
from lsm_fragment.arrays import templated
from lsm_fragment.arrays.dividing import split
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.types import is_templated
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.template_chunk import TemplateChunk
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import choice
from lsm_fragment.gather.columns import gather
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import Pieces, pieces_of
from tests.merge.test_codes import encodings, interleaved, merged_rows
from tests.merge.test_oracle import Merged
from tests.support.fragments import BytesSource, rows_of, sort_schema, write_fragment


def messages(seed: int, rows: int) -> pa.Array:
    rng = random.Random(seed)
    return pa.array(
        [
            None
            if n % 41 == 7
            else f"[{rng.randrange(10**6):06d}] user u{rng.randrange(9)} took {rng.randrange(10**6)} ms"
            for n in range(rows)
        ]
    )


def words(seed: int, rows: int) -> pa.Array:
    rng = random.Random(seed)
    return pa.array(
        [" ".join("".join(rng.choices("abcdef", k=4)) for _ in range(8)) for _ in range(rows)]
    )


def _key(row: dict[str, object]) -> int:
    key = row["k"]
    assert isinstance(key, int)
    return key


def data_of(merged: Merged) -> list[bytes]:
    return [bytes(output.data) for output in merged.outputs if output.state == "complete"]


def test_templates_of_several_inputs_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [messages(seed, 2000) for seed in range(3)]
    tables = interleaved(columns)
    asked: list[int] = []

    def joined(array: pa.Array) -> pa.Array:
        asked.append(len(array))
        return templated.joined(array)

    monkeypatch.setattr(choice, "joined", joined)
    merged = merged_rows(tables, max_rows=3000)
    assert encodings(merged) == {"TEMPLATE"}
    assert asked == []


@pytest.mark.parametrize(
    "other",
    [words(1, 2000), pa.array([f"few {n % 4}" for n in range(2000)]), pa.nulls(2000, pa.string())],
    ids=["words", "few values", "nulls"],
)
def test_templates_merge_with_columns_that_are_stored_otherwise(other: pa.Array) -> None:
    tables = interleaved([messages(1, 2000), other, messages(2, 2000)])
    one, two = (merged_rows(tables, max_rows=700, threads=threads) for threads in (1, 3))
    assert data_of(one) == data_of(two)


def test_a_table_of_plain_fragments_gets_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = interleaved([messages(seed, 2000) for seed in range(2)])
    with monkeypatch.context() as patch:
        patch.setattr(choice, "encode_by_templates", lambda *_: None)
        fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    footers = [FragmentReader(BytesSource(data), len(data), "in").footer for data in fragments]
    assert {c.encoding for footer in footers for c in footer.columns["v"]} == {"VARLEN"}
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=4000)
    merged.run()
    assert encodings(merged) == {"TEMPLATE"}


def test_spilling_templates_changes_no_byte() -> None:
    tables = interleaved([messages(seed, 9000) for seed in range(3)])
    knobs = {"target_row_group_bytes": 100_000, "max_rows": 3200}
    plain = merged_rows(tables, **knobs)
    tight = merged_rows(tables, memory_limit_bytes=plain.plan.stages.need_bytes, **knobs)
    assert data_of(plain) == data_of(tight)


def test_spilling_free_text_that_is_superseded_changes_no_byte() -> None:
    """Rows taken have too many templates, those of a slice on disk have not, and those written have few."""
    tables = [
        pa.table({"k": range(9000), "v": messages(1, 9000)}),
        pa.table({"k": range(3500), "v": words(2, 3500)}),
    ]
    fragments = [write_fragment(table, "k", WriterOptions(65_536)) for table in tables]
    assert [stored_as(fragment) for fragment in fragments] == [{"TEMPLATE"}, {"LETTERS"}]
    schema, sort = tables[0].schema, sort_schema("k")
    rule = RowRule(RowPolicy(RowKind.FIRST), None, schema, sort, is_bottom=True)

    def merged(slice_bytes: int, threads: int) -> Merged:
        merged = Merged(fragments, schema, sort, max_rows=12_500, rule=rule, threads=threads)
        merged.plan = replace(merged.plan, slice_bytes=slice_bytes)
        merged.run()
        assert merged.rows_of_complete() == rows_of(tables[0])
        return merged

    with pytest.MonkeyPatch.context() as patch:
        whole = merged(1 << 20, 1)
        patch.setattr(MemoryBudget, "has_room", lambda *_: False)
        sliced = [merged(slice_bytes, 2) for slice_bytes in (1 << 20, 60_000, 5_000)]
    assert [data_of(one) for one in sliced] == [data_of(whole)] * 3


def test_heavy_templates_divide_row_groups() -> None:
    rng = random.Random(1)
    places = ["constant text " * 5 + "{}"] * 20
    column = pa.array(
        [" ".join(places).format(*(rng.randrange(10**6) for _ in places)) for _ in range(1200)]
    )
    merged = merged_rows(
        interleaved([column, column]), target_row_group_bytes=64 << 10, max_rows=2000
    )
    footers = [FragmentReader(BytesSource(d), len(d), "out").footer for d in data_of(merged)]
    decoded = [c.decoded_bytes for footer in footers for c in footer.columns["v"]]
    assert "TEMPLATE" in encodings(merged)  # the last row group may have too few rows
    assert max(decoded) <= 4 * (64 << 10)


@pytest.mark.parametrize("bytes_beyond", [0, 1])
def test_short_constant_templates_divide_row_groups_as_their_text_does(bytes_beyond: int) -> None:
    column = pa.array(["ab"] * 10_000)
    max_bytes = total_bytes(column) - bytes_beyond

    def stops(array: pa.Array) -> Sequence[int]:
        pieces = pieces_of([[array]], pa.string())
        origins = Origins.of(np.zeros(len(array), dtype=np.uint16), 1)
        return make_column_chunk(
            ColumnRows(
                name="v",
                pieces=pieces,
                origins=origins,
                flags=None,
                function=None,
                max_bytes=max_bytes,
                level=1,
            )
        ).stops

    assert bool(stops(column)) == (bytes_beyond > 0)
    assert stops(split(column, 1)) == stops(column)


@pytest.mark.parametrize("function", [None, RowFunction.LAST, RowFunction.MAX])
def test_rows_of_one_key_are_decided_on_templates(function: RowFunction | None) -> None:
    kind = RowKind.LAST if function is None else RowKind.AGGREGATE
    columns = [messages(seed, 900) for seed in range(3)]
    tables = [pa.table({"k": range(900), "v": column}) for column in columns]
    policy = RowPolicy(kind, aggregates=() if function is None else (("v", function),))
    rule = RowRule(policy, None, tables[0].schema, sort_schema("k"), is_bottom=True)
    fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=1000, rule=rule)
    merged.run()
    values = [[t["v"][k].as_py() for t in tables] for k in range(900)]
    if function is RowFunction.MAX:
        expected = [max((one for one in some if one is not None), default=None) for some in values]
    elif function is RowFunction.LAST:
        expected = [[None, *(one for one in some if one is not None)][-1] for some in values]
    else:
        expected = [some[-1] for some in values]
    assert [row["v"] for row in merged.rows_of_complete()] == expected


def test_bounds_are_those_of_the_rows_that_are_written() -> None:
    tables = [
        pa.table({"k": range(900), "v": column})
        for column in (messages(1, 900), pa.array(["newest"] * 900))
    ]
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("v", RowFunction.LAST),))
    rule = RowRule(policy, None, tables[0].schema, sort_schema("k"), is_bottom=True)
    fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=2000, rule=rule)
    merged.run()
    [data] = data_of(merged)
    [chunk] = FragmentReader(BytesSource(data), len(data), "out").footer.columns["v"]
    assert (chunk.min, chunk.max) == ("newest", "newest")


def chunks_of(merged: Merged) -> list[TemplateChunk]:
    """Returns the chunks of column v, which must all be templated."""
    readers = [FragmentReader(BytesSource(data), len(data), "out") for data in data_of(merged)]
    chunks = [
        reader.read_lazily("v", group)
        for reader in readers
        for group in range(len(reader.footer.row_groups))
    ]
    assert all(isinstance(chunk, TemplateChunk) for chunk in chunks)
    return chunks


SECRET = "patient Jane Doe tested positive"
RULES = {
    "superseded": RowPolicy(RowKind.LAST, sequence="n"),
    "removed": RowPolicy(RowKind.LAST, sequence="n", delete_marker="gone", keeps_tombstones=False),
    "expired": RowPolicy(),
    "deleted": RowPolicy(),
}


@pytest.mark.parametrize("reason", RULES)
def test_texts_of_dropped_rows_leave_no_templates(reason: str) -> None:
    """Each third row of the first input is dropped, among them the one that has the first template."""

    def table(seed: int, keys: range, text: str | None) -> pa.Table:
        lines = messages(seed, len(keys)).to_pylist()
        values = [text or line if k % 3 == 0 else line for k, line in zip(keys, lines, strict=True)]
        columns = {
            "k": keys,
            "n": pa.repeat(seed, len(keys)),
            "gone": pa.array([reason == "removed" and seed > 0 for _ in keys]),
            "time": pa.array([10_000 if value == SECRET else 90_000 for value in values]),
            "v": pa.array(values),
        }
        return pa.table(columns).cast(schema)

    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("n", pa.int64()),
            ("gone", pa.bool_()),
            ("time", pa.timestamp("ms")),
            ("v", pa.string()),
        ]
    )
    tables = [table(0, range(3000), SECRET), table(1, range(0, 3000, 3), None)]
    ttl = Ttl("time", 50) if reason == "expired" else None
    sort = sort_with_policy(sort_schema("k"), RULES[reason], ttl)
    fragments = [write_fragment(t, sort, WriterOptions(65_536)) for t in tables]
    rule = RowRule(RULES[reason], ttl, schema, sort, is_bottom=True, now_unix_ms=100_000)
    merged = Merged(fragments, schema, sort, max_rows=4000, rule=rule)
    if reason == "deleted":
        gone = pa.array([value == SECRET for value in tables[0]["v"].to_pylist()])
        merged.inputs[0] = replace(merged.inputs[0], read_dropped=lambda: gone)
    merged.run()
    assert SECRET not in {row["v"] for row in merged.rows_of_complete()}
    for chunk in chunks_of(merged):
        codes = chunk.codes.drop_null().to_pylist()
        assert list(dict.fromkeys(codes)) == list(range(len(chunk.head.templates)))
        assert SECRET not in chunk.head.templates.to_pylist()


def test_templates_of_dropped_rows_do_not_count() -> None:
    """Rows that stay are stored alike, whatever those were that a newer row superseded."""
    stored = []
    for others in (messages(1, 700), words(1, 700)):
        tables = [
            pa.table({"k": range(700), "v": others}),
            pa.table({"k": range(3000), "v": messages(2, 3000)}),
        ]
        fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
        policy = RowPolicy(RowKind.LAST)
        rule = RowRule(policy, None, tables[0].schema, sort_schema("k"), is_bottom=True)
        merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=4000, rule=rule)
        merged.run()
        stored.append([chunk.texts() for chunk in chunks_of(merged)])
        stored.append([chunk.head.templates for chunk in chunks_of(merged)])
    assert stored[:2] == stored[2:]


def test_rows_that_are_left_out_leave_templates() -> None:
    tables = interleaved([messages(seed, 1500) for seed in range(2)])
    fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=1000)
    gone = pa.array([n % 3 == 0 for n in range(1500)])
    merged.inputs[0] = replace(merged.inputs[0], read_dropped=lambda: gone)
    merged.run()
    rows = sorted(
        (row for i, t in enumerate(tables) for n, row in enumerate(rows_of(t)) if i or n % 3),
        key=_key,
    )
    assert merged.rows_of_complete() == rows


def test_a_column_that_becomes_wider_is_joined_first() -> None:
    tables = interleaved([messages(seed, 1500) for seed in range(2)])
    fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    schema = pa.schema([("k", pa.int64()), ("v", pa.large_string())])
    merged = Merged(fragments, schema, sort_schema("k"), max_rows=1000)
    merged.run()
    expected = sorted((row for t in tables for row in rows_of(t)), key=_key)
    assert merged.rows_of_complete() == expected


def test_a_merge_notices_variables_of_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = interleaved([messages(seed, 1500) for seed in range(2)])
    fragments = [write_fragment(t, "k", WriterOptions(65_536)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=1000)

    def swapped(
        pieces: Pieces, origins: Origins, *max_plain_bytes: int, **options: bool
    ) -> pa.Array:
        array = gather(pieces, origins, *max_plain_bytes, **options)
        if not is_templated(array.type):
            return array
        return array.take(pa.array([1, 0, *range(2, len(array))]))

    monkeypatch.setattr(group_work, "gather", swapped)
    with pytest.raises(Exception, match="hash"):
        merged.run()


def stored_as(fragment: bytes) -> set[str]:
    footer = FragmentReader(BytesSource(fragment), len(fragment), "in").footer
    return {chunk.encoding for chunk in footer.columns["v"]}


@pytest.mark.parametrize("level", [0, 1, 9])
def test_text_is_divided_at_every_level(level: int) -> None:
    tables = interleaved([messages(seed, 1500) for seed in range(2)])
    options = WriterOptions(65_536, compression_level=level)
    fragments = [write_fragment(table, "k", options) for table in tables]
    assert [stored_as(fragment) for fragment in fragments] == [{"TEMPLATE"}] * 2


def test_the_summary_has_the_text_of_copied_row_groups() -> None:
    tables = [
        pa.table({"k": range(2000 * seed, 2000 * (seed + 1)), "v": messages(seed, 2000)})
        for seed in range(2)
    ]
    fragments = [write_fragment(table, "k", WriterOptions(500)) for table in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=500)
    result = merged.run()
    assert result.copied_rows == 4000
    [data] = data_of(merged)
    chunks = FragmentReader(BytesSource(data), len(data), "out").footer.columns["v"]
    assert {chunk.encoding for chunk in chunks} == {"TEMPLATE"}
    assert all(chunk.value_bytes > chunk.raw_bytes for chunk in chunks)
    [output] = result.outputs
    assert output.summary.columns["v"].raw == sum(chunk.value_bytes for chunk in chunks)
