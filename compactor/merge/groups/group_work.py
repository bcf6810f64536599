"""Makes the chunks of one output row group: gathers its rows, hashes, folds and encodes them. Pure, so that
threads can work on several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from pyarrow import types as pt

from compactor.common.counts import counted
from compactor.merge.errors import MergeCheckError
from compactor.merge.groups.column_pieces import max_plain_bytes, row_bits
from compactor.merge.groups.splits import stops_within
from compactor.resources.merge_plan import OVERSHOOT_FACTOR
from compactor.resources.stopwatch import Laps
from compactor.rows.flags import KEPT, NONE_SEEN, Flags, RowRule, RowStatistics, is_divisible
from compactor.rows.fold import chosen_rows, folded, kept_rows, merged_rows
from compactor.rows.policy import RowFunction
from lsm_fragment.arrays.hashing import U64, add_column, column_contributions, surveyed
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.nested import I64
from lsm_fragment.arrays.sizes import (
    max_templated_bytes,
    max_total_bytes,
    take_at_most,
    total_bits,
    total_bytes,
)
from lsm_fragment.arrays.templated import text
from lsm_fragment.arrays.types import is_binary_like, is_templated
from lsm_fragment.container.chunk import Chunk, encode_chunk, make_chunk
from lsm_fragment.encodings.dictionary import Coding, by_dictionary, recoded
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.errors import LimitError
from lsm_fragment.gather.columns import gather
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import Pieces
from lsm_fragment.gather.templates import with_few_templates
from lsm_fragment.gather.words import gather_words
from lsm_fragment.keys.bounds import Bound, key_at
from lsm_fragment.limits import max_written_bytes


class ColumnRows(Struct, frozen=True, kw_only=True):
    """The rows of one output row group in one column, with the settings for its chunk."""

    name: str
    pieces: Pieces
    """Pieces of each contributing input, in the column's storage type."""
    origins: Origins
    """For each row, the place of its input among the inputs."""
    flags: Flags | None
    """The fate of each row; None if all are written."""
    function: RowFunction | None
    """How rows are folded; None where rows are written as they are."""
    max_bytes: int
    """Divide a heavier row group, if its rows can be divided."""
    level: int
    """zstd's level."""
    summarise: Callable[[pa.Array], bytes | None] | None = None
    """Makes the skip index of the rows that are written, if the column has one."""
    only_weighs: bool = False
    """Whether the rows are not written anyway, because the merge needs a second pass."""
    precedent: Precedent | None = None
    """Strings: what became of them when the inputs were written."""


class ColumnChunk(Struct, kw_only=True):
    """The chunk of the rows."""

    chunk: Chunk | None = None
    """None if no row is written, or the rows were only weighed."""
    contributions: U64 | None = None
    """What the rows taken add to the row hash; None if all are null."""
    folded_contributions: U64 | None = None
    """The contributions of the rows written, where others were folded into them."""
    summary: bytes | None = None
    """The skip index of the rows that are written."""
    stops: Sequence[int] = ()
    """The rows before which the row group must be divided, because it is too heavy."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds by stage."""


def make_column_chunk(rows: ColumnRows) -> ColumnChunk:
    """Makes the chunk.

    Raises `FoldError` where values cannot be folded, `LimitError` where readers would refuse them,
    `MemoryError`, and `pa.ArrowInvalid` where 32-bit offsets do not reach; all name the column.
    """
    with _naming(rows.name):
        return _column_chunk(rows)


@contextmanager
def _naming(column: str) -> Iterator[None]:
    """Adds the column's name to errors raised in the block."""
    try:
        yield
    except MemoryError as error:  # NumPy's can't be made of a text
        raise MemoryError(f"column {column!r}: {error}") from error
    except (LimitError, pa.ArrowInvalid) as error:
        raise type(error)(f"column {column!r}: {error}") from error


