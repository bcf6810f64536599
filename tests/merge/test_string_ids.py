"""Strings that are numbered from chunk to chunk: when they are, and that no byte depends on it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.merge.order.string_ids import StringIds
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from lsm_fragment.arrays.dividing import split
from lsm_fragment.arrays.nested_bytes import packed
from lsm_fragment.arrays.templated import templates_of
from lsm_fragment.gather.pieces import NumberedStrings
from tests.merge.test_codes import interleaved, merged_rows
from tests.merge.test_oracle import Merged

HELD = 1 << 20


def budget_of(limit: int = HELD) -> MemoryBudget:
    return MemoryBudget(
        StagePlan(
            limit, 0, (MemoryStage(name=CHUNKS, holds="", buffer=Buffer.STREAMING, memory_bytes=0),)
        )
    )


def coded(texts: list[str]) -> pa.Array:
    return pa.array(texts).dictionary_encode()


def memory_of(budget: MemoryBudget | None = None) -> Reservation:
    return Reservation(budget or budget_of(), CHUNKS)


def numbers(ids: StringIds, texts: list[str]) -> tuple[list[int], int, int] | None:
    numbered = ids.numbered(coded(texts), memory_of())
    return numbered and (numbered.numbers.tolist(), numbered.series, numbered.stop)


def test_equal_strings_of_several_dictionaries_have_one_number() -> None:
    ids = StringIds(budget_of(), 10, 100)
    assert numbers(ids, ["a", "b", "a"]) == ([0, 1], 1, 2)
    assert numbers(ids, ["b", "c", "a"]) == ([1, 2, 0], 1, 3)
    divided = split(pa.array(["b", "x 1", "x 22"]), 3)
    assert templates_of(divided).to_pylist() == ["b", "x \x11"]
    numbered = ids.numbered(divided, memory_of())
    assert numbered is not None
    assert numbered.numbers.tolist() == [1, 3]


def test_only_dictionaries_of_strings_and_what_is_packed_are_numbered() -> None:
    ids = StringIds(budget_of(), 10, 100)
    assert ids.numbered(pa.array(["a"]), memory_of()) is None
    assert ids.numbered(pa.nulls(3), memory_of()) is None
    assert ids.numbered(pa.array([[1]] * 2).take(pa.array([0])), memory_of()) is None
    lists = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([[1, 2]]))
    assert ids.numbered(lists, memory_of()) is None
    assert numbers(ids, [str(n) for n in range(11)]) is None
    assert ids.held_bytes == 0
    numbered = ids.numbered(lists, memory_of(), packed(lists.dictionary))
    assert numbered is not None
    assert numbered.numbers.tolist() == [0]


def test_a_new_series_begins_when_strings_that_recur_are_too_many() -> None:
    ids = StringIds(budget_of(), 3, 100)
    for _ in range(2):
        assert numbers(ids, ["a", "b"]) == ([0, 1], 1, 2)
    assert numbers(ids, ["c", "d"]) is None
    assert numbers(ids, ["d", "c"]) == ([0, 1], 2, 2)


def test_strings_that_do_not_recur_are_numbered_no_more() -> None:
    budget = budget_of()
    ids = StringIds(budget, 3, 100)
    assert numbers(ids, ["a", "b"]) == ([0, 1], 1, 2)
    assert numbers(ids, ["c", "d"]) is None
    assert numbers(ids, ["a"]) is None
    assert budget.used_bytes == 0


def test_what_is_held_is_charged_and_given_back() -> None:
    budget = budget_of()
    ids = StringIds(budget, 3, 100)
    memory = memory_of(budget)
    numbered = ids.numbered(coded(["a", "b"]), memory)
    assert numbered is not None
    assert memory.size == numbered.numbers.nbytes
    assert budget.used_bytes == ids.held_bytes + numbered.numbers.nbytes
    held = ids.held_bytes
    assert held >= 100
    assert (ids.forget(), ids.forget()) == (held, 0)
    assert budget.used_bytes == numbered.numbers.nbytes
    assert numbers(ids, ["a"]) is None  # memory was short


def test_nothing_is_numbered_where_memory_is_short() -> None:
    budget = budget_of(1000)
    memory = Reservation(budget, CHUNKS, 750)
    ids = StringIds(budget, 3, 100)
    assert numbers(ids, ["a"]) is None
    memory.free()
    assert numbers(ids, ["a"]) == ([0], 1, 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_numbers_change_no_byte(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def column(seed: int) -> pa.Array:
        groups = [chr(97 + n % (seed + 5)) for n in range(3000)]
        texts = [f"worker {n * seed % 97} of group {group}" for n, group in enumerate(groups)]
        return pa.array([None if n % 50 == 0 else text for n, text in enumerate(texts)])

    tables = interleaved([column(seed) for seed in range(1, 5)])
    few = interleaved(
        [pa.array([f"few {n % (seed + 3)}" for n in range(3000)]) for seed in range(4)]
    )
    seen: list[int] = []
    whole = StringIds.numbered
    original = ColumnCursors.__init__

    def watched(self: StringIds, *operands: Any) -> NumberedStrings | None:
        numbered = whole(self, *operands)
        if numbered is not None:
            seen.append(numbered.series)
        return numbered

    def small(self: ColumnCursors, *args) -> None:
        original(self, *args)
        self._ids = StringIds(self._budget, 7, 1000)

    def data(merged: Merged) -> list[bytes]:
        return [bytes(o.data) for o in merged.outputs if o.state == "complete"]

    for inputs in (tables, few):
        with monkeypatch.context() as patch:
            patch.setattr(StringIds, "numbered", lambda *_: None)
            without = data(merged_rows(inputs, threads=threads))
        with monkeypatch.context() as patch:
            patch.setattr(StringIds, "numbered", watched)
            assert data(merged_rows(inputs, threads=threads)) == without
            assert set(seen) == {1}
            seen.clear()
            patch.setattr(ColumnCursors, "__init__", small)
            assert data(merged_rows(inputs, threads=threads)) == without
