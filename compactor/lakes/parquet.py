"""A folder of Parquet files. Which of them are live stands in a list, of which each commit creates a new one.

_published/00000000000000000007.json   the files of version 7
<piece>-6-<writer>.parquet             a file that was begun when the folder was at version 6
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from compactor.errors import (
    DataError,
    InputError,
    ObjectExistsError,
    UnknownOutcomeError,
    UsageError,
)
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sinks import ParquetSink
from compactor.lakes.lake import LakeChangedError, LakeFile, LakeState, Swap
from compactor.lakes.pieces import parsed_name
from compactor.stores.base import Store
from compactor.table.json_text import from_json_text
from lsm_fragment.arrays.type_json import schema_from_json, schema_to_json
from lsm_fragment.errors import cause_of

_PREFIX: Final = "_published/"
_KEY: Final = re.compile(r"_published/([0-9]{20})\.json")
_FORMAT: Final = 1
_KEPT_LISTS: Final = 100
"""Keep this many lists, which readers may have found as the newest."""


class ParquetFolder:
    """The folder as a `Lake`."""

    folder = ""
    fills_columns = False
    is_followed = False

    def __init__(self, store: Store, table_id: str) -> None:
        self._store = store
        self._table_id = table_id

    def types(self, schema: pa.Schema) -> pa.Schema:
        if _why_not(schema) is not None:
            for field in schema:
                if (cause := _why_not(pa.schema([field]))) is not None:
                    raise InputError(
                        f"column {field.name!r} is {field.type}, which Parquet can't hold "
                        f"({one_line(cause)}): drop the column, or export the others to a file"
                    ) from cause
        return schema

    def state(self) -> LakeState | None:
        newest = max(self._lists(), default=0)
        if newest:
            return self._state(newest)
        if (other := next(self._store.list(""), None)) is not None:
            raise UsageError(
                f"{self._store.url}: holds something else, such as {other.key}: name an empty folder, or one "
                "that was published as parquet before"
            )
        return None

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002
        return schema

    def file_schema(self, base: LakeState, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002
        return schema

    def create(self, schema: pa.Schema) -> None:
        self._commit(1, 0, schema, {})

    def replace(self, base: LakeState, swap: Swap) -> None:
        """Commits, then removes the files that went: readers of the folder see all files there are."""
        gone = {file.name for file in swap.removes}
        files = {name: file for name, file in base.files.items() if name not in gone}
        files |= {file.name: file for file in swap.adds}
        version = swap.table_version or base.table_version
        if not self._commit(base.version + 1, version, swap.schema, files):
            raise LakeChangedError
        if max(self._lists()) != base.version + 1:  # A process that slept commits behind others.
            raise LakeChangedError

    def tidy(self, state: LakeState) -> None:
        """Removes files that were begun before `state` and are not in it: nothing can commit them now."""
        for info in self._store.list(""):
            parsed = parsed_name(info.key)
            if parsed is not None and parsed[1] < state.version and info.key not in state.files:
                self._store.delete(info.key)
        for number in self._lists():
            if number <= state.version - _KEPT_LISTS:
                self._store.delete(_list_key(number))

    def _lists(self) -> list[int]:
        found = (_KEY.fullmatch(info.key) for info in self._store.list(_PREFIX))
        return [int(match[1]) for match in found if match is not None]

    def _commit(
        self, number: int, table_version: int, schema: pa.Schema, files: Mapping[str, LakeFile]
    ) -> bool:
        """Creates a list. Returns False if another process has created it."""
        document = {
            "format": _FORMAT,
            "table_id": self._table_id,
            "table_version": table_version,
            "schema": schema_to_json(schema),
            "files": [
                {"name": file.name, "rows": file.rows, "size_bytes": file.size_bytes}
                for file in files.values()
            ],
        }
        key, data = _list_key(number), json.dumps(document, indent=1, ensure_ascii=False).encode()
        try:
            self._store.create(key, data)
        except (ObjectExistsError, UnknownOutcomeError):
            # A request that the network delivered twice finds its own list.
            return self._store.read(key) == data
        return True

    def _state(self, number: int) -> LakeState:
        key = _list_key(number)
        try:
            document = from_json_text(self._store.read(key))
            self._check(document)
            files = [
                LakeFile(str(f["name"]), int(f["rows"]), int(f["size_bytes"]))
                for f in document["files"]
            ]
            schema = schema_from_json(document["schema"])
            table_version = int(document["table_version"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._store.url}/{key}: the list of files is damaged ({cause_of(error)}): publish into an "
                "empty folder"
            ) from error
        return LakeState(number, table_version, schema, {file.name: file for file in files})

    def _check(self, document: Mapping[str, Any]) -> None:
        if document["format"] > _FORMAT:
            raise DataError(
                f"{self._store.url}: a newer program has published here: upgrade this program"
            )
        if document["table_id"] != self._table_id:
            raise UsageError(
                f"{self._store.url}: holds the copy of another table: name another folder"
            )


def _list_key(number: int) -> str:
    return f"{_PREFIX}{number:020d}.json"


def _why_not(schema: pa.Schema) -> Exception | None:
    """Returns why Parquet can't hold the columns; None if it can."""
    try:
        ParquetSink(io.BytesIO(), schema, None).finish()
    except (*PROBLEMS, OSError) as error:  # Nothing is written to disk here.
        return error
    return None
