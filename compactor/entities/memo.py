"""What a run remembers for the next one: the rows that it read, their entities, values and clusters.

A memo is an object beside the rows of the table, which the commit of these rows names. It holds columns in
Arrow's IPC format, followed by a checksum. They are not compressed: most of it are hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from msgspec import Struct
from pyarrow import ipc

from compactor.entities.entities import U64
from compactor.entities.expressions import Operand
from compactor.entities.sources import Part
from compactor.entities.spec import EntityMergeSpec, Identity, OnTooMany
from compactor.entities.texts import I64, TEXT
from compactor.errors import DataError
from lsm_fragment.errors import cause_of
from lsm_fragment.version import __version__

_FORMAT: Final = 2
_HEADER: Final = b"memo"
_CHECKSUM_BYTES: Final = 8


class KeptDataset(Struct, frozen=True, kw_only=True):
    """A dataset, by input row. Each row is one entity."""

    parts: tuple[Part, ...]
    rows: U64
    """Hash of each row as it stands in the input."""
    ids: pa.Array
    """Large strings."""
    deleted: npt.NDArray[np.bool_]
    entities: U64
    """Hash of each entity with its dataset, see `member_hashes`."""
    clusters: I64
    """Number of each entity's cluster."""


class KeptValues(Struct, frozen=True):
    """The values of one side of a rule."""

    rows: I64
    """Input row of each value."""
    hashes: U64


class Memo(Struct, frozen=True, kw_only=True):
    datasets: tuple[KeptDataset, ...]
    values: Mapping[Operand, KeptValues]
    clusters: int
    """Number of clusters."""

    @property
    def entities(self) -> int:
        return sum(len(dataset.rows) for dataset in self.datasets)

    @property
    def nbytes(self) -> int:
        """Approximate size of the columns."""
        of_entities = sum(
            int(d.ids.nbytes) + d.rows.nbytes + d.entities.nbytes + d.clusters.nbytes
            for d in self.datasets
        )
        return of_entities + sum(v.rows.nbytes + v.hashes.nbytes for v in self.values.values())

    @property
    def deleted(self) -> int:
        """Number of deleted entities, each of which is a cluster."""
        return sum(int(np.count_nonzero(dataset.deleted)) for dataset in self.datasets)

    def sizes(self) -> I64:
        """Returns the number of entities of each cluster. Shape (clusters,)."""
        counts = np.zeros(self.clusters, np.int64)
        for dataset in self.datasets:
            counts += np.bincount(dataset.clusters, minlength=self.clusters)
        return counts

    def is_deleted(self) -> npt.NDArray[np.bool_]:
        """Returns which clusters are a deleted entity. Shape (clusters,)."""
        found = np.zeros(self.clusters, np.bool_)
        for dataset in self.datasets:
            found[dataset.clusters[dataset.deleted]] = True
        return found


class _Pieces:
    """A file that keeps what is written, mostly buffers of columns, so that a large memo is not copied."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        view = memoryview(data)
        self.pieces.append(view)
        return view.nbytes

    def flush(self) -> None:
        return

    def close(self) -> None:
        return


def may_remember(spec: EntityMergeSpec) -> bool:
    """Returns whether runs by these settings leave a memo: what changes touch has to decide what changes."""
    has_pairs = bool(spec.always or spec.never)
    puts_aside = spec.on_too_many is not OnTooMany.REFUSE
    return spec.identity is not Identity.STABLE and not has_pairs and not puts_aside


def operands_of(spec: EntityMergeSpec) -> list[Operand]:
    """Returns the distinct sides of rules, in order."""
    return list(dict.fromkeys(side for rule in spec.rules for side in rule))


def to_pieces(memo: Memo, spec: EntityMergeSpec) -> list[memoryview]:
    """Returns the bytes of a memo, in pieces."""
    header = {
        "settings": _settings(spec),
        "parts": [dataset.parts for dataset in memo.datasets],
        "clusters": memo.clusters,
    }
    columns = dict(_columns(memo, spec))
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array)
        for array in columns.values()
    ]
    batch = pa.record_batch(lists, names=list(columns))
    schema = batch.schema.with_metadata({_HEADER: json.dumps(header).encode()})
    written = _Pieces()
    with pa.PythonFile(written, "w") as sink, ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    checksum = xxhash.xxh3_64()
    for piece in written.pieces:
        checksum.update(piece)
    return [*written.pieces, memoryview(checksum.digest())]


def from_bytes(data: bytes, spec: EntityMergeSpec, name: str) -> Memo | None:
    """Returns a memo; None if other settings or another program made it. Raises `DataError` for damage."""
    content, checksum = memoryview(data)[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    try:
        if xxhash.xxh3_64_digest(content) != checksum:
            raise ValueError("its checksum does not match")
        with ipc.open_stream(pa.py_buffer(content)) as reader:
            header = json.loads(reader.schema.metadata[_HEADER])
            if header["settings"] != _settings(spec):
                return None
            batch = reader.read_next_batch()
        return _memo_of(batch, header, spec)
    except (ValueError, KeyError, TypeError, StopIteration, pa.ArrowException) as error:
        raise DataError(f"{name}: is damaged ({cause_of(error)})") from error


def _settings(spec: EntityMergeSpec) -> str:
    """Returns a digest of all that entities, values and clusters depend on, besides the datasets."""
    return xxhash.xxh3_128_hexdigest(f"{_FORMAT} {__version__} {spec!r}".encode())


def _columns(memo: Memo, spec: EntityMergeSpec) -> Iterator[tuple[str, pa.Array]]:
    for number, dataset in enumerate(memo.datasets):
        yield f"{number}.rows", pa.array(dataset.rows)
        yield f"{number}.ids", dataset.ids
        yield f"{number}.deleted", pa.array(dataset.deleted)
        yield f"{number}.entities", pa.array(dataset.entities)
        yield f"{number}.clusters", _short(dataset.clusters)
    for number, operand in enumerate(operands_of(spec)):
        values = memo.values[operand]
        yield f"values.{number}.rows", _short(values.rows)
        yield f"values.{number}.hashes", pa.array(values.hashes)


def _short(numbers: I64) -> pa.Array:
    """Returns numbers in half the bytes, if they fit."""
    fits = numbers.max(initial=0) < 1 << 31
    return pa.array(numbers.astype(np.int32) if fits else numbers)


def _memo_of(batch: pa.RecordBatch, header: dict[str, Any], spec: EntityMergeSpec) -> Memo:
    def column(name: str) -> Any:
        found = np.asarray(batch.column(name).values)
        return found.astype(np.int64) if found.dtype == np.int32 else found

    datasets = [
        KeptDataset(
            parts=tuple(map(Part.of_json, parts)),
            rows=column(f"{number}.rows"),
            ids=batch.column(f"{number}.ids").values.cast(TEXT),
            deleted=column(f"{number}.deleted").astype(np.bool_),
            entities=column(f"{number}.entities"),
            clusters=column(f"{number}.clusters"),
        )
        for number, parts in enumerate(header["parts"])
    ]
    values = {
        operand: KeptValues(column(f"values.{number}.rows"), column(f"values.{number}.hashes"))
        for number, operand in enumerate(operands_of(spec))
    }
    return Memo(datasets=tuple(datasets), values=values, clusters=int(header["clusters"]))
