"""Who holds a claim: a process, by host and start, so that a dead one on this host is known at once."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_owner() -> str:
    """`host:pid:start` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Whether the owner was a process of this host that has ended. False where that can't be known."""
    host, _, process = owner.rpartition(":")[0].rpartition(":")
    started = owner.rpartition(":")[2]
    if host != socket.gethostname() or not process.isdigit():
        return False
    if not Path("/proc/self/stat").exists():
        return False
    return _started(int(process)) != started


def _started(pid: int) -> str:
    """The kernel's start time of a process, in ticks since boot, with the boot's id; "" if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    # The name, in parentheses, may hold anything.
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot[:8]}.{ticks}"
