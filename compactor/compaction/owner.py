"""Names the process that owns a lease, so that others on its machine can see whether it has ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from compactor.common.process import process_name

_PROC: Final = Path("/proc")


def this_owner() -> str:
    """Returns `host:pid:start:place` of this process.

    place: the boot and the namespaces in which the process id and its start time are valid, so that machines
    and containers of one name differ. Empty where the kernel does not tell.
    """
    return ":".join([process_name(), _started(os.getpid()) or "", _place()])


def shown_owner(owner: str) -> str:
    """Returns the part of an owner that users want to read: `host:pid`."""
    return ":".join(owner.split(":")[:2])


def is_gone(owner: str) -> bool:
    """Says whether the owner was a process that this one could see, and has ended.

    False wherever that can't be known: then the lease holds until it expires.
    """
    parts = owner.split(":")
    place = _place()
    if len(parts) != 4 or not place or not parts[1].isdigit() or not parts[2]:
        return False
    if (parts[0], parts[3]) != (socket.gethostname(), place):
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # A process is there, which this one may not signal.
    started = _started(int(parts[1]))
    return started is not None and started != parts[2]


def _place() -> str:
    """Returns the boot's id and the namespaces of process ids and of time.

    Returns "" if they are not known, or if /proc belongs to another namespace.
    """
    try:
        if str((_PROC / "self").readlink()) != str(os.getpid()):
            return ""
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [str((_PROC / "self/ns" / name).readlink()) for name in ("pid", "time")]
    except OSError:
        return ""
    return ".".join([boot, *("".join(filter(str.isdigit, space)) for space in spaces)])


def _started(pid: int) -> str | None:
    """Returns the kernel's start time of a process, in ticks since boot.

    Returns "" for a process that has ended and was not waited for, None if the time can't be seen.
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything.
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return "" if state in "ZX" else ticks
