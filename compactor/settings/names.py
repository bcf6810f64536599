"""Shows settings in messages by the names that the caller knows.

Shared code writes them as the command line does, such as `--sort-by`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from compactor.errors import CompactorError

_FLAG: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
IN_PYTHON: Final = {
    "sort-by": "sort_by",
    "row-policy": "options.rows.kind",
    "sequence": "options.rows.sequence",
    "delete-marker": "options.rows.delete_marker",
    "keep-tombstones": "options.rows.keeps_tombstones",
    "drop-tombstones": "options.rows.keeps_tombstones",
    "aggregate": "options.rows.aggregates",
    "ttl": "options.ttl",
    "ttl-column": "options.ttl.column",
    "time-column": "options.windows",
    "skip-index": "options.skips",
    "not-null": "options.not_null",
    "on-conflict": "options.on_conflict",
    "promote": "options.promotes",
    "order": "order",
    "memory-limit": "settings.memory_limit_bytes",
    "target-fragment-bytes": "settings.target_fragment_bytes",
    "spool-directory": "settings.spool_directory",
    "grace": "grace_seconds",
    "retain": "retain_seconds",
    "allow-shrinking": "allow_shrinking",
}
"""Arguments of `Table`'s methods, and fields of what they take, by flag."""


def in_python(flag: str) -> str:
    """Returns the argument of the Python interface, or the flag if there is no argument for it."""
    return IN_PYTHON.get(flag, f"--{flag}")


def as_option(flag: str) -> str:
    """Returns the option of the Spark data source."""
    return flag.replace("-", "_")


@contextlib.contextmanager
def settings_named(name_of: Callable[[str], str]) -> Iterator[None]:
    """Rewrites flags in the errors that the block raises.

    name_of: returns the caller's name of a flag, which is given without `--`.
    """
    try:
        yield
    except CompactorError as error:
        told = _FLAG.sub(lambda flag: name_of(flag[1]), str(error))
        if told != str(error):
            error.args = (told,)
        raise
