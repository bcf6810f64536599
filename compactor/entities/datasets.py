"""Locates datasets by name and reads their entities."""

from __future__ import annotations

import glob
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.entities.entities import RESERVED, Entities, RowSource, entities_of, row_number
from compactor.entities.expressions import ID
from compactor.entities.memory import Charge, unlimited
from compactor.entities.properties import Sparse, is_rare
from compactor.entities.row_ids import with_ids
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import canonical, from_arrow, texts_of
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.files.json_items import ItemBytes
from compactor.files.names import BINARY_FORMATS, KNOWN_ENDINGS, FileFormat, FileKind, kind_of
from compactor.files.ndjson import LineBlock, line_blocks
from compactor.files.places import addresses_of, matching_paths, place_of
from compactor.files.problems import PROBLEMS, first_failing, one_line, reading
from compactor.files.read import open_table_file
from compactor.predicate.expressions.types import sql_type
from compactor.read.scan import scan
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

_BLOCK_BYTES: Final = 8 << 20
_OFFSET_BYTES: Final = 8
"""Offset size of an Arrow large string, null or not."""
_SPEC_EXTENSIONS: Final = (".yaml", ".yml")
"""Extensions of files that may share a dataset's name without being one."""
_TYPED: Final = (*BINARY_FORMATS, FileFormat.NDJSON)
"""Formats whose values have types."""
_Columns = dict[str, Any]
"""Arrays, and `Sparse` properties that few rows have."""
_rows = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A dataset that was found."""

    name: str
    place: str
    """Path of a file, or address of a table."""
    is_file: bool
    types: tuple[tuple[str, str], ...] = ()
    """Columns of a file of texts that are no texts, with the names of their types in SQL."""
    id_columns: tuple[str, ...] = ()
    """Columns with the id; empty for `_id`."""
    parts: tuple[Located, ...] = ()
    """The files and tables that match the pattern `place`, in order; empty without a pattern."""

    @property
    def whole(self) -> tuple[Located, ...]:
        """The parts, or the single file or table."""
        return self.parts or (self,)

    @property
    def shown(self) -> str:
        """Name and place, for errors."""
        is_table = not (self.is_file or self.parts)
        return f"{self.name} ({open_store(self.place).url if is_table else self.place})"


def locate(spec: EntityMergeSpec, folder: str) -> list[Located | None]:
    """Locates each dataset; None if its place is empty.

    A name without a place in `sources` is a file or table in `folder`: `orders` is `orders.ndjson`,
    `orders.parquet` and so on, or the table `orders`.
    Raises `InputError` if the place holds something that cannot be a dataset: treating it as empty would
    delete the entities merged from it. Raises `UsageError` if several files match, or `folder` is not a
    folder.
    """
    sources = dict(spec.sources)
    in_folder = _remote_in if _is_remote(folder) else _InFolder(folder)
    found = [
        _given(name, sources[name])
        if name in sources
        else in_folder(name, f"{folder.rstrip('/')}/{name}")
        for name, _alias in spec.datasets
    ]
    types, ids = dict(spec.types), dict(spec.ids)
    return [at and _declared(at, types.get(at.name, ()), ids.get(at.name, ())) for at in found]


def _declared(
    at: Located, types: tuple[tuple[str, str], ...], id_columns: tuple[str, ...]
) -> Located:
    """Declares columns. Raises `InputError` if the dataset has types of its own."""
    if types and not all(part.is_file and _has_texts(part.place) for part in at.whole):
        raise InputError(
            f"dataset {at.shown}: has types of its own: leave it out of `types`, which is for CSV, XML "
            "and other files of texts"
        )
    parts = tuple(_declared(part, types, id_columns) for part in at.parts)
    return replace(at, types=types, id_columns=id_columns, parts=parts)


def _has_texts(path: str) -> bool:
    kind = kind_of(path)
    return kind is not None and kind.format not in _TYPED


def check_not_read(
    spec: EntityMergeSpec, folder: str, located: Sequence[Located | None], table: str
) -> None:
    """Raises `UsageError` if a dataset is the output table, existing or not, or one is inside the other.

    table: address of the output.
    """
    sources = dict(spec.sources)
    for (name, _alias), at in zip(spec.datasets, located, strict=True):
        place = sources.get(name, f"{folder.rstrip('/')}/{name}")
        if _same(place, table):
            raise UsageError(
                f"--output: {table} is dataset {name} as well: a merge does not write what it reads; name "
                "another table"
            )
        parts = () if at is None else at.whole
        if any(_is_inside(inner, table) for inner in (place, *(part.place for part in parts))):
            raise UsageError(
                f"--output: dataset {name} is inside {table} ({place}): a table needs a folder of its own; "
                "name another"
            )
        if any(_is_inside(table, part.place) for part in parts if not part.is_file):
            raise UsageError(
                f"--output: {table} is inside the table of dataset {name} ({place}): name another folder"
            )


def _is_inside(place: str, folder: str) -> bool:
    """Returns whether a place is in a folder, at any depth."""
    if _is_remote(place) or _is_remote(folder):
        return place.startswith(f"{folder.rstrip('/')}/")
    return Path(_local(folder)).resolve() in Path(_local(place)).resolve().parents


def check_not_over(located: Sequence[Located | None], path: str, option: str) -> None:
    """Raises `UsageError` if the output file of an option is one of the datasets' files."""
    for at in (part for found in located if found is not None for part in found.whole):
        if at.is_file and _same(at.place, path):
            raise UsageError(
                f"{option}: {path} is the file of dataset {at.name}: name another file"
            )


