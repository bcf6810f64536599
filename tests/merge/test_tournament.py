"""The tournament of keys against sorting, with slices, gates and groups of any size."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.merge.order.tournament import KeySlice, MergedRows, Tournament
from lsm_fragment.keys.normalised import KeyColumns, KeyLayout
from lsm_fragment.keys.sort_schema import SortSchema, parse_sort_schema
from lsm_fragment.native.keys.key_merge import Stop, place, refer_to_previous
from tests.support.wording import refuses

ONE = parse_sort_schema("k")
TWO = parse_sort_schema("k,n")
Row = tuple[object, ...]


def keys_of(rows: list[Row], sort: SortSchema) -> KeyColumns:
    columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    return KeyColumns(columns, KeyLayout([column.type for column in columns], sort))


class Inputs:
    """Inputs that hand out slices of random sizes, and a gate before some."""

    def __init__(self, rows: list[list[Row]], sort: SortSchema, rng: random.Random) -> None:
        self.rows = rows
        self.sort = sort
        self.rng = rng
        self.given = [0] * len(rows)
        self.gated = [False] * len(rows)

    def bring(self, tournament: Tournament, number: int) -> bool:
        """Gives the next slice or gate. Returns whether it was a gate."""
        rows = self.rows[number][self.given[number] :]
        if not rows:
            tournament.end(number)
            return False
        keys = keys_of(rows, self.sort)
        if not self.gated[number] and self.rng.random() < 0.2:
            self.gated[number] = True
            tournament.gate(number, KeySlice.of(keys.keys(0, 1)))
            return True
        self.gated[number] = False
        piece = KeySlice.of(keys.keys(0, self.rng.choice([1, 2, 3, 100])))
        self.given[number] += piece.rows
        tournament.put(number, piece, number)
        return False


def merged(tournament: Tournament, inputs: Inputs) -> list[MergedRows]:
    parts = []
    for number in range(len(inputs.rows)):
        inputs.bring(tournament, number)
    tournament.start()
    while True:
        match tournament.run():
            case Stop.DONE:
                parts.append(tournament.take(tournament.rows))
                return parts
            case Stop.FULL:
                parts.append(tournament.take(tournament.rows - inputs.rng.randrange(2)))
            case Stop.NEEDS_SLICE:
                inputs.bring(tournament, tournament.first)
                tournament.go_on()
            case Stop.AT_GATE:
                inputs.bring(tournament, tournament.first)
            case stop:
                raise AssertionError(stop)


def check_sorted(parts: list[MergedRows], rows: list[list[Row]], *, by_prefix: bool) -> None:
    """Checks the merge of sorted inputs, each row of which weighs as many bytes as the input's number."""
    expected = sorted((row, number) for number, part in enumerate(rows) for row in part)
    found = np.concatenate([part.inputs for part in parts]).tolist()
    assert found == [number for _, number in expected]
    assert np.concatenate([part.row_bytes for part in parts]).tolist() == found
    groups = [row[:1] if by_prefix else row for row, _ in expected]
    starts = [not at or groups[at - 1] != group for at, group in enumerate(groups)]
    assert np.concatenate([part.starts_group for part in parts]).tolist() == starts


STRINGS = st.text("ab\0\xff", max_size=20).map(str.encode)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.tuples(STRINGS, st.integers(0, 3)), max_size=30), min_size=1, max_size=9),
    st.sampled_from([2, 3, 10, 1000]),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_merging_is_sorting(rows: list[list[Row]], most: int, seed: int, by_prefix: bool) -> None:
    rows = [sorted(part) for part in rows]
    inputs = Inputs(rows, TWO, random.Random(seed))
    group = KeyLayout([pa.binary()], ONE) if by_prefix else None
    parts = merged(Tournament(len(rows), most, 1 << 40, group), inputs)
    check_sorted(parts, rows, by_prefix=by_prefix)
    assert all(len(part.inputs) <= most for part in parts)


@pytest.mark.parametrize("by_prefix", [False, True])
def test_keys_may_have_more_in_common_than_a_code_can_say(*, by_prefix: bool) -> None:
    rng = random.Random(7)
    far = 6 * 0xFFFD
    common = [b"a" * (far + more) for more in (-13, -8, -7, -6, -1, 0, 3, 100)]
    rows: list[list[Row]] = [
        sorted(
            (rng.choice(common) + rng.choice([b"", b"a", b"b"]), rng.randrange(2)) for _ in range(8)
        )
        for _ in range(5)
    ]
    inputs = Inputs(rows, TWO, rng)
    group = KeyLayout([pa.binary()], ONE) if by_prefix else None
    parts = merged(Tournament(len(rows), 1000, 1 << 40, group), inputs)
    check_sorted(parts, rows, by_prefix=by_prefix)


