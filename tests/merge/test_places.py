"""Rows deleted while they are merged find their places in the outputs, as an oracle says row by row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace as with_fields

from compactor.merge.key_order import KeyOrder
from compactor.merge.order.places import (
    STARTS,
    OrderMismatchError,
    PartOfKeyError,
    places_of_deleted,
    rows_of_deleted,
)
from compactor.merge.order.row_order import RowOrder
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import ROW_ORDER
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.rows.flags import KEPT, RowRule
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.gather.origins import Origins
from tests.merge.test_oracle import Merged
from tests.support.fragments import read_random, sort_schema, write_fragment

INPUTS = 4
_STAGE = MemoryStage(
    name=ROW_ORDER, holds="the order", buffer=Buffer.MATERIALIZED, memory_bytes=1 << 30
)


class _Row(Struct, frozen=True):
    """A row in merged order."""

    input: int
    is_deleted: bool
    is_kept: bool
    starts_key: bool


@st.composite
def merged_rows(draw: st.DrawFn) -> list[list[_Row]]:
    """Row groups of rows whose keys are deleted as a whole, or not at all."""
    groups = []
    for _ in range(draw(st.integers(0, 4))):
        rows: list[_Row] = []
        for _ in range(draw(st.integers(1, 6))):
            is_deleted = draw(st.booleans())
            kept = draw(st.lists(st.booleans(), min_size=1, max_size=4))
            rows += [
                _Row(draw(st.integers(0, INPUTS - 1)), is_deleted, is_kept, number == 0)
                for number, is_kept in enumerate(kept)
            ]
        groups.append(rows)
    return groups


def order_of(groups: Sequence[Sequence[_Row]]) -> RowOrder:
    """The order of these rows; groups whose rows are all kept have no flags."""
    order = RowOrder(MemoryBudget(StagePlan(1 << 30, 0, (_STAGE,))), LocalDisk())
    for rows in groups:
        present, places = np.unique([row.input for row in rows], return_inverse=True)
        flags = np.array(
            [row.is_kept * KEPT | row.starts_key * STARTS for row in rows], dtype=np.uint8
        )
        origins = Origins.of(places.astype(np.uint16), len(present))
        order.append(present, origins, None if all(row.is_kept for row in rows) else flags)
    order.spill()
    return order


def deleted_of(groups: Sequence[Sequence[_Row]]) -> dict[int, pa.BooleanArray]:
    """The deleted rows of each input that has any."""
    bits = {
        number: [row.is_deleted for rows in groups for row in rows if row.input == number]
        for number in range(INPUTS)
    }
    return {number: pa.array(found, pa.bool_()) for number, found in bits.items() if any(found)}


def cut(rows: int, draw: st.DataObject) -> list[int]:
    lengths = []
    while rows:
        lengths.append(draw.draw(st.integers(1, rows)))
        rows -= lengths[-1]
    return lengths


@given(merged_rows(), st.data())
def test_each_deleted_row_is_deleted_at_its_place_in_the_outputs(
    groups: list[list[_Row]], draw: st.DataObject
) -> None:
    written = [row.is_deleted for rows in groups for row in rows if row.is_kept]
    lengths = cut(len(written), draw)
    outputs = list(places_of_deleted(order_of(groups).groups(), deleted_of(groups), lengths))
    assert [len(bits) for bits in outputs] == lengths
    assert [bit for bits in outputs for bit in bits.to_pylist()] == written


@given(merged_rows(), st.data())
def test_a_key_deleted_in_part_is_refused_where_its_rows_were_merged(
    groups: list[list[_Row]], draw: st.DataObject
) -> None:
    merged = [
        (number, at)
        for number, rows in enumerate(groups)
        for at, row in enumerate(rows)
        if not all(row.is_kept for row in rows) and not row.starts_key
    ]
    if not merged:
        return
    number, at = draw.draw(st.sampled_from(merged))
    row = groups[number][at]
    groups[number][at] = with_fields(row, is_deleted=not row.is_deleted)
    written = sum(row.is_kept for rows in groups for row in rows)
    with pytest.raises(PartOfKeyError):
        list(places_of_deleted(order_of(groups).groups(), deleted_of(groups), [written or 1]))


@pytest.mark.parametrize("rows", [3, 5])
def test_outputs_of_other_rows_than_the_order_are_refused(rows: int) -> None:
    groups = [[_Row(0, True, True, True)] * 4]
    with pytest.raises(OrderMismatchError):
        list(places_of_deleted(order_of(groups).groups(), deleted_of(groups), [rows]))


@pytest.mark.parametrize("rows", [3, 5])
def test_bits_of_other_rows_than_the_order_are_refused(rows: int) -> None:
    groups = [[_Row(0, True, True, True)] * 4]
    with pytest.raises(OrderMismatchError):
        list(places_of_deleted(order_of(groups).groups(), {0: pa.array([True] * rows)}, [4]))


# --- back to the inputs ---


def keys_of(groups: Sequence[Sequence[_Row]]) -> list[list[_Row]]:
    """The rows of each key; those of a group whose rows are all kept stand for themselves."""
    keys: list[list[_Row]] = []
    for rows in groups:
        is_merged = not all(row.is_kept for row in rows)
        for row in rows:
            if row.starts_key or not is_merged:
                keys.append([])
            keys[-1].append(row)
    return keys


@given(merged_rows(), st.data())
def test_a_deleted_row_of_an_output_leads_back_to_all_rows_of_its_key(
    groups: list[list[_Row]], draw: st.DataObject
) -> None:
    keys = keys_of(groups)
    gone = [draw.draw(st.booleans()) for _ in keys]
    written = [
        is_gone for key, is_gone in zip(keys, gone, strict=True) for row in key if row.is_kept
    ]
    outputs, at = [], 0
    for length in cut(len(written), draw):
        outputs.append(pa.array(written[at : at + length], pa.bool_()))
        at += length
    wanted: list[list[bool]] = [[] for _ in range(INPUTS)]
    for key, is_gone in zip(keys, gone, strict=True):
        for row in key:
            wanted[row.input].append(is_gone and any(other.is_kept for other in key))
    found = rows_of_deleted(order_of(groups).groups(), outputs, list(map(len, wanted)))
    assert [bits.to_pylist() for bits in found] == wanted


@pytest.mark.parametrize(("outputs", "inputs"), [([3], [4]), ([5], [4]), ([4], [3]), ([4], [5])])
def test_outputs_or_inputs_of_other_rows_than_the_order_lead_nowhere(
    outputs: list[int], inputs: list[int]
) -> None:
    groups = [[_Row(0, True, True, True)] * 4]
    deleted = [pa.array([True] * rows) for rows in outputs]
    with pytest.raises(OrderMismatchError):
        rows_of_deleted(order_of(groups).groups(), deleted, inputs)


def test_one_of_two_rows_that_a_key_has_in_the_outputs_leads_nowhere() -> None:
    groups = [
        [_Row(0, False, True, True), _Row(1, False, False, False), _Row(1, False, True, False)]
    ]
    with pytest.raises(PartOfKeyError):
        rows_of_deleted(order_of(groups).groups(), [pa.array([True, False])], [1, 2])
    both = rows_of_deleted(order_of(groups).groups(), [pa.array([True, True])], [1, 2])
    assert [bits.to_pylist() for bits in both] == [[True], [True, True]]


# --- the order made again is that of the merge ---

POLICIES = {
    "append": RowPolicy(),
    "last": RowPolicy(RowKind.LAST),
    "first": RowPolicy(RowKind.FIRST),
    "partial update": RowPolicy(RowKind.PARTIAL_UPDATE),
    "aggregate": RowPolicy(RowKind.AGGREGATE, aggregates=(("id", RowFunction.MAX),)),
}


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(POLICIES)))
def test_the_order_of_keys_alone_leads_deleted_rows_to_those_that_a_merge_wrote(
    data: st.DataObject, name: str
) -> None:
    policy, sort = POLICIES[name], sort_schema("k")
    keys = st.lists(st.integers(0, 30), min_size=1, max_size=40, unique=policy.merges)
    tables = []
    for number in range(data.draw(st.integers(1, INPUTS))):
        of_input = sorted(data.draw(keys))
        ids = [1000 * number + at for at in range(len(of_input))]
        tables.append(pa.table({"k": of_input, "id": ids}))
    rule = RowRule(policy, None, tables[0].schema, sort, is_bottom=True) if policy.merges else None
    merged = Merged(
        [write_fragment(table, sort, WriterOptions(max_rows=7)) for table in tables],
        tables[0].schema,
        sort,
        max_rows=data.draw(st.sampled_from([5, 50])),
        target_fragment_bytes=data.draw(st.sampled_from([300, 1 << 30])),
        rule=rule,
    )
    seen = [data.draw(st.lists(st.booleans(), min_size=len(t), max_size=len(t))) for t in tables]
    merged.inputs = [
        with_fields(fragment, read_dropped=partial(pa.array, bits))
        for fragment, bits in zip(merged.inputs, seen, strict=True)
    ]
    merged.run()
    column = "k" if policy.merges else "id"
    pool = sorted({value for table in tables for value in table[column].to_pylist()})
    gone = set(data.draw(st.lists(st.sampled_from(pool), unique=True)))
    deleted = {
        number: pa.array(
            [v in gone for v, b in zip(t[column].to_pylist(), bits, strict=True) if not b],
            pa.bool_(),
        )
        for number, (t, bits) in enumerate(zip(tables, seen, strict=True))
    }
    order = KeyOrder(merged.inputs, merged.settings, merged.plan)
    outputs = [output for output in merged.outputs if output.state == "complete"]
    written = [read_random(bytes(output.data))[column].to_pylist() for output in outputs]
    places = places_of_deleted(order.groups(), deleted, list(map(len, written)))
    assert [bits.to_pylist() for bits in places] == [
        [value in gone for value in values] for values in written
    ]
    order.close()
    assert not any(map(order.budget.held_bytes, merged.plan.stages.names))
