"""Properties that few entities have take memory by their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.entities.datasets import Located
from compactor.entities.properties import Properties, Sparse, end_to_end, sparse_if_rare, taken
from compactor.entities.reading import read_dataset
from compactor.entities.texts import TEXT
from tests.entities.support import by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore

COLUMNS = st.lists(st.none() | st.sampled_from(["1", '"a"']), max_size=20)


def array(texts: list[str | None]) -> pa.Array:
    return pa.array(texts, TEXT)


def sparse(texts: list[str | None]) -> Sparse:
    places = [n for n, text in enumerate(texts) if text is not None]
    return Sparse(np.array(places, np.int64), array([texts[n] for n in places]), len(texts))


@given(texts=COLUMNS, more=COLUMNS, chance=st.randoms(use_true_random=False))
def test_a_sparse_column_is_taken_and_joined_like_any_other(
    texts: list[Any], more: list[Any], chance: Any
) -> None:
    rows_taken = np.array(chance.sample(range(len(texts)), len(texts) // 2), np.int64)
    both = Properties({"s": sparse(texts), "d": array(texts)})
    found = taken(both, rows_taken, len(texts))
    assert found["s"] == found["d"] == array(texts).take(pa.array(rows_taken, pa.int64()))
    joined = end_to_end([sparse(texts), None, sparse(more)], [len(texts), 2, len(more)])
    assert isinstance(joined, Sparse)
    assert joined.dense() == array([*texts, None, None, *more])
    mixed = end_to_end([sparse(texts), array(more)], [len(texts), len(more)])
    assert mixed == array([*texts, *more])


@pytest.mark.parametrize(("there", "is_sparse"), [(2, False), (1, True)])
def test_one_in_eight_makes_a_column_of_all_rows(there: int, is_sparse: bool) -> None:
    column = sparse_if_rare(array(["1"] * there + [None] * (15 - there)))
    assert isinstance(column, Sparse) is is_sparse


def test_many_rare_properties_are_held_by_their_values(tmp_path: Path) -> None:
    entities = [{"_id": f"a{n:04}", f"n{n % 700}": n, "k": n} for n in range(3000)]
    write(tmp_path, {"A": entities})
    charged: list[int] = []
    located = Located(name="A", place=str(tmp_path / "A.ndjson"), is_file=True)
    found = read_dataset(located, "A", charged.append)
    assert found.nbytes < 400_000 > sum(charged)  # a column of all rows takes 24,000
    assert [e["n5"] for e in entities if "n5" in e] == [
        json.loads(text) for text in found.properties["n5"].drop_null().to_pylist()
    ]


@pytest.mark.parametrize("strategy", ["default", "compact", "list"])
def test_rare_properties_of_some_datasets_are_folded_with_others(
    tmp_path: Path, strategy: str
) -> None:
    a = [{"_id": f"a{n:02}", "k": n, **({"x": n} if n % 13 == 0 else {})} for n in range(40)]
    b = [{"_id": f"b{n:02}", "k": n, "x": 0} for n in range(0, 40, 2)]
    c = [{"_id": f"c{n:02}", "y": [n]} for n in range(3)] + [{"_id": f"d{n}"} for n in range(40)]
    write(tmp_path, {"A": a, "B": b, "C": c})
    chosen = spec("A a", "B b", "C c", equality=[["eq", "a.k", "b.k"]], strategy=strategy)
    store = MemoryStore()
    run(chosen, store, tmp_path)
    found = by_id(rows(store))
    assert len(found) == 83
    if strategy == "default":
        assert found["0|a26|1|b26"] == {"_id": "0|a26|1|b26", "$ids": ["a26", "b26"],
                                        "k": [26, 26], "x": [26, 0]}  # fmt: skip
        assert (found["0|a39"]["x"], found["2|c02"]["y"]) == (39, [2])
