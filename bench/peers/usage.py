"""Reads CPU time and peak memory of this process and its descendants from /proc."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def cpu_seconds() -> float:
    """Returns user and system seconds of this process and its descendants, running or ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return own + sum(_cpu_of(pid) for pid in _descendants())


def forget_peak() -> None:
    """Resets the peak, to exclude the memory for starting."""
    for pid in (os.getpid(), *_descendants()):
        with contextlib.suppress(OSError):
            (_PROC / str(pid) / "clear_refs").write_text("5")


def peak_rss_bytes() -> int:
    """Returns the peak of the largest process among this one and its descendants; for Spark that is the
    JVM."""
    return max(_peak_of(pid) for pid in (os.getpid(), *_descendants()))


def _descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, ahead = [], [os.getpid()]
    while ahead:
        children = parents.get(ahead.pop(), [])
        found += children
        ahead += children
    return found


def _stat(pid: int) -> list[str]:
    """Returns the fields from the third, the state, on; none if the process has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_of(pid: int) -> float:
    """Returns utime, stime and those of ended children: fields 14 to 17."""
    return sum(map(int, _stat(pid)[11:15])) / _TICKS


def _peak_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