def test_keys_fill_up_to_their_bytes() -> None:
    tournament = Tournament(1, 100, 50)
    piece = KeySlice.of(keys_of([(n,) for n in range(20)], ONE).keys())
    tournament.put(0, piece, 0, more_bytes=1)
    tournament.start()
    assert tournament.run() is Stop.FULL
    assert tournament.rows == 5  # a key of 64 bits takes 9 bytes
    tournament.take(2)
    tournament.allow_more_bytes()
    assert tournament.run() is Stop.FULL
    assert tournament.rows == 13


def test_an_input_that_is_not_sorted_is_found() -> None:
    tournament = Tournament(2, 100, 1 << 30)
    tournament.put(0, KeySlice.of(keys_of([(1,), (3,)], ONE).keys()), 0)
    tournament.put(1, KeySlice.of(keys_of([(2,), (4,), (3,)], ONE).keys()), 0)
    tournament.start()
    assert tournament.run() is Stop.NEEDS_SLICE
    tournament.end(0)
    tournament.go_on()
    assert tournament.run() is Stop.DISORDER
    assert tournament.first == 1


@pytest.mark.parametrize(
    ("rows", "stop"), [([1, 1, 2, 2], Stop.NEEDS_SLICE), ([1, 1, 1], Stop.TOO_MANY)]
)
def test_rows_of_a_group_are_counted_for_each_input(rows: list[int], stop: Stop) -> None:
    tournament = Tournament(2, 100, 1 << 30, None, 2)
    tournament.put(0, KeySlice.of(keys_of([(1,), (1,)], ONE).keys()), 0)
    tournament.put(1, KeySlice.of(keys_of([(n,) for n in rows], ONE).keys()), 0)
    tournament.start()
    assert tournament.run() is Stop.NEEDS_SLICE
    tournament.end(0)
    tournament.go_on()
    assert tournament.run() is stop


def gate(number: int) -> KeySlice:
    return KeySlice.of(keys_of([(number,)], ONE).keys())


def key(number: int) -> bytes:
    return gate(number).key(0)


def test_an_input_is_alone_between_the_rows_of_others() -> None:
    tournament = Tournament(3, 100, 1 << 30)
    tournament.put(0, KeySlice.of(keys_of([(1,), (5,)], ONE).keys()), 0)
    tournament.gate(1, gate(2))
    tournament.gate(2, gate(9))
    tournament.start()
    assert tournament.run() is Stop.AT_GATE
    assert tournament.first == 1
    assert tournament.is_alone(key(2), key(4))
    assert not tournament.is_alone(key(2), key(5))
    tournament.skip(key(4))
    tournament.put(1, KeySlice.of(keys_of([(4,), (6,)], ONE).keys()), 0)
    tournament.go_on()
    assert tournament.run() is Stop.NEEDS_SLICE
    assert tournament.first == 0
    merged = tournament.take(tournament.rows)
    assert merged.inputs.tolist() == [0, 1, 0]
    assert merged.starts_group.tolist() == [True, False, True]
    tournament.end(0)
    tournament.go_on()
    tournament.run()
    tournament.end(1)
    tournament.go_on()
    assert tournament.run() is Stop.AT_GATE
    assert tournament.is_alone(key(9), key(20))


def test_an_input_is_not_alone_after_an_equal_key_of_another() -> None:
    tournament = Tournament(2, 100, 1 << 30)
    tournament.put(0, KeySlice.of(keys_of([(2,), (8,)], ONE).keys()), 0)
    tournament.gate(1, gate(2))
    tournament.start()
    assert tournament.run() is Stop.AT_GATE
    assert not tournament.is_alone(key(2), key(4))
    assert tournament.is_alone(key(3), key(4))


def test_slices_that_do_not_fit_their_keys_are_refused() -> None:
    cursors, keys = np.zeros((2, 11), np.int64), np.zeros(8, np.uint8)
    no_offsets = np.array([], np.int64)
    for number, offsets, rows in ((2, [], 1), (0, [], 3), (0, [0, 4], 2), (1, [0, 4, 9], 2)):
        with refuses(ValueError):
            codes = np.zeros(rows, np.uint64)
            place(cursors, number, 0, keys, np.array(offsets, np.int64), 4, codes, 1, 0)
    codes = np.zeros(2, np.uint64)
    with refuses(ValueError):
        place(cursors[:, :8].copy(), 0, 0, keys, no_offsets, 4, codes, 1, 0)
    place(cursors, 0, 0, keys, no_offsets, 4, codes, 1, 0)


@pytest.mark.parametrize(("offsets", "rows"), [([], 3), ([0, 4], 2), ([0, 4, 9], 2)])
def test_codes_of_keys_that_are_not_there_are_refused(offsets: list[int], rows: int) -> None:
    keys, codes = np.zeros(8, np.uint8), np.zeros(rows, np.uint64)
    with refuses(ValueError):
        refer_to_previous(keys, np.array(offsets, np.int64), 4, codes)
