"""Random calls of aggregates and windows, as the product says them and as DuckDB does."""

from __future__ import annotations

import random

from tests.generated.graphs.edges import Edge
from tests.generated.graphs.expressions import Expressions, Said, spell


def aggregate_call(rng: random.Random, edge: Edge) -> tuple[str, Said]:
    """Returns the kind and the call of an aggregate."""
    kind, said = _call(rng, edge)
    if rng.random() < 0.25:
        said = spell("{} FILTER (WHERE {})", said, Expressions(rng, edge).condition(1))
    return kind, said


def _call(rng: random.Random, edge: Edge) -> tuple[str, Said]:
    made = Expressions(rng, edge)
    kind = rng.choice(list(edge.columns.values()))
    depth = rng.choice((1, 3, 3))
    x, _y = made.of(kind, depth), made.of("int", 3)
    calls = [
        ("int", Said.same("count(*)")),
        ("int", spell("count({})", x)),
        ("int", spell("count(distinct {})", x)),
        ("int", spell("count_if({})", made.condition(2), duckdb="count(CASE WHEN {} THEN 1 END)")),
        (kind, spell("min({})", x)),
        (kind, spell("max({})", x)),
        ("flag", spell(f"bool_{rng.choice(('and', 'or'))}({{}})", made.condition(2))),
    ]
    if kind in ("int", "real"):
        calls += [(kind, spell("sum({})", x)), ("real", spell("avg({})", x))]
        calls += [("real", spell("median({})", x))]
        calls += [("real", spell("quantile({}, 0.75)", x, duckdb="quantile_cont({}, 0.75)"))]
    if edge.has_order:
        calls += [
            (kind, spell(f"{name}({{}})", x, duckdb=f"{name}({{}} ORDER BY _n)"))
            for name in ("first", "last")
        ]
        text = made.of("text", 3)
        calls += [
            ("text", spell("string_agg({}, '; ')", text, duckdb="string_agg({}, '; ' ORDER BY _n)"))
        ]
    return rng.choice(calls)


def extreme_call(rng: random.Random, edge: Edge) -> tuple[str, Said]:
    """Returns `min_by` or `max_by`; of several rows the first counts, where rows with nulls are left out."""
    made = Expressions(rng, edge)
    kind = rng.choice(list(edge.columns.values()))
    x, y = made.of(kind, 3), Said.same(rng.choice(list(edge.columns)))
    name, down = rng.choice((("min_by", ""), ("max_by", "DESC")))
    theirs = f"first({{0}} ORDER BY {{1}} {down}, _n) FILTER (WHERE {{0}} IS NOT NULL AND {{1}} IS NOT NULL)"
    return kind, spell(f"{name}({{0}}, {{1}})", x, y, duckdb=theirs)


def window_call(rng: random.Random, edge: Edge) -> tuple[str, Said, bool]:
    """Returns the kind, a window function without its window, and whether it sees the whole partition."""
    made = Expressions(rng, edge)
    kind = rng.choice(list(edge.columns.values()))
    x, n = made.of(kind, rng.choice((1, 3))), rng.randint(1, 3)
    calls = [
        ("int", Said.same("row_number()"), True),
        (kind, spell("lag({})", x), True),
        (kind, spell(f"lag({{}}, {n})", x), True),
        (kind, spell(f"lead({{}}, {n})", x), True),
        (kind, spell("first({})", x), False),
        (kind, spell("last({})", x), False),
        (kind, spell("min({})", x), False),
        (kind, spell("max({})", x), False),
        ("int", Said.same("count(*)"), False),
        ("int", spell("count({})", x), False),
    ]
    if kind in ("int", "real"):
        calls += [(kind, spell("sum({})", x), False), ("real", spell("avg({})", x), False)]
    return rng.choice(calls)