def _same(one: str, other: str) -> bool:
    if _is_remote(one) or _is_remote(other):
        return one.rstrip("/") == other.rstrip("/")
    paths = [Path(_local(place)) for place in (one, other)]
    if all(path.exists() for path in paths):
        return paths[0].samefile(paths[1])
    return paths[0].resolve() == paths[1].resolve()


def _is_remote(address: str) -> bool:
    return "://" in address and not address.startswith("file:")


def _local(address: str) -> str:
    return open_store(address).url if address.startswith("file:") else address


def _remote_in(name: str, address: str) -> Located | None:
    """Locates a file or table of a folder in an object store, by its name without endings."""
    files = [file for file in matching_paths(f"{address}.*") if _stem(Path(file).name) == name]
    if len(files) > 1:
        raise _ambiguous(name, files)
    return _remote(name, files[0] if files else address)


def _ambiguous(name: str, places: Sequence[str]) -> UsageError:
    return UsageError(f"dataset {name} may be any of {', '.join(places)}: say which in `sources`")


def _remote(name: str, address: str) -> Located | None:
    """Locates a file or table in an object store; None if nothing is stored under the address.

    Raises `InputError` if there are objects, but no table.
    """
    if addresses_of(address) is not None and kind_of(address) is not None:
        try:
            place_of(address)
        except InputError:
            pass  # no such object
        else:
            return Located(name=name, place=address, is_file=True)
    found = _table(name, address)
    if found is None and next(iter(open_store(address).list("")), None) is not None:
        raise _unusable(name, address, "holds objects, but no table")
    return found


def _given(name: str, place: str) -> Located | None:
    if (found := _matching(name, place)) is not None:
        return replace(found[0], place=place, parts=tuple(found)) if found else None
    if _is_remote(place):
        return _remote(name, place)
    path = _local(place).rstrip("/") or "/"
    if not os.path.lexists(path):
        # A shell expands ~; here it would be a file name.
        if path.startswith("~"):
            raise _unusable(name, path, "nothing makes a home folder of ~ here")
        _stat(name, path, may_be_absent=True)
        return None
    return _there(name, path)


def _matching(name: str, place: str) -> list[Located] | None:
    """Returns the files and tables that match a pattern, sorted by name; None if the place is none."""
    is_stored = addresses_of(place) is not None
    pattern = place.removeprefix("file://")
    if not glob.has_magic(pattern) or (not is_stored and os.path.lexists(pattern)):
        return None
    if not is_stored:
        return [_there(name, path) for path in matching_paths(pattern)]
    return [at for file in matching_paths(pattern) if (at := _remote(name, file)) is not None]


