"""Generates rows other than logs: taxi trips, web requests, accounts, metric samples.

They differ in what dominates: many narrow numbers, long addresses and lists, unique keys and noise, a few
repeating values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

_START_SECONDS: Final = 1_700_000_000
_DAY_SECONDS: Final = 86_400
_PARTS: Final = ("list", "view", "edit", "img", "cart", "new", "all")
_AREAS: Final = ("api", "static", "v2", "shop", "item", "user", "search")
_LOREM: Final = "lorem ipsum dolor sit amet consectetur " * 3


def made_in_parts(
    make: Callable[[np.random.Generator, int], pa.Table], seed: int, rows: int, inputs: int
) -> Iterator[pa.Table]:
    """Yields `rows` rows in all, each in a randomly drawn input."""
    rng = np.random.default_rng(seed)
    table = make(rng, rows)
    part = rng.integers(0, inputs, rows)
    for number in range(inputs):
        yield table.filter(pa.array(part == number))


def trips(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns trips: times, prices, places and codes, numbers but for one column."""
    start = (_START_SECONDS + rng.integers(0, 30 * _DAY_SECONDS, rows)) * 1_000_000
    distance = np.round(rng.gamma(2, 2, rows), 2)
    seconds = (distance * rng.normal(240, 60, rows).clip(60, 900)).astype(np.int64)
    fare = np.round(3 + distance * 2.5 + seconds / 60 * 0.35, 2)
    tip = np.round(fare * rng.choice([0, 0.1, 0.15, 0.2, 0.25], rows), 2)
    tolls = rng.choice([0, 0, 0, 0, 6.55], rows)
    return pa.table(
        {
            "pickup": pa.array(start, pa.timestamp("us")),
            "dropoff": pa.array(start + seconds * 1_000_000, pa.timestamp("us")),
            "vendor": rng.integers(1, 3, rows),
            "passengers": np.where(rng.random(rows) < 0.03, np.nan, rng.integers(1, 6, rows)),
            "distance": distance,
            "from": rng.integers(1, 264, rows),
            "to": rng.integers(1, 264, rows),
            "payment": rng.integers(1, 5, rows),
            "fare": fare,
            "tip": tip,
            "tolls": tolls,
            "total": np.round(fare + tip + tolls, 2),
            "flag": np.where(rng.random(rows) < 0.99, "N", "Y"),
        }
    )


def requests(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns requests: addresses, agents, sessions, sizes, lists of tags; one column is mostly null."""
    time = _START_SECONDS * 1000 + rng.integers(0, _DAY_SECONDS * 1000, rows)
    paths = np.array([f"/{area}/{part}" for area in _AREAS for part in _PARTS])
    path = paths[rng.zipf(1.3, rows) % len(paths)]
    numbers = rng.integers(0, 10**9, rows)
    urls = [
        f"https://www.example-{row % 37}.com{p}?id={number}&ref=c{number % 977}"
        for row, (p, number) in enumerate(zip(path, numbers, strict=True))
    ]
    agents = np.array(
        [f"Mozilla/5.0 (X{n % 7}; rv:{n % 90}.0) Gecko/{20100101 + n}" for n in range(5000)]
    )
    hosts = rng.integers(0, 1 << 32, 200_000)[rng.integers(0, 200_000, rows)]
    sessions = np.array([rng.bytes(16).hex() for _ in range(rows // 10 + 1)])
    has_referer = rng.random(rows) >= 0.6
    return pa.table(
        {
            "time": pa.array(time, pa.timestamp("ms")),
            "url": urls,
            "agent": agents[rng.zipf(1.2, rows) % len(agents)],
            "ip": [f"{n >> 24}.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in hosts],
            "session": sessions[rng.integers(0, len(sessions), rows)],
            "bytes": rng.lognormal(8, 2, rows).astype(np.int64),
            "status": rng.choice([200, 200, 200, 301, 404, 500], rows).astype(np.int16),
            "referer": pa.array(urls[::-1], mask=~has_referer),
            "tags": [["a", "bb", "ccc"][:count] for count in rng.integers(0, 4, rows)],
            "latency": rng.exponential(0.1, rows),
            "is_ok": rng.random(rows) < 0.9,
        }
    )


def accounts(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns accounts: unique keys, incompressible noise, names and notes."""
    return pa.table(
        {
            "id": [rng.bytes(16).hex() for _ in range(rows)],
            "secret": rng.integers(0, 1 << 62, rows),
            "x": rng.normal(size=rows),
            "y": rng.normal(size=rows).astype(np.float32),
            "number": rng.integers(0, 10**9, rows),
            "name": [f"customer {n:09d}" for n in rng.integers(0, 10**9, rows)],
            "note": [_LOREM[n % 60 : n % 60 + n % 40] for n in rng.integers(0, 10**6, rows)],
        }
    )


def samples(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns samples: few names, rounded values, a counter."""
    seconds = _START_SECONDS + rng.integers(0, 3600, rows)
    return pa.table(
        {
            "metric": [f"system.cpu.metric_{n}" for n in rng.integers(0, 50, rows)],
            "host": [f"i-{n:08x}" for n in rng.integers(0, 2000, rows)],
            "time": pa.array(seconds * 1_000_000_000, pa.timestamp("ns")),
            "value": np.round(rng.normal(50, 20, rows), 3),
            "sum": np.cumsum(rng.integers(0, 100, rows)),
            "count": rng.poisson(3, rows),
            "tags": [f"env:prod,zone:{n}" for n in rng.integers(0, 9, rows)],
        }
    )
