"""Builds and parses the names of all objects of a table.

_log/00000000000000000007.json                 version 7 of the table
_log/.conditional-writes                       the object by which writers prove conditional writes
_checkpoint/99999999999999999935.arrow         the table at version 64: 10^20 - 1 - 64, so that a
                                               listing begins with the newest
_checkpoint/99999999999999999935.floor         the log begins at version 64: a vacuum has proved its
                                               checkpoint, and may have removed all before
_aside/<id>/_log/00000000000000000099.json     what a repair has put aside
_aside/<id>/00000000000000000099.given-up      a repair has given up the lost versions up to 99
data/00000000000000000006-<attempt>-00000.frag a fragment whose attempt began when the table was at
                                               version 6; each attempt has an id of its own
data/00000000000000000006-<attempt>.deletes    deletions, found when the table was at version 6
data/00000000000000000006-<attempt>.skips      skip indexes of the fragments of an attempt
data/00000000000000000006-<attempt>.memo       what the writer of the rows remembers for its next run
"""

from __future__ import annotations

import re
from typing import Final

from compactor.common.table_folder import LOG_FOLDER, VERSION_NAME

LOG_PREFIX: Final = f"{LOG_FOLDER}/"
PROBE_KEY: Final = f"{LOG_PREFIX}.conditional-writes"
"""It lies in the log because every writer may create objects there, and it lists before all versions."""
CHECKPOINT_PREFIX: Final = "_checkpoint/"
DATA_PREFIX: Final = "data/"
ASIDE_PREFIX: Final = "_aside/"
LAST_VERSION: Final = 10**20 - 1
FRAGMENT_PATTERN: Final = r"data/(?:([0-9]{20})-)?[0-9A-Za-z_-]+\.frag"
_FRAGMENT: Final = re.compile(FRAGMENT_PATTERN)
_DELETIONS: Final = re.compile(r"data/([0-9]{20})-[0-9A-Za-z_-]+\.deletes")
_SKIPS: Final = re.compile(r"data/([0-9]{20})-[0-9A-Za-z_-]+\.skips")
_MEMO: Final = re.compile(r"data/([0-9]{20})-[0-9A-Za-z_-]+\.memo")
_VERSION: Final = re.compile(f"{LOG_PREFIX}{VERSION_NAME}")
_CHECKPOINT: Final = re.compile(r"_checkpoint/([0-9]{20})\.arrow")
_GIVEN_UP: Final = re.compile(r"_aside/[^/]+/([0-9]{20})\.given-up")
_FLOOR: Final = re.compile(r"_checkpoint/([0-9]{20})\.floor")


def version_key(version: int) -> str:
    return f"{LOG_PREFIX}{version:020d}.json"


def parse_version(key: str) -> int | None:
    """Returns the version that a key of the log names; None for any other object there."""
    match = _VERSION.fullmatch(key)
    return int(match.group(1)) if match else None


def checkpoint_key(version: int) -> str:
    return f"{CHECKPOINT_PREFIX}{LAST_VERSION - version:020d}.arrow"


def parse_checkpoint(key: str) -> int | None:
    """Returns the version that a checkpoint holds; None for any other object there."""
    match = _CHECKPOINT.fullmatch(key)
    return LAST_VERSION - int(match.group(1)) if match else None


def floor_key(version: int) -> str:
    return f"{CHECKPOINT_PREFIX}{LAST_VERSION - version:020d}.floor"


def parse_floor(key: str) -> int | None:
    """Returns the version at which the log begins by this mark; None for any other object there."""
    match = _FLOOR.fullmatch(key)
    return LAST_VERSION - int(match.group(1)) if match else None


def aside_key(repair_id: str, key: str) -> str:
    """Returns the key to which a repair moves an object; the repair's id keeps it from replacing another."""
    return f"{ASIDE_PREFIX}{repair_id}/{key}"


def given_up_key(repair_id: str, version: int) -> str:
    return aside_key(repair_id, f"{version:020d}.given-up")


def parse_given_up(key: str) -> int | None:
    """Returns the last version that a repair has given up by this mark; None for any other object there."""
    match = _GIVEN_UP.fullmatch(key)
    return int(match.group(1)) if match else None


def is_written_in_parts(key: str) -> bool:
    """Says whether a table writes objects of this name by multipart uploads."""
    return base_version(key) is not None


def names_from(base_version: int) -> str:
    """Returns how names of objects begin whose attempts began at this version; later ones list after it."""
    return f"{DATA_PREFIX}{base_version:020d}"


def fragment_key(base_version: int, attempt_id: str, part: int) -> str:
    """Returns the key of a fragment.

    base_version: the table's version when the attempt began; by it a vacuum detects stalled attempts.
    """
    return f"{names_from(base_version)}-{attempt_id}-{part:05d}.frag"


def is_fragment_key(key: object) -> bool:
    return isinstance(key, str) and _FRAGMENT.fullmatch(key) is not None


def deletions_key(base_version: int, attempt_id: str) -> str:
    return f"{names_from(base_version)}-{attempt_id}.deletes"


def is_deletions_key(key: object) -> bool:
    return isinstance(key, str) and _DELETIONS.fullmatch(key) is not None


def skip_index_key(base_version: int, attempt_id: str) -> str:
    return f"{names_from(base_version)}-{attempt_id}.skips"


def is_skip_index_key(key: object) -> bool:
    return isinstance(key, str) and _SKIPS.fullmatch(key) is not None


def memo_key(base_version: int, attempt_id: str) -> str:
    return f"{names_from(base_version)}-{attempt_id}.memo"


def is_memo_key(key: object) -> bool:
    return isinstance(key, str) and _MEMO.fullmatch(key) is not None


def base_version(key: str) -> int | None:
    """Returns the base version of the attempt that wrote this object; None if the name has none."""
    found = (pattern.fullmatch(key) for pattern in (_FRAGMENT, _DELETIONS, _SKIPS, _MEMO))
    match = next(filter(None, found), None)
    return int(match.group(1)) if match and match.group(1) else None
