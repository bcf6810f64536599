"""Cuts EDIFACT, X12 and HL7 v2 into segments, and segments into elements and components.

The delimiters come from the header: UNA or the standard's for EDIFACT, ISA for X12, MSH (or FHS, BHS) for
HL7. Line ends between segments are skipped. An empty element has no components.

In EDIFACT the release character is taken from texts. X12 has none. In HL7 the escape sequences of the field,
component and repetition separators become these characters; other sequences and subcomponents stay as they
are written, because they are not told apart otherwise.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import InputError
from compactor.files.byte_source import Readable
from compactor.files.names import FileFormat

MAX_SEGMENT_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20
_FRAMES: Final = b"\x0b\x1c"
"""Bytes that frame messages of HL7 on the wire."""
_BLANK: Final = b" \t\r\n" + _FRAMES
"""Bytes between segments."""
_LINE_END: Final = re.compile(rb"[\r\n]")
_ISA_BYTES: Final = 106
_ISA_SEPARATORS: Final = (3, 6, 17, 20, 31, 34, 50, 53, 69, 76, 81, 83, 89, 99, 101, 103)
_UNA_BYTES: Final = 9
HL7_HEADERS: Final = (b"MSH", b"FHS", b"BHS")
_TAG: Final = re.compile(rb"[A-Za-z0-9]{2,3}")
_CHARSETS: Final = {
    b"UNOC": "latin-1", b"UNOD": "iso8859-2", b"UNOE": "iso8859-5", b"UNOF": "iso8859-7",
    b"UNOG": "iso8859-3", b"UNOH": "iso8859-4", b"UNOI": "iso8859-6", b"UNOJ": "iso8859-8",
    b"UNOK": "iso8859-9", b"8859/1": "latin-1", b"8859/2": "iso8859-2", b"8859/15": "iso8859-15",
}  # fmt: skip
_BEGINS: Final = {b"UNH", b"ST", b"MSH"}
_ENDS: Final = {b"UNT", b"SE"}
_OUTSIDE: Final = {b"FHS", b"BHS", b"FTS", b"BTS", b"UNZ", b"IEA", b"UNB", b"ISA"}

Components = list[str]


class Delimiters(Struct, frozen=True, kw_only=True, dict=True):
    """The characters that divide an interchange."""

    format: FileFormat
    segment: bytes
    element: bytes
    component: bytes
    repetition: bytes = b""
    release: bytes = b""
    """The character that makes the next one text, or encloses an escape sequence; empty if there is none."""
    charset: str = "utf-8"

    @cached_property
    def is_hl7(self) -> bool:
        return self.format is FileFormat.HL7

    @cached_property
    def escapes(self) -> dict[str, str]:
        """Escape sequences of HL7, by the character that they stand for."""
        mark = self.release.decode()
        names = (("F", self.element), ("S", self.component), ("R", self.repetition))
        return {by.decode(): f"{mark}{name}{mark}" for name, by in names if by and mark}

    @cached_property
    def released(self) -> re.Pattern[str]:
        return re.compile(f"{re.escape(self.release.decode())}.", re.DOTALL)

    @cached_property
    def sequence(self) -> re.Pattern[str]:
        mark = re.escape(self.release.decode())
        return re.compile(f"{mark}([^{mark}]*){mark}")


class Segment(NamedTuple):
    """A segment as it stands in the file."""

    number: int
    """From 1."""
    offset: int
    """Of its first byte."""
    message: int | None
    """Number of its message, from 1; None outside messages."""
    tag: bytes
    raw: bytes
    by: Delimiters


class Elements(NamedTuple):
    elements: list[Components]
    """First occurrence of each element."""
    repeats: list[tuple[int, Components]]
    """Further occurrences, by the element's number from 1."""


class HeaderError(ValueError):
    """A header does not tell the delimiters."""


