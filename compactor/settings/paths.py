"""Finds what a file of settings names: relative paths begin at its own folder, and one place has one name."""

from __future__ import annotations

import os

from compactor.files.places import STREAM


def from_folder(path: str, folder: str) -> str:
    """Returns a path or address as seen from the working directory. folder: that of the file of settings."""
    if path == STREAM or "://" in path:
        return path
    return os.path.join(folder, path)  # noqa: PTH118 - Path would drop a trailing slash and `./`


def identity(path: str) -> str:
    """Returns the one name of a file, table or object that has several paths."""
    if path == STREAM or "://" in path:
        return path.rstrip("/")
    return os.path.realpath(path)
