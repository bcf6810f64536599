"""Says of an error what may be said.

A server or a library may repeat a secret in any form, so of its error only these fields are shown: its class,
the operating system's reason, and the reason of a failed TLS handshake. Texts are shown of errors that this
project or PyArrow raised.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

_OWN: Final = ("compactor", "lsm_fragment", "pyarrow")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
_TLS_REASON: Final = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+)+")


def shown(error: BaseException) -> str:
    """Returns the class of an error, and its text or the system's reason if that may be shown."""
    if is_own(error) and str(error):
        return f"{type(error).__name__}: {error}"
    return kind_of(error)


def is_own(error: BaseException) -> bool:
    """Returns whether this project or PyArrow worded the error, by its class or the code that raised it."""
    if _room(type(error).__module__) in _OWN:
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and _room(_module(last)) in _OWN


def kind_of(error: BaseException) -> str:
    """Returns the class of a library's error, and the system's reason if it has one."""
    reason = next((r for each in _chain(error) if (r := _reason(each))), "")
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def shown_traceback(error: BaseException) -> str:
    """Returns files, lines and functions of an error and of those that caused it, without foreign texts."""
    parts = []
    for each in _caused(error):
        frames = "".join(traceback.format_tb(each.__traceback__))
        parts.append(f"Traceback (most recent call last):\n{frames}{shown(each)}\n")
    return "\n".join(reversed(parts))


def shown_path(path: object) -> str:
    """Returns a path; of an address, which may hold a password, only its scheme."""
    address = _ADDRESS.match(str(path))
    return f"{address[0]}..." if address else str(path)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or ""
        return reason if _TLS_REASON.fullmatch(reason) else ""
    if isinstance(error, socket.gaierror):
        return error.strerror or ""
    # The system's text for the number: a library may have put its own words into the error.
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and those within it, as botocore and urllib3 wrap them; each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        wrapped = (
            *each.args,
            getattr(each, "kwargs", {}).get("error"),
            getattr(each, "reason", None),
        )
        inner = (*wrapped, each.__cause__, each.__context__)
        waiting += [found for found in inner if isinstance(found, BaseException)]


def _caused(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    seen = set[int]()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _module(frame: TracebackType) -> str:
    return str(frame.tb_frame.f_globals.get("__name__", ""))


def _room(module: str) -> str:
    return module.partition(".")[0]
