"""Renders rows of segments as EDIFACT, X12 or HL7 v2, by the delimiters of the header among them.

The bytes are canonical: no line ends between segments but those of HL7, and nothing released or escaped
without need. Each segment is read again, so that no text is taken for a delimiter.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.names import FileFormat
from compactor.files.plain_text import UnwritableError
from compactor.files.segment_rows import SEGMENT_SCHEMA
from compactor.files.segments import (
    HL7_HEADERS,
    MAX_SEGMENT_BYTES,
    Components,
    Delimiters,
    Segment,
    elements_of,
    of_isa,
    of_msh,
    of_una,
    of_unb,
    with_charset,
)
from lsm_fragment.arrays.types import is_string

_FIRST: Final = {
    FileFormat.EDIFACT: "UNA or UNB",
    FileFormat.X12: "ISA",
    FileFormat.HL7: "MSH, FHS or BHS",
}
_READ: Final = ("tag", "elements", "repeats")


class SegmentText:
    """Renders the batches of one file, in order."""

    def __init__(self, file_format: FileFormat) -> None:
        self._format = file_format
        self._by: Delimiters | None = None
        self._rows = 0

    def __call__(self, batch: pa.RecordBatch) -> bytes:
        """Returns the segments. Raises `UnwritableError` naming the row."""
        given = [
            batch.column(name).cast(SEGMENT_SCHEMA.field(name).type).to_pylist()
            if name in batch.schema.names
            else [None] * batch.num_rows
            for name in _READ
        ]
        rendered = []
        for row in zip(*given, strict=True):
            self._rows += 1
            try:
                rendered.append(self._segment(*row))
            except ValueError as error:
                raise UnwritableError(f"row {self._rows:,}: {error}") from None
        return b"".join(rendered)

    def _segment(self, tag: str | None, elements: Any, repeats: Any) -> bytes:
        parts = [[part or "" for part in components or ()] for components in elements or ()]
        more = defaultdict[int, list[Components]](list)
        for again in repeats or ():
            more[again["element"]].append([part or "" for part in again["components"] or ()])
        raw, by = self._raw(tag or "", parts, more)
        name = (tag or "").encode()
        found = elements_of(Segment(number=0, offset=0, message=None, tag=name, raw=raw, by=by))
        said = [(n, again) for n in sorted(more) for again in more[n]]
        if _canonical(found.elements) != _canonical(parts) or found.repeats != [
            (n, _canonical([again])[0]) for n, again in said
        ]:
            raise ValueError(
                f"{tag}: its texts would not be read back as they are: look for delimiters, for escape "
                "characters, and for elements that are missing"
            )
        if len(raw) > MAX_SEGMENT_BYTES:
            raise ValueError(f"{tag} is longer than {MAX_SEGMENT_BYTES >> 20} MiB")
        return raw if tag == "UNA" else raw + by.segment

    def _raw(
        self, tag: str, parts: list[Components], more: dict[int, list[Components]]
    ) -> tuple[bytes, Delimiters]:
        texts = ["".join(components) for components in parts]
        if tag == "UNA" and self._format is FileFormat.EDIFACT:
            raw = f"UNA{''.join(texts)}".encode()
            self._by = of_una(raw)
            return raw, self._by
        if tag == "ISA" and self._format is FileFormat.X12:
            raw = "*".join(["ISA", *texts]).encode()
            self._by = of_isa(raw + b"~")
            return raw, self._by
        if tag.encode() in HL7_HEADERS and self._format is FileFormat.HL7:
            start = f"{tag}{''.join(texts[:2])}"
            self._by = by = of_msh(start.encode() + b"\r")
            body = [start, *_elements(parts[2:], more, by, first=3)]
        else:
            if tag == "UNB" and self._format is FileFormat.EDIFACT and self._by is None:
                self._by = of_unb(f"UNB+{':'.join(parts[0]) if parts else ''}+".encode())
            if self._by is None:
                raise ValueError(
                    f"{tag!r} is no header: {self._format.value} begins with {_FIRST[self._format]}"
                )
            by = self._by
            body = [tag, *_elements(parts, more, by, first=1)]
        return self._encoded(tag, by.element.decode().join(body), by)

    def _encoded(self, tag: str, text: str, by: Delimiters) -> tuple[bytes, Delimiters]:
        if tag in ("UNB", "MSH"):
            self._by = by = with_charset(by, text.encode())
        elif tag in ("UNZ", "IEA"):
            self._by = None
        if by.is_hl7 and not set("\r\n\x0b\x1c").isdisjoint(text):
            raise ValueError(
                f"{tag} has a line break or a frame's character in a text: write it as \\X0D\\ or \\.br\\"
            )
        try:
            return text.encode(by.charset), by
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{tag} has {text[error.start]!r}, which {by.charset} lacks, the header's character set"
            ) from None


def _elements(
    parts: list[Components], more: dict[int, list[Components]], by: Delimiters, first: int
) -> list[str]:
    return [
        by.repetition.decode().join(
            by.component.decode().join(_escaped(text, by) for text in components)
            for components in (once, *more.get(number, ()))
        )
        for number, once in enumerate(parts, first)
    ]


def _escaped(text: str, by: Delimiters) -> str:
    if by.is_hl7:
        return "".join(by.escapes.get(character, character) for character in text)
    marks = [by.segment, by.element, by.component, by.repetition, by.release]
    held = [mark.decode() for mark in marks if mark and mark.decode() in text]
    if held and not by.release:
        raise ValueError(
            f"{text[:60]!r} has the delimiter {held[0]!r}, and there is no release character"
        )
    if not held:
        return text
    release = by.release.decode()
    return "".join(release + character if character in held else character for character in text)


def _canonical(elements: list[Components]) -> list[Components]:
    return [[] if components == [""] else components for components in elements]


def check_segment_columns(schema: pa.Schema, file_format: FileFormat) -> None:
    """Raises `UnwritableError` unless the columns are those of segments."""
    name = file_format.value
    for wanted in ("tag", "elements"):
        if wanted not in schema.names:
            raise UnwritableError(f"{name} has segments: there is no column {wanted!r}")
    for field in schema:
        if field.name not in SEGMENT_SCHEMA.names:
            there = ", ".join(SEGMENT_SCHEMA.names)
            raise UnwritableError(
                f"{name} has no place for the column {field.name!r}: it writes {there}; leave it out by a "
                "transform"
            )
        wanted_type = SEGMENT_SCHEMA.field(field.name).type
        if field.name in _READ and not (_is_alike(field.type, wanted_type)):
            raise UnwritableError(
                f"the column {field.name!r} is {field.type}, but {name} needs {wanted_type}"
            )


def _is_alike(dtype: pa.DataType, wanted: pa.DataType) -> bool:
    if pt.is_null(dtype):
        return True
    if pt.is_list(wanted) and (pt.is_list(dtype) or pt.is_large_list(dtype)):
        return _is_alike(dtype.value_type, wanted.value_type)
    if pt.is_string(wanted):
        return is_string(dtype)
    return bool(dtype == wanted)
