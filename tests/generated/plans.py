"""What a generated case does, as values: drawn from a seed, and made smaller where a case is to be shrunk.

Every part has a seed of its own, so that leaving one out does not change the others.
"""

from __future__ import annotations

import random
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import types as pt

from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema
from tests.generated.types import NAMES, any_type, family_type, matrix_type, sort_type, variant

ID: Final = "id"
"""A column of whole numbers that tells all rows apart; most tables have it."""
COLUMNAR: Final = (
    "table",
    "table",
    "batches",
    "batch",
    "ipc file",
    "ipc stream",
    "parquet",
    "parquet",
)
TEXTS: Final = ("ndjson", "csv")
_TEXT_TYPES: Final = (
    pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.string(), pa.bool_(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("us"),
)  # fmt: skip
"""Of columns of which text files hold every value that is generated for them."""


class Column(Struct, frozen=True, kw_only=True):
    """One column of one writer."""

    name: str
    dtype: pa.DataType
    nullable: bool
    null_share: float
    extremes: float
    distinct: int
    seed: str


class Append(Struct, frozen=True, kw_only=True):
    """One write. mess: how odd the layout of arrays is."""

    how: str
    columns: tuple[Column, ...]
    rows: int
    mess: float
    breaks_not_null: bool
    seed: str


class Step(Struct, frozen=True):
    """Anything else: compact, delete, alter, vacuum, scan, export, verify."""

    kind: str
    seed: str


class Plan(Struct, frozen=True):
    """One case."""

    seed: int
    sort: SortSchema
    rows_per_fragment: int
    max_rows: int
    steps: tuple[Append | Step, ...]


def plan_of(seed: int) -> Plan:
    """Returns the case of a seed."""
    rng = random.Random(f"plan {seed}")
    is_text = rng.random() < 0.12
    size = rng.choice(("small",) * 8 + ("middle",) * 3 + ("large",))
    names = rng.sample(NAMES, len(NAMES))
    keys = [_column(rng, names.pop(), "key", is_text) for _ in range(rng.choice((1, 1, 2, 3)))]
    others = {"small": (0, 1, 2), "middle": (1, 2, 3), "large": (1, 3, 6)}[size]
    columns = keys + [
        _column(rng, names.pop(), "other", is_text) for _ in range(rng.choice(others))
    ]
    if rng.random() < 0.9:
        columns.append(
            Column(
                name=ID,
                dtype=pa.int64(),
                nullable=True,
                null_share=0.0,
                extremes=0.0,
                distinct=0,
                seed="id",
            )
        )
    is_family = not is_text and rng.random() < 0.15
    if is_family:
        # One column that every writer types in another way.
        family = replace(_column(rng, names.pop(), "family", is_text), extremes=0.2)
        columns = [*columns[: len(keys)], family]
    rng.shuffle(columns)
    sort = tuple(
        SortColumn(column.name, rng.choice((Order.ASC, Order.DESC)), rng.choice((Nulls.FIRST, Nulls.LAST)))
        for column in keys
    )  # fmt: skip
    rows = {"small": (0, 1, 3, 5, 8), "middle": (4, 8, 15), "large": (10, 20, 60)}[size]
    evolves = rng.random() < (0.0 if is_text else 0.45)
    key_names = {column.name for column in keys}
    steps: list[Append | Step] = []
    for number in range({"small": 4, "middle": 5, "large": 6}[size]):
        if number and rng.random() < (0.2 if is_family else 0.55):
            kind = rng.choice(
                ("compact", "compact", "compact", "delete", "delete", "alter", "vacuum")
            )
            kind = rng.choice((kind, kind, "export", "scan", "verify"))
            steps.append(Step(kind, f"{seed}/{number}"))
            continue
        if number and (evolves or is_family):
            columns = _evolved(rng, columns, names, key_names, 0.8 if is_family else 0.4)
        hows = (*TEXTS, *COLUMNAR) if is_text and (number or rng.random() < 0.5) else COLUMNAR
        steps.append(
            Append(
                how=rng.choice(hows),
                columns=tuple(columns),
                rows=rng.choice(rows),
                mess=rng.choice((0.0, 0.1, 0.3, 0.6)),
                breaks_not_null=rng.random() < 0.02,
                seed=f"{seed}/{number}",
            )
        )
    steps.append(Step(rng.choice(("compact", "export", "export", "verify")), f"{seed}/end"))
    per_fragment = max(rng.choice((2, 3, 5, 10, 1_000, 1_000)), rows[-1] // 6)
    max_rows = rng.choice((5, 7) if size == "large" else (2, 3, 5, 7))
    return Plan(seed, sort, per_fragment, max_rows, tuple(steps))


def _column(rng: random.Random, name: str, kind: str, is_text: bool) -> Column:
    if is_text:
        dtype = rng.choice(_TEXT_TYPES)
        name = name or "empty"  # CSV has no empty names
    elif kind == "key":
        dtype = sort_type(rng)
    elif kind == "family":
        dtype = family_type(rng)
    elif rng.random() < 0.1:
        # Mostly without nulls, since of such values Arrow's kernels have code of their own.
        dtype = matrix_type(rng)
        return Column(
            name=name,
            dtype=dtype,
            nullable=True,
            null_share=rng.choice((0.0, 0.0, 0.3)),
            extremes=0.02,
            distinct=50,
            seed=f"{rng.random()}",
        )
    else:
        dtype = any_type(rng, rng.choice((0, 1, 2, 3)))
    nullable = pt.is_null(dtype) or rng.random() < 0.9
    null_share = rng.choice((0.0, 0.1, 0.3, 0.3, 1.0 if rng.random() < 0.2 else 0.5))
    extremes = rng.choice((0.0, 0.02, 0.2))
    distinct = rng.choice((1, 2, 5, 50))
    return Column(
        name=name,
        dtype=dtype,
        nullable=nullable,
        null_share=null_share,
        extremes=extremes,
        distinct=distinct,
        seed=f"{rng.random()}",
    )


def _evolved(
    rng: random.Random, columns: list[Column], names: list[str], keys: set[str], share: float
) -> list[Column]:
    """Returns the columns of a later writer: some are gone, new, of another type, or elsewhere.

    share: of the columns that have another type.
    """
    result = []
    for column in columns:
        if column.name not in keys and rng.random() < 0.1:
            continue
        if column.name != ID and rng.random() < share:
            column = replace(column, dtype=variant(rng, column.dtype))
        if column.name != ID and rng.random() < 0.1:
            column = replace(column, nullable=True)
        result.append(column)
    if names and rng.random() < 0.4:
        result.append(_column(rng, names.pop(), "other", is_text=False))
    if rng.random() < 0.5:
        rng.shuffle(result)
    return result


def smaller(plan: Plan) -> list[Plan]:
    """Returns plans that do a little less, those that do much less first."""
    found = []
    for at in range(len(plan.steps) - 1, -1, -1):
        steps = plan.steps[:at] + plan.steps[at + 1 :]
        if any(isinstance(step, Append) for step in steps):
            found.append(replace(plan, steps=steps))
    keys = {column.column for column in plan.sort}
    appends = [step for step in plan.steps if isinstance(step, Append)]
    names = {column.name: None for step in appends for column in step.columns}
    found += [
        _changed(plan, lambda step, name=name: _without(step, name))
        for name in names
        if name not in keys
    ]
    if len(plan.sort) > 1:
        found += [
            replace(plan, sort=tuple(c for c in plan.sort if c is not column))
            for column in plan.sort
        ]
    for at, step in enumerate(plan.steps):
        if not isinstance(step, Append):
            continue
        fewer = {step.rows // 2, step.rows - 1}
        found += [_at(plan, at, replace(step, rows=n)) for n in fewer if 0 <= n < step.rows]
        if step.mess:
            found.append(_at(plan, at, replace(step, mess=0.0)))
        if step.how != "table":
            found.append(_at(plan, at, replace(step, how="table")))
    return found


def _changed(plan: Plan, change) -> Plan:
    steps = tuple(change(step) if isinstance(step, Append) else step for step in plan.steps)
    return replace(plan, steps=steps)


def _at(plan: Plan, place: int, step: Append) -> Plan:
    return replace(plan, steps=(*plan.steps[:place], step, *plan.steps[place + 1 :]))


def _without(step: Append, name: str) -> Append:
    return replace(step, columns=tuple(c for c in step.columns if c.name != name))
