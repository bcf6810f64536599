"""An index of hashes finds what a search of all of them finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compactor.pipelines.hash_index import HashIndex

HASHES = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2, 2**63, 2**64 - 1, 2**64 - 2])
)


@given(st.lists(HASHES, max_size=40), st.lists(HASHES, max_size=40))
def test_an_index_finds_the_first_of_equal_hashes_and_their_number(
    held: list[int], asked: list[int]
) -> None:
    hashes = np.sort(np.array(held, dtype=np.uint64))
    wanted = np.array([*asked, *held], dtype=np.uint64)
    first, counts = HashIndex(hashes).find(wanted)
    start = np.searchsorted(hashes, wanted, "left")
    assert counts.tolist() == (np.searchsorted(hashes, wanted, "right") - start).tolist()
    assert first[counts > 0].tolist() == start[counts > 0].tolist()
