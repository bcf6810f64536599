"""Cuts a file into records of text: a line each, or some lines that begin with one that matches."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from compactor.errors import InputError
from compactor.files.byte_source import Readable
from compactor.files.source import Ordinals
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep

MAX_RECORD_BYTES: Final = 4 << 20
_READ_BYTES: Final = 1 << 20
_LINE_FEED: Final = 10


class Records(NamedTuple):
    """Consecutive records without their last line break; blank lines between records are none."""

    ordinals: Ordinals
    """Positions among all records, from 0."""
    lines: Ordinals
    """Numbers of the lines that the records begin with, from 1."""
    texts: pa.Array
    """Strings that may not be UTF-8."""


def cut_records(path: str, source: Readable, starts_with: str | None) -> Iterator[Records]:
    """Yields the records of a file. Raises `InputError` for one of more than 4 MiB.

    starts_with: expression that the first line of a record matches at its beginning; None if each line is a
        record.
    """
    rest, line, ordinal = b"", 1, 0
    more = source.read(_READ_BYTES).removeprefix(BOM_UTF8)
    while rest or more:
        rest += more
        starts = _line_starts(rest)
        is_start = _are_starts(rest, starts, starts_with)
        stop = len(rest) if not more else _stop(rest, starts, is_start, starts_with)
        if stop == 0 and len(rest) > MAX_RECORD_BYTES:
            kind = "line" if starts_with is None else "record"
            raise InputError(
                f"{path}, line {line:,}: the {kind} is longer than {MAX_RECORD_BYTES >> 20} MiB: check "
                "that the file has lines of text"
            )
        if stop:
            found = _records(rest, starts, is_start, stop)
            yield found._replace(ordinals=found.ordinals + ordinal, lines=found.lines + line)
            ordinal += len(found.ordinals)
            line += int(np.searchsorted(starts, stop))
        rest = rest[stop:]
        more = source.read(_READ_BYTES)


def _line_starts(data: bytes) -> Ordinals:
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LINE_FEED) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    return starts[starts < len(data)]


def _are_starts(data: bytes, starts: Ordinals, starts_with: str | None) -> np.ndarray:
    if starts_with is None:
        return np.ones(len(starts), dtype=np.bool_)
    found = pc.match_substring_regex(_texts(data, starts, len(data)), rf"\A(?:{starts_with})")
    is_start: np.ndarray = found.to_numpy(zero_copy_only=False)
    is_start[0] = True
    return is_start


def _stop(data: bytes, starts: Ordinals, is_start: np.ndarray, starts_with: str | None) -> int:
    """Returns the end of the last record that is surely complete; more bytes follow."""
    if starts_with is None:
        return data.rfind(b"\n") + 1
    # The last line may not be complete, so that it is unknown whether it begins a record.
    known = is_start[:-1] if data[-1] != _LINE_FEED else is_start
    return int(starts[np.flatnonzero(known)[-1]]) if known.any() else 0


def _records(data: bytes, starts: Ordinals, is_start: np.ndarray, stop: int) -> Records:
    lines = np.flatnonzero(is_start & (starts < stop))
    texts = pc.ascii_rtrim(_texts(data, starts[lines], stop), characters="\r\n")
    is_there = np.asarray(pc.greater(pc.binary_length(texts), 0))
    if not is_there.all():
        lines, texts = lines[is_there], keep(texts, is_there)
    return Records(np.arange(len(lines)), lines, texts)


def _texts(data: bytes, starts: Ordinals, stop: int) -> pa.Array:
    offsets = np.append(starts, stop).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