def _there(name: str, path: str) -> Located:
    """Returns the dataset at an existing path. Raises `InputError` if it cannot be a dataset."""
    mode = _stat(name, path)
    if stat.S_ISDIR(mode):
        table = _table(name, path)
        if table is None:
            raise _unusable(name, path, "is a folder, but no table")
        return table
    if not stat.S_ISREG(mode):
        raise _unusable(name, path, "is neither a file nor a table")
    if kind_of(path) is None:
        raise _unusable(name, path, f"unknown kind of file; known endings are {KNOWN_ENDINGS}")
    return Located(name=name, place=path, is_file=True)


def _stat(name: str, path: str, *, may_be_absent: bool = False) -> int:
    try:
        return Path(path).stat().st_mode
    except FileNotFoundError:
        if may_be_absent:
            return 0
        raise _unusable(name, path, "is a link to what is not there") from None
    except OSError as error:
        raise _unusable(name, path, (error.strerror or one_line(error)).lower()) from None


def _unusable(name: str, place: str, cause: str) -> InputError:
    return InputError(
        f"dataset {name}: {place}: {cause}: correct it, or say in `sources` where the dataset is"
    )


class _InFolder:
    """Locates datasets by name in a local folder."""

    def __init__(self, folder: str) -> None:
        self._root = Path(_local(folder))
        self._names: list[str] | None = None

    def __call__(self, name: str, _address: str) -> Located | None:
        there = [n for n in self._entries() if n == name or self._is_file_of(n, name)]
        usable, problems = [], []
        for found in there:
            try:
                usable.append(_there(name, str(self._root / found)))
            except InputError as error:
                problems.append(error)
        if len(usable) > 1:
            raise _ambiguous(name, [at.place for at in usable])
        if not usable and problems:
            raise problems[0]
        return usable[0] if usable else None

    def _is_file_of(self, found: str, name: str) -> bool:
        """Returns whether a directory entry is a file of this dataset.

        A folder counts only if it has a data file extension.
        """
        if _stem(found) != name:
            return False
        return kind_of(found) is not None or not (self._root / found).is_dir()

    def _entries(self) -> list[str]:
        if self._names is None:
            try:
                self._names = sorted(path.name for path in self._root.iterdir())
            except OSError as error:
                cause = (error.strerror or one_line(error)).lower()
                raise UsageError(
                    f"--datasets: {self._root}: {cause}: name the folder where datasets are"
                ) from None
        return self._names


def _stem(file_name: str) -> str | None:
    """Returns the name without its extensions for format and compression; None if it cannot be data."""
    path = Path(file_name)
    if not path.suffix or path.suffix in _SPEC_EXTENSIONS:
        return None
    stem = path.stem
    return Path(stem).stem if kind_of(stem) is not None else stem


def _table(name: str, address: str) -> Located | None:
    try:
        CommitLog(open_store(address)).current()
    except TableNotFoundError:
        return None
    return Located(name=name, place=address, is_file=False)


def read_dataset(located: Located | None, name: str, charge: Charge = unlimited) -> Entities:
    """Reads all entities of a dataset; none if it does not exist.

    Raises `InputError` naming the place, and the errors of `charge`.
    """
    if located is None:
        return entities_of([], [], RowSource(name))
    source = RowSource(located.shown, partial(place_in, located), located.id_columns)
    return _read(columns_in(located), source, charge)


def read_batches(
    batches: Iterable[pa.RecordBatch],
    name: str,
    charge: Charge = unlimited,
    id_columns: Sequence[str] = (),
) -> Entities:
    """Reads entities from Arrow batches; null means a missing property.

    name: the dataset's name, for errors. Raises `InputError`, and the errors of `charge`.
    """
    found = ((with_ids(c, n, id_columns), n) for c, n in _in_texts(batches, name))
    return _read(found, RowSource(name, id_columns=id_columns), charge)


