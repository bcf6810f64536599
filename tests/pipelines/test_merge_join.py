"""Sort-merge joins against nested loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.pipelines.join_keys import joined_schema
from compactor.pipelines.merge_join import MergeJoin
from compactor.pipelines.pairing import How, Joined
from compactor.pipelines.sorted_rows import SortedRows
from compactor.resources.errors import MemoryLimitError
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.pipelines.join_support import (
    FLOATS,
    INTS,
    MIB,
    TEXTS,
    Held,
    is_known,
    order_key,
    rows_of,
    shown,
)
from tests.support.wording import refuses

ON = [("f", "g"), ("t", "u")]
LEFT = pa.schema([("f", pa.float64()), ("t", pa.string()), ("a", pa.int64())])
RIGHT = pa.schema([("b", pa.int64()), ("u", pa.string()), ("g", pa.float64())])


def join_of(
    left: pa.Table, right: pa.Table, how: str, held: Held, *, batch_rows: int = 2048,
    on: Any = ON, directions: tuple[str, ...] = ("", ""),
) -> MergeJoin:  # fmt: skip
    def side(table: pa.Table, number: int) -> SortedRows:
        keys = [pair[number] for pair in on]
        text = ",".join(key + way for key, way in zip(keys, directions, strict=False))
        return held.sorted(table, keys, parse_sort_schema(text), batch_rows)

    schema = joined_schema(left.schema, right.schema, on, "join")
    joined = Joined(left.schema if How(how).is_probe_only else schema, left.schema, on)
    return MergeJoin(side(left, 0), side(right, 1), joined, How(how))


def merged(left: pa.Table, right: pa.Table, how: str, **settings: Any) -> list[Any]:
    held = settings.pop("held", None) or Held()
    return rows_of(join_of(left, right, how, held, **settings).rows(), held)


def nested_loops(left: pa.Table, right: pa.Table, how: str) -> list[Any]:
    """Every pair of rows; ordered by key, then left rows before lonely right ones, then as they came."""
    lefts = [(row["f"], row["t"], row["a"]) for row in left.to_pylist()]
    rights = [(row["g"], row["u"], row["b"]) for row in right.to_pylist()]
    found: list[tuple[Any, ...]] = []
    matched: set[int] = set()
    for i, (f, t, a) in enumerate(lefts):
        pairs = [
            j for j, (g, u, _) in enumerate(rights)
            if is_known(f) and is_known(t) and (f, t) == (g, u)
        ]  # fmt: skip
        matched.update(pairs)
        if how in ("semi", "anti"):
            if bool(pairs) == (how == "semi"):
                found.append((order_key((f, t)), 0, i, 0, (f, t, a)))
            continue
        found += [(order_key((f, t)), 0, i, j, (f, t, a, rights[j][2])) for j in pairs]
        if not pairs and how in ("left", "full"):
            found.append((order_key((f, t)), 0, i, 0, (f, t, a, None)))
    if how in ("right", "full"):
        found += [
            (order_key((g, u)), 1, j, 0, (g, u, None, b))
            for j, (g, u, b) in enumerate(rights) if j not in matched
        ]  # fmt: skip
    return shown(row[-1] for row in sorted(found, key=lambda row: row[:-1]))


def tables(lefts: list[Any], rights: list[Any]) -> tuple[pa.Table, pa.Table]:
    left = [{"f": f, "t": t, "a": n} for n, (f, t) in enumerate(lefts)]
    right = [{"g": f, "u": t, "b": n} for n, (f, t) in enumerate(rights)]
    return pa.Table.from_pylist(left, LEFT), pa.Table.from_pylist(right, RIGHT)


KEYS = st.lists(st.tuples(FLOATS, TEXTS), max_size=12)


@pytest.mark.parametrize("how", list(How))
@settings(max_examples=60, deadline=None)
@given(lefts=KEYS, rights=KEYS, batch_rows=st.sampled_from([1, 7, 2048]))
def test_it_gives_what_nested_loops_give_in_the_order_of_keys(
    how: str, lefts: list[Any], rights: list[Any], batch_rows: int
) -> None:
    left, right = tables(lefts, rights)
    assert merged(left, right, how, batch_rows=batch_rows) == nested_loops(left, right, how)


@pytest.mark.parametrize("how", list(How))
@settings(max_examples=60, deadline=None)
@given(lefts=KEYS, rights=KEYS, chunk=st.integers(1, 4))
def test_chunks_of_few_rows_make_no_difference(
    how: str, lefts: list[Any], rights: list[Any], chunk: int
) -> None:
    """So that most keys go on over several chunks, on one side or on both."""
    left, right = tables(lefts, rights)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sorted_rows", "merge_join"):
            patch.setattr(f"compactor.pipelines.{module}.CHUNK_ROWS", chunk)
        assert merged(left, right, how) == nested_loops(left, right, how)


@given(st.lists(INTS, max_size=12), st.lists(INTS, max_size=12))
@settings(max_examples=40, deadline=None)
def test_keys_may_come_in_any_direction(lefts: list[Any], rights: list[Any]) -> None:
    left = pa.table({"k": pa.array(lefts, pa.int64()), "a": range(len(lefts))})
    right = pa.table({"k": pa.array(rights, pa.int64()), "b": range(len(rights))})
    up = merged(left, right, "inner", on=[("k", "k")])
    down = merged(left, right, "inner", on=[("k", "k")], directions=(":desc",))
    assert down == sorted(up, key=lambda row: (-row[0], row[1], row[2]))


def test_many_rows_of_one_key_on_both_sides_are_crossed_in_little_memory() -> None:
    """30,000 x 40: neither side of the key fits into a chunk, nor into memory what is joined of them."""
    note = pa.array(np.random.default_rng(1).bytes(120) for _ in range(30_000))
    right = pa.table({"k": [7] * 30_000, "b": range(30_000), "note": note})
    left = pa.table({"k": [3, *[7] * 40, 9], "a": range(42)})
    found = []
    for limit in (512 * MIB, 2 * MIB):
        held = Held(limit)
        pairs: list[Any] = []
        for batch in join_of(left, right, "left", held, on=[("k", "k")]).rows():
            assert batch.nbytes <= 3 * max(held.room.chunk_bytes, 1 << 16)
            pairs.append(np.array([batch.column("a"), batch.column("b").fill_null(-1)]))
        assert held.budget.peak_bytes <= limit
        assert held.budget.used_bytes == 0
        assert (held.spills > 0) == (limit == 2 * MIB)
        held.close()
        found.append(np.concatenate(pairs, axis=1))
    assert np.array_equal(found[0], found[1])
    assert found[0].shape == (2, 40 * 30_000 + 2)
    assert np.array_equal(found[0][1][1:-1], np.tile(np.arange(30_000), 40))


def test_beyond_the_limit_an_error_names_the_stage() -> None:
    big = pa.table({"k": [1], "b": ["x" * 3 * MIB]})
    with refuses(MemoryLimitError):
        merged(big.rename_columns(["k", "a"]), big, "inner", on=[("k", "k")], held=Held(2 * MIB))
