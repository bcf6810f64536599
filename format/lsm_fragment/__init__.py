"""Streamable row-group fragment format. `format/SPEC.md` is the byte-level contract.

writer, emitter      write rows, or whole columns, as bytes
stream_reader        reads forward from the first byte, without footer or seeking
reader               reads at random by the footer
open                 opens a file, or bytes in memory, as a stream of Arrow
blocks               read and make blocks of chunks and of everything else
footer, pages,       say where chunks are and what is known of them: what there is to say, pages of columns,
directory, tables    the directory of pages, and the binary tables that both are
footer_reader        reads of a footer what is asked for
encode, decode       turn arrays into chunks and back
ordering, keys       compare rows: whole columns, single keys
hashing, sizes       compute the commutative row hash, and the bytes of rows
schema, types        describe header, sort schema, Arrow types
layout, compression  lay out prologue, blocks and trailer; compress with zstd
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