def columns_in(
    located: Located, snapshot: Snapshot | None = None
) -> Iterator[tuple[_Columns, int]]:
    """Yields the rows of a dataset in input order: columns, including `_id`, and the row count.

    snapshot: snapshot of a table, or a part of it; None for the latest. Raises `InputError` naming the place.
    """
    for part in located.whole:
        for columns, rows in _columns_of_part(part, snapshot):
            yield with_ids(columns, rows, located.id_columns), rows


def _columns_of_part(located: Located, snapshot: Snapshot | None) -> Iterator[tuple[_Columns, int]]:
    if not located.is_file:
        store = open_store(located.place)
        yield from _in_texts(scan(store, snapshot or CommitLog(store).current()), located.shown)
        return
    kind = kind_of(located.place)
    if kind is not None and kind.format is FileFormat.NDJSON:
        for columns in _ndjson(located.place, kind):
            yield columns, len(columns[ID])
        return
    known = pa.schema([(column, _wide(sql_type(dtype))) for column, dtype in located.types])
    with open_table_file(located.place, known, in_one_pass=True, infers_types=False) as file:
        ids = located.id_columns or (ID,)
        for column in (*ids, *known.names) if _has_texts(located.place) else ():
            if column not in file.schema.names:
                instead = (
                    "name the columns of the id in `id`"
                    if column in ids
                    else "leave it out of `types`"
                )
                raise InputError(
                    f"dataset {located.shown}: has no column {column!r}: add it, or {instead}"
                )
        yield from _in_texts(file, located.shown)


def _wide(dtype: pa.DataType) -> pa.DataType:
    """Returns int64 for any integer type, because integers have one type here."""
    return pa.int64() if pt.is_integer(dtype) else dtype


