"""Columns of words: merged by their numbers, whatever their inputs store, memory there is, and threads do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from compactor.merge.groups import column_cursors
from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.order.word_numbers import WordNumbers
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import vocabulary
from lsm_fragment.native.gather.words import WordTable
from tests.format.test_letters import ids
from tests.format.test_templates import free_text
from tests.merge.test_codes import encodings, interleaved, merged_rows
from tests.merge.test_memory import run_spilling
from tests.merge.test_oracle import Merged
from tests.merge.test_templates import data_of, messages
from tests.support.fragments import sort_schema, write_fragment
from tests.support.numbered_words import number_words

ROWS = 3000
KNOBS = {"max_rows": 2500, "target_row_group_bytes": 100_000}


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch) -> None:
    number_words(monkeypatch)


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each row group whose words are gathered by their numbers."""
    found: list[int] = []
    rows_of = WordNumbers.numbered

    def noted(numbers: WordNumbers, array: pa.Array, memory: Reservation) -> object:
        made = rows_of(numbers, array, memory)
        found.append(0 if made[1] is None else len(array))
        return made

    monkeypatch.setattr(WordNumbers, "numbered", noted)
    return found


def text(seed: int, rows: int = ROWS) -> pa.Array:
    """Words, with nulls, empty strings, bytes beyond ASCII, and numbers."""
    values = free_text(rows, seed).to_pylist()
    return pa.array(
        [
            None if n % 37 == 5 else "" if n % 41 == 7 else f"{value} größe {n * 7919}"
            for n, value in enumerate(values)
        ]
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_words_of_several_inputs_merge_by_their_numbers(gathered: list[int], threads: int) -> None:
    tables = interleaved([text(seed) for seed in range(3)])
    merged = merged_rows(tables, threads=threads, **KNOBS)
    assert encodings(merged) == {"VOCABULARY"}
    assert sum(gathered) == 3 * ROWS


def test_the_same_bytes_come_of_texts_that_are_divided_anew(
    gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = interleaved([text(seed) for seed in range(3)])
    expected = data_of(merged_rows(tables, **KNOBS))
    assert 0 not in gathered
    gathered.clear()
    monkeypatch.setattr(WordNumbers, "_begin", lambda _: None)  # as where no memory is free
    assert data_of(merged_rows(tables, **KNOBS)) == expected
    assert set(gathered) == {0}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("slice_bytes", [2_000, 50_000])
@pytest.mark.parametrize("has_table", [True, False])
def test_spilling_words_changes_no_byte(
    gathered: list[int],
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    slice_bytes: int,
    has_table: bool,
) -> None:
    """Where there is memory for a table of words, and where there is none."""
    tables = interleaved([text(seed) for seed in range(3)])
    expected = data_of(merged_rows(tables, **KNOBS))
    fragments = [write_fragment(t, "k", WriterOptions(65_536, 1 << 22)) for t in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), threads=threads, **KNOBS)
    reserved = lambda decoded, size: Reservation(decoded._budget, CHUNKS, size)  # noqa: E731
    monkeypatch.setattr(DecodedRows, "room_for", reserved)
    monkeypatch.setattr(WordNumbers, "_begin", begun if has_table else lambda _: None)
    gathered.clear()
    data, result = run_spilling(merged, slice_bytes)
    assert result.spilled_bytes
    assert data == expected
    assert any(gathered) == has_table


def begun(numbers: WordNumbers) -> WordTable:
    """Begins a table whatever memory is free."""
    numbers._table = WordTable()
    return numbers._table


OTHERS = {
    "text": lambda: pa.array([f"{a} {b}" for a, b in zip(ids(ROWS, 1), ids(ROWS, 2), strict=True)]),
    "templates": lambda: messages(5, ROWS),
    "few values": lambda: pa.array([f"few {n % 4}" for n in range(ROWS)]),
    "nulls": lambda: pa.nulls(ROWS, pa.string()),
    "empty": lambda: pa.array([""] * ROWS),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("threads", [1, 3])
def test_words_merge_with_what_other_inputs_store(other: str, threads: int) -> None:
    tables = interleaved([text(1), OTHERS[other](), text(2)])
    merged_rows(tables, threads=threads, **KNOBS)


def test_small_chunks_of_text_become_words_once_they_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 300_000)
    tables = interleaved([text(seed) for seed in range(3)])
    fragments = [write_fragment(table, "k") for table in tables]
    merged = Merged(fragments, tables[0].schema, sort_schema("k"), max_rows=1 << 20)
    merged.run()
    assert encodings(merged) == {"VOCABULARY"}


def random_words(count: int, seed: int) -> pa.Array:
    """Texts of `count` random words, of letters that cannot be packed."""
    printable = bytes(range(33, 127)).decode()
    names = [ids(count, part, 7) for part in (seed, seed + 1)]
    return pa.array(
        [f"w{a} v{b} {printable[n % 50 :]}" for n, (a, b) in enumerate(zip(*names, strict=True))]
    )


WORDS = {
    "few words": lambda seed: free_text(9000, seed),
    "more words than a table has room for": lambda seed: random_words(20_000, seed),
    "more words than a chunk has numbers for": lambda seed: random_words(40_000, seed),
}


@pytest.mark.parametrize("made", WORDS)
@pytest.mark.parametrize("max_rows", [8000, 1 << 20])
def test_what_is_stored_depends_neither_on_memory_nor_on_what_came_first(
    made: str, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small row groups are stored as text, large ones by words."""
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 256 << 10)
    tables = interleaved([WORDS[made](2 * seed) for seed in range(3)])
    knobs = {"max_rows": max_rows, "target_row_group_bytes": 1 << 24}
    expected = data_of(merged_rows(tables, threads=1, **knobs))
    assert data_of(merged_rows(tables, threads=3, **knobs)) == expected
    with monkeypatch.context() as patch:
        patch.setattr(column_cursors, "may_decode_ahead", lambda *_: False)
        assert data_of(merged_rows(tables, threads=1, **knobs)) == expected
        patch.setattr(WordNumbers, "_begin", lambda _: None)
        assert data_of(merged_rows(tables, threads=1, **knobs)) == expected


def test_a_merge_of_many_inputs_fits_in_the_memory_that_it_plans() -> None:
    """Each input has few bytes, and its chunk goes to disk in many parts."""
    words = random_words(2000, 0).to_pylist()
    tables = interleaved(
        [pa.array([words[n * (seed + 7) % 2000] for n in range(300)]) for seed in range(120)]
    )
    fragments = [write_fragment(table, "k") for table in tables]
    knobs = {"max_rows": 5000, "target_row_group_bytes": 1 << 18, "threads": 1}
    limit = 1
    for _ in range(2):
        merged = Merged(
            fragments, tables[0].schema, sort_schema("k"), memory_limit_bytes=limit, **knobs
        )
        limit = merged.plan.stages.need_bytes
    result = merged.run()
    assert 0 < result.spilled_bytes < 1.5 * sum(table.nbytes for table in tables)


def test_the_words_of_a_row_group_are_those_that_it_uses() -> None:
    table, known = WordTable(), np.array([60_692 + 123, 61_692 + 62 * 4 + 5], dtype=np.uint16)
    numbers, counts = known.view(np.uint8), np.array([0, 2], dtype=np.int32)
    nothing = np.frombuffer(b"", dtype=np.uint8), np.zeros(1, dtype=np.int32)
    found = table.renumbered(numbers, counts, *nothing)
    assert found is not None
    assert table.count == 0
    out, ends, text_ends = found
    assert (bytes(out), ends.tolist(), text_ends.tolist()) == (known.tobytes(), [0, 2], [0, 5])
    gathered, words = table.gathered(
        np.array([[known.ctypes.data, counts.ctypes.data, 0, 1]]),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.uint16),
        5,
        5,
    )
    assert bytes(gathered) == b"12345"
    assert words is not None
    assert (bytes(words[0]), words[1].tolist(), len(words[2]), words[3]) == (
        known.tobytes(),
        [2],
        0,
        b"",
    )
