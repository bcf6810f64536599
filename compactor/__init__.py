"""LSM compaction worker for columnar fragments on object storage."""

from typing import TYPE_CHECKING, Any

from format import __version__ as __version__

if TYPE_CHECKING:
    from compactor.api import Scan as Scan
    from compactor.api import Table as Table

__all__ = ["Scan", "Table", "__version__"]


def __getattr__(name: str) -> Any:
    """`Table` and `Scan`, imported when they are asked for: not every process needs stores and Arrow."""
    if name in ("Scan", "Table"):
        from compactor import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
