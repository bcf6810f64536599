"""Log files and checkpoints that are decoded once a run: that is most of what a run costs otherwise.

Decoding is a pure function of the bytes. Damaged bytes are decoded each time, by the product.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from compactor.table import checkpoint
from compactor.table.snapshot import Snapshot
from compactor.table.version import Version

_ORIGINALS: dict[str, Any] = {
    name: getattr(checkpoint, name) for name in ("checkpoint_bytes", "read_checkpoint")
}


@contextmanager
def decoded_once(*, tokens: bool) -> Iterator[None]:
    """tokens: the bytes of a checkpoint only stand for it; making real ones costs as much as all else."""
    from_bytes = Version.__dict__["from_bytes"]
    Version.from_bytes = staticmethod(_remembering(Version.from_bytes))  # type: ignore[method-assign]
    codec = Tokens() if tokens else None
    for name in _ORIGINALS:
        replaced = getattr(codec, name) if codec else _ORIGINALS[name]
        if name == "read_checkpoint" and not codec:
            replaced = _remembering(replaced, _with_entries)
        for module in _users(name):
            setattr(module, name, replaced)
    try:
        yield
    finally:
        Version.from_bytes = from_bytes  # type: ignore[method-assign]
        for name, original in _ORIGINALS.items():
            for module in _users(name):
                setattr(module, name, original)


class Tokens:
    """Checkpoints as tokens of snapshots in memory; equal snapshots have equal ones."""

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []

    def checkpoint_bytes(self, snapshot: Snapshot) -> bytes:
        if snapshot not in self._snapshots:
            self._snapshots.append(snapshot)
        text = b"%50d" % self._snapshots.index(snapshot)
        return text + zlib.crc32(text).to_bytes(4)

    def read_checkpoint(self, data: bytes, **options: Any) -> Snapshot:
        if len(data) != 54 or zlib.crc32(data[:-4]).to_bytes(4) != data[-4:]:
            _ORIGINALS["read_checkpoint"](data, **options)
            raise AssertionError("what is damaged is read")
        return self._snapshots[int(data[:-4])]


@cache
def _users(name: str) -> list[ModuleType]:
    """Modules that have the function under that name."""
    return [
        module
        for module_name, module in sys.modules.items()
        if module_name.startswith(("compactor.", "tests.simulation."))
        and getattr(module, name, None) is _ORIGINALS[name]
    ]


def _remembering(decode: Callable[..., Any], prepare: Callable[[Any], Any] = lambda v: v) -> Any:
    known: dict[Any, Any] = {}

    def decode_once(data: bytes, *args: Any, **options: Any) -> Any:
        key = data, args, tuple(options.items())
        if key not in known:
            known[key] = prepare(decode(data, *args, **options))
        return known[key]

    return decode_once


def _with_entries(snapshot: Snapshot) -> Snapshot:
    """Entries are made together: one by one, each is a row taken from an Arrow table."""
    snapshot.fragments.all()
    return snapshot
