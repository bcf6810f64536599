"""Short ids of fragments for people, such as `62563f83-0`: the beginning of the id of the attempt, or of the
compaction, that wrote it, and the number of the fragment."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from compactor.errors import UsageError
from compactor.table.object_names import DATA_PREFIX

_KEY: Final = re.compile(r"data/(?:[0-9]{20}-)?([0-9A-Za-z_-]+)-0*([0-9]+)\.frag")
_LEAST: Final = 4
"""Characters of an id that are enough, if they tell it apart."""
_SHORT: Final = re.compile(rf"([0-9A-Za-z_-]{{{_LEAST},}})-0*([0-9]+)")
_LENGTHS: Final = (8, 12, 16, 24, 32)
"""Numbers of characters of the attempt's id: the first that tells all fragments apart is used."""


def short_ids(keys: Collection[str]) -> dict[str, str]:
    """Returns the short id of each fragment, by its key. A key of another form stands for itself."""
    for length in _LENGTHS:
        ids = {key: _short(key, length) for key in keys}
        if len(set(ids.values())) == len(ids):
            return ids
    return {key: key for key in keys}


def key_of(keys: Collection[str], name: str) -> str:
    """Returns the key of the fragment that a name means: its key, the name of its object, or its short id,
    of which four characters are enough. Returns a name that means none of them as it is.

    keys: of all fragments. Raises `UsageError` if a short id means several.
    """
    if name in keys:
        return name
    if (key := f"{DATA_PREFIX}{name}") in keys:
        return key
    if (said := _SHORT.fullmatch(name)) is None:
        return name
    found = [key for key in keys if _is_meant(key, *said.groups())]
    if len(found) > 1:
        raise UsageError(
            f"{name!r} is the short id of {len(found)} fragments, {found[0]} and {found[1]} among them: "
            "write more of it"
        )
    return found[0] if found else name


def compaction_of(runs: Mapping[str, str], name: str) -> str:
    """Returns the id of the compaction that a name means: its id, four characters or more of it, or one
    of its fragments, as `key_of` takes it. Returns a name that means none of them as it is.

    runs: the compaction of each fragment, by its key. Raises `UsageError` if the name means several.
    """
    if (run := runs.get(key_of(runs, name))) is not None:
        return run
    found = sorted({run for run in runs.values() if run.startswith(name)})
    if len(name) < _LEAST or not found:
        return name
    if len(found) > 1:
        raise UsageError(
            f"{name!r} may mean {len(found)} compactions, {found[0]} and {found[1]} among them: write more "
            "of it"
        )
    return found[0]


def _short(key: str, length: int) -> str:
    parts = _KEY.fullmatch(key)
    return key if parts is None else f"{parts[1][:length]}-{parts[2]}"


def _is_meant(key: str, attempt: str, number: str) -> bool:
    parts = _KEY.fullmatch(key)
    return parts is not None and parts[1].startswith(attempt) and parts[2] == number
