"""Values for the parameters of log templates: names, addresses, ids and numbers, as strings.

How real logs repeat themselves decides how well they compress. Three kinds:

    pool     one constant set for the fleet, drawn with a 1 / rank skew (users, paths, urls)
    recent   ids created over time and mentioned for a while (blocks, sessions, requests)
    fresh    numbers drawn anew for every mention (ports, sizes, timings)

Every draw is one vectorised call for all rows of a template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.log_pools import pools

Rows = npt.NDArray[np.int64]

_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_EPOCH_MS: Final = 1_763_596_800_000
_ROWS_PER_SPELL: Final = 24
"""Rows for which a source keeps one pool value: one user, one peer, one path."""
_HELD_FRACTION: Final = 0.7


def hex_strings(raw: npt.NDArray[np.uint8], dashes_after: tuple[int, ...] = ()) -> pa.StringArray:
    """Renders each row of `raw`, shape (rows, bytes), in hex, with a dash after each of the given digits."""
    rows, width = raw.shape
    digits = np.empty((rows, 2 * width), np.uint8)
    digits[:, 0::2] = _HEX[raw >> 4]
    digits[:, 1::2] = _HEX[raw & 15]
    if dashes_after:
        digits = np.insert(digits, dashes_after, ord("-"), axis=1)
    offsets = np.arange(rows + 1, dtype=np.int32) * digits.shape[1]
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))
    )


def random_hex(rng: np.random.Generator, rows: int, width: int) -> pa.StringArray:
    """Returns `rows` random hex strings of `width` bytes, twice as many digits."""
    return hex_strings(rng.integers(0, 256, (rows, width), np.uint8))


def random_uuids(rng: np.random.Generator, rows: int) -> pa.StringArray:
    """Returns `rows` random version 4 UUIDs in canonical form."""
    raw = rng.integers(0, 256, (rows, 16), np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return hex_strings(raw, (8, 12, 16, 20))


def skewed_ranks(rng: np.random.Generator, rows: int, size: int) -> Rows:
    """Returns ranks in [0, size) with probability about 1 / (rank + 1)."""
    drawn = np.exp(rng.random(rows) * math.log(size + 1)).astype(np.int64) - 1
    return np.asarray(np.clip(drawn, 0, size - 1))


def _text(numbers: npt.NDArray[np.generic]) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def _join(*pieces: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*pieces, "")


class Parameters:
    """Draws template parameters for one block of rows.

    `row_values` are the columns that messages repeat ("host", "status", "ms"), one value per row. `clock`
    orders rows by source, then time: adjacent rows were logged by one process within a short time, and so
    mention the same things.
    """

    def __init__(
        self, rng: np.random.Generator, clock: Rows, row_values: Mapping[str, pa.StringArray]
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._row_values = row_values
        self._born: dict[str, pa.StringArray] = {}
        self._held_ranks: dict[str, Rows] = {}
        self._pools = pools()
        self._sequence_base = int(rng.integers(1, 5_000_000))

    def draw(self, name: str, rows: Rows) -> pa.StringArray:
        """Returns a value of parameter `name` for each of `rows` (positions in the block)."""
        if name in self._row_values:
            return self._row_values[name].take(pa.array(rows))
        if name in self._pools:
            return self._pooled(name, rows)
        if name in _RECENT:
            return self._recent(name, rows)
        if name == "seq":
            return _text(self._sequence_base + self._clock[rows])
        return _FRESH[name](self._rng, len(rows))

    def _pooled(self, name: str, rows: Rows) -> pa.StringArray:
        """Returns a pool value per row: the source's current one, or else any."""
        pool = self._pools[name]
        if name not in self._held_ranks:
            spells = len(self._clock) // _ROWS_PER_SPELL + 1
            self._held_ranks[name] = skewed_ranks(self._rng, spells, len(pool))
        held = self._held_ranks[name][self._clock[rows] // _ROWS_PER_SPELL]
        free = skewed_ranks(self._rng, len(rows), len(pool))
        is_held = self._rng.random(len(rows)) < _HELD_FRACTION
        return pool.take(pa.array(np.where(is_held, held, free)))

    def _recent(self, name: str, rows: Rows) -> pa.StringArray:
        """Returns an id per row: a new one every `stride` rows, recurring for a while."""
        stride, make = _RECENT[name]
        if name not in self._born:
            self._born[name] = make(self._rng, len(self._clock) // stride + 1)
        age = self._rng.geometric(0.5, len(rows)) - 1
        return self._born[name].take(pa.array(np.maximum(self._clock[rows] // stride - age, 0)))


def known_parameters() -> frozenset[str]:
    """Returns all parameter names of `Parameters.draw`."""
    return frozenset({"host", "status", "ms", "seq", *pools(), *_RECENT, *_FRESH})


# ------------------------------------------------------------- recent: rows per new id, maker


def _blocks(rng: np.random.Generator, count: int) -> pa.StringArray:
    generation = _text(rng.integers(1_000, 900_000, count))
    ids = _text(rng.integers(1 << 29, 1 << 30, count) + (1 << 30))
    return _join("blk_", ids, "_", generation)


def _attempts(rng: np.random.Generator, count: int) -> pa.StringArray:
    job = np.sort(rng.integers(1, 40, count))
    task = np.arange(count) % 1_000 + 100_000
    kind = pa.array(np.where(rng.random(count) < 0.8, "m", "r"))
    return _join(f"attempt_{_EPOCH_MS}_", _text(job + 1_000), "_", kind, "_", _text(task), "_0")


def _containers(rng: np.random.Generator, count: int) -> pa.StringArray:
    job = np.sort(rng.integers(1, 40, count))
    number = np.arange(count) % 1_000 + 1_000
    return _join(f"container_e42_{_EPOCH_MS}_", _text(job + 1_000), "_01_00", _text(number))


def _requests(rng: np.random.Generator, count: int) -> pa.StringArray:
    return _join("req-", random_uuids(rng, count))


_RECENT: Final[dict[str, tuple[int, Callable[[np.random.Generator, int], pa.StringArray]]]] = {
    "blk": (6, _blocks),
    "uuid": (5, random_uuids),
    "req": (6, _requests),
    "attempt": (10, _attempts),
    "container": (10, _containers),
    "sess": (8, lambda rng, count: random_hex(rng, count, 7)),
}

# --------------------------------------------------------------------------- fresh, one per value


def _sizes(rng: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    """Returns byte counts: half are a full HDFS block or buffer, the rest log-normal."""
    free = rng.lognormal(13.0, 2.0, rows).astype(np.int64)
    return np.where(
        rng.random(rows) < 0.5, rng.choice([67_108_864, 134_217_728, 65_536], rows), free
    )


_FRESH: Final[dict[str, Callable[[np.random.Generator, int], pa.StringArray]]] = {
    "port": lambda rng, rows: _text(rng.integers(32_768, 61_000, rows)),
    "pid": lambda rng, rows: _text(rng.integers(300, 32_768, rows)),
    "n": lambda rng, rows: _text(rng.geometric(0.15, rows)),
    "n5": lambda rng, rows: pc.utf8_lpad(_text(skewed_ranks(rng, rows, 2_000)), 5, "0"),
    "stage": lambda rng, rows: _text(skewed_ranks(rng, rows, 60)),
    "count": lambda rng, rows: _text(rng.lognormal(7.0, 0.8, rows).astype(np.int64)),
    "bytes": lambda rng, rows: _text(_sizes(rng, rows)),
    "mem": lambda rng, rows: _text(rng.geometric(0.25, rows) * 1_024),
    "uid": lambda rng, rows: _text(100_000 + skewed_ranks(rng, rows, 200_000)),
    "float": lambda rng, rows: _text(np.round(rng.gamma(2.0, 0.4, rows), 3)),
    "pct": lambda rng, rows: _join(_text(np.round(rng.random(rows) * 100, 1)), "%"),
    "hex2": lambda rng, rows: random_hex(rng, rows, 1),
    "hex4": lambda rng, rows: random_hex(rng, rows, 2),
    "hex8": lambda rng, rows: random_hex(rng, rows, 4),
}
