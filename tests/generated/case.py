"""One generated case, carried out on a table in memory and held against the model after every step."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import types as pt

from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.worker import compact
from compactor.errors import CompactorError
from compactor.files.stream import StreamBatches
from compactor.predicate import parse
from compactor.predicate.skipping.spec import SkipKind, can_index
from compactor.read.export import export_file
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.vacuum import VacuumSettings
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import vacuum
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches, ingest_file
from lsm_fragment.arrays.types import storage_type, table_type
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.sort_schema import SortSchema
from tests.generated import pool
from tests.generated.bits import Value, alike, breaks_not_null, fitted, values_of
from tests.generated.fronts import (
    columns_by_text,
    kinds_by_text,
    renaming_by_text,
    sort_by_text,
)
from tests.generated.model import Model, Row, sortable
from tests.generated.plans import ID, TEXTS, Append, Plan, Step, plan_of
from tests.generated.types import NAMES, contains
from tests.generated.writers import (
    as_text_has_them,
    can_be_parquet,
    in_memory,
    ipc_bytes,
    rows_of,
    table_of,
    text_of,
    write_parquet,
)
from tests.support.memory_store import MemoryStore

_ = parse  # once for all cases, not in the first of each process
T = TypeVar("T")
_BINARY: Final = ("arrow", "parquet", "frag")
_UNREAD: Final = ("text can't hold", "is not in the file")
"""Why a text file that was written cannot be read: its type has no text, or a column has no value."""
_UNWRITTEN: Final = "a map has NaN or an infinity as a key"
"""Why rows that text can hold otherwise are not written."""
_EXPORTS: Final = ("arrow", "arrow", "parquet", "parquet", "frag", "ndjson", "csv", "xml")
_FAST_DISK: Final = Path("/dev/shm")


class FindingError(Exception):
    """The product did something that it must not do."""


class _Refused(Exception):  # noqa: N818 - only this module sees it
    """The product refused by an error of its own."""


class Case:
    """One table and the model of it."""

    def __init__(self, plan: Plan, say: Callable[[str], None] | None = None) -> None:
        """say: takes lines that tell what is done, and is a wish to look after every step."""
        self._plan = plan
        self._is_aloud = say is not None
        self._say = say or (lambda _line: None)
        self._store = MemoryStore()
        self._log = CommitLog(self._store, readers=1)
        self._numbers = itertools.count()
        self._model = Model(())
        self._names: dict[str, str] = {}
        """Names that columns of the plan have now, where they were renamed."""
        self._step = ""
        self._folder = Path()
        self._earlier: list[tuple[int, Model]] = []
        """Versions that must be readable still."""

    def run(self) -> None:
        """Raises `FindingError` for what is wrong, naming the step."""
        place = _FAST_DISK if _FAST_DISK.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="generated-", dir=place))
        try:
            for number, step in enumerate(self._plan.steps):
                self._step = f"step {number}"
                if isinstance(step, Append):
                    self._append(step)
                elif self._snapshot().version:
                    rng = random.Random(f"{step.kind} {step.seed}")
                    self._step += f", {step.kind}"
                    self._say(self._step)
                    getattr(self, f"_{step.kind}")(rng)
                if self._snapshot().version and not _only_reads(step):
                    is_last = number == len(self._plan.steps) - 1
                    self._check_rows(step, is_sure=self._is_aloud or is_last)
        except (FindingError, _Refused) as error:
            raise FindingError(f"{self._step}: {error}") from error.__cause__
        except (CompactorError, FormatError) as error:
            raise FindingError(f"{self._step}: refused: {type(error).__name__}: {error}") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- what the product is asked to do ---

    def _ids(self) -> str:
        return f"{next(self._numbers):032x}"

    def _snapshot(self) -> Snapshot:
        return self._log.refresh()

    def _append(self, step: Append) -> None:
        how, rng = step.how, random.Random(f"append {step.seed}")
        self._step += f", append of {step.rows} rows as {how}"
        self._say(self._step)
        snapshot = self._snapshot()
        known = (
            {} if not snapshot.version else {f.name: f.type for f in snapshot.table.shown_schema}
        )
        shown = [self._names.get(column.name, column.name) for column in step.columns]
        if len(set(shown)) < len(shown):
            return
        rows = rows_of(step, len(self._model.rows) + 1_000 * next(self._numbers))
        if how in TEXTS:
            if how == "ndjson" and any(name not in known for name in shown) and known:
                return
            types = dict(zip((c.name for c in step.columns), shown, strict=True))
            rows = {
                c.name: as_text_has_them(c, rows[c.name], known=types[c.name] in known)
                if c.name != ID
                else rows[ID]
                for c in step.columns
            }
        is_bound = not step.breaks_not_null and all(
            name not in known or pt.is_null(known[name]) or _is_same(known[name], column.dtype)
            for name, column in zip(shown, step.columns, strict=True)
        )
        if (
            how in TEXTS and not step.rows
        ):  # a text without rows has no types, and NDJSON no columns
            is_bound = False
        if how == "ndjson":  # a column without any value may not be in the file
            empty = [c.name for c in step.columns if all(v is None for v in rows[c.name])]
            is_bound = is_bound and not {c.column for c in self._plan.sort} & set(empty)
        table = table_of(step, rows, self._names)
        table.validate(full=True)
        path = self._folder / f"in.{how.split()[0].replace('ipc', 'arrow')}"
        source: Any
        if how == "parquet" and not all(can_be_parquet(column.dtype) for column in step.columns):
            how = "ipc stream"
        written: dict[str, Sequence[Value]] = dict(zip(shown, rows.values(), strict=True))
        if how == "parquet":
            try:
                found, fits_no_type = write_parquet(table, path, rng)
                written = dict(found)
                is_bound = (
                    is_bound and not known and not fits_no_type
                )  # its types may be others than those of the column
                source = str(path)
            except (pa.ArrowException, OSError):  # what PyArrow's writer can't write
                how = "ipc stream"
        if how.startswith("ipc"):
            try:
                path = self._folder / "in.arrow"
                path.write_bytes(ipc_bytes(table, how))
                source = str(path)
            except pa.ArrowException:
                how = "table"
        if how in TEXTS:
            path.write_bytes(text_of(how, step, rows, self._names))
            source = str(path)
        if how in ("table", "batch", "batches"):
            source = in_memory(table, how)
        options = IngestOptions(
            rows_per_fragment=self._plan.rows_per_fragment,
            writer=WriterOptions(max_rows=self._plan.max_rows),
        )
        if how != "parquet":
            fits_no_type = False
        sort = None if snapshot.version else sort_by_text(rng, self._plan.sort)
        try:
            self._ask(f"append by {how}", lambda: self._ingest(source, sort, options))
        except _Refused:
            if is_bound:
                raise
            return
        if fits_no_type:
            raise FindingError("INT96 timestamps were read that no type has")
        if not self._model.sort:
            numbers = [self._model.add_column(name) for name in written]
            known_numbers = dict(zip(written, numbers, strict=True))
            self._model.sort = [
                (known_numbers[c.column], c.order, c.nulls) for c in self._plan.sort
            ]
        self._model.append(written, step.rows)

    def _ingest(self, source: Any, sort: SortSchema | None, options: IngestOptions) -> None:
        log = CommitLog(self._store, readers=1)
        if isinstance(source, str):
            ingest_file(self._store, log, source, sort, options, ids=self._ids)
            return
        snapshot = log.refresh()
        with StreamBatches(source, 1 << 20) as batches:
            ingest_batches(self._store, log, snapshot, batches, sort, options, ids=self._ids)

    def _compact(self, rng: random.Random) -> None:
        settings = CompactionSettings(
            target_fragment_bytes=rng.choice((1, 1, 400, 1_500, 1 << 29)),
            target_row_group_bytes=rng.choice((None, None, 16, 200)),
            max_rows_per_row_group=rng.choice((2, 3, 5, 7, 65_536)),
            max_fan_in=rng.choice((2, 3, 1_000)),
            batch_size=rng.choice((1, 3, 10, 262_144)),
            threads=1,
        )
        policy = Policy(
            strategy=rng.choice((Strategy.FULL, Strategy.FULL, *Strategy)),
            level0_trigger_runs=2,
            level1_target_bytes=rng.choice((1, 1_000, 1 << 34)),
            max_deleted_share=rng.choice((0, 0.1)),
        )
        self._say(f"  {policy.strategy} {settings.model_dump(exclude_defaults=True)}")
        driver = Driver(
            CommitLog(self._store, ids=self._ids, readers=1),
            DriverSettings(policy=policy, compaction=settings),
            ids=self._ids,
        )
        engine = InProcessEngine(lambda compaction: run_compaction(compaction, self._store))
        report = compact(driver, engine)
        for finished in report.failed:
            raise FindingError(f"a compaction failed: {finished.outcome.failure}")

    def _delete(self, rng: random.Random) -> None:
        schema = self._snapshot().table.shown_schema
        text, holds = self._condition(rng, schema)
        self._say(f"  {text}")
        log = CommitLog(self._store, readers=1)
        before = self._model.copy()
        rows = self._ask(
            "delete",
            lambda: delete_rows(self._store, log, text).rows,
        )
        expected = self._model.delete(holds)
        if rows != expected:
            self._model = before
            raise FindingError(f"DELETE WHERE {text} deleted {rows} rows, not {expected}")

    def _alter(self, rng: random.Random) -> None:
        model, table = self._model.copy(), self._snapshot().table
        sort_numbers = {number for number, _, _ in model.sort}
        free = [n for n in model.columns if model.columns[n] not in sort_numbers and n != ID]
        kind = rng.choice(("rename", "rename", "drop", "redact", "order", "skip"))
        names = list(model.columns)
        if kind == "rename":
            old = rng.choice(names)
            new = rng.choice([n for n in NAMES if n and n not in names] or ["another"])
            change = Alteration(renames=renaming_by_text(rng, old, new))
            model.columns = {new if n == old else n: number for n, number in model.columns.items()}
            if old == ID:
                return
        elif kind == "order":
            first = rng.sample(names, rng.randint(1, len(names)))
            change = Alteration(order=first)
            rest = [name for name in names if name not in first]
            model.columns = {name: model.columns[name] for name in [*first, *rest]}
        elif kind == "skip":
            fits = [
                (name, skip)
                for name in free
                for skip in SkipKind
                if can_index(skip, storage_type(table.shown_schema.field(name).type))
            ]
            if not fits:
                return
            name, skip = rng.choice(fits)
            kinds_by_text(rng, [(name, str(skip))])
            change = Alteration(skips={name: skip})
        elif not free:
            return
        else:
            name = rng.choice(free)
            is_drop = kind == "drop"
            change = Alteration(drops=(name,)) if is_drop else Alteration(redacts=(name,))
            if is_drop:
                del model.columns[name]
            else:
                model.columns[name] = model.next_number
                model.next_number += 1
        self._say(f"  {change}")
        self._ask(
            f"alter by {kind}", lambda: alter_table(CommitLog(self._store, readers=1), change)
        )
        if kind == "rename":
            original = {shown: name for name, shown in self._names.items()}.get(old, old)
            self._names[original] = new
        self._model = model

    def _vacuum(self, rng: random.Random) -> None:
        vacuum(CommitLog(self._store, readers=1), VacuumSettings(grace_seconds=0, retain_seconds=0))
        self._earlier.clear()

    def _scan(self, rng: random.Random) -> None:
        names = list(self._model.columns)
        chosen = columns_by_text(rng, rng.sample(names, rng.randint(1, len(names))))
        self._check_scan(self._snapshot(), self._model, chosen, None)
        text, holds = self._condition(rng, self._snapshot().table.shown_schema)
        self._say(f"  {text}")
        self._check_scan(self._snapshot(), self._model, chosen, (text, holds))
        for version, model in self._earlier:
            self._check_scan(CommitLog(self._store, readers=1).at(version), model, None, None)

    def _verify(self, rng: random.Random) -> None:
        report = verify(self._store, self._snapshot(), threads=rng.randint(1, 3))
        if report.faults:
            raise FindingError(f"verify: {report.faults[0]}")
        if report.rows != len(self._model.rows):
            raise FindingError(f"verify counts {report.rows} rows, not {len(self._model.rows)}")

    def _export(self, rng: random.Random) -> None:
        snapshot = self._snapshot()
        ending = rng.choice(_EXPORTS)
        path = self._folder / f"out.{ending}"
        schema = snapshot.table.shown_schema
        self._step += f" to {ending}"
        try:
            self._ask(f"export to {ending}", lambda: export_file(self._store, snapshot, str(path)))
        except _Refused as error:
            is_sure = ending not in ("parquet", "xml") and _UNWRITTEN not in str(error)
            if is_sure or (ending == "parquet" and self._fits_parquet(schema)):
                raise
            return
        expected = self._expected(snapshot, self._model)
        if ending == "arrow":
            with pa.ipc.open_file(path) as file:
                self._compare(file.read_all(), expected, schema, "as PyArrow reads it")
        if ending == "parquet":
            self._compare(pq.read_table(path), expected, schema, "as PyArrow reads it")
        if ending in _BINARY:
            self._read_again(path, snapshot, expected)
        elif ending == "ndjson":
            self._read_text_again(path, snapshot, expected)

    # --- what must be true ---

    def _check_rows(self, step: Append | Step, *, is_sure: bool) -> None:
        """Looks at the rows after a change, and at half of the changes before the last: what is wrong by then
        stays wrong as a rule, and looking takes a third of the time of a case."""
        snapshot, rng = self._snapshot(), random.Random(f"check {step.seed}")
        if is_sure or rng.random() < 0.5:
            self._check_scan(snapshot, self._model, None, None)
        is_compaction = isinstance(step, Step) and step.kind == "compact"
        if is_compaction and (is_sure or rng.random() < 0.5):
            self._verify(rng)
        if not self._earlier or self._earlier[-1][0] != snapshot.version:
            self._earlier.append((snapshot.version, self._model.copy()))

    def _expected(
        self,
        snapshot: Snapshot,
        model: Model,
        holds: Callable[[Row], bool] | None = None,
    ) -> dict[str, list[Value]]:
        """Returns the values of all columns in the order in which a reader must see them."""
        rows = model.sorted_rows()
        if holds is not None:
            rows = [row for row in rows if holds(row)]
        schema = snapshot.table.shown_schema
        if schema.names != list(model.columns):
            raise FindingError(f"the columns are {schema.names}, not {list(model.columns)}")
        return {
            name: [fitted(row.get(number), schema.field(name).type) for row in rows]
            for name, number in model.columns.items()
        }

    def _check_scan(
        self,
        snapshot: Snapshot,
        model: Model,
        columns: Sequence[str] | None,
        where: tuple[str, Callable[[Row], bool]] | None,
    ) -> None:
        condition = None if where is None else condition_on(snapshot.table, where[0])
        what = f"a scan of version {snapshot.version}" + (
            "" if where is None else f" WHERE {where[0]}"
        )
        expected = self._expected(snapshot, model, None if where is None else where[1])
        threads = 1 + snapshot.version % 3
        batches = list(scan(self._store, snapshot, columns, condition, threads=threads))
        schema = snapshot.table.shown_schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
            expected = {name: expected[name] for name in columns}
        for batch in batches:
            batch.validate(full=True)
        self._compare(pa.Table.from_batches(batches, schema), expected, schema, what)

    def _compare(
        self, table: pa.Table, expected: dict[str, list[Value]], schema: pa.Schema, what: str
    ) -> None:
        if table.column_names != list(expected):
            raise FindingError(
                f"{what}: the columns are {table.column_names}, not {list(expected)}"
            )
        for at, (name, values) in enumerate(expected.items()):
            found = values_of(table.column(at))
            dtype = schema.field(name).type
            if any(breaks_not_null(value, dtype) for value in found):
                raise FindingError(
                    f"{what}: column {name!r}, {dtype}, has nulls where it says not null"
                )
            if found == values:
                continue
            if len(found) != len(values):
                raise FindingError(f"{what}: {len(found)} rows, not {len(values)}")
            for row, (right, wrong) in enumerate(zip(values, found, strict=True)):
                if not alike(right, fitted(wrong, dtype)):
                    raise FindingError(
                        f"{what}: column {name!r}, {dtype}, row {row} of {len(values)}: "
                        f"{wrong!r:.300}, not {right!r:.300}{_kind_of_difference(found, values)}"
                    )

    def _read_again(self, path: Path, snapshot: Snapshot, expected: dict[str, list[Value]]) -> None:
        """Ingests an export into another table, which must be the same."""
        self._step += ", ingested again"
        if not snapshot.table.shown_schema.names:
            return
        copy = MemoryStore()
        log = CommitLog(copy, readers=1)
        sort = tuple(
            replace(c, column=snapshot.table.shown_name(c.column)) for c in snapshot.table.sort
        )
        self._ask(
            "ingest of an export", lambda: ingest_file(copy, log, str(path), sort, IngestOptions())
        )
        again = log.current()
        schema, other = snapshot.table.shown_schema, again.table.shown_schema
        for name in schema.names:
            if other.field(name).type != schema.field(name).type:
                raise FindingError(
                    f"column {name!r} is {other.field(name).type}, not {schema.field(name).type}"
                )
        batches = list(scan(copy, again))
        self._compare(pa.Table.from_batches(batches, other), expected, other, "a scan")

    def _read_text_again(
        self, path: Path, snapshot: Snapshot, expected: dict[str, list[Value]]
    ) -> None:
        """Ingests a text file into an empty table of the same types: what is accepted must be the same."""
        self._step += ", ingested again"
        copy = MemoryStore()
        log = CommitLog(copy, readers=1)
        schema = snapshot.table.shown_schema
        sort = tuple(
            replace(c, column=snapshot.table.shown_name(c.column)) for c in snapshot.table.sort
        )
        with StreamBatches(pa.Table.from_batches([], schema), 1 << 20) as batches:
            self._ask(
                "an empty table",
                lambda: ingest_batches(copy, log, log.refresh(), batches, sort, IngestOptions()),
            )
        if not any(expected.values()) or not any(path.read_bytes().split(b"\n")):
            return
        try:
            self._ask(
                f"ingest of {path.suffix}",
                lambda: ingest_file(copy, log, str(path), None, IngestOptions()),
            )
        except _Refused as error:
            if any(reason in str(error) for reason in _UNREAD):
                return
            raise
        other = log.current().table.shown_schema
        read = pa.Table.from_batches(list(scan(copy, log.current())), other)
        for name, values in expected.items():
            dtype = schema.field(name).type
            if contains(dtype, lambda t: isinstance(t, pa.JsonType) or pt.is_null(t)):
                continue
            found = values_of(read.column(name))
            wanted = [_as_text(value) for value in values]
            if len(found) != len(wanted):
                raise FindingError(f"{len(found)} rows, not {len(wanted)}")
            if found != wanted and sorted(map(repr, found)) != sorted(map(repr, wanted)):
                row = next(
                    at
                    for at, pair in enumerate(zip(found, wanted, strict=True))
                    if pair[0] != pair[1]
                )
                raise FindingError(
                    f"column {name!r}, {dtype}, row {row}: {found[row]!r:.300}, not {wanted[row]!r:.300}"
                )

    def _fits_parquet(self, schema: pa.Schema) -> bool:
        """Whether docs/reference/files.md promises that Parquet holds the table."""
        if any(not can_be_parquet(dtype) for dtype in schema.types):
            return False
        is_edge = lambda t: (  # noqa: E731
            (pt.is_timestamp(t) and t.unit == "s") or pt.is_date64(t) or pt.is_struct(t)
        )
        return not any(contains(dtype, is_edge) for dtype in schema.types)

    def _ask(self, what: str, act: Callable[[], T]) -> T:
        """Raises `_Refused` where the product refuses properly."""
        pool.count(what)
        try:
            return act()
        except (CompactorError, FormatError) as error:
            message = str(error)
            self._say(f"  refused: {message}")
            if "\n" in message or "internal" in message.lower():
                raise FindingError(
                    f"a refusal of several lines, or no refusal: {message}"
                ) from error
            pool.count(f"{what}: refused")
            pool.count(f"  {what}: {_reason(message)}")
            raise _Refused(f"{what}: refused: {type(error).__name__}: {message}") from error

    def _condition(
        self, rng: random.Random, schema: pa.Schema
    ) -> tuple[str, Callable[[Row], bool]]:
        """Returns a condition in SQL, and the same for the model."""
        columns = {n: i for n, i in self._model.columns.items() if n and "\\" not in n}
        if ID in columns and rng.random() < 0.5:
            number = columns[ID]
            some = [row[number] for row in self._model.rows if row.get(number) is not None]
            chosen = rng.sample(some, min(len(some), rng.choice((1, 2, 5)))) or [-1]
            if rng.random() < 0.2:
                return (
                    f"{ID} < {chosen[0]}",
                    lambda row: row.get(number) is not None and row[number] < chosen[0],
                )
            return (
                f"{ID} IN ({', '.join(map(str, chosen))})",
                lambda row: row.get(number) in chosen,
            )
        if not columns:
            return "TRUE", lambda row: True
        name = rng.choice(list(columns))
        number = columns[name]
        quoted = '"' + name.replace('"', '""') + '"'
        # JSON is compared by value, not by its text (tests/predicate).
        is_json = isinstance(schema.field(name).type, pa.JsonType)
        dtype = storage_type(schema.field(name).type)
        values = [row[number] for row in self._model.rows if row.get(number) is not None]
        literal = None
        if values and not is_json and rng.random() < 0.7:
            value = rng.choice(values)
            if pt.is_integer(dtype):
                literal = str(value)
            elif pt.is_string(dtype) or pt.is_large_string(dtype):
                text = value.decode()
                literal = (
                    None if "\\" in text or "\x00" in text else "'" + text.replace("'", "''") + "'"
                )
        if literal is None:
            if rng.random() < 0.5:
                return f"{quoted} IS NULL", lambda row: row.get(number) is None
            return f"{quoted} IS NOT NULL", lambda row: row.get(number) is not None
        key = sortable(value)
        op = rng.choice(("=", "<", ">=", "<>"))
        compare = _OPS[op]
        return (
            f"{quoted} {op} {literal}",
            lambda row: row.get(number) is not None and compare(sortable(row[number]), key),
        )


_OPS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<>": lambda a, b: a != b,
}


def _only_reads(step: Append | Step) -> bool:
    return isinstance(step, Step) and step.kind in ("scan", "export", "verify")


def _is_same(known: pa.DataType, dtype: pa.DataType) -> bool:
    """Returns whether the table's type is the one that a writer has, but for the width of indices."""
    return bool(known == table_type(dtype))


