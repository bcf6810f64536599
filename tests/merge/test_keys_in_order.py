"""Sort columns that wait in their inputs: weighed, looked at and taken in the merged order."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.order.keys_in_order import WaitingKeys, borrowed
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import CHUNKS
from lsm_fragment.arrays.sizes import cumulative_bytes
from lsm_fragment.gather.columns import gather
from lsm_fragment.gather.origins import Origins
from lsm_fragment.keys.normalised import KeyLayout, sort_keys
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.merge.test_stages import plan_of

SORT = parse_sort_schema("k,n")
TYPES = [pa.binary(), pa.int64()]


class Waiting:
    """Rows of three inputs in some order, in parts of random sizes, dictionary-coded or not."""

    def __init__(self, seed: int, *, spilled: bool) -> None:
        rng = random.Random(seed)
        self.budget = MemoryBudget(plan_of(64 << 20).stages)
        disk = LocalDisk()
        self.sources = [DecodedRows(self.budget, disk, 100) for _ in range(3)]
        self.rows: list[list[tuple[bytes | None, int]]] = [[], [], []]
        for source, rows in zip(self.sources, self.rows, strict=True):
            for _ in range(rng.randrange(1, 4)):
                count = rng.randrange(1, 20)
                keys = [rng.choice([None, b"", b"x" * rng.randrange(90)]) for _ in range(count)]
                numbers = [rng.randrange(100) for _ in range(count)]
                array = pa.array(keys, pa.binary())
                array = array.dictionary_encode() if rng.random() < 0.5 else array
                source.push([array, pa.array(numbers, pa.int64())])
                rows += zip(keys, numbers, strict=True)
            if spilled:
                source.spill()
        order = [number for number, rows in enumerate(self.rows) for _ in rows]
        rng.shuffle(order)
        self.inputs = np.array(order, dtype=np.uint16)
        left = [iter(rows) for rows in self.rows]
        self.merged = [next(left[number]) for number in order]
        self.keys = WaitingKeys(self.sources, KeyLayout(TYPES, SORT))

    def columns(self, start: int = 0) -> list[pa.Array]:
        columns = zip(*self.merged[start:], strict=True)
        return [pa.array(c, t) for c, t in zip(columns, TYPES, strict=True)]


@pytest.fixture(params=[False, True])
def spilled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_weighed_as_if_they_were_gathered(seed: int, spilled: bool) -> None:
    waiting = Waiting(seed, spilled=spilled)
    total = len(waiting.merged)
    for start in (0, 1, total // 2, total - 1):
        stop = random.Random(seed).randrange(start + 1, total + 1)
        totals = [
            cumulative_bytes(array.slice(0, stop - start)) for array in waiting.columns(start)
        ]
        for limit in (0, 1, 50, 300, 1000, 10_000):
            most = min(int(np.searchsorted(sums, limit, side="right")) - 1 for sums in totals)
            found = waiting.keys.rows_within(waiting.inputs[:stop], start, limit)
            assert found == max(1, most)


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_looked_at_without_taking_them(seed: int, spilled: bool) -> None:
    waiting = Waiting(seed, spilled=spilled)
    keys = sort_keys(waiting.columns(), SORT)
    for row in range(len(waiting.merged)):
        assert waiting.keys.key(waiting.inputs, row) == keys.key(row)


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_taken_in_order_and_stay_in_memory_until_they_are_unpinned(
    seed: int, spilled: bool
) -> None:
    waiting = Waiting(seed, spilled=spilled)
    inputs, rows = waiting.inputs, list[tuple[bytes | None, int]]()
    taken = []
    while len(inputs):
        count = min(len(inputs), random.Random(seed).randrange(1, 25))
        ahead = None
        if count < len(inputs):
            ahead = borrowed(waiting.sources, inputs[count:], Origins.of(inputs[:count], 3).counts)
        part = waiting.keys.borrow(inputs[:count])
        if seed % 2:
            part.pins.free()
            part = waiting.keys.borrow(inputs[:count])
        waiting.keys.drop(part.counts)
        columns = [gather(pieces, part.origins).to_pylist() for pieces in part.columns]
        rows += zip(*columns, strict=True)
        if ahead is not None:
            columns = [gather(pieces, ahead.origins).to_pylist() for pieces in ahead.columns]
            assert list(zip(*columns, strict=True)) == waiting.merged[len(rows) :]
            ahead.pins.free()
        taken.append(part)
        inputs = inputs[count:]
    assert rows == waiting.merged
    assert waiting.budget.held_bytes(CHUNKS)
    for part in taken:
        part.pins.free()
    assert not waiting.budget.held_bytes(CHUNKS)


def test_borrowed_rows_do_not_spill(spilled: bool) -> None:
    waiting = Waiting(1, spilled=spilled)
    keys = borrowed(waiting.sources, waiting.inputs, np.zeros(3, dtype=np.int64))
    assert not sum(source.spillable_bytes for source in waiting.sources)
    assert not sum(source.spill() for source in waiting.sources)
    keys.pins.free()
    assert sum(source.spill() for source in waiting.sources)
    for source in waiting.sources:
        source.drop(source.rows)
    assert not waiting.budget.held_bytes(CHUNKS)
