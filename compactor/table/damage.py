"""Says what is wrong with a fragment that is damaged or not what the log describes, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from compactor.common.message import Message
from compactor.errors import DamagedInputError
from lsm_fragment.errors import CorruptFragmentError, NotAFragmentError, OrderError

RESTORE: Final = ": restore it from a backup or the bucket's versions"
"""What to do about a damaged object, for the end of an error."""
_WITHOUT_BACKUP: Final = (
    ". Without one, put the fragment in quarantine (`compactor quarantine`). Then queries, exports and "
    "deletions may leave it out (`--skip-missing`, skip_missing in Python and Spark), or its rows may be "
    "given up (`compactor drop-fragment`)"
)
"""Errors of the format know no settings that a front would name, so this has the names of all fronts."""


class _Rows(Protocol):
    """What footers and entries both say of a fragment's rows."""

    @property
    def rows(self) -> int: ...

    @property
    def row_hash(self) -> int: ...


@contextmanager
def damage_explained() -> Iterator[None]:
    """Adds what to do to errors about a damaged fragment of a table.

    It is for those that read rows: a compaction puts the fragment in quarantine by itself, and `verify` lists
    faults.
    """
    try:
        yield
    except (CorruptFragmentError, NotAFragmentError, OrderError, DamagedInputError) as error:
        if error.name:
            advice = "" if str(error).endswith(RESTORE) else RESTORE
            error.args = (Message(error.args[0], advice, _WITHOUT_BACKUP),)
        raise


def check_is_logged(
    name: str, footer: _Rows, logged: _Rows, error: type[DamagedInputError]
) -> None:
    """Raises `error` if the footer of the object `name` is not that of the fragment that the log describes.

    Another fragment under its name is intact by its own checksums, so only the log tells.
    """
    if (footer.rows, footer.row_hash) != (logged.rows, logged.row_hash):
        raise error(
            f"{name}: its footer says {footer.rows} rows of hash {footer.row_hash:016x}, the table's log "
            f"{logged.rows} rows of hash {logged.row_hash:016x}",
            name=name,
        )
