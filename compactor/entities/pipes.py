"""Reads the settings of an entity merge as the reference writes them: as the source of a pipe."""

from __future__ import annotations

from typing import Any, Final

from compactor.settings.document import Document

_SOURCE: Final = "source"
_OF_A_PIPE: Final = ("_id", "type", _SOURCE)
"""Settings of a pipe that have a meaning here, or that only name it."""


def merge_settings(document: Document) -> Document:
    """Returns the settings of the merge: the document itself, or the source of its pipe.

    Raises `ConfigError` for parts of a pipe that an entity merge does not run.
    """
    if _SOURCE not in document.root:
        return document
    for name in document.root:
        if name not in _OF_A_PIPE:
            raise document.fail(
                (name,), f"{name}: an entity merge runs only the `source` of a pipe: leave it out"
            )
    source: Any = document.root[_SOURCE]
    if not isinstance(source, dict):
        raise document.fail_at((_SOURCE,), "write the settings of a merge under it")
    return document.section((_SOURCE,), "source: ")
