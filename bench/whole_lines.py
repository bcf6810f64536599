"""Generates whole lines of web servers, services that log JSON and logfmt, and databases.

Their words vary: paths, names, levels and components besides messages.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa

_START_SECONDS: Final = 1_700_000_000
_DAY_SECONDS: Final = 86_400
_LETTERS: Final = np.array(list("eeeeaaaiiooouuttttnnnnssssrrrllddcmpgbfhvkwy"))
_LEVELS: Final = ("info", "info", "info", "warn", "error", "debug")
_COMPONENTS: Final = ("http", "store", "queue", "cache", "auth", "billing")
_METHODS: Final = ("GET", "GET", "GET", "POST")
_SYSTEMS: Final = (
    "Windows NT 10.0; Win64; x64",
    "X11; Linux x86_64",
    "iPhone; CPU iPhone OS 17_2 like Mac OS X",
)


def lines(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns lines of 24 sources, six per format."""
    words = ["".join(rng.choice(_LETTERS, size)) for size in rng.integers(3, 10, 3000)]
    made = (_access_line, _json_line, _logfmt_line, _sql_line)
    kinds = rng.integers(0, 24, rows)
    seconds = _START_SECONDS + np.sort(rng.integers(0, _DAY_SECONDS, rows))
    drawn = zip(
        kinds.tolist(),
        seconds.astype("M8[s]").tolist(),
        rng.integers(0, 10**9, (rows, 4)).tolist(),
        (np.minimum(rng.zipf(1.25, (rows, 3)), 3000) - 1).tolist(),
        strict=True,
    )
    found = [
        made[kind % 4](time, numbers, [words[place] for place in places], words)
        for kind, time, numbers, places in drawn
    ]
    return pa.table(
        {
            "source": [f"{made[kind % 4].__name__[1:-5]}-{kind:02d}" for kind in kinds],
            "time": pa.array(seconds, pa.timestamp("s")),
            "line": found,
            "offset": np.cumsum([len(line) + 1 for line in found]),
            "shard": rng.integers(0, 64, rows),
        }
    )


def _access_line(time: datetime, n: list[int], chosen: list[str], words: list[str]) -> str:
    ip = ".".join(str(n[0] >> shift & 255) for shift in (22, 14, 7, 0))
    path = f"/{chosen[0]}/{chosen[1]}" + (
        f"/{n[1]}" if n[1] % 3 else f"?q={chosen[2]}&page={n[1] % 40}"
    )
    referer = "-" if n[2] % 3 else f"https://www.example.com/{words[n[2] % 700]}"
    browser = f"Chrome/{90 + n[3] % 40}.0.0.0" if n[3] % 4 else f"Firefox/{90 + n[3] % 35}.0"
    return (
        f'{ip} - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "{_METHODS[n[3] % 4]} {path} HTTP/1.1" '
        f'{(200, 200, 304, 404, 500)[n[1] % 5]} {n[2] % 90_000} "{referer}" '
        f'"Mozilla/5.0 ({_SYSTEMS[n[2] % 3]}) {browser}" {n[0] % 2000 / 1000:.3f}'
    )


def _message(kind: int, n: list[int], chosen: list[str], words: list[str]) -> str:
    """Returns one message of the kind, in most cases with numbers, ids, names or paths."""
    fixed = [words[kind * step % 3000] for step in range(2, 5 + kind % 7)]
    fixed.insert(
        kind % len(fixed),
        (
            f"{n[0] % 5000} ms",
            f"id={n[0]:08x}",
            f"user {chosen[2]}",
            f"/{chosen[1]}/{n[0] % 900}.log",
            "done",
        )[kind % 5],
    )
    return " ".join(fixed)


def _json_line(time: datetime, n: list[int], chosen: list[str], words: list[str]) -> str:
    kind = min(n[3] % 300, n[2] % 300)
    return (
        f'{{"@timestamp":"{time.isoformat()}.{n[0] % 1000:03d}Z","level":"{_LEVELS[n[1] % 6].upper()}",'
        f'"logger":"com.example.{words[kind]}.{words[kind * 3].title()}","thread":"exec-{n[1] % 64}",'
        f'"message":"{_message(kind, n, chosen, words)}","trace_id":"{n[0]:08x}{n[1]:08x}{n[2]:08x}"}}'
    )


def _logfmt_line(time: datetime, n: list[int], chosen: list[str], words: list[str]) -> str:
    kind = min(n[3] % 200, n[2] % 200)
    return (
        f"ts={time.isoformat()}.{n[0] % 10**6:06d}Z level={_LEVELS[n[1] % 6]} "
        f"component={_COMPONENTS[n[2] % 6]} "
        f'caller={words[kind]}.go:{kind * 7} tenant={chosen[0]} msg="{_message(kind, n, chosen, words)}" '
        f"duration={n[1] / 1e8:.6f}s"
    )


def _sql_line(time: datetime, n: list[int], chosen: list[str], words: list[str]) -> str:
    kind = min(n[3] % 250, n[2] % 250)
    table, column = words[kind], words[kind * 5]
    statement = (
        f"SELECT {', '.join(words[kind * step % 3000] for step in range(2, 4 + kind % 6))} FROM {table} "
        f"WHERE {column} = '{chosen[0]}' AND id > {n[0]} ORDER BY id LIMIT {n[1] % 100}"
        if kind % 3
        else f"UPDATE {table} SET {column} = '{chosen[1]}', updated_at = now() WHERE id = {n[0]}"
    )
    return (
        f"{time}.{n[0] % 1000:03d} UTC [{n[1] % 60_000}] app@{words[kind % 7]} LOG:  duration: "
        f"{n[2] / 1e7:.3f} ms  statement: {statement}"
    )
