"""Derives the format and compression of a file from its name."""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct


class FileFormat(Enum):
    PARQUET = "Parquet"
    NDJSON = "NDJSON"
    CSV = "CSV"
    ARROW = "Arrow IPC"
    XML = "XML"
    LINES = "lines"
    """Read only, by a pattern."""
    FIXED = "fixed-width"
    EDIFACT = "EDIFACT"
    X12 = "X12"
    HL7 = "HL7"
    FRAGMENT = "fragment"


class Compression(Enum):
    NONE = ""
    GZIP = ".gz"
    ZSTD = ".zst"
    BZIP2 = ".bz2"
    XZ = ".xz"


KNOWN_ENDINGS: Final = (
    ".parquet, .arrow, .feather, .ipc, .frag, .ndjson, .jsonl, .json, .csv, .xml, .edifact, .edi, .x12, "
    ".hl7 (the text ones also with .gz, .zst, .bz2 or .xz)"
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
    ".edifact": FileFormat.EDIFACT,
    ".edi": FileFormat.EDIFACT,
    ".x12": FileFormat.X12,
    ".hl7": FileFormat.HL7,
    ".frag": FileFormat.FRAGMENT,
}
BINARY_FORMATS: Final = (FileFormat.PARQUET, FileFormat.ARROW, FileFormat.FRAGMENT)
"""Formats with types of their own."""
SEGMENT_FORMATS: Final = (FileFormat.EDIFACT, FileFormat.X12, FileFormat.HL7)
"""Formats of segments, which have the same columns."""
WITHOUT_MAPS: Final = (FileFormat.CSV, FileFormat.XML, FileFormat.FIXED, *SEGMENT_FORMATS)
"""Formats written that have no place for maps."""


class FileKind(Struct, frozen=True):
    format: FileFormat
    compression: Compression


PARQUET: Final = FileKind(FileFormat.PARQUET, Compression.NONE)
FRAGMENT: Final = FileKind(FileFormat.FRAGMENT, Compression.NONE)


def compression_of(path: str) -> Compression:
    """Returns the compression by the ending of `path`, ignoring case."""
    for candidate in Compression:
        if candidate.value and path.lower().endswith(candidate.value):
            return candidate
    return Compression.NONE


def kind_of(path: str) -> FileKind | None:
    """Returns the kind of file by the ending of `path`, ignoring case; None for an unknown ending."""
    compression = compression_of(path)
    name = path.lower().removesuffix(compression.value)
    for ending, file_format in _FORMATS.items():
        if name.endswith(ending):
            is_known = compression is Compression.NONE or file_format not in BINARY_FORMATS
            return FileKind(file_format, compression) if is_known else None
    return None
