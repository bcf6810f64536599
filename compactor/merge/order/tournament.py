"""Merges sorted inputs by their normalised keys, which come in slices. `lsm_fragment.native.keys.key_merge`
has the loop."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lsm_fragment.keys.normalised import KeyLayout, SortKeys
from lsm_fragment.native.keys import key_merge as native
from lsm_fragment.native.keys.key_merge import State, Stop

U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_CURSOR_FIELDS: Final = 11
_NO_WIDTHS: Final = np.empty(0, dtype=np.int64)
_NO_FLIPS: Final = np.empty(0, dtype=np.uint8)


class MergedRows(Struct, frozen=True):
    """Consecutive rows of the merged order."""

    inputs: U16
    """The input of each row. Shape (rows,)."""
    starts_group: Flags
    """Whether the row's group differs from that of the row before, across results too. Shape (rows,)."""
    row_bytes: I64
    """Bytes of each row in the heaviest column. Shape (rows,)."""


class KeySlice(Struct, frozen=True):
    """Consecutive keys of one input."""

    keys: SortKeys
    codes: U64
    """Where each key differs from the one before it. Shape (rows,)."""

    @classmethod
    def of(cls, keys: SortKeys) -> KeySlice:
        codes = np.empty(keys.rows, dtype=np.uint64)
        native.refer_to_previous(keys.data, keys.offsets, keys.width, codes)
        return cls(keys, codes)

    @property
    def rows(self) -> int:
        return self.keys.rows

    def key(self, row: int) -> bytes:
        return self.keys.key(row)


class _Progress:
    """Names the fields of `Progress` in `lsm_fragment.native.keys.key_merge`."""

    ROWS, KEY_BYTES, MAX_KEY_BYTES, GROUP, OWNER, IS_SHARED, MAX_ROWS_OF_GROUP = range(7)
    FIELDS: Final = 7


