"""Locates datasets by name."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.entities.spec import EntityMergeSpec
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.files.names import BINARY_FORMATS, KNOWN_ENDINGS, FileFormat, kind_of
from compactor.files.places import addresses_of, matching_paths, place_of
from compactor.files.problems import one_line
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

_SPEC_EXTENSIONS: Final = (".yaml", ".yml")
"""Extensions of files that may share a dataset's name without being one."""
_TYPED: Final = (*BINARY_FORMATS, FileFormat.NDJSON)
"""Formats whose values have types."""


class Located(Struct, frozen=True, kw_only=True):
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
    if types and not all(part.is_file and has_texts(part.place) for part in at.whole):
        raise InputError(
            f"dataset {at.shown}: has types of its own: leave it out of `types`, which is for CSV, XML "
            "and other files of texts"
        )
    parts = tuple(_declared(part, types, id_columns) for part in at.parts)
    return replace(at, types=types, id_columns=id_columns, parts=parts)


def has_texts(path: str) -> bool:
    """Returns whether the values of a file are texts."""
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
    return _real(folder) in _real(place).parents


def check_not_over(spec: EntityMergeSpec, folder: str, outputs: Mapping[str, str]) -> None:
    """Raises `UsageError` if an output file is one that a merge reads, or would read the next time.

    outputs: files by their options.
    """
    located = locate(spec, folder) if outputs else []
    for option, path in outputs.items():
        _check_not_over(spec, folder, located, path, option)


def _check_not_over(
    spec: EntityMergeSpec, folder: str, located: Sequence[Located | None], path: str, option: str
) -> None:
    for at in (part for found in located if found is not None for part in found.whole):
        if at.is_file and _same(at.place, path):
            raise UsageError(
                f"{option}: {path} is the file of dataset {at.name}: name another file"
            )
    sources = dict(spec.sources)
    for name, _alias in spec.datasets:
        if _would_be(name, sources.get(name), folder, path):
            raise UsageError(
                f"{option}: {path} would be a file of dataset {name} in the next run: name another file"
            )
    if any(_same(pairs, path) for pairs in spec.pair_files):
        raise UsageError(f"{option}: {path} has pairs of the spec: name another file")


def _would_be(name: str, place: str | None, folder: str, path: str) -> bool:
    """Returns whether a file, which need not exist, is where a dataset is looked for.

    place: of the dataset, if its source says so.
    """
    if place is None:
        if _is_remote(folder) or _real(path).parent != _real(folder):
            return False
        return _stem(Path(path).name) == name
    if not _is_remote(place) and glob.has_magic(pattern := _local(place)):
        folder, wildcards = _divided(pattern)
        wanted = (*_real(folder).parts, *wildcards)
        given = (*_real(str(Path(path).parent)).parts, Path(path).name)
        return len(given) == len(wanted) and all(map(fnmatch.fnmatchcase, given, wanted))
    return _same(place, path)


def _same(one: str, other: str) -> bool:
    if _is_remote(one) or _is_remote(other):
        return one.rstrip("/") == other.rstrip("/")
    paths = [Path(_local(place)) for place in (one, other)]
    if all(path.exists() for path in paths):
        return paths[0].samefile(paths[1])
    return _real(one) == _real(other)


def _real(place: str) -> Path:
    """Returns a local path without links. Those that go round in circles stay; `Path.resolve` fails there, up
    to Python 3.12."""
    return Path(os.path.realpath(_local(place)))


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
        _stat(name, _divided(pattern)[0], may_be_absent=True)
        return [_there(name, path) for path in matching_paths(pattern)]
    return [at for file in matching_paths(pattern) if (at := _remote(name, file)) is not None]


def _divided(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Returns the folder of a pattern, and the parts of the path from the first wildcard on."""
    parts = Path(pattern).parts
    known = next(n for n, part in enumerate(parts) if glob.has_magic(part))
    return str(Path(*parts[:known])), parts[known:]


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
