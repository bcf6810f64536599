"""Log lines on stderr, for people or as one JSON object each. Only this module knows python-json-logger.

Modules use the standard library's `logging`; `extra` holds the fields of a line. Importing sets up nothing: a
program that uses the package sees its records under the logger `compactor`.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from compactor.common.escaping import indented, one_line
from compactor.common.foreign import shown_traceback

ROOT: Final = "compactor"
LEVELS: Final = ("debug", "info", "warning", "error")

_bound: ContextVar[Mapping[str, Any]] = ContextVar("fields", default={})  # noqa: B039 - never changed


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogSettings(NamedTuple):
    """Format and level of log lines. Picklable, for tasks."""

    format: LogFormat = LogFormat.TEXT
    level: str = "warning"
    """Minimum level; one of `LEVELS`."""


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Sends this package's log lines to `stream` (stderr by default) and nowhere else."""
    logger = logging.getLogger(ROOT)
    for handler in [h for h in logger.handlers if isinstance(h, _Handler)]:
        logger.removeHandler(handler)
    logger.addHandler(_Handler(settings, stream or sys.stderr))
    logger.setLevel(settings.level.upper())
    logger.propagate = False


def take_over_stderr() -> None:
    """Turns Python's own output on stderr into log lines, for the whole process: warnings at level debug, and
    unhandled exceptions of threads and destructors."""
    log = logging.getLogger(f"{ROOT}.python")

    def warned(
        message: Warning | str,  # noqa: ARG001 - a library's own words are not shown
        category: type[Warning],
        filename: str,
        lineno: int,
        *_: Any,
        **__: Any,
    ) -> None:
        fields = {"category": category.__name__, "place": f"{filename}:{lineno}"}
        log.debug("python warns", extra=fields)

    def raised(arguments: Any) -> None:
        if arguments.exc_value is not None:
            log.error("an error that nothing handled", exc_info=arguments.exc_value)

    warnings.showwarning = warned
    threading.excepthook = raised
    sys.unraisablehook = raised


def settings() -> LogSettings | None:
    """Returns the settings passed to the last `set_up`; None before the first."""
    handlers = logging.getLogger(ROOT).handlers
    return next((h.settings for h in handlers if isinstance(h, _Handler)), None)


def is_json() -> bool:
    """Returns whether log lines are JSON."""
    now = settings()
    return now is not None and now.format is LogFormat.JSON


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Adds fields to the lines that this thread logs in the block."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def utc_time(unix_seconds: float) -> str:
    """Returns a time as ISO 8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(unix_seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Handler(logging.StreamHandler[TextIO]):
    def __init__(self, settings: LogSettings, stream: TextIO) -> None:
        super().__init__(stream)
        self.settings = settings
        is_text = settings.format is LogFormat.TEXT
        self.setFormatter(_TextFormatter() if is_text else _JsonFormatter(json_ensure_ascii=False))
        self.addFilter(_add_bound)


def _add_bound(record: logging.LogRecord) -> bool:
    for name, value in _bound.get().items():
        if name not in record.__dict__:
            setattr(record, name, value)
    return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields of a record, without private ones: Ray adds one to those of all libraries."""
    return {
        name: value
        for name, value in record.__dict__.items()
        if name not in RESERVED_ATTRS and not name.startswith("_") and value is not None
    }


class _TextFormatter(logging.Formatter):
    """Formats lines like the command line's messages: `compactor: warning: ...`."""

    def format(self, record: logging.LogRecord) -> str:
        said = [f"compactor: {record.levelname.lower()}: {record.getMessage()}"]
        said += [f"{name}={value}" for name, value in _fields(record).items()]
        line = one_line(" ".join(said))
        if not record.exc_info:
            return line
        return f"{line}\n{indented(self.formatException(record.exc_info))}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return shown_traceback(ei[1])


class _JsonFormatter(JsonFormatter):
    """Formats lines as JSON: `time`, `level`, `event`, then the fields, and `logger` last."""

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        log_data |= {
            "time": utc_time(record.created),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
            **message_dict,
            "logger": record.name,
        }

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return shown_traceback(ei[1])