class Tournament:
    """The merge of one input's keys with another's. Rows of equal keys come by input, then in their order.

    Give every input a slice or a gate, or end it, and then `start`. `run` says what it needs next. A gate has
    one key, before which the merge stops.
    """

    def __init__(
        self,
        inputs: int,
        max_rows: int,
        max_key_bytes: int,
        group: KeyLayout | None = None,
        max_rows_of_group: int = 0,
    ) -> None:
        """max_rows, max_key_bytes: limits for the rows that wait to be taken.

        group: the columns whose values rows of a group have in common; None for all. max_rows_of_group: the
        most rows that one input may have in a group; 0 for any number.
        """
        self._cursors = np.zeros((inputs, _CURSOR_FIELDS), dtype=np.int64)
        self._cursors[:, 0] = State.ENDED
        self._slices: list[KeySlice | None] = [None] * inputs
        self._losers = np.zeros(inputs, dtype=np.int32)
        self._codes = np.zeros(inputs, dtype=np.uint64)
        self._group = group
        self._progress = np.zeros(_Progress.FIELDS, dtype=np.int64)
        self._max_key_bytes = max_key_bytes
        self._progress[_Progress.MAX_KEY_BYTES] = max_key_bytes
        self._progress[_Progress.MAX_ROWS_OF_GROUP] = max_rows_of_group
        self._inputs = np.empty(max_rows, dtype=np.uint16)
        self._starts = np.empty(max_rows, dtype=np.uint8)
        self._row_bytes = np.empty(max_rows, dtype=np.int64)
        self._last_key = b""

    @property
    def first(self) -> int:
        """The input of the least key."""
        return int(self._losers[0])

    @property
    def rows(self) -> int:
        """Number of rows that wait to be taken."""
        return int(self._progress[_Progress.ROWS])

    @property
    def key_bytes(self) -> int:
        """About how many bytes their keys have."""
        return int(self._progress[_Progress.KEY_BYTES])

    def put(self, number: int, piece: KeySlice, row_bytes: int, more_bytes: int = 0) -> None:
        """Gives an input its next keys. more_bytes: what counts of each row besides its key."""
        self._place(number, State.SLICE, piece, row_bytes, more_bytes)

    def gate(self, number: int, key: KeySlice) -> None:
        """Gives an input a key before which the merge stops."""
        self._place(number, State.GATE, key, 0, 0)

    def end(self, number: int) -> None:
        """Ends an input."""
        self._cursors[number, 0] = State.ENDED
        self._slices[number] = None

    def start(self) -> None:
        """Begins the merge, once every input has a slice or a gate, or has ended."""
        native.build(self._cursors, self._losers, self._codes)

    def go_on(self) -> None:
        """Goes on after the first input got its next slice or gate, or ended."""
        native.enter(self._cursors, self._losers, self._codes, self.first, self._last_key)

    def run(self) -> Stop:
        """Merges rows. Returns why it stopped; what it needs concerns the first input."""
        before = self.rows
        stop = native.merge(
            self._cursors,
            self._losers,
            self._codes,
            self._last_key,
            _NO_WIDTHS if self._group is None else self._group.widths,
            _NO_FLIPS if self._group is None else self._group.flips,
            self._progress,
            self._inputs,
            self._starts,
            self._row_bytes,
        )
        if self.rows > before:
            last = int(self._inputs[self.rows - 1])
            piece = self._slices[last]
            assert piece is not None
            self._last_key = piece.key(int(self._cursors[last, 4]) - 1)
        return Stop(stop)

    def take(self, rows: int) -> MergedRows:
        """Takes the first of the rows that wait."""
        rest = self.rows - rows
        taken = MergedRows(
            self._inputs[:rows].copy(),
            self._starts[:rows].view(np.bool_).copy(),
            self._row_bytes[:rows].copy(),
        )
        for filled in (self._inputs, self._starts, self._row_bytes):
            filled[:rest] = filled[rows : rows + rest].copy()
        self._progress[_Progress.ROWS] = rest
        self._progress[_Progress.KEY_BYTES] = 0
        self._progress[_Progress.MAX_KEY_BYTES] = self._max_key_bytes
        return taken

    def rows_of_whole_groups(self) -> int:
        """Returns how many of the waiting rows come before the last group, which may have more."""
        starts = np.flatnonzero(self._starts[: self.rows])
        return int(starts[-1]) if len(starts) else 0

    def allow_more_bytes(self) -> None:
        """Doubles the limit for the keys of the waiting rows until some are taken."""
        self._progress[_Progress.MAX_KEY_BYTES] *= 2

    def starts_group(self, key: bytes) -> bool:
        """Returns whether a row of this key would start a group after the last row."""
        return not self._last_key or self._part(self._last_key) != self._part(key)

    def is_alone(self, first_key: bytes, last_key: bytes) -> bool:
        """Returns whether no other input has rows in the groups from `first_key`, the first input's next key,
        to `last_key`, neither merged nor to come."""
        if not self.starts_group(first_key):
            is_shared = self._progress[_Progress.IS_SHARED]
            if is_shared or self._progress[_Progress.OWNER] != self.first:
                return False
        other = native.runner_up(self._cursors, self._losers)
        if other < 0:
            return True
        piece = self._slices[other]
        assert piece is not None
        return self._part(piece.key(int(self._cursors[other, 4]))) > self._part(last_key)

    def skip(self, last_key: bytes) -> None:
        """Notes that the first input has given rows up to this key beside the merge."""
        self._progress[_Progress.GROUP] += 1
        self._progress[_Progress.OWNER] = self.first
        self._progress[_Progress.IS_SHARED] = False
        self._last_key = last_key

    def _part(self, key: bytes) -> bytes:
        return key if self._group is None else self._group.prefix_of(key)

    def _place(
        self, number: int, state: State, piece: KeySlice, row_bytes: int, more_bytes: int
    ) -> None:
        self._slices[number] = piece
        native.place(
            self._cursors,
            number,
            state,
            piece.keys.data,
            piece.keys.offsets,
            piece.keys.width,
            piece.codes,
            row_bytes,
            more_bytes,
        )
