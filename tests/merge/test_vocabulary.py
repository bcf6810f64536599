"""Columns of words: merged by their numbers, whatever their inputs store, memory there is, and threads do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

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
    assert (0 not in gathered) == has_table


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


def test_a_table_of_words_that_is_full_spells_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of random letters: more than a table and a row group have numbers for."""
    printable = bytes(range(33, 127)).decode()  # more letters than can be packed
    names = [ids(8 * ROWS, seed, 7) for seed in range(4)]
    columns = [
        pa.array(
            [
                f"w{a} v{b} {printable[n % 50 :]}"
                for n, (a, b) in enumerate(zip(*pairs, strict=True))
            ]
        )
        for pairs in (names[:2], names[2:])
    ]
    merged = merged_rows(interleaved(columns), threads=1, max_rows=1 << 20)
    assert encodings(merged) == {"VOCABULARY"}


def test_the_words_of_a_row_group_are_those_that_it_uses() -> None:
    table, known = WordTable(), np.array([0, 1], dtype=np.uint16)
    assert table.count == 0
    numbers, counts = np.frombuffer(known, dtype=np.uint8), np.array([0, 2], dtype=np.int32)
    out, ends, text_ends = table.renumbered(
        numbers, counts, np.frombuffer(b"", dtype=np.uint8), np.zeros(1, dtype=np.int32)
    )
    assert (bytes(out), ends.tolist(), text_ends.tolist()) == (known.tobytes(), [0, 2], [0, 2])
    gathered, found = table.gathered(
        np.array([[known.ctypes.data, counts.ctypes.data, 0, 1]]),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.uint16),
        2,
        2,
    )
    assert bytes(gathered) == b"\0\1"
    assert found is not None
    assert (bytes(found[0]), found[1].tolist(), len(found[2]), found[3]) == (
        known.tobytes(),
        [2],
        0,
        b"",
    )