def _in_texts(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[tuple[_Columns, int]]:
    for batch in batches:
        yield _texts_of_batch(batch, name), batch.num_rows


def _read(found: Iterable[tuple[_Columns, int]], source: RowSource, charge: Charge) -> Entities:
    columns = []
    rows: list[int] = []
    names: set[str] = set()
    cells, empty = 0, 0
    for some, count in found:
        dense = [name for name, column in some.items() if not isinstance(column, Sparse)]
        names.update(dense)
        cells += len(dense) * count
        # Each of these becomes a column of all rows, present or not.
        before, empty = empty, len(names) * (sum(rows) + count) - cells
        charge(_bytes_of(some) + (empty - before) * _OFFSET_BYTES)
        columns.append(some)
        rows.append(count)
    return entities_of(columns, rows, source)


def place_in(located: Located, row: int) -> str:
    """Returns the line or row of a dataset that has its row `row`, from 0; of several, with the file."""
    if located.parts:
        for part in located.parts:
            rows = sum(count for _, count in columns_in(part))
            if row < rows:
                return f"{part.place}, {place_in(part, row)}"
            row -= rows
    kind = kind_of(located.place) if located.is_file else None
    if kind is not None and kind.format is FileFormat.NDJSON:
        return _line_of(located.place, kind, row)
    return row_number(row)


def _line_of(path: str, kind: FileKind, row: int) -> str:
    with closing(_opened(path, kind)) as source:
        for block in _blocks(path, source):
            for number, line in enumerate(block.data.split(b"\n"), block.first_line):
                row -= bool(line.strip())
                if row < 0:
                    return _line(source, number)
    raise AssertionError("the file has become shorter")


def _bytes_of(columns: _Columns) -> int:
    return sum(column.nbytes for column in columns.values())


def _texts_of_batch(batch: pa.RecordBatch, name: str) -> _Columns:
    texts = {}
    for column, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count == len(array) and column not in RESERVED:
            continue
        try:
            texts[column] = from_arrow(array)
        except (*PROBLEMS, RecursionError) as error:
            cause = "nested too deep" if isinstance(error, RecursionError) else one_line(error)
            raise InputError(
                f"dataset {name}: column {column!r}: {cause}: leave the column out"
            ) from error
    return texts


def _ndjson(path: str, kind: FileKind) -> Iterator[_Columns]:
    with closing(_opened(path, kind)) as source:
        for block in _blocks(path, source):
            try:
                yield _columns(block.data)
            except (*PROBLEMS, RecursionError):
                raise _located(path, source, block) from None


def _opened(path: str, kind: FileKind) -> ItemBytes:
    with reading(path):
        return ItemBytes(path, place_of(path), kind.compression)


def _blocks(path: str, source: ItemBytes) -> Iterator[LineBlock]:
    """Yields the lines of a file, or the items of its array."""
    for block in line_blocks(path, source, _BLOCK_BYTES):
        lines, _, last = block.data.rpartition(b"\n")
        # A comma behind the last item is no item.
        is_over = source.is_array and last.strip() == b","
        yield LineBlock(lines, block.first_line) if is_over else block


def _line(source: ItemBytes, number: int) -> str:
    return f"{'item' if source.is_array else 'line'} {number:,}"


def _columns(lines: bytes) -> _Columns:
    """Returns the columns of NDJSON lines."""
    lines.decode()
    rows = _rows.decode_lines(lines)
    _check_one_a_line(lines, len(rows))
    counts = Counter(chain.from_iterable(rows))
    rare = {n for n, count in counts.items() if is_rare(count, len(rows)) and n not in RESERVED}
    texts: _Columns = _rare_columns(rows, rare) if rare else {}
    for name in counts.keys() - rare:
        texts[name] = canonical(texts_of([row.get(name) for row in rows]))
    texts.setdefault(ID, pa.nulls(len(rows), pa.large_string()))
    return {name: texts[name] for name in sorted(texts)}


def _rare_columns(rows: Sequence[dict[str, msgspec.Raw]], names: set[str]) -> _Columns:
    """Returns the columns of properties that few rows have, in time linear in their values."""
    found: dict[str, tuple[list[int], list[msgspec.Raw]]] = {name: ([], []) for name in names}
    for number, row in enumerate(rows):
        for name in row.keys() & names:
            places, raws = found[name]
            places.append(number)
            raws.append(row[name])
    texts = canonical(texts_of([raw for _, raws in found.values() for raw in raws]))
    columns, start = {}, 0
    for name, (places, raws) in found.items():
        columns[name] = Sparse(np.array(places), texts.slice(start, len(raws)), len(rows))
        start += len(raws)
    return columns


def _check_one_a_line(lines: bytes, rows: int) -> None:
    """Raises `ValueError` unless each line is one object. rows: number of objects.

    Relies on `}`, line break, `{` occurring only between two objects.
    """
    if lines.count(b"}\n{") + 1 == rows and lines.count(b"\n") - lines.endswith(b"\n") + 1 == rows:
        return
    texts = [text for line in lines.split(b"\n") if (text := line.strip())]
    if len(texts) != rows or not all(t.startswith(b"{") and t.endswith(b"}") for t in texts):
        raise ValueError("is not one JSON object per line")


def _located(path: str, source: ItemBytes, block: LineBlock) -> InputError:
    """Returns the error naming the first unreadable line."""
    lines = block.data.split(b"\n")

    def attempt(count: int) -> None:
        start = b"\n".join(lines[:count])
        if start.strip():
            try:
                _columns(start)
            except RecursionError as error:
                raise ValueError("it is nested too deep") from error

    count, error = first_failing(len(lines), attempt)
    line = f"{path}, {_line(source, block.first_line + count - 1)}"
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"{line}: is not valid UTF-8: save the file as UTF-8")
    if _has_half_a_character(lines[count - 1]):
        return InputError(
            f"{line}: has half of a surrogate pair, such as \\ud83d, which is no character: write both "
            "halves, or leave it out"
        )
    return InputError(f"{line}: is not a readable JSON object ({one_line(error)}): correct it")


def _has_half_a_character(line: bytes) -> bool:
    """Returns whether a line is JSON but for an escaped surrogate without its other half."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False
