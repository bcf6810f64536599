"""How a text file differs from UTF-8 with commas, quotes and a header."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import ClassVar, Final

UTF_8: Final = "utf-8"
NO_MARK: Final = -1
_NO_TEXTS: Final = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
"""Python's codecs that no file is written in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """Options of a text file. All but the encoding are for CSV."""

    delimiter: str = ","
    quote: str = '"'
    """Empty if quotes are characters like any other."""
    decimal: str = "."
    header: bool = True
    names: tuple[str, ...] = ()
    """The columns, in order, of a file without a header. By default they are c1, c2 ..."""
    comment: str = ""
    """What begins a line that is skipped."""
    encoding: str = UTF_8
    can_be_set: ClassVar[bool] = True
    """Whether errors may advise to set them."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for options that cannot be."""
        _check_mark("delimiter", self.delimiter)
        for name, mark in (("quote", self.quote), ("comment", self.comment)):
            if mark:
                _check_mark(name, mark)
        marks = [mark for mark in (self.delimiter, self.quote, self.comment) if mark]
        if len({*marks}) < len(marks):
            raise ValueError("delimiter, quote and comment differ from each other")
        if self.decimal not in (".", ","):
            raise ValueError("decimal is '.' or ','")
        if self.names and self.header:
            raise ValueError("names are for a file without a header")
        object.__setattr__(self, "encoding", _codec(self.encoding))

    @property
    def marks(self) -> tuple[int, int, int]:
        """Delimiter, quote and comment as bytes; `NO_MARK` where there is none."""
        quote, comment = (ord(mark) if mark else NO_MARK for mark in (self.quote, self.comment))
        return ord(self.delimiter), quote, comment


def _check_mark(name: str, mark: str) -> None:
    if len(mark) != 1 or not mark.isascii() or mark in "\r\n\0" or mark.isalnum() or mark in "+-.":
        raise ValueError(
            f"{name} is one character of ASCII that is no part of a number or word, not {mark!r}"
        )


def _codec(name: str) -> str:
    """Returns Python's name of an encoding of files."""
    try:
        codec = codecs.lookup(name).name
        is_text = codec not in _NO_TEXTS and "a".encode(name) != b""
    except (LookupError, ValueError):
        is_text = False
    if not is_text:
        raise ValueError(
            f"no encoding {name!r}; common ones are utf-8, utf-16, latin-1, cp1252, shift_jis, gb18030"
        )
    return UTF_8 if codec == "utf-8-sig" else codec


PLAIN: Final = TextOptions()
"""UTF-8; CSV with commas, quotes and a header."""


class PlainTextOnly(TextOptions):
    """Plain text, where the user has no settings for other texts."""

    __slots__ = ()
    can_be_set = False
