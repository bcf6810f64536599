"""Generates rows whose weight is one column of strings of a kind, and rows of counters.

None of them is a log that a format could be tuned to: prose, as many templates as a program may have, paths,
random letters, documents of JSON, names of people, stack traces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

Strings = Callable[[np.random.Generator, int], list[str]]
_START_MS: Final = 1_700_000_000_000
_DAY_MS: Final = 86_400_000
_WORDS: Final = 20_000
_TEMPLATES: Final = 20_000
_LETTERS: Final = np.array(list("eeeeeaaaaiiiooooutttttnnnnsssrrrlllddccmmppggbbffhvkwyxjqz"))
_ALPHANUMERICS: Final = np.array(
    list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
)


def _table(strings: Strings, rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns rows of a time, a source and a string."""
    return pa.table(
        {
            "time": pa.array(_START_MS + rng.integers(0, _DAY_MS, rows), pa.timestamp("ms")),
            "source": [f"source-{number:03d}" for number in rng.integers(0, 200, rows)],
            "value": strings(rng, rows),
        }
    )


def _words(rng: np.random.Generator, count: int) -> list[str]:
    """Returns distinct words."""
    found: dict[str, None] = {}
    while len(found) < count:
        sizes = rng.integers(2, 12, count)
        letters = "".join(rng.choice(_LETTERS, int(sizes.sum())))
        ends = np.cumsum(sizes)
        found.update(
            (letters[end - size : end], None) for end, size in zip(ends, sizes, strict=True)
        )
    return list(found)[:count]


def _ranks(rng: np.random.Generator, count: int, size: int) -> list[int]:
    """Returns `size` numbers below `count`, of which small ones are frequent, as words in a language."""
    ranks: list[int] = (count ** rng.random(size)).astype(np.int64).tolist()
    return [rank - 1 for rank in ranks]


def prose(rng: np.random.Generator, rows: int) -> list[str]:
    words = _words(rng, _WORDS)
    sizes = rng.integers(6, 24, rows)
    places = iter(_ranks(rng, _WORDS, int(sizes.sum())))
    return [
        " ".join([words[next(places)] for _ in range(size)]).capitalize() + "."
        for size in sizes.tolist()
    ]


def templates(rng: np.random.Generator, rows: int) -> list[str]:
    """Returns messages of 20,000 templates with one to three numbers or ids."""
    words = _words(rng, _WORDS)
    made = []
    for _ in range(_TEMPLATES):
        parts = [words[place] for place in _ranks(rng, _WORDS, int(rng.integers(4, 12)))]
        for place in rng.integers(0, len(parts), int(rng.integers(1, 4))).tolist():
            parts[place] = ("{0}", "{1:08x}", "{2}ms")[place % 3]
        made.append(" ".join(parts))
    numbers = rng.integers(0, 10**9, (rows, 2)).tolist()
    millis = rng.integers(0, 5000, rows).tolist()
    return [
        made[place].format(first, second, ms)
        for place, (first, second), ms in zip(
            _ranks(rng, _TEMPLATES, rows), numbers, millis, strict=True
        )
    ]


def paths(rng: np.random.Generator, rows: int) -> list[str]:
    words = _words(rng, 3000)
    depths = rng.integers(2, 8, rows)
    places = iter(_ranks(rng, 3000, int(depths.sum())))
    numbers = rng.integers(0, 100_000, rows).tolist()
    kinds = ("py", "log", "parquet", "tar.gz", "jpg")
    return [
        f"/{'/'.join([words[next(places)] for _ in range(depth)])}-{number}.{kinds[number % 5]}"
        for depth, number in zip(depths.tolist(), numbers, strict=True)
    ]


def random_letters(rng: np.random.Generator, rows: int) -> list[str]:
    letters = "".join(rng.choice(_ALPHANUMERICS, 40 * rows))
    return [letters[start : start + 40] for start in range(0, 40 * rows, 40)]


def documents(rng: np.random.Generator, rows: int) -> list[str]:
    """Returns JSON objects of words, a list and a number; members are missing at random."""
    words, names = _words(rng, _WORDS), _words(rng, 12)
    sizes = rng.integers(4, 13, rows)
    places = iter(_ranks(rng, _WORDS, int(sizes.sum()) + 3 * rows))
    found = []
    for number, size in enumerate(sizes.tolist()):
        document: dict[str, object] = {name: words[next(places)] for name in names[:size]}
        document["tags"] = [words[next(places)] for _ in range(number % 4)]
        document["number"] = number % 977
        found.append(json.dumps(document))
    return found


def names(rng: np.random.Generator, rows: int) -> list[str]:
    words = [word.capitalize() for word in _words(rng, 8000)]
    first = _ranks(rng, 3000, rows)
    last = rng.integers(3000, 8000, rows).tolist()
    return [f"{words[one]} {words[other]}" for one, other in zip(first, last, strict=True)]


def stack_traces(rng: np.random.Generator, rows: int) -> list[str]:
    """Returns traces of 3 to 11 frames of Java, each below an error with its message."""
    words = _words(rng, 2000)
    packages = [".".join(words[place] for place in rng.integers(0, 300, 3)) for _ in range(200)]
    frames = []
    for place in range(4000):
        class_name = words[place % 1900].capitalize() + "Service"
        frames.append(
            f"\tat {packages[place % 200]}.{class_name}.{words[place % 700]}"
            f"({class_name}.java:{place * 7 % 900})"
        )
    depths = rng.integers(3, 12, rows)
    places = iter(_ranks(rng, len(frames), int(depths.sum())))
    numbers = rng.integers(0, 10**6, rows).tolist()
    return [
        f"java.lang.IllegalStateException: {words[number % 1999]} {number}\n"
        + "\n".join([frames[next(places)] for _ in range(depth)])
        for depth, number in zip(depths.tolist(), numbers, strict=True)
    ]


def counters(rng: np.random.Generator, rows: int) -> pa.Table:
    """Returns twelve columns of numbers that mostly grow, by time."""
    columns: dict[str, pa.Array] = {
        "time": pa.array(np.sort(_START_MS + rng.integers(0, _DAY_MS, rows)), pa.timestamp("ms"))
    }
    for place in range(12):
        steps = rng.poisson(3**place, rows)
        steps[rng.random(rows) < 0.001] *= 1000
        columns[f"counter_{place:02d}"] = pa.array(np.cumsum(steps))
    return pa.table(columns)


KINDS: Final[Mapping[str, Callable[[np.random.Generator, int], pa.Table]]] = {
    "prose": partial(_table, prose),
    "templates": partial(_table, templates),
    "paths": partial(_table, paths),
    "random-letters": partial(_table, random_letters),
    "documents": partial(_table, documents),
    "names": partial(_table, names),
    "stack-traces": partial(_table, stack_traces),
    "counters": counters,
}
"""All sorted by time."""
