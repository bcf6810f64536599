"""The fragment format; its contract is `format/SPEC.md`. The package knows nothing of tables and stores.

A **fragment** is one immutable object: a header, the chunks of the sort columns row group by row group, the
chunks of every other column, a footer. A **chunk** holds the values of one column in one row group. The
rooms, from the top; each imports only rooms below it:

container   reads and writes a fragment in the order of its bytes: `writer`, `stream_reader`, `reader`, `open`
gather      takes rows of several sources in merged order, one column at a time
encodings   converts an array to the payload of a chunk and back; one file per encoding
keys        decides which row comes before which: sort schema, normalised keys, bounds
arrays      converts Arrow arrays to the forms that are stored and moved: types, hashing, nesting, templates
blocks      lays out blocks: header, parts, checksums, codec
native      has the compiled loops, in the rooms of the Python files that call them
"""

from typing import TYPE_CHECKING, Any

from lsm_fragment import errors as errors
from lsm_fragment.version import __version__ as __version__

if TYPE_CHECKING:
    from lsm_fragment.container.open import OpenFragment as OpenFragment
    from lsm_fragment.container.open import open_fragment as open_fragment

__all__ = ["OpenFragment", "__version__", "errors", "open_fragment"]


def __getattr__(name: str) -> Any:
    """Imports readers of fragments on first use, since the version alone needs no Arrow."""
    if name in ("OpenFragment", "open_fragment"):
        from lsm_fragment.container import open as opening

        globals()[name] = value = getattr(opening, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
