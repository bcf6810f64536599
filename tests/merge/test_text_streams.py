"""Columns of large texts: decoded some rows at a time, and not searched for templates again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from compactor.merge.inputs import conversion
from compactor.merge.inputs.decoded import DecodedRows
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from lsm_fragment.container import text_stream as module
from lsm_fragment.container.text_stream import TextStream
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import template, vocabulary
from tests.format.test_templates import free_text
from tests.merge.test_codes import encodings, interleaved, merged_rows
from tests.merge.test_memory import run_spilling
from tests.merge.test_oracle import Merged
from tests.merge.test_templates import data_of, messages, words
from tests.support.fragments import sort_schema, write_fragment

ROWS = 9000
KNOBS = {"max_rows": 5000, "target_row_group_bytes": 400_000}


@pytest.fixture(autouse=True)
def _no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves text as it is, which is streamed then."""
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 1 << 40)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Streams chunks of few bytes, too. Returns the rows of each piece."""
    found: list[int] = []
    following = TextStream.next

    def noted(stream: TextStream) -> pa.Array:
        array = following(stream)
        found.append(len(array))
        return array

    monkeypatch.setattr(module, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(module, "_MIN_RATIO", 0)
    monkeypatch.setattr(TextStream, "next", noted)
    return found


def tables(*seeds: int) -> list[pa.Table]:
    return interleaved([free_text(ROWS, seed) for seed in seeds])


def plain(monkeypatch: pytest.MonkeyPatch, made: Callable[[], Merged]) -> list[bytes]:
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "text_stream", lambda *_: None)
        return data_of(made())


@pytest.mark.parametrize("threads", [1, 3])
def test_streams_change_no_byte(
    streams: list[int], monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    rows = tables(1, 2, 3)
    expected = plain(monkeypatch, lambda: merged_rows(rows, **KNOBS))
    assert not streams
    assert data_of(merged_rows(rows, threads=threads, **KNOBS)) == expected
    assert sum(streams) == 3 * ROWS
    assert max(streams) < ROWS / 5


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("slice_bytes", [2_000, 50_000])
def test_spilling_streams_changes_no_byte(
    streams: list[int], monkeypatch: pytest.MonkeyPatch, threads: int, slice_bytes: int
) -> None:
    """Slices on disk of some rows, or some hundred."""
    rows = tables(1, 2, 3)
    expected = plain(monkeypatch, lambda: merged_rows(rows, **KNOBS))
    fragments = [write_fragment(t, "k", WriterOptions(65_536, 1 << 22)) for t in rows]
    merged = Merged(fragments, rows[0].schema, sort_schema("k"), threads=threads, **KNOBS)
    reserved = lambda decoded, size: Reservation(decoded._budget, CHUNKS, size)  # noqa: E731
    monkeypatch.setattr(DecodedRows, "room_for", reserved)
    data, result = run_spilling(merged, slice_bytes)
    assert data == expected
    assert result.spilled_bytes
    assert sum(streams) == 3 * ROWS


def test_where_memory_is_short_nothing_is_streamed(
    streams: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tables(1, 2, 3)
    expected = data_of(merged_rows(rows, **KNOBS))
    streams.clear()
    monkeypatch.setattr(DecodedRows, "room_for", lambda *_: None)
    assert data_of(merged_rows(rows, **KNOBS)) == expected
    assert not streams


def test_inputs_that_writers_searched_in_vain_are_not_searched_again(
    streams: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever memory and threads there are: the output depends on it."""
    searches = noted_searches(monkeypatch)
    rows = tables(1, 2, 3)
    for threads in (1, 3):
        searches.clear()
        merged = merged_rows(rows, threads=threads, **KNOBS)
        assert encodings(merged) == {"VARLEN"}
        assert searches == [ROWS] * 3  # by the writers
        assert min(streams) > 0


@pytest.mark.parametrize(
    "other",
    [messages(5, ROWS), pa.array([f"few {n % 4}" for n in range(ROWS)]), words(5, 2000)],
    ids=["templates", "few values", "small chunks"],
)
def test_other_inputs_are_searched(other: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = noted_searches(monkeypatch)
    columns = [free_text(ROWS), other]
    merged = merged_rows(interleaved(columns), threads=1, max_rows=1 << 20)
    assert len(searches) > 2 - (len(other.unique()) == 4)
    assert encodings(merged)


def test_inputs_of_nulls_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = noted_searches(monkeypatch)
    rows = interleaved([free_text(ROWS), pa.nulls(ROWS, pa.string())])
    merged_rows(rows, threads=1, max_rows=1 << 20)
    assert searches == [ROWS]


def noted_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the rows of each chunk that is searched from now on."""
    found: list[int] = []
    search = template._search

    def noted(array: pa.Array, *others: Any) -> Any:
        found.append(len(array))
        return search(array, *others)

    monkeypatch.setattr(template, "_search", noted)
    return found
