"""Writes what benchmarks measured, and on what, as JSON files below the folder that RESULTS names.

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

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = Path(os.environ.get("RESULTS") or ROOT / "bench/results")
_LIBRARIES: Final = (
    "numpy", "pyarrow", "pyspark", "zstandard", "xxhash", "msgspec", "duckdb", "polars", "splink",
)  # fmt: skip
_CPU_INFO: Final = Path("/proc/cpuinfo")


def environment() -> dict[str, Any]:
    """Returns commit, date, machine and versions."""
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **_versions()},
    }


def write_results(path: Path, arguments: dict[str, Any], cases: Sequence[dict[str, Any]]) -> None:
    """Writes a result file; its folder is made if missing."""
    document = {"environment": environment(), "arguments": arguments, "cases": list(cases)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _cpu_model() -> str:
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


def _commit() -> str:
    """Returns the commit, with a plus sign if the checkout has uncommitted changes."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
