"""Golden fragments: written once, read for ever.

`python -m tests.golden.build` adds those that are not there yet; what is there is never written anew. A new
format version gets a folder of its own. What these do not catch: a writer that changes what it writes (the
worked example of SPEC.md does), and faults common to all versions of the reader.
"""

from __future__ import annotations

import decimal
import json
import math
from base64 import b32encode, b64encode
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from lsm_fragment.blocks.layout import VERSION
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema
from tests.support.fragments import rows_of, write_fragment
from tests.support.numbered_words import numbered_words
from tests.support.samples import SAMPLES, sample_array

D = decimal.Decimal
FOLDER = Path(__file__).parent / f"v{VERSION}"


def golden_tables() -> dict[str, tuple[pa.Table, str | SortSchema, WriterOptions]]:
    """Name -> table, sort schema, writer options."""
    every = {name: sample_array(name, 6).slice(0, 12) for name in SAMPLES if name != "long_strings"}
    rows = list(range(12))
    tables: dict[str, tuple[pa.Table, str | SortSchema, WriterOptions]] = {
        "every_type": (pa.table({"k": rows} | every), "k", WriterOptions(max_rows=5)),
        "empty": (pa.table({"k": pa.array([], pa.int64())}), "k", WriterOptions()),
        "sorted_mixed": (
            pa.table({"a": ["x", "x", "y", None], "b": [2.5, -0.0, float("nan"), 1.0]}),
            "a,b:desc",
            WriterOptions(max_rows=2, compression_level=0),
        ),
        "encodings": (
            pa.table(
                {
                    "k": list(range(1200)),
                    "runs": [n // 200 for n in range(1200)],
                    "steps": [n * n for n in range(1200)],
                    "constant": [7] * 1200,
                    "multiples": [n * 7919 % 977 * 1000 for n in range(1200)],
                    "patched": [10**12 if n % 97 == 3 else n % 31 for n in range(1200)],
                    "same": [0 if n % 17 else n * 7919 % 13 for n in range(1200)],
                    "dictionary": [f"value {n % 7}" for n in range(1200)],
                    "text": [f"text {n * 7919 % 1201}" for n in range(1200)],
                    "narrow": [10**9 + n * 7919 % 70_000 for n in range(1200)],
                }
            ),
            "k",
            WriterOptions(max_rows=500, compression_level=3),
        ),
    }
    numbers = range(1200)
    tables["lists_and_decimals"] = (
        pa.table(
            {
                "k": list(numbers),
                "decimal": [None if n % 11 == 0 else n * 7919 % 977 / 1000 for n in numbers],
                "nearly": [math.nan if n % 99 == 0 else n * 7919 % 977 / 1000 for n in numbers],
                "float": [math.sin(n) for n in numbers],
                "whole": [float(n % 5) for n in numbers],
                "tags": [None if n % 7 == 0 else ["a" * (n % 3), f"t{n % 4}"] for n in numbers],
                "long": [f"{n:04d}" * (n % 40) for n in numbers],
            }
        ),
        "k",
        WriterOptions(max_rows=500),
    )
    tables["templates"] = (_templates(), "k", WriterOptions(max_rows=700, compression_level=3))
    tables["words"] = (_words(), "k", WriterOptions(max_rows=600))
    tables["letters"] = (_letters(), "id", WriterOptions(max_rows=200))
    tables["vocabulary"] = (_prose(), "k", WriterOptions(max_rows=70))
    tables |= _orders() | _odd_names()
    return tables


def _templates() -> pa.Table:
    """Strings that are templates and variables: packed and as text, nulls, empty ones, marks, any digits."""
    odd = [None, "", "\x11", "\x12 of\x11", "0" * 19, "9" * 20, "größe3 ٣ 1", "a\n7\0", "7" * 99]
    numbers = range(1500)
    logs = [f"took {n * 7919 % 977} ms, user u{n % 7}, id {n * 7919 % 1201:08d}" for n in numbers]
    return pa.table(
        {
            "k": list(numbers),
            "log": [odd[n // 40 % len(odd)] if n % 40 == 0 else log for n, log in enumerate(logs)],
            "large": pa.array(
                [f"[{n:03d}] 10.0.{n * 31 % 256}.7" for n in numbers], pa.large_string()
            ),
            "hex": [
                f"request {n * 2654435761 % 2**32:08x} {'ok' if n % 3 else 'failed'}"
                for n in numbers
            ],
        }
    )


def _words() -> pa.Table:
    """Strings in which words vary, and stand where others have numbers or ids."""
    numbers = range(420)
    users = ["ann", "bob", "größe", "u7", "42", "\x13"]
    return pa.table(
        {
            "k": list(numbers),
            "log": [
                None if n % 90 == 7
                else f"{users[n * 31 % 6]} asks for {_word(n * 7919)} and then {n * 977 % 419}"
                for n in numbers
            ],
        }
    )  # fmt: skip


def _word(number: int) -> str:
    """Returns one of 40 words without digits."""
    return "abcdefghij"[number % 10] * 3 + "klmn"[number // 10 % 4]


def _prose() -> pa.Table:
    """Text of words that recur: with nulls, empty ones, bytes beyond ASCII, long words and numbers."""
    pool = [
        "the",
        "größe",
        "of",
        "日本語の文字列です",
        "w" * 40,
        "path/to",
        "1234567",
        "12345",
        "7f3A9c2e",
        "20261128T1339Z07",
        "2026",
        "--",
        "İ",
    ]
    numbers = range(160)
    texts = [
        None
        if n % 31 == 5
        else " ".join(pool[n * (i + 3) * 7919 % 977 % 10] for i in range(n * 31 % 12))
        for n in numbers
    ]
    encoded = [None if text is None else text.encode() + b"\xff" for text in texts]
    return pa.table(
        {
            "k": list(numbers),
            "text": texts,
            "large": pa.array(texts, pa.large_string()),
            "bytes": pa.array(encoded, pa.binary()),
            "items": [None if text is None else text.split(" ", 2) for text in texts],
        }
    )  # fmt: skip


def _letters() -> pa.Table:
    """Ids and tokens: as keys, with nulls and other lengths, in a dictionary, in lists, as any bytes, with
    frames, of all widths."""
    digests = [sha256(b"%d" % n).digest()[:18] for n in range(300)]
    ids = [digest[:16].hex() for digest in digests]
    uuids = [str(UUID(value, version=4)) for value in ids]
    return pa.table(
        {
            "id": sorted(ids),
            "nulls": [
                None if n % 9 == 0 else value[: n % 33].upper() for n, value in enumerate(ids)
            ],
            "sessions": [ids[n * 7 % 50] for n in range(300)],
            "spans": [[value[:16], value[16:]][: n % 3] for n, value in enumerate(ids)],
            "bytes": pa.array(
                [bytes(16 * int(c, 16) for c in value) for value in ids], pa.binary()
            ),
            "uuids": uuids,
            "framed nulls": [None if n % 9 == 0 else value for n, value in enumerate(uuids)],
            "base 64": [b64encode(digest).decode() for digest in digests],
            "padded base 64": [b64encode(digest[:16]).decode() for digest in digests],
            "base 32": [b32encode(digest[:15]).decode() for digest in digests],
            "eight": [f"{int(value, 16):o}"[:30] for value in ids],
            "four": ["".join("ACGT"[byte % 4] for byte in digest) for digest in digests],
            "two": [f"{int(value[:8], 16):032b}" for value in ids],
        }
    )


def _orders() -> dict[str, tuple[pa.Table, str | SortSchema, WriterOptions]]:
    """Sort columns of all kinds and orders, row groups of one row, bounds that had to be shortened."""
    words = [None, "\U0010ffff" * 20, "z", "ab", "a" * 80, "a" * 79, ""]
    numbers = [None, float("nan"), float("inf"), 0.5, -0.0, -1.5, -float("inf")]
    exact = [None, *map(D, ("9.99", "1", "0", "-0.01", "-9.99", "-9.99"))]
    mixed = pa.table(
        {
            "text": pa.array(words),
            "binary": pa.array([None, b"\xff" * 80, b"\xff", b"a" * 70, b"a", b"", b""]),
            "float": pa.array(numbers),
            "decimal": pa.array(exact, pa.decimal128(30, 2)),
            "bool": pa.array([None, True, True, False, False, False, False]),
            "unordered": pa.array(range(7), pa.uint64()),
        }
    )  # fmt: skip
    everything = (
        SortColumn("text", Order.DESC, Nulls.FIRST),
        SortColumn("binary", Order.DESC, Nulls.FIRST),
        SortColumn("float", Order.DESC, Nulls.FIRST),
        SortColumn("decimal", Order.DESC, Nulls.FIRST),
        SortColumn("bool", Order.DESC, Nulls.FIRST),
        SortColumn("unordered", Order.NONE),
    )
    return {
        "descending": (mixed, everything, WriterOptions(max_rows=3)),
        "one_row_groups": (mixed, everything, WriterOptions(max_rows=1, compression_level=9)),
        "floats_first": (
            mixed.take([6, 5, 4, 3, 2, 1, 0]),
            "float,bool",
            WriterOptions(max_rows=4, compression_level=19),
        ),
    }


def _odd_names() -> dict[str, tuple[pa.Table, SortSchema, WriterOptions]]:
    """Column names of any text, metadata, extension types, dictionaries within types, a column of nulls."""
    inner = pa.array(["x", "y", "x", None]).dictionary_encode()
    texts = pa.array(['{"a":1}', None, "[]", "null"])
    columns = {
        "": pa.array([1, 2, 3, 4]),
        "größe": pa.array([1.25, None, 3.5, 0.0], pa.float16()),
        "\U0001f986 \n\"'": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int8())),
        "a,b:desc": pa.ExtensionArray.from_storage(pa.json_(), texts),
        "A": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None, 7], pa.int8())),
        "coded": pa.StructArray.from_arrays([inner, pa.array(range(4))], ["d", "n"]),
        "nothing": pa.nulls(4, pa.struct([("x", pa.list_(pa.int64(), 3))])),
    }
    fields = [
        pa.field(name, array.type, metadata={"é": b"\xff"}) for name, array in columns.items()
    ]
    schema = pa.schema(fields, metadata={b"\x00": b"of the table"})
    return {
        "odd_names": (
            pa.table(columns, schema=schema),
            (SortColumn(""),),
            WriterOptions(max_rows=3),
        )
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (table, sort, options) in golden_tables().items():
        if (FOLDER / f"{name}.frag").exists():
            continue
        with numbered_words() if name == "vocabulary" else nullcontext():
            data = write_fragment(table, sort, options)
        (FOLDER / f"{name}.frag").write_bytes(data)
        expected = json.dumps([repr(row) for row in rows_of(table)], indent=0)
        (FOLDER / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main()
