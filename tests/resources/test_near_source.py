"""Local files are read in order and without a thread, and what was charged is given back."""

from __future__ import annotations

import threading

import pytest

from compactor.resources.errors import MemoryLimitError
from compactor.resources.near_source import NearSource
from tests.resources.test_fetch import PIECE, CountedSource, budget_of, content, everything


@pytest.mark.parametrize("at_once", [1, 999, 2 * PIECE])
def test_all_bytes_come_in_order(at_once: int) -> None:
    source, budget = CountedSource(5 * PIECE), budget_of()
    near = NearSource(lambda: source, PIECE, budget)
    assert everything(near, at_once) == content(0, 5 * PIECE)
    near.close()
    near.close()
    assert source.closed
    assert budget.used_bytes == 0


def test_a_file_is_opened_with_the_first_read_in_the_same_thread() -> None:
    opened: list[threading.Thread] = []

    def open_source() -> CountedSource:
        opened.append(threading.current_thread())
        return CountedSource(10)

    near = NearSource(open_source, PIECE, budget_of())
    assert not opened
    near.read(1)
    near.read(1)
    assert opened == [threading.current_thread()]


def test_a_piece_is_charged_while_the_file_is_open() -> None:
    budget = budget_of()
    near = NearSource(lambda: CountedSource(1 << 20), PIECE, budget)
    assert budget.used_bytes == 0
    near.read(100 * PIECE)
    near.read(1)
    assert budget.held_bytes("fetch") == PIECE
    near.close()
    assert budget.used_bytes == 0


def test_no_file_is_opened_without_memory_for_a_piece() -> None:
    near = NearSource(lambda: CountedSource(1), PIECE, budget_of(PIECE - 1))
    with pytest.raises(MemoryLimitError):
        near.read(1)
    near.close()


def test_errors_of_opening_and_of_reading_come_through() -> None:
    def missing() -> CountedSource:
        raise FileNotFoundError

    budget = budget_of()
    near = NearSource(missing, PIECE, budget)
    with pytest.raises(FileNotFoundError):
        near.read(1)
    near.close()
    near = NearSource(lambda: CountedSource(1 << 20, fail_at=PIECE), PIECE, budget)
    assert near.read(PIECE) == content(0, PIECE)
    with pytest.raises(ConnectionError):
        near.read(1)
    near.close()
    assert budget.used_bytes == 0
