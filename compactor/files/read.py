"""Users' files as streams of Arrow batches, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.columnar import ArrowBatches, ParquetBatches
from compactor.files.csv import CsvBatches
from compactor.files.ndjson import NdjsonBatches
from compactor.files.source import FileBatches, readable, strip_compression

KNOWN_ENDINGS: Final = (
    ".parquet .arrow .feather .ipc .ndjson .jsonl .json .csv (text also .gz .zst)"
)


def open_table_file(path: str, known_schema: pa.Schema | None = None) -> FileBatches:
    """Opens a file by its name's ending; text files are read once here for their types.

    known_schema: the table's; its types win for the columns of text files it names.
    Raises `InputError` naming file, place and cause, here and while iterating.
    """
    with readable(path):
        if Path(path).is_dir():
            raise IsADirectoryError
        Path(path).stat()
    if known_schema is not None:
        # A column that never had a value says nothing of its type.
        known_schema = pa.schema([f for f in known_schema if not pa.types.is_null(f.type)])
    name = path.lower()
    if name.endswith(".parquet"):
        return ParquetBatches(path)
    if name.endswith((".arrow", ".feather", ".ipc")):
        return ArrowBatches(path)
    text = strip_compression(name)
    if text.endswith((".ndjson", ".jsonl", ".json")):
        return NdjsonBatches(path, known_schema)
    if text.endswith(".csv"):
        return CsvBatches(path, known_schema)
    raise InputError(f"{path}: unknown kind of file; known endings are {KNOWN_ENDINGS}")
