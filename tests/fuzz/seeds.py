"""What is mutated: small fragments of every type, encoding and order, and small tables."""

from __future__ import annotations

import math
from base64 import b64encode
from decimal import Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from lsm_fragment.container.writer import WriterOptions
from tests.golden.build_tables import load
from tests.support.fragments import write_fragment
from tests.support.numbered_words import numbered_words
from tests.support.samples import SAMPLES, sample_array

GOLDEN = Path(__file__).parents[1] / "golden"


class Seed(Struct, frozen=True):
    """A fragment as it was written."""

    name: str
    data: bytes


@cache
def fragments() -> list[Seed]:
    """Small ones, so that many mutations a second hit what matters."""
    found = []
    for name in SAMPLES:
        if name != "long_strings":
            array = sample_array(name, 2)
            table = pa.table({"k": range(len(array)), "v": array})
            found.append(_seed(name, table, "k", max_rows=5, level=1))
    found += _sorted() + _encoded()
    found += [
        Seed(f"golden {path.parent.name} {path.stem}", path.read_bytes())
        for path in sorted(GOLDEN.glob("v*/*.frag"))
        if path.stat().st_size < 3000
    ]
    return found


def _sorted() -> list[Seed]:
    table = pa.table(
        {
            "a": pa.array([None, "x", "x", "y" * 70]),
            "b": pa.array([1.5, 2.5, None, float("nan")]),
            "ü": pa.array([1, 2, 3, None], pa.int16()),
        }
    )
    return [
        _seed("sorted mixed", table, "a:nulls_first,b:desc", max_rows=2, level=0),
        _seed("one row groups", table, "a:nulls_first", max_rows=1, level=0),
        _seed("empty", table.slice(0, 0), "b", max_rows=2, level=0),
        _seed("only keys", table.select(["a"]), "a:nulls_first", max_rows=5, level=1),
    ]


def _encoded() -> list[Seed]:
    rows = range(40)
    columns = {
        "constant": [7] * 40,
        "steps": [10**9 + n * n for n in rows],
        "multiples": [n * 7919 % 977 * 10**9 for n in rows],
        "patched": [10**12 if n % 20 == 3 else n * 7919 % 977 for n in rows],
        "runs": [n // 10 * 1000 for n in rows],
        "bits": pa.array([n * 7 % 11 for n in rows], pa.uint8()),
        "decimal": [n * 7919 % 977 / 1000 for n in rows],
        "decimal but one": [float("nan") if n == 7 else n * 7919 % 977 / 1000 for n in rows],
        "float": [math.sin(n) for n in rows],
        "text": [f"text {n * 7919 % 41}" for n in rows],
        "repeated": [None if n % 7 == 0 else f"value {n % 3}" for n in rows],
        "lists": [None if n % 7 == 0 else ["a" * (n % 3), f"t{n % 4}"] for n in rows],
        "narrow": [10**9 + n * 7919 % 70_000 for n in rows],
        "coded": pa.array(["x", "y"] * 20).dictionary_encode(),
        **{
            f"decimals {kind}": pa.array([Decimal(n * 7919 % 977) for n in rows], kind)
            for kind in (pa.decimal32(9), pa.decimal64(18), pa.decimal128(38), pa.decimal256(76))
        },
    }
    found = [
        _seed(name, pa.table({"k": rows, "v": column}), "k", max_rows=30, level=level)
        for name, column in columns.items()
        for level in (0, 3)
    ]
    logs = [
        f"[{n:06d}] user u{n % 9} took {n * 7919 % 999_983} ms" if n % 7 else None
        for n in range(900)
    ]
    found += [
        _seed("templates", pa.table({"k": range(900), "v": logs}), "k", max_rows=800, level=level)
        for level in (0, 3)
    ]
    ids = [sha256(b"%d" % n).hexdigest()[:32] for n in range(80)]
    letters = {
        "k": sorted(ids),
        "nulls": [None if n % 7 == 0 else value for n, value in enumerate(ids)],
        "bytes": pa.array([value.encode()[: n % 33] for n, value in enumerate(ids)]),
        "framed": [f"{value[:8]}-{value[8:12]}-{value[12:]}" for value in ids],
        "base 64": [b64encode(bytes.fromhex(value)).decode() for value in ids],
    }
    found += [
        _seed("letters", pa.table(letters), "k", max_rows=70, level=level) for level in (0, 3)
    ]
    words = ["the ", "größe ", "of ", "w" * 20, "12345 ", "--"]
    texts = [
        None if n % 7 == 3 else "".join(words[n * (i + 3) % 6] for i in range(n % 9))
        for n in range(90)
    ]
    prose = pa.table({"k": range(90), "text": texts, "bytes": pa.array(texts).cast(pa.binary())})
    with numbered_words():
        found += [_seed("vocabulary", prose, "k", max_rows=70, level=level) for level in (0, 3)]
    found.append(_seed("all encodings", pa.table({"k": rows} | columns), "k", max_rows=30, level=0))
    return found


def _seed(name: str, table: pa.Table, sort: str, *, max_rows: int, level: int) -> Seed:
    options = WriterOptions(max_rows, compression_level=level)
    return Seed(name, write_fragment(table, sort, options))


@cache
def tables() -> dict[str, dict[str, bytes]]:
    """Objects of tables with a log, checkpoints, deleted rows, skip indexes and a row policy, by table."""
    return {name: dict(load(name).objects) for name in ("deleted", "skipping", "last_rows")}
