"""Random tables whose sums come close to what their types hold, held against sums of Python's whole numbers.

`python -m tests.generated.sums --count 20000 --processes 2`; `--seed 4711` tries one again.
"""

from __future__ import annotations

import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.worker import compact
from compactor.files.stream import StreamBatches
from compactor.read.scan import scan
from compactor.rows.fold import FoldError
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.table.commit_log import CommitLog
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import SortColumn
from tests.generated.pool import main
from tests.support.memory_store import MemoryStore

TIMEOUT_S: Final = 60.0
_EXACT: Final = Context(prec=200)
_TYPES: Final = (
    pa.int64(), pa.int64(), pa.int32(), pa.decimal128(38, 2), pa.decimal128(5, -2), pa.decimal256(76, 0),
    pa.decimal32(9, 0), pa.float64(), pa.float32(),
)  # fmt: skip
_KEYS: Final[tuple[tuple[pa.DataType, tuple[Any, ...]], ...]] = (
    (pa.int64(), (None, -1, 0, 7, 2**62)),
    (pa.string(), (None, "", "a", "it's", 'say "hi"', "a AND b", "x" * 300)),
    (pa.timestamp("us"), (None, 0, 1_600_000_000_000_000, -1)),
    (pa.bool_(), (None, False, True)),
)
_NAMES: Final = ("k", "a,b", "c:d", 'e"f', "with space", "select")
Key = tuple[Any, ...]
Values = dict[Key, list[list[Any]]]
"""What is summed up for each key."""


class FindingError(Exception):
    """The product did something that it must not do."""


