"""Parses XML to the elements of each row, by expat. Hostile files are refused: those with a DTD, which could
define entities or name other files, and those that nest too deeply or have rows without bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from xml.parsers import expat

from compactor.errors import InputError
from compactor.files.byte_source import Readable
from compactor.files.problems import one_line
from lsm_fragment.arrays.types import MAX_NESTING

MAX_ROW_CHARACTERS: Final = 16 << 20
MAX_ROW_VALUES: Final = 1 << 18
MAX_TOKEN_BYTES: Final = 4 << 20
_READ_BYTES: Final = 64 << 10
_BLOCK_ROWS: Final = 1024
_MAX_NAMES: Final = 1 << 16
"""Let expat remember some names between reads, and forget them where they are without bounds."""
_NAMED: Final = "column"
"""The element that our writer uses for names that XML does not take."""


_NONE: Final[Mapping[str, list[Element]]] = {}


class Element:
    """An element of a row; attributes are children without children.

    Most have one text and no children, and then no lists or dictionaries, which the garbage collector would
    visit.
    """

    __slots__ = ("_children", "_more", "_text")

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._more: list[str] | None = None
        self._children: dict[str, list[Element]] | None = None

    @property
    def text(self) -> str:
        return self._text if self._more is None else "".join([self._text, *self._more])

    @property
    def children(self) -> Mapping[str, list[Element]]:
        return self._children or _NONE

    def add(self, name: str, child: Element) -> None:
        if self._children is None:
            self._children = {}
        self._children.setdefault(name, []).append(child)

    def extend(self, text: str) -> None:
        if not self._text:
            self._text = text
        elif self._more is None:
            self._more = [text]
        else:
            self._more.append(text)


class XmlRow(NamedTuple):
    ordinal: int
    """From 0."""
    line: int
    element: Element


class XmlRows:
    """Parses one file."""

    def __init__(self, path: str, source: Readable, row: tuple[str, ...]) -> None:
        """row: names of the row's element and those around it; empty for the outermost's children."""
        self._path = path
        self._source = source
        self._row = row
        self._around: list[str] = []
        """Names of the open elements that are in no row."""
        self._open: list[Element] = []
        """Open elements of a row."""
        self._names: list[str] = []
        """Names of the open elements of a row."""
        self._has_place = False
        self.may_have_no_rows = True
        """Whether the elements around rows were there, or nothing but the outermost element."""
        self._done: list[XmlRow] = []
        self._rows = self._line = self._characters = self._values = 0
        self._heard = False
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse_dtd
        for name in ("CommentHandler", "ProcessingInstructionHandler"):
            setattr(parser, name, self._skip)

    def blocks(self) -> Iterator[list[XmlRow]]:
        """Yields rows. Raises `InputError` with the line for anything that is not sound XML."""
        silent = 0
        while data := self._source.read(_READ_BYTES):
            self._heard = False
            self._parse(data, is_last=False)
            if len(self._parser.intern) > _MAX_NAMES:
                self._parser.intern.clear()
            silent = 0 if self._heard else silent + len(data)
            if silent > MAX_TOKEN_BYTES:
                raise self._error(f"a tag or comment is longer than {MAX_TOKEN_BYTES >> 20} MiB")
            done, self._done = self._done, []
            for start in range(0, len(done), _BLOCK_ROWS):
                yield done[start : start + _BLOCK_ROWS]
        self._parse(b"", is_last=True)

    def _parse(self, data: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            cause = expat.ErrorString(error.code)
            raise InputError(
                f"{self._path}, line {error.lineno:,}: is not sound XML: {cause}: correct it, or fetch the "
                "file again"
            ) from None
        except (LookupError, ValueError) as error:  # of the encoding that it states
            raise self._error(f"its encoding is not understood: {one_line(error)}") from None

    def _error(self, cause: str) -> InputError:
        return InputError(f"{self._path}, line {self._parser.CurrentLineNumber:,}: {cause}")

    def _refuse_dtd(self, *_declaration: object) -> None:
        raise self._error(
            "has a document type declaration (DTD), which may define entities and name other files: take it "
            "out"
        )

    def _skip(self, *_content: object) -> None:
        self._heard = True

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._heard = True
        if len(self._around) + len(self._open) >= MAX_NESTING:
            raise self._error(f"elements are nested more than {MAX_NESTING} levels deep")
        if not self._open:
            if not self._is_row(name):
                self._around.append(name)
                self._note_around()
                return
            self._line = self._parser.CurrentLineNumber
            self._characters = self._values = 0
        element = Element()
        if attributes:
            name = self._named(name, attributes, element)
        self._count(len(name), 1)
        self._open.append(element)
        self._names.append(name)

    def _named(self, name: str, attributes: dict[str, str], element: Element) -> str:
        """Adds the attributes to an element, and returns its name."""
        if name == _NAMED and set(attributes) == {"name"}:
            return attributes["name"]
        for key, value in attributes.items():
            if key != "xmlns" and not key.startswith("xmlns:"):
                element.add(key, Element(value))
                self._count(len(key) + len(value), 1)
        return name

    def _note_around(self) -> None:
        around = self._row[:-1]
        if around and tuple(self._around[-len(around) :]) == around:
            self._has_place = True
        self.may_have_no_rows = self._has_place or (
            self.may_have_no_rows and len(self._around) == 1
        )

    def _is_row(self, name: str) -> bool:
        if not self._row:
            return len(self._around) == 1
        path = (*self._around, name)
        return path[-len(self._row) :] == self._row

    def _end(self, _name: str) -> None:
        self._heard = True
        if not self._open:
            self._around.pop()
            return
        element, name = self._open.pop(), self._names.pop()
        if self._open:
            self._open[-1].add(name, element)
            return
        self._done.append(XmlRow(self._rows, self._line, element))
        self._rows += 1

    def _text(self, text: str) -> None:
        self._heard = True
        if self._open:
            self._count(len(text), 0)
            self._open[-1].extend(text)

    def _count(self, characters: int, values: int) -> None:
        self._characters += characters
        self._values += values
        if self._characters > MAX_ROW_CHARACTERS:
            raise self._error(
                f"a row is longer than {MAX_ROW_CHARACTERS >> 20} MiB: name an inner element"
            )
        if self._values > MAX_ROW_VALUES:
            raise self._error(
                f"a row has more than {MAX_ROW_VALUES:,} elements: name an inner element"
            )
