"""Streamable row-group fragment format. `format/SPEC.md` is the byte-level contract.

writer, emitter      rows, or columns, to bytes
stream_reader        bytes from the first one on, without footer or seeking
reader               random access by the footer
open                 a fragment in a file or in memory, as a stream of Arrow
blocks, footer       what a fragment is made of
encode, decode       arrays to chunks and back
ordering, keys       the order of rows: whole columns, single keys
hashing, sizes       the commutative row hash; bytes by row
schema, types        header, sort schema, Arrow types
layout, compression  bytes of prologue, blocks, trailer; zstd
"""

from typing import TYPE_CHECKING, Any

from format import errors as errors

if TYPE_CHECKING:
    from format.open import OpenFragment as OpenFragment
    from format.open import open_fragment as open_fragment

__version__ = "0.1.0"

__all__ = ["OpenFragment", "__version__", "errors", "open_fragment"]


def __getattr__(name: str) -> Any:
    """What reads fragments, imported when it is asked for: the version alone needs no Arrow."""
    if name in ("OpenFragment", "open_fragment"):
        from format import open as opening

        globals()[name] = value = getattr(opening, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