def check(seed: int) -> str | None:
    """Returns what is wrong with the case of a seed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _Case(random.Random(f"sums {seed}")).run()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:500]
    return None


class _Case:
    """One table, and the values of every key."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._store = MemoryStore()
        numbers = itertools.count()
        self._ids: Callable[[], str] = lambda: f"{next(numbers):032x}"
        names = rng.sample(_NAMES, 3)
        self._keys = [(name, *rng.choice(_KEYS)) for name in names[: rng.choice((1, 1, 2))]]
        self._sum = names[2]
        self._dtype = rng.choice(_TYPES)
        self._values: dict[Key, list[Any]] = {}

    def run(self) -> None:
        for number in range(self._rng.randint(2, 5)):
            self._append(is_first=number == 0)
            if self._rng.random() < 0.3:
                self._look(self._compact)
        if self._rng.random() < 0.3:
            self._rename()
        self._look(self._compact)
        self._look(self._scan)
        if self._scan() != self._expected():
            raise FindingError(f"a scan gives {self._scan()}, not {self._expected()}")

    def _append(self, *, is_first: bool) -> None:
        """Adds rows; those that the product refuses because a sum of them is too large don't count."""
        rng = self._rng
        rows = [
            (tuple(rng.choice(values) for _, _, values in self._keys), self._value())
            for _ in range(rng.randint(1, 8))
        ]
        arrays = {
            name: pa.array([key[at] for key, _ in rows], dtype)
            for at, (name, dtype, _) in enumerate(self._keys)
        }
        arrays[self._sum] = pa.array([value for _, value in rows], self._dtype)
        aggregates = ((self._sum, RowFunction.SUM),)
        options = IngestOptions(
            rows_per_fragment=rng.choice((2, 1_000)),
            writer=WriterOptions(max_rows=rng.choice((2, 5))),
            rows=RowPolicy(RowKind.AGGREGATE, aggregates=aggregates) if is_first else None,
        )
        sort = tuple(SortColumn(name) for name, _, _ in self._keys) if is_first else None
        log = CommitLog(self._store, readers=1, ids=self._ids)
        try:
            with StreamBatches(pa.table(arrays), 1 << 20) as batches:
                ingest_batches(
                    self._store, log, log.refresh(), batches, sort, options, ids=self._ids
                )
        except FoldError as error:
            added: dict[Key, list[Any]] = {}
            for key, value in rows:
                added.setdefault(key, []).append(value)
            self._check_named(error, _with_parts(added))
            if is_first:
                self._append(is_first=True)
            return
        for key, value in rows:
            self._values.setdefault(key, []).append(value)

    def _value(self) -> Any:
        rng = self._rng
        if rng.random() < 0.15:
            return None
        if pa.types.is_floating(self._dtype):
            return rng.choice((1.5, -2.25, float("inf"), float("-inf"), 3e38))
        if pa.types.is_decimal(self._dtype):
            most = 10**self._dtype.precision - 1
            unscaled = rng.choice((most, -most, most // 2 + 1, 1, -1))
            return Decimal(unscaled).scaleb(-self._dtype.scale, _EXACT)
        most = 2 ** (self._dtype.bit_width - 1) - 1
        return rng.choice((most, -most - 1, most // 2 + 1, 1, -1))

    def _rename(self) -> None:
        old = self._rng.choice([self._sum, *(name for name, _, _ in self._keys)])
        new = f"new, {old}"
        alter_table(CommitLog(self._store, readers=1), Alteration(renames={old: new}))
        self._sum = new if old == self._sum else self._sum
        self._keys = [(new if n == old else n, d, v) for n, d, v in self._keys]

    def _look(self, act: Callable[[], Any]) -> None:
        """Does something that folds rows, until no sum is too large: deletes the rows that an error names."""
        while True:
            too_large = self._too_large(self._whole())
            try:
                act()
            except FoldError as error:
                named = self._check_named(error, self._whole())
                self._delete(error, named)
                continue
            if too_large and act == self._scan:
                raise FindingError(f"sums of {too_large} are too large, and nothing says so")
            return

    def _delete(self, error: FoldError, key: Key) -> None:
        # A condition on merged rows would need their sums.
        condition = _condition_of(error)
        log = CommitLog(self._store, readers=1)
        delete_rows(self._store, log, condition)
        del self._values[key]

    def _check_named(self, error: FoldError, values: Values) -> Key:
        """Returns the key that the error names, which must be one whose sum is too large."""
        message = str(error)
        if f"column {self._sum!r}: the sum" not in message:
            raise FindingError(f"{message}: the column is {self._sum!r}")
        wanted = {self._condition(key): key for key in self._too_large(values)}
        if _condition_of(error) not in wanted:
            raise FindingError(f"{message}: too large are {list(wanted)}")
        return wanted[_condition_of(error)]

    def _whole(self) -> Values:
        return {key: [values] for key, values in self._values.items()}

    def _condition(self, key: Key) -> str:
        parts = []
        for value, (name, dtype, _) in zip(key, self._keys, strict=True):
            shown = '"' + name.replace('"', '""') + '"'
            parts.append(
                f"{shown} IS NULL" if value is None else f"{shown} = {_literal(value, dtype)}"
            )
        return " AND ".join(parts)

    def _too_large(self, values: Values) -> list[Key]:
        return [key for key, some in values.items() if not all(self._fits(_total(p)) for p in some)]

    def _fits(self, total: Any) -> bool:
        if total is None or isinstance(total, float):
            return True
        if isinstance(total, Decimal):
            digits = 76 if self._dtype.bit_width > 128 else 38
            return bool(total.scaleb(self._dtype.scale, _EXACT).copy_abs() < 10**digits)
        return bool(-(2**63) <= total < 2**63)

    def _compact(self) -> None:
        settings = CompactionSettings(
            max_rows_per_row_group=self._rng.choice((2, 3, 65_536)), threads=1
        )
        driver = Driver(
            CommitLog(self._store, ids=self._ids, readers=1),
            DriverSettings(
                policy=Policy(strategy=Strategy.FULL), compaction=settings, gives_up=True
            ),
            ids=self._ids,
        )
        report = compact(driver, InProcessEngine(lambda c: run_compaction(c, self._store)))
        if len(report.failed) > len(report.lost):
            raise FindingError(f"tried again: {[f.outcome.failure for f in report.failed]}")
        for finished in report.failed:
            kind, _, message = (finished.outcome.failure or "").partition(": ")
            if kind != FoldError.__name__:
                raise FindingError(f"a compaction failed: {finished.outcome.failure}")
            raise FoldError(message)

    def _scan(self) -> dict[str, Any]:
        snapshot = CommitLog(self._store, readers=1).current()
        names = [name for name, _, _ in self._keys]
        rows: dict[str, Any] = {}
        for batch in scan(self._store, snapshot, threads=self._rng.randint(1, 2)):
            for row in batch.to_pylist():
                rows[repr([row[name] for name in names])] = _shown(row[self._sum])
        return rows

    def _expected(self) -> dict[str, Any]:
        def keys() -> Iterator[tuple[str, Any]]:
            for key, values in self._values.items():
                shown = [
                    pa.scalar(value, dtype).as_py()
                    for value, (_, dtype, _) in zip(key, self._keys, strict=True)
                ]
                yield repr(shown), _shown(_total(values))

        return dict(keys())


def _with_parts(values: dict[Key, list[Any]]) -> Values:
    """Returns what may be summed up where rows are divided among fragments: any that follow each other."""
    return {
        key: [some[i:j] for i in range(len(some)) for j in range(i + 1, len(some) + 1)]
        for key, some in values.items()
    }


def _condition_of(error: FoldError) -> str:
    _, _, rest = str(error).partition("the sum of the rows where ")
    return rest.rpartition(" does not fit into ")[0]


def _literal(value: Any, dtype: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value)
    if pa.types.is_timestamp(dtype):
        return f"'{pa.scalar(value, dtype).as_py().isoformat()}'"
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _total(values: list[Any]) -> Any:
    present = [value for value in values if value is not None]
    if not present:
        return None
    if isinstance(present[0], Decimal):
        total = present[0]
        for value in present[1:]:
            total = _EXACT.add(total, value)
        return total
    return sum(present)


def _shown(total: Any) -> Any:
    # Floats are added in another order, so only infinities and NaN are compared.
    if not isinstance(total, float):
        return total
    return "NaN" if total != total else total if abs(total) == float("inf") else "a number"


if __name__ == "__main__":
    sys.exit(main(check, __doc__, "tests.generated.sums", TIMEOUT_S))