def _column_chunk(rows: ColumnRows) -> ColumnChunk:
    laps = Laps(time.thread_time)
    made = ColumnChunk(seconds=laps.seconds)
    laps.begin("gather")
    max_bytes = max_plain_bytes(len(rows.origins))
    words = None
    if rows.pieces.has_words and not rows.pieces.has_templates:
        array, words = gather_words(rows.pieces, rows.origins)
    else:
        array = gather(rows.pieces, rows.origins, max_bytes, may_code_each=True)
    is_mixed = pt.is_dictionary(array.type) and rows.pieces.has_values
    limit = _limit_bytes(rows, array, is_mixed=is_mixed)
    if limit is not None:
        made.stops = stops_within(row_bits(array), limit, rows.flags)
    if made.stops or rows.only_weighs:
        laps.end()
        return made
    array = with_few_templates(array)
    # Native code finds the distinct strings; those of other types may come twice from different inputs.
    coding = Coding.FINAL if is_binary_like(rows.pieces.dtype) else Coding.OPEN
    if is_mixed or not pt.is_dictionary(array.type):
        # Comes before the rows are hashed, because only distinct values need hashing.
        laps.begin("encode")
        array, coding = recoded(array) if is_mixed else by_dictionary(array), Coding.FINAL
    seen = None
    if array.null_count < len(array):
        laps.begin("hash")
        seen = surveyed(rows.name, array) if is_templated(array.type) else None
        made.contributions = (
            column_contributions(rows.name, array) if seen is None else seen.contributions
        )
    if rows.flags is not None:
        laps.begin("gather")
        (array, whose), seen, words = _written(rows, array, rows.flags), None, None
        is_same = whose is not None
        coding = Coding.DISTINCT if is_same and coding is Coding.FINAL else Coding.OPEN
        if rows.function is not None or pt.is_nested(rows.pieces.dtype):
            laps.begin("hash")
            contributions = column_contributions(rows.name, array)
            _check_moved(rows.name, made.contributions, whose, contributions)
            if rows.function is not None:
                made.folded_contributions = contributions
    if len(array):
        laps.begin("encode")
        encoded = encode_chunk(
            array, coding=coding, seen=seen, words=words, precedent=rows.precedent
        )
        made.chunk = encoded.compressed(rows.level)
        if rows.summarise is not None:
            made.summary = rows.summarise(text(array))
    laps.end()
    return made


class KeyGroup(Struct, frozen=True, kw_only=True):
    """The sort columns of one output row group, with the settings for their chunks."""

    names: Sequence[str]
    pieces: Sequence[Pieces]
    """Pieces of each contributing input, for each column."""
    origins: Origins
    """For each row, the place of its input among the inputs."""
    flags: Flags | None
    rule: RowRule | None
    level: int


class KeyChunks(Struct, frozen=True, kw_only=True):
    """The chunks of the sort columns."""

    chunks: Sequence[Chunk]
    """Empty if no row is written."""
    first_key: Bound
    last_key: Bound
    contributions: U64
    """What the sort columns of the rows taken add to the row hash. Shape (rows,)."""
    folded_contributions: U64 | None
    """The contributions of the rows written, where others are folded into them."""
    row_statistics: RowStatistics
    seconds: Mapping[str, float]
    """CPU seconds by stage."""