def _as_text(value: Value) -> Value:
    """Returns what is left of a value in JSON, which has no NaN and no infinities."""
    if isinstance(value, tuple):
        return tuple(_as_text(item) for item in value)
    if isinstance(value, str) and (value in ("inf", "-inf") or value.startswith("nan")):
        return None
    return value


def _kind_of_difference(found: list[Value], expected: list[Value]) -> str:
    same = sorted(map(repr, found)) == sorted(map(repr, expected))
    return "; the same values in another order" if same else ""


def _reason(message: str) -> str:
    """Returns a message without what is of one case only."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+", "_", message)
    return re.sub(r"\d+", "#", message)[:110]


TIMEOUT_S = 60.0
"""Several hundred times what a case takes."""


def check(seed: int) -> str | None:
    """Returns what is wrong with the table of a seed."""
    return fault_of(plan_of(seed))


def fault_of(plan: Plan, *, aloud: bool = False) -> str | None:
    """Returns what is wrong with a case, with the places where it was noticed."""
    try:
        Case(plan, print if aloud else None).run()
    except FindingError as error:
        return f"{error}{_frames(error.__cause__)}"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:500] + _frames(error)
    return None


def _frames(error: BaseException | None) -> str:
    """Returns the last places at which an error passed, innermost first."""
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)[-7:]
    return "".join(
        f"\n    {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)
    )
