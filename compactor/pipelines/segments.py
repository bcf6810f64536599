"""Computes running values over array segments, vectorised regardless of their number and length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def accumulated(function: np.ufunc, values: Numbers, is_start: Flags) -> Numbers:
    """Computes `function.accumulate(values)`, restarting at each segment start. Row 0 must be one.

    Accumulates strictly left to right, so that float sums do not depend on other segments. Packs segments of
    similar length into the columns of a matrix, one per power of two. All shapes are (rows,).
    """
    starts = np.flatnonzero(is_start)
    lengths = np.diff(np.append(starts, len(values)))
    result = np.empty_like(values)
    bits = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    with np.errstate(all="ignore"):
        for size in np.unique(bits).tolist():
            mine = bits == size
            first, count = starts[mine], lengths[mine]
            if len(first) == 1:
                rows = slice(int(first[0]), int(first[0] + count[0]))
                result[rows] = function.accumulate(values[rows])
                continue
            steps = np.arange(int(count.max()))[:, None]
            places = first + steps
            running = function.accumulate(values[np.minimum(places, len(values) - 1)], axis=0)
            inside = steps < count
            result[places[inside]] = running[inside]
    return result


class Frames:
    """Each row's frame: rows `low` to `at` of the given values.

    Rows of a partition are consecutive. Without a limit a frame begins at the start of its partition, and the
    caller prepends the previous row's result to the values. With a limit the caller prepends the values of at
    least `limit - 1` previous rows.
    """

    def __init__(self, numbers: I64, start: int, stop: int, limit: int | None) -> None:
        """numbers: row numbers within the partition, from 1. start, stop: rows to compute. limit: maximum
        rows of a frame, including its own."""
        self._start, self._stop, self._limit = start, stop, limit
        mine = numbers[start:stop]
        if limit is None:
            self._is_start = np.concatenate([[True], mine == 1])
            places = np.arange(len(mine) + 1)
            self.at = places[1:]
            self.low = np.maximum.accumulate(np.where(self._is_start, places, 0))[1:]
        else:
            self._is_start = (numbers[:stop] - 1) % limit == 0
            self._is_start[:1] = True
            self.at = np.arange(start, stop)
            self.low = self.at - np.minimum(mine, limit) + 1

    @property
    def is_running(self) -> bool:
        return self._limit is None

    @property
    def rows(self) -> slice:
        """The rows whose values the caller passes, plus the previous result if running."""
        return slice(self._start if self.is_running else 0, self._stop)

    def over(self, function: np.ufunc, values: Numbers) -> Numbers:
        """Computes an associative function over each frame. Shape (stop - start,).

        Bounded frames use the van Herk/Gil-Werman algorithm: it splits partitions into blocks of the frame
        size, so that a frame is a suffix of one block and a prefix of the next. Nothing is subtracted, so a
        NaN leaves with its row.
        """
        upto = accumulated(function, values, self._is_start)
        if self.is_running:
            return upto[self.at]
        ends = np.append(self._is_start[1:], True)
        since = accumulated(function, values[::-1], ends[::-1])[::-1]
        block = np.cumsum(self._is_start)
        in_one = block[self.low] == block[self.at]
        with np.errstate(all="ignore"):
            return np.where(in_one, upto[self.at], function(since[self.low], upto[self.at]))

    def sums(self, values: I64) -> I64:
        """Returns the sum of each frame, shape (stop - start, ...).

        values: integers whose running sums fit into 64 bits, shape (values, ...).
        """
        upto = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
        found: I64 = upto[self.at + 1] - upto[self.low]
        return found
