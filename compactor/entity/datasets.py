"""Datasets by their names: where they are, and their entities read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from compactor.entity.entities import RESERVED, Columns, Entities, entities_of
from compactor.entity.expressions import ID
from compactor.entity.memory import Charge, unlimited
from compactor.entity.spec import EntityMergeSpec
from compactor.entity.texts import canonical, from_arrow, texts_of
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.files.byte_source import ByteSource
from compactor.files.names import FileFormat, FileKind, kind_of
from compactor.files.ndjson import Block, line_blocks
from compactor.files.problems import PROBLEMS, first_failing, one_line, reading
from compactor.files.read import open_table_file
from compactor.scan import scan
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

_BLOCK_BYTES: Final = 8 << 20
_rows = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Located:
    """A dataset that is there."""

    name: str
    place: str
    """A file, or the address of a table."""
    is_file: bool

    @property
    def shown(self) -> str:
        """For errors."""
        return f"{self.name} ({self.place if self.is_file else open_store(self.place).url})"


def locate(spec: EntityMergeSpec, folder: str) -> list[Located | None]:
    """Where each dataset is; None for one that is not there and may be absent.

    A name that `sources` does not give a place is that of a file or table in `folder`: `orders` is
    `orders.ndjson`, `orders.parquet` and so on, or the table `orders`.
    Raises `InputError` for one that has to be there, `UsageError` where several files have the name.
    """
    sources = dict(spec.sources)
    found = []
    for name, _alias in spec.datasets:
        place = sources.get(name)
        at = _place(name, folder) if place is None else _given(name, place)
        if at is None and not spec.ignore_non_existent_datasets:
            where = place if place is not None else f"no file or table of that name in {folder}"
            raise InputError(
                f"dataset {name} is not there: {where}; correct `sources` or `--datasets`, or say "
                "ignore_non_existent_datasets: true"
            )
        found.append(at)
    return found


def _given(name: str, place: str) -> Located | None:
    if Path(place).is_file():
        return Located(name, place, True)
    is_file_name = _is_readable(place) and not Path(place).is_dir()
    return None if is_file_name else _table(name, place)


def _is_readable(path: str) -> bool:
    kind = kind_of(path)
    return kind is not None and kind.format is not FileFormat.XML


def _place(name: str, folder: str) -> Located | None:
    if "://" in folder:
        return _table(name, f"{folder.rstrip('/')}/{name}")
    root = Path(folder)
    files = [
        str(path)
        for path in sorted(root.glob(f"{_literal(name)}.*"))
        if path.is_file() and _is_readable(path.name) and _stem(path.name) == name
    ]
    table = _table(name, str(root / name)) if (root / name).is_dir() else None
    if len(files) + (table is not None) > 1:
        both = ", ".join([*files, *([table.place] if table else [])])
        raise UsageError(f"dataset {name} may be any of {both}: say which in `sources`")
    return Located(name, files[0], True) if files else table


def _stem(file_name: str) -> str:
    """Without the ending, and without that of compression."""
    stem = Path(file_name).stem
    return Path(stem).stem if kind_of(stem) is not None else stem


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _table(name: str, address: str) -> Located | None:
    try:
        CommitLog(open_store(address)).current()
    except TableNotFoundError:
        return None
    return Located(name, address, False)


def read_dataset(located: Located | None, name: str, charge: Charge = unlimited) -> Entities:
    """All entities of a dataset; none if it is not there. Raises `InputError` naming the place, and what
    `charge` raises."""
    if located is None:
        return entities_of([], [], name)
    return _read(columns_in(located), located.shown, charge)


def read_batches(
    batches: Iterable[pa.RecordBatch], name: str, charge: Charge = unlimited
) -> Entities:
    """Entities of Arrow batches: a null is a property that is missing.

    name: of the dataset, for errors. Raises `InputError`, and what `charge` raises.
    """
    return _read(_in_texts(batches, name), name, charge)


def columns_in(located: Located, snapshot: Snapshot | None = None) -> Iterator[tuple[Columns, int]]:
    """The rows of a dataset as they come: `_id` and all, and how many. snapshot: of a table, or of a part of
    it; None: the newest. Raises `InputError` naming the place."""
    if not located.is_file:
        store = open_store(located.place)
        yield from _in_texts(scan(store, snapshot or CommitLog(store).current()), located.shown)
        return
    kind = kind_of(located.place)
    if kind is not None and kind.format is FileFormat.NDJSON:
        for columns in _ndjson(located.place, kind):
            yield columns, len(columns[ID])
        return
    with open_table_file(located.place) as file:
        yield from _in_texts(file, located.shown)


def _in_texts(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[tuple[Columns, int]]:
    for batch in batches:
        yield _texts_of_batch(batch, name), batch.num_rows


def _read(found: Iterable[tuple[Columns, int]], name: str, charge: Charge) -> Entities:
    columns = []
    rows = []
    for some, count in found:
        charge(_bytes_of(some))
        columns.append(some)
        rows.append(count)
    return entities_of(columns, rows, name)


def _bytes_of(columns: Columns) -> int:
    return sum(column.nbytes for column in columns.values())


def _texts_of_batch(batch: pa.RecordBatch, name: str) -> Columns:
    texts = {}
    for column, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count == len(array) and column not in RESERVED:
            continue
        try:
            texts[column] = from_arrow(array)
        except PROBLEMS as error:
            raise InputError(
                f"dataset {name}: column {column!r}: {one_line(error)}: leave the column out"
            ) from error
    return texts


def _ndjson(path: str, kind: FileKind) -> Iterator[Columns]:
    with reading(path):
        source = ByteSource(path, kind.compression)
    try:
        for block in line_blocks(path, source, _BLOCK_BYTES):
            try:
                yield _columns(block.data)
            except (*PROBLEMS, RecursionError):
                raise _located(path, block) from None
    finally:
        source.close()


def _columns(lines: bytes) -> Columns:
    """Of one object a line."""
    lines.decode()
    rows = _rows.decode_lines(lines)
    if len(rows) != lines.count(b"\n") + (not lines.endswith(b"\n")):
        _check_one_a_line(lines, len(rows))
    names = sorted(set().union(*rows))
    texts = {name: canonical(texts_of([row.get(name) for row in rows])) for name in names}
    return texts if ID in texts else {ID: pa.nulls(len(rows), pa.large_string()), **texts}


def _check_one_a_line(lines: bytes, rows: int) -> None:
    if sum(bool(line.strip()) for line in lines.split(b"\n")) != rows:
        raise ValueError("is not one JSON object per line")


def _located(path: str, block: Block) -> InputError:
    """The error of the first line that makes it fail."""
    lines = block.data.split(b"\n")

    def attempt(count: int) -> None:
        start = b"\n".join(lines[:count])
        if start.strip():
            try:
                _columns(start)
            except RecursionError as error:
                raise ValueError("it is nested too deep") from error

    count, error = first_failing(len(lines), attempt)
    line = f"{path}, line {block.first_line + count - 1:,}"
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"{line}: is not valid UTF-8: save the file as UTF-8")
    return InputError(f"{line}: is no JSON object that can be read ({one_line(error)}): correct it")