def make_key_chunks(group: KeyGroup) -> KeyChunks:
    """Makes the chunks. Raises what `make_column_chunk` raises."""
    laps, rule = Laps(time.thread_time), group.rule
    laps.begin("gather")
    keys = []
    for name, pieces in zip(group.names, group.pieces, strict=True):
        with _naming(name):
            keys.append(gather(pieces, group.origins))
    laps.begin("hash")
    contributions = _sums(group.names, keys)
    if group.flags is not None:
        laps.begin("gather")
        keys = [
            merged_rows(array, group.flags, name, rule)
            for name, array in zip(group.names, keys, strict=True)
        ]
    rows = len(keys[0])
    if not rows:
        laps.end()
        return KeyChunks(
            chunks=[],
            first_key=(),
            last_key=(),
            contributions=contributions,
            folded_contributions=None,
            row_statistics=NONE_SEEN,
            seconds=laps.seconds,
        )
    laps.begin("encode")
    chunks = [make_chunk(array, level=group.level) for array in keys]
    folds = rule is not None and rule.policy.folds and group.flags is not None
    laps.begin("hash")
    made = KeyChunks(
        chunks=chunks,
        first_key=key_at(keys, 0),
        last_key=key_at(keys, rows - 1),
        contributions=contributions,
        folded_contributions=_sums(group.names, keys) if folds else None,
        row_statistics=NONE_SEEN if rule is None else rule.row_statistics(keys),
        seconds=laps.seconds,
    )
    laps.end()
    return made


def _sums(names: Sequence[str], keys: Sequence[pa.Array]) -> U64:
    sums = np.zeros(len(keys[0]), dtype=np.uint64)
    for name, array in zip(names, keys, strict=True):
        add_column(name, array, sums)
    return sums


def _limit_bytes(rows: ColumnRows, array: pa.Array, *, is_mixed: bool) -> int | None:
    """Returns the most bytes of each part if the row group must be divided, otherwise None.

    is_mixed: whether only some pieces were dictionary-coded; then each row counts with its value.
    """
    if not is_divisible(rows.flags, len(array)):
        return None
    if _is_heavier(array, rows.max_bytes, is_mixed=is_mixed):
        return rows.max_bytes // OVERSHOOT_FACTOR
    max_stood_for = max_written_bytes() // 2
    if pt.is_dictionary(array.type) and not (is_mixed or take_at_most([array], max_stood_for)):
        # Readers might refuse the decoded dictionary. They need the other half for everything else.
        return max_stood_for
    return None


def _is_heavier(array: pa.Array, max_bytes: int, *, is_mixed: bool) -> bool:
    """Returns whether rows take more than `max_bytes`; a dictionary counts once, unless mixed."""
    dtype = array.type
    if is_mixed:
        if len(array.dictionary) == len(array) and array.nbytes <= max_bytes:
            return False  # each value is one row's
        return max_total_bytes(array) > max_bytes and total_bits(array) > 8 * max_bytes
    if pt.is_dictionary(dtype) and pt.is_nested(dtype.value_type):
        # Not `nbytes`, which depends on how the dictionary was made.
        return 4 * len(array) + total_bytes(array.dictionary) > max_bytes
    if pt.is_dictionary(dtype):
        return int(array.nbytes) > max_bytes
    if is_templated(dtype) and max_templated_bytes(array) <= max_bytes:
        return False
    if pt.is_nested(dtype) and array.nbytes <= max_bytes:
        return False  # takes less time than to count only what the rows have
    return total_bits(array) > 8 * max_bytes


def _written(rows: ColumnRows, array: pa.Array, flags: Flags) -> tuple[pa.Array, I64 | None]:
    """Returns the rows to be written, and the row whose value each has; None where values are computed."""
    if rows.function is None:
        return kept_rows(array, flags), np.flatnonzero((flags & KEPT).astype(np.bool_))
    array = text(array)
    whose = chosen_rows(array, flags, rows.function)
    if whose is None:
        return folded(array, flags, rows.function, rows.name), None
    return take(array, whose), whose


def _check_moved(name: str, taken: U64 | None, whose: I64 | None, written: U64) -> None:
    """Raises `MergeCheckError` if what is written does not hash as the rows that it was taken from."""
    if whose is None:
        return
    expected = np.zeros(len(whose), dtype=np.uint64) if taken is None else taken[whose]
    if changed := int(np.count_nonzero(expected != written)):
        raise MergeCheckError(
            f"column {name!r}: {counted(changed, 'row')} of a merge had another hash after others were left "
            "out; its outputs were dropped, the inputs are untouched"
        )