class SegmentCutter:
    """Cuts the segments of one file."""

    def __init__(self, path: str, source: Readable) -> None:
        self._path = path
        self._source = source
        self._data = b""
        self._at = 0
        self._before = 0
        """Offset of `_data` in the file."""
        self._number = 1
        self._messages = 0
        self._is_inside = False
        self._by: Delimiters | None = None

    def segments(self) -> Iterator[Segment]:
        """Yields all segments. Raises `InputError` where the file is not made of segments."""
        self._fill()
        if self._data.startswith(BOM_UTF8):
            self._at = len(BOM_UTF8)
        while self._skip_blanks():
            offset = self._before + self._at
            try:
                raw, by = self._next()
            except HeaderError as error:
                raise InputError(
                    f"{self._path}, segment {self._number:,} at byte {offset:,}: {error}"
                ) from None
            tag = raw[:3] if raw[:3] == b"UNA" else raw.split(by.element, 1)[0]
            yield Segment(
                number=self._number,
                offset=offset,
                message=self._message_of(tag),
                tag=tag,
                raw=raw,
                by=by,
            )
            self._number += 1

    def _message_of(self, tag: bytes) -> int | None:
        if tag in _BEGINS:
            self._messages += 1
            self._is_inside = True
        elif tag in _OUTSIDE:
            self._is_inside = False
        message = self._messages if self._is_inside else None
        if tag in _ENDS:
            self._is_inside = False
        return message

    def _next(self) -> tuple[bytes, Delimiters]:
        self._want(_ISA_BYTES)
        start = self._data[self._at : self._at + _ISA_BYTES]
        own = None if self._by is None else self._by.format
        if start.startswith(b"UNA") and own in (None, FileFormat.EDIFACT):
            self._by = by = of_una(start[:_UNA_BYTES])
            self._at += _UNA_BYTES
            return start[:_UNA_BYTES], by
        if start.startswith(b"ISA") and own in (None, FileFormat.X12):
            self._by = of_isa(start)
        elif start.startswith(b"UNB") and own is None:
            self._by = of_unb(start)
        elif start[:3] in HL7_HEADERS and own in (None, FileFormat.HL7):
            self._by = of_msh(start)
        elif own is None:
            raise HeaderError(
                f"{start[:16]!r} is no header: a file of segments begins with UNA or UNB (EDIFACT), ISA "
                "(X12) or MSH (HL7)"
            )
        assert self._by is not None
        raw = self._until_end(self._by)
        return raw, self._charset_from(raw, self._by)

    def _charset_from(self, raw: bytes, by: Delimiters) -> Delimiters:
        """Takes the charset from a header's segment, and forgets the delimiters after the last."""
        if raw.startswith((b"UNB", b"MSH")):
            self._by = by = with_charset(by, raw)
        elif raw.startswith((b"UNZ", b"IEA")):
            self._by = None
        return by

    def _until_end(self, by: Delimiters) -> bytes:
        while (stop := self._end(by)) < 0:
            if len(self._data) - self._at > MAX_SEGMENT_BYTES:
                break
            if not self._fill():
                if not by.is_hl7:
                    raise HeaderError(
                        f"its end {by.segment!r} is missing: fetch the file again if it is cut off"
                    )
                stop = len(self._data)
                break
        raw = self._data[self._at : stop].rstrip(_FRAMES if by.is_hl7 else b"")
        if stop < 0 or len(raw) > MAX_SEGMENT_BYTES:
            raise HeaderError(
                f"is longer than {MAX_SEGMENT_BYTES >> 20} MiB: look for a missing end {by.segment!r}"
            )
        self._at = min(stop + 1, len(self._data))
        return raw

    def _end(self, by: Delimiters) -> int:
        """Returns the place of the segment's end; -1 if it is not there."""
        if by.is_hl7:
            found = _LINE_END.search(self._data, self._at)
            return -1 if found is None else found.start()
        stop = self._data.find(by.segment, self._at)
        while stop >= 0 and by.release and self._is_released(by.release, stop):
            stop = self._data.find(by.segment, stop + 1)
        return stop

    def _is_released(self, release: bytes, at: int) -> bool:
        first = at
        while first > self._at and self._data[first - 1 : first] == release:
            first -= 1
        return (at - first) % 2 == 1

    def _skip_blanks(self) -> bool:
        """Moves to the next segment. Returns False at the end of the file."""
        while True:
            rest = len(self._data) - self._at
            if rest:
                piece = self._data[self._at : self._at + 256]
                blanks = len(piece) - len(piece.lstrip(_BLANK))
                self._at += blanks
                if blanks < len(piece):
                    return True
            elif not self._fill():
                return False

    def _want(self, size: int) -> None:
        while len(self._data) - self._at < size and self._fill():
            pass

    def _fill(self) -> bool:
        """Reads on, and drops what is done. Returns False at the end of the file."""
        more = self._source.read(_READ_BYTES)
        self._before += self._at
        self._data = self._data[self._at :] + more
        self._at = 0
        return bool(more)


def of_una(start: bytes) -> Delimiters:
    """Returns the delimiters by the beginning of UNA. Raises `HeaderError`."""
    if len(start) != _UNA_BYTES:
        raise HeaderError("UNA needs six characters, as in UNA:+.? '")
    component, element, _decimal, release, repetition, segment = (
        start[n : n + 1] for n in range(3, _UNA_BYTES)
    )
    return _checked(
        Delimiters(
            format=FileFormat.EDIFACT,
            segment=segment,
            element=element,
            component=component,
            repetition=repetition.strip(),
            release=release.strip(),
        )
    )


def of_unb(start: bytes) -> Delimiters:
    """Returns the delimiters by the beginning of UNB. Raises `HeaderError`."""
    by = Delimiters(
        format=FileFormat.EDIFACT, segment=b"'", element=b"+", component=b":", release=b"?"
    )
    if start[3:4] != by.element:
        raise HeaderError("UNB without UNA needs the standard's delimiters: UNB+...'")
    has_repetitions = re.match(rb"UNB\+[^+:']*:4", start)
    return replace(by, repetition=b"*") if has_repetitions else by


