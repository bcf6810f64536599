r"""Finds known secrets in a text, however a library or a server has encoded them.

Text and secret are brought to one plain form without percent-encoding, escapes of JSON, Python and XML, line
ends and blanks, and with the two alphabets of base64 made one. There a secret is a substring of the text
however often it was encoded; each byte of the plain form knows the range of the text that it came from.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

_PASSED_OVER: Final = re.compile(
    # Line ends and indentation. `+` is a blank in addresses, and `-` stands for `+` in base64.
    rb"(?:[\s+-]|\\{1,16}[nrtf])+"
)
_FORMS: Final = re.compile(
    rb"%(?:25)*([0-9A-Fa-f]{2})"
    rb"|\\+u([Dd][89ABab][0-9A-Fa-f]{2})\\+u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    rb"|\\+u([0-9A-Fa-f]{4})"
    rb"|\\+x([0-9A-Fa-f]{2})"
    rb"|\\+([b\"'/])"
    rb"|\\+"  # Which escape a backslash belongs to is ambiguous, so all are removed from both.
    rb"|&(?:amp;)*(amp|lt|gt|quot|apos|#0*3[49]|#[xX]0*2[27]);"
)
_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_MAX_ROUNDS: Final = 8
"""Limit of nested encodings, such as JSON within JSON."""
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/"
"""Alphabet of base64 in the plain form."""
_MIN_LENGTH: Final = 6
"""Secrets with a shorter plain form, which ordinary text may contain, are searched for as written."""


def places(text: bytes, secrets: Iterable[bytes]) -> list[tuple[int, int]]:
    """Returns the places of secrets in the text, as disjoint ranges of bytes in order."""
    needles = _needles(tuple(secrets))
    found = [(at, at + len(raw)) for raw in needles.raw for at in _occurrences(text, raw)]
    if needles.plain:
        read = _plain(text)
        for needle, is_base64 in needles.plain:
            found += (
                _place(read, at, at + len(needle), is_base64=is_base64)
                for at in _occurrences(read.text, needle)
            )
    return _united(found)


class _Read(NamedTuple):
    """A plain form, with begin and end of the original text for each of its bytes."""

    text: bytes
    begins: list[int]
    ends: list[int]


class _Needles:
    """The secrets to find: `raw` in the text itself, `plain` in its plain form, with whether each is
    base64."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self.raw: list[bytes] = []
        self.plain: list[tuple[bytes, bool]] = []
        for secret in secrets:
            plain = _plain(secret).text
            if len(plain) < _MIN_LENGTH:
                self.raw.append(secret)
                continue
            self.plain.append((plain, False))
            for core in _base64_cores(secret):
                self.plain.append((_plain(core).text, True))


@lru_cache(maxsize=4)
def _needles(secrets: tuple[bytes, ...]) -> _Needles:
    return _Needles(secrets)


def _base64_cores(secret: bytes) -> Iterator[bytes]:
    """Yields the base64 characters that depend on the secret alone, for each alignment."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret)
        yield encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]


def _plain(text: bytes) -> _Read:
    read = _Read(text, list(range(len(text))), list(range(1, len(text) + 1)))
    for _ in range(_MAX_ROUNDS):
        # This comes first, since a line end may break an escape.
        before = read = _replaced(read, _PASSED_OVER, lambda _: b"")
        read = _replaced(read, _FORMS, _meaning)
        if read is before:
            break
    return read._replace(text=read.text.replace(b"_", b"/"))


def _replaced(
    read: _Read, pattern: re.Pattern[bytes], meaning_of: Callable[[re.Match[bytes]], bytes]
) -> _Read:
    pieces: list[bytes] = []
    begins: list[int] = []
    ends: list[int] = []
    done = 0
    for match in pattern.finditer(read.text):
        start, end = match.span()
        meaning = meaning_of(match)
        pieces += (read.text[done:start], meaning)
        begins += read.begins[done:start]
        ends += read.ends[done:start]
        begins += [read.begins[start]] * len(meaning)
        ends += [read.ends[end - 1]] * len(meaning)
        done = end
    if not pieces:
        return read
    rest = read.text[done:]
    return _Read(b"".join((*pieces, rest)), begins + read.begins[done:], ends + read.ends[done:])


def _meaning(match: re.Match[bytes]) -> bytes:
    percent, high, low, unit, byte, escaped, entity = match.groups()
    if percent or byte:
        return bytes.fromhex((percent or byte).decode())
    if high:
        pair = bytes.fromhex((high + low).decode())
        return pair.decode("utf-16-be").encode()
    if unit:
        return chr(int(unit, 16)).encode("utf-8", "surrogatepass")
    if entity:
        is_double = entity.endswith((b"4", b"22"))
        return _ENTITIES.get(entity) or (b'"' if is_double else b"'")
    if escaped:
        return b"\b" if escaped == b"b" else bytes(escaped)
    return b""


def _occurrences(text: bytes, needle: bytes) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _place(read: _Read, first: int, end: int, *, is_base64: bool) -> tuple[int, int]:
    if is_base64:
        # The adjacent characters also hold bits of the secret.
        if first and read.text[first - 1] in _BASE64 and read.ends[first - 1] == read.begins[first]:
            first -= 1
        if (
            end < len(read.text)
            and read.text[end] in _BASE64
            # After a line end it may be an ordinary word, unless padding follows.
            and (read.begins[end] == read.ends[end - 1] or read.text[end + 1 : end + 2] == b"=")
        ):
            end += 1
    return read.begins[first], read.ends[end - 1]


def _united(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    united: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if united and begin < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((begin, end))
    return united
