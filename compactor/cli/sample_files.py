"""Holds the files with which README and tutorials begin."""

from __future__ import annotations

from typing import Final

_MONDAY: Final = """\
{"service": "web", "time": "2026-01-05T10:00:07Z", "level": "INFO",  "message": "GET /"}
{"service": "api", "time": "2026-01-05T10:00:02Z", "level": "ERROR", "message": "POST /orders timed out"}
{"service": "web", "time": "2026-01-05T10:00:01Z", "level": "INFO",  "message": "GET /orders"}
{"service": "api", "time": "2026-01-05T10:00:05Z", "level": "INFO",  "message": "POST /orders"}
"""
_TUESDAY: Final = """\
{"service": "web", "time": "2026-01-06T09:30:00Z", "level": "INFO",  "message": "GET /login",  "user": 4711}
{"service": "api", "time": "2026-01-06T09:30:01Z", "level": "INFO",  "message": "POST /login", "user": 4711}
{"service": "api", "time": "2026-01-06T09:30:09Z", "level": "ERROR", "message": "token expired", "user": 12}
"""
_ACCESS: Final = """\
203.0.113.7 [2026-02-03T09:00:01Z] "GET /cart" 200 12
198.51.100.4 [2026-02-03T09:00:02Z] "POST /orders" 500 4031
java.lang.IllegalStateException: no stock
    at shop.Orders.place(Orders.java:71)
203.0.113.7 [2026-02-03T09:00:04Z] "GET /cart/7" 404 3
192.0.2.55 [2026-02-03T09:00:05Z] "GET /health" 200 1
198.51.100.4 [2026-02-03T09:00:09Z] "POST /orders" 200 87
"""
_CLIENTS: Final = """\
address;client;plan
203.0.113.7;Rossi;free
198.51.100.4;"Meyer; Sons";paid
"""
_DAYS: Final = (1, 2, 3, 4)
_ROWS_A_DAY: Final = 1000


def sample_files() -> dict[str, str]:
    """Returns the text of each file by its name."""
    days = {f"day{day}.ndjson": _requests_of(day) for day in _DAYS}
    return {
        "access.log": _ACCESS,
        "clients.csv": _CLIENTS,
        **days,
        "monday.ndjson": _MONDAY,
        "tuesday.ndjson": _TUESDAY,
    }


def _requests_of(day: int) -> str:
    return "".join(
        f'{{"host": "web-{n % 7}", "time": "2026-01-0{day}T10:{n % 60:02}:00Z", '
        f'"status": {200 + n % 2 * 300}}}\n'
        for n in range(_ROWS_A_DAY)
    )
