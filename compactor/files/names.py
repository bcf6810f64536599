"""Derives the format and compression of a file from its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class FileFormat(Enum):
    PARQUET = "Parquet"
    NDJSON = "NDJSON"
    CSV = "CSV"
    ARROW = "Arrow IPC"
    XML = "XML"
    """Written only."""
    FRAGMENT = "fragment"


class Compression(Enum):
    NONE = ""
    GZIP = ".gz"
    ZSTD = ".zst"


KNOWN_ENDINGS: Final = (
    ".parquet, .arrow, .feather, .ipc, .frag, .ndjson, .jsonl, .json, .csv (the text ones also with "
    ".gz or .zst)"
)
_FORMATS: Final = {
    ".parquet": FileFormat.PARQUET,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
    ".ndjson": FileFormat.NDJSON,
    ".jsonl": FileFormat.NDJSON,
    ".json": FileFormat.NDJSON,
    ".csv": FileFormat.CSV,
    ".xml": FileFormat.XML,
    ".frag": FileFormat.FRAGMENT,
}
_TEXT_FORMATS: Final = (FileFormat.NDJSON, FileFormat.CSV, FileFormat.XML)


@dataclass(frozen=True, slots=True)
class FileKind:
    format: FileFormat
    compression: Compression


PARQUET: Final = FileKind(FileFormat.PARQUET, Compression.NONE)
FRAGMENT: Final = FileKind(FileFormat.FRAGMENT, Compression.NONE)


def kind_of(path: str) -> FileKind | None:
    """Returns the kind of file by the ending of `path`, ignoring case; None for an unknown ending."""
    name, compression = path.lower(), Compression.NONE
    for candidate in (Compression.GZIP, Compression.ZSTD):
        if name.endswith(candidate.value):
            name, compression = name.removesuffix(candidate.value), candidate
    for ending, file_format in _FORMATS.items():
        if name.endswith(ending):
            plain = compression is Compression.NONE
            return FileKind(file_format, compression) if plain or _is_text(file_format) else None
    return None


def _is_text(file_format: FileFormat) -> bool:
    return file_format in _TEXT_FORMATS
