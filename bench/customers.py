"""Makes noisy customers: several records of each person, with typos, missing fields and shared telephones.

Three datasets have the records of a shop's accounts, orders and newsletter. The same count and seed give the
same records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

DATASETS: Final = ("accounts", "orders", "newsletter")
_SEED: Final = 11
_RECORDS_OF_A_PERSON: Final = 1.9
_IN_AN_OFFICE: Final = 40
"""People who give the telephone of their office, one in fifty, share it with as many."""
_SYLLABLES: Final = (
    "an", "bel", "cor", "da", "el", "fin", "gro", "ha", "is", "jor", "ka", "lin", "mar", "nor", "os", "per",
    "ra", "so", "tor", "vik",
)  # fmt: skip
_LETTERS: Final = np.array(list("abcdefghijklmnopqrstuvwxyz"))

Texts = npt.NDArray[np.object_]


def customers(records: int, seed: int = _SEED) -> pa.Table:
    """Returns records with `_id`, `dataset`, `first`, `last`, `born`, `mail`, `phone` and `city`."""
    random = np.random.default_rng(seed)
    people = max(1, int(records / _RECORDS_OF_A_PERSON))
    first, last = _names(random, 3), _names(random, 4)
    of = random.integers(0, people, records)
    names = [
        pool[(random.random(people) ** 2 * len(pool)).astype(np.int64)] for pool in (first, last)
    ]
    household = random.integers(0, max(1, int(people * 0.8)), people)
    in_office = random.random(people) < 0.02
    office = people + random.integers(0, people // (50 * _IN_AN_OFFICE) + 1, people)
    phone = 20_000_000 + np.where(in_office, office, household)
    born = np.datetime64("1935-01-01") + random.integers(0, 25_000, people)
    one, other = (names[side][of] for side in range(2))
    mails = [f"{a}.{b}{n}@example.com" for a, b, n in zip(one, other, of, strict=True)]
    columns = {
        "_id": pa.array([f"c{n}" for n in range(records)]),
        "dataset": pa.array(random.choice(DATASETS, records, p=(0.4, 0.35, 0.25)).astype(object)),
        "first": pa.array(_with_typos(random, one, 0.04)),
        "last": pa.array(_with_typos(random, other, 0.06)),
        "born": _with_gaps(random, pa.array(born[of].astype(str).astype(object)), 0.3),
        "mail": _with_gaps(
            random, pa.array(_with_typos(random, np.array(mails, object), 0.05)), 0.25
        ),
        "phone": _with_gaps(random, pa.array(phone[of].astype(str).astype(object)), 0.35),
        "city": pa.array(last[random.integers(0, 400, people)][of]),
    }
    return pa.table(columns)


def write_customers(folder: Path, records: int) -> None:
    """Writes `customers.parquet` with all records, and a file for each dataset."""
    made = customers(records)
    pq.write_table(made, folder / "customers.parquet")
    dataset = np.asarray(made["dataset"])
    for name in DATASETS:
        rows = made.filter(pa.array(dataset == name)).drop_columns(["dataset"])
        pq.write_table(rows, folder / f"{name}.parquet")


def _names(random: np.random.Generator, syllables: int) -> Texts:
    """Returns a pool of some thousand names, at most as many syllables long."""
    parts = random.choice(_SYLLABLES, (20_000, syllables))
    lengths = random.integers(2, syllables + 1, len(parts))
    made = {"".join(some[:length]) for some, length in zip(parts, lengths, strict=True)}
    return np.array(sorted(made), object)


def _with_typos(random: np.random.Generator, texts: Texts, share: float) -> Texts:
    """Replaces a letter in this share of the texts."""
    texts = texts.copy()
    rows = np.flatnonzero(random.random(len(texts)) < share)
    places, letters = random.random(len(rows)), random.choice(_LETTERS, len(rows))
    for row, place, letter in zip(rows.tolist(), places, letters, strict=True):
        text = texts[row]
        at = int(place * len(text))
        texts[row] = text[:at] + letter + text[at + 1 :]
    return texts


def _with_gaps(random: np.random.Generator, values: pa.Array, share: float) -> pa.Array:
    """Makes this share of the values null."""
    return pa.array(values.to_numpy(zero_copy_only=False), mask=random.random(len(values)) < share)