def of_isa(start: bytes) -> Delimiters:
    """Returns the delimiters by the beginning of ISA. Raises `HeaderError`."""
    element = start[3:4]
    if len(start) != _ISA_BYTES or any(start[n : n + 1] != element for n in _ISA_SEPARATORS):
        raise HeaderError(
            "ISA has elements of fixed width, 106 bytes with its end, and this one has not"
        )
    repetition = start[82:83] if start[84:89] >= b"00402" and not start[82:83].isalnum() else b""
    return _checked(
        Delimiters(
            format=FileFormat.X12,
            segment=start[105:106],
            element=element,
            component=start[104:105],
            repetition=repetition.strip(),
        )
    )


def of_msh(start: bytes) -> Delimiters:
    """Returns the delimiters by the beginning of MSH, FHS or BHS. Raises `HeaderError`."""
    element = start[3:4]
    marks = (
        re.split(re.escape(element) + rb"|[\r\n]", start[4:12], maxsplit=1)[0] if element else b""
    )
    if not 1 <= len(marks) <= 5:
        raise HeaderError("MSH needs its separators, as in MSH|^~\\&|")
    component, repetition, release = (marks[n : n + 1] for n in range(3))
    return _checked(
        Delimiters(
            format=FileFormat.HL7,
            segment=b"\r",
            element=element,
            component=component,
            repetition=repetition,
            release=release,
        )
    )


def _checked(by: Delimiters) -> Delimiters:
    marks = [
        mark for mark in (by.segment, by.element, by.component, by.repetition, by.release) if mark
    ]
    is_odd = any(mark.isalnum() or mark[0] > 126 or mark in (b"", b" ") for mark in marks)
    if (
        is_odd
        or len(set(marks)) < len(marks)
        or not by.element
        or not by.component
        or not by.segment
    ):
        raise HeaderError(f"its delimiters {b''.join(marks)!r} are not different signs of ASCII")
    return by


def with_charset(by: Delimiters, raw: bytes) -> Delimiters:
    """Returns the delimiters with the charset that UNB or MSH states; UTF-8 for any other."""
    parts = raw.split(by.element)
    place = 17 if by.is_hl7 else 1
    ends = b"[" + re.escape(by.component + by.repetition) + b"]"
    stated = re.split(ends, parts[place])[0].strip() if len(parts) > place else b""
    charset = _CHARSETS.get(stated, "utf-8")
    return replace(by, charset=charset)


def elements_of(segment: Segment) -> Elements:
    """Returns the elements after the tag. Raises `ValueError` for a segment without a sound tag or text."""
    by, raw = segment.by, segment.raw
    if not _TAG.fullmatch(segment.tag):
        raise ValueError(f"{segment.tag[:16]!r} is no tag of two or three letters and digits")
    if segment.tag == b"UNA":
        return Elements([[raw[3:].decode("ascii")]], [])
    if segment.tag == b"ISA":
        return Elements([[e.decode(by.charset)] for e in raw.split(by.element)[1:]], [])
    if segment.tag in HL7_HEADERS:
        marks, *rest = raw[4:].split(by.element)
        more = _elements(rest, by, first=3)
        start = [[by.element.decode()], [marks.decode(by.charset)]]
        return Elements(start + more.elements, more.repeats)
    if not (by.release and by.release in raw) and (not by.repetition or by.repetition not in raw):
        return Elements(_plain(raw.decode(by.charset), by), [])
    return _elements(_split(raw, by.element, by)[1:], by, first=1)


def _plain(text: str, by: Delimiters) -> list[Components]:
    """Returns the elements of a segment without released characters and repetitions."""
    component = by.component.decode()
    parts = text.split(by.element.decode())
    return [part.split(component) if part else [] for part in parts[1:]]


def _elements(parts: list[bytes], by: Delimiters, first: int) -> Elements:
    found = Elements([], [])
    for number, part in enumerate(parts, first):
        if by.repetition and by.repetition in part:
            once, *more = _split(part, by.repetition, by)
            found.repeats.extend((number, _components(again, by)) for again in more)
        else:
            once = part
        found.elements.append(_components(once, by))
    return found


def _components(part: bytes, by: Delimiters) -> Components:
    if not part:
        return []
    return [
        text_of(component.decode(by.charset), by) for component in _split(part, by.component, by)
    ]


def text_of(component: str, by: Delimiters) -> str:
    """Returns the text that a component stands for."""
    mark = by.release.decode()
    if not mark or mark not in component:
        return component
    if not by.is_hl7:
        return by.released.sub(lambda found: found[0][1], component)
    plain = {sequence: by_itself for by_itself, sequence in by.escapes.items()}
    return by.sequence.sub(lambda found: plain.get(found[0], found[0]), component)


def _split(part: bytes, by_mark: bytes, by: Delimiters) -> list[bytes]:
    pieces = part.split(by_mark)
    if by.is_hl7 or not by.release or by.release not in part:
        return pieces
    found = list[bytes]()
    held = list[bytes]()
    for piece in pieces:
        held.append(piece)
        if (len(piece) - len(piece.rstrip(by.release))) % 2 == 0:
            found.append(by_mark.join(held))
            held = []
    return [*found, by_mark.join(held)] if held else found
