"""Generates log rows that favour no encoding: real lines, with random numbers beside them.

Lines come from a folder of `.log` files, one kind of log each, such as the samples of
https://github.com/logpai/loghub. Permuting the digits of each line gives new ids and addresses. The other
columns are random 64-bit ids, log-normal durations, uniform doubles, and skewed users, a tenth of them null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_START_US: Final = 1_790_000_000_000_000
_MINUTE_US: Final = 60_000_000
_STATUS: Final = ("ok", "ok", "ok", "ok", "warn", "error", "info", "debug")
_HOSTS: Final = 200
_USERS: Final = 100_000
_PERMUTATIONS: Final = 5_000
_NULL_USERS: Final = 0.1


def read_lines(folder: Path) -> dict[str, list[str]]:
    """Returns the lines of each `.log` file by service name. Raises ValueError without lines."""
    logs = sorted(folder.glob("*.log"))
    lines = {
        log.stem.split("_")[0].lower(): log.read_text(errors="replace").splitlines() for log in logs
    }
    if not lines or not all(lines.values()):
        raise ValueError(f"--lines {folder}: there must be .log files with lines in them")
    return lines


def real_log_rows(
    logs: Mapping[str, list[str]], rows: int, inputs: int, *, has_disjoint_times: bool, seed: int
) -> Iterator[pa.Table]:
    """Yields tables of the columns below, unsorted, `rows` rows in all.

    has_disjoint_times: each table covers its own minute; else all cover the same period.
    """
    rng = np.random.default_rng(seed)
    digits = [
        str.maketrans("0123456789", "".join(map(str, rng.permutation(10))))
        for _ in range(_PERMUTATIONS)
    ]
    for number in range(inputs):
        count = rows * (number + 1) // inputs - rows * number // inputs
        first = number * _MINUTE_US if has_disjoint_times else 0
        span = _MINUTE_US if has_disjoint_times else _MINUTE_US * inputs
        times = _START_US + first + rng.integers(0, span, count)
        yield _table(rng, logs, digits, times)


def _table(
    rng: np.random.Generator,
    logs: Mapping[str, list[str]],
    digits: list[dict[int, int]],
    times: npt.NDArray[np.int64],
) -> pa.Table:
    services, lines, rows = list(logs), list(logs.values()), len(times)
    service = rng.integers(0, len(services), rows)
    host = rng.zipf(1.3, rows) % _HOSTS
    line, permutation = rng.integers(0, 1 << 30, rows), rng.integers(0, len(digits), rows)
    user = rng.zipf(1.2, rows) % _USERS
    has_user = rng.random(rows) >= _NULL_USERS
    picked = list(zip(service.tolist(), line.tolist(), permutation.tolist(), strict=True))
    hosts = zip(service.tolist(), host.tolist(), strict=True)
    users = zip(user.tolist(), has_user.tolist(), strict=True)
    return pa.table({
        "service": pa.array([services[s] for s in service.tolist()]),
        "host": pa.array([f"{services[s]}-host-{h:04d}.prod.example" for s, h in hosts]),
        "timestamp": pa.array(times, pa.timestamp("us")),
        "status": pa.array([_STATUS[n] for n in rng.integers(0, len(_STATUS), rows).tolist()]),
        "trace_id": pa.array(rng.integers(0, 2**63 - 1, rows)),
        "duration_ns": pa.array(rng.lognormal(14, 2, rows).astype(np.int64)),
        "bytes": pa.array(rng.integers(0, 65_536, rows).astype(np.int32)),
        "score": pa.array(rng.random(rows)),
        "user_id": pa.array([f"user-{u}" if known else None for u, known in users]),
        "message": pa.array([lines[s][n % len(lines[s])].translate(digits[p]) for s, n, p in picked]),
    })  # fmt: skip
