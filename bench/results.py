"""Writes what benchmarks measured, and on what, as JSON files in bench/results.

A figure without commit, machine and library versions can't be compared with a later one, so every file
has them.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"
_LIBRARIES: Final = ("numpy", "pyarrow", "pyspark", "zstandard", "xxhash", "msgspec")
_CPU_INFO: Final = Path("/proc/cpuinfo")


def environment() -> dict[str, Any]:
    """Returns commit, date, machine and versions."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "has_uncommitted_changes": bool(
            _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
        ),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **_versions()},
    }


def write_results(path: Path, arguments: dict[str, Any], cases: Sequence[dict[str, Any]]) -> None:
    """Writes a result file whole or not at all; its folder is made if missing."""
    document = {"environment": environment(), "arguments": arguments, "cases": list(cases)}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def cpu_model() -> str:
    """Returns the processor's name as the system gives it."""
    with contextlib.suppress(OSError):
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _git(*arguments: str) -> str | None:
    """Returns git's answer for this checkout; None without git or a checkout."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
