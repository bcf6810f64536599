"""Says what is wrong with a fragment that is not what the log describes."""

from __future__ import annotations

from typing import Protocol

from compactor.errors import DamagedInputError


class _Rows(Protocol):
    """What footers and entries both say of a fragment's rows."""

    @property
    def rows(self) -> int: ...

    @property
    def row_hash(self) -> int: ...


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
