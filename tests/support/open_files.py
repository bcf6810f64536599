"""The files of a folder that this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_files_in(folder: Path) -> list[str]:
    """Returns the paths of open files in a folder or below, unnamed and deleted ones among them.

    Descriptors of the whole process are no measure: a collector closes those of earlier tests at any time.
    """
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists the folder
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(f"{folder.resolve()}/")]
