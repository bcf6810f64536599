"""Random expressions and conditions, each as the product says it and as DuckDB does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from tests.generated.graphs.edges import SQL, Edge, literal

_MAX_DEPTH: Final = 3
_PATTERNS: Final = ("[a-c]+", "(\\w)(\\w)", "^a", "[0-9]", "x$", "é|ë", "")
_UNITS: Final = ("year", "quarter", "month", "week", "day")
_SHORT_UNITS: Final = ("hour", "minute", "second")


class Said(Struct, frozen=True):
    """One expression in both dialects."""

    ours: str
    duckdb: str

    @classmethod
    def same(cls, text: str) -> Said:
        return cls(text, text)


def spell(template: str, *parts: Said, duckdb: str | None = None) -> Said:
    """Fills in parts; `duckdb` is that template where it differs."""
    return Said(
        template.format(*(part.ours for part in parts)),
        (duckdb or template).format(*(part.duckdb for part in parts)),
    )


class Expressions:
    """Makes expressions over the columns of one edge."""

    def __init__(self, rng: random.Random, edge: Edge) -> None:
        self._rng, self._edge = rng, edge

    def of(self, kind: str, depth: int = 0) -> Said:
        """Returns an expression of a kind."""
        rng = self._rng
        columns = self._edge.of_kind(kind)
        if depth >= _MAX_DEPTH or rng.random() < 0.3:
            if columns and rng.random() < 0.85:
                return Said.same(rng.choice(columns))
            return Said.same(literal(rng, kind))
        if kind == "flag":
            return self.condition(depth + 1)
        makers = [*_OF_KIND[kind], *_OF_ANY]
        return rng.choice(makers)(self, kind, depth + 1)

    def condition(self, depth: int = 0) -> Said:
        """Returns an expression that is true, false or null."""
        rng = self._rng
        if depth < _MAX_DEPTH and rng.random() < 0.35:
            joint = rng.choice(
                ("({} AND {})", "({} OR {})", "(NOT ({} AND {}))", "(NOT ({} OR {}))")
            )
            return spell(joint, self.condition(depth + 1), self.condition(depth + 1))
        kind = rng.choice(list(self._edge.columns.values()))
        return rng.choice(_CONDITIONS[kind])(self, kind, depth + 1)

    # --- of any kind ---

    def _fallback(self, kind: str, depth: int) -> Said:
        return spell("coalesce({}, {})", self.of(kind, depth), self.of(kind, depth))

    def _null_if(self, kind: str, depth: int) -> Said:
        return spell("nullif({}, {})", self.of(kind, depth), self.of(kind, depth))

    def _case(self, kind: str, depth: int) -> Said:
        template = self._rng.choice(
            ("CASE WHEN {0} THEN {1} ELSE {2} END", "CASE WHEN {0} THEN {1} WHEN {2} IS NULL THEN {2} END",
             "CASE {1} WHEN {2} THEN {3} ELSE {1} END")
        )  # fmt: skip
        return spell(template, self.condition(depth), *(self.of(kind, depth) for _ in range(3)))

    def _if(self, kind: str, depth: int) -> Said:
        return spell(
            "if({}, {}, {})", self.condition(depth), self.of(kind, depth), self.of(kind, depth)
        )

    def _extreme(self, kind: str, depth: int) -> Said:
        name = self._rng.choice(("greatest", "least"))
        return spell(f"{name}({{}}, {{}})", self.of(kind, depth), self.of(kind, depth))

    # --- by kind ---

    def _sum(self, kind: str, depth: int) -> Said:
        sign = self._rng.choice("+-")
        return _cast(spell(f"({{}} {sign} {{}})", self.of(kind, depth), self.of(kind, depth)), kind)

    def _absolute(self, kind: str, depth: int) -> Said:
        return spell("abs({})", self.of(kind, depth))

    def _whole(self, kind: str, depth: int) -> Said:
        name = self._rng.choice(("floor", "ceil", "trunc", "round"))
        return _cast(spell(f"({name}({{}}) + 0)", self.of(kind, depth)), kind)

    def _divided(self, _kind: str, depth: int) -> Said:
        by = self._rng.choice((-7, 2, 3, 10))
        one, other = self.of("int", depth), self.of("int", depth)
        if not any(column in other.ours for column in self._edge.columns):
            other = Said.same("nullif(1, 1)")  # a call of constants that fails is refused
        return self._rng.choice(
            (spell(f"({{}} / {by})", one, duckdb=f"({{}} // {by})"), spell(f"({{}} % {by})", one),
             spell("({0} / nullif({1}, 0))", one, other,
                   duckdb="({0} // nullif({1}, 0))"),
             spell("CASE WHEN {1} <> 0 THEN {0} / {1} END", one, other,
                   duckdb="CASE WHEN {1} <> 0 THEN {0} // {1} END"))
        )  # fmt: skip

    def _int_of_text(self, _kind: str, depth: int) -> Said:
        template = self._rng.choice(
            ("length({0})", "strpos({0}, 'a')", "TRY_CAST({0} AS BIGINT)", "length(replace({0}, 'h', ''))")
        )  # fmt: skip
        # DuckDB rounds fractions, where ours are no integers.
        duckdb = template.replace(
            "TRY_CAST({0}", "TRY_CAST(CASE WHEN {0} NOT LIKE '%.%' THEN {0} END"
        )
        return _cast(spell(template, self.of("text", depth), duckdb=duckdb), "int")

    def _part_of_time(self, _kind: str, depth: int) -> Said:
        kind = self._rng.choice(("time", "date"))
        units = _UNITS + (_SHORT_UNITS if kind == "time" else ()) + ("dow", "isodow", "doy")
        unit = self._rng.choice(units)
        template = self._rng.choice((f"date_part('{unit}', {{}})", f"extract({unit} from {{}})"))
        return _cast(spell(template, self.of(kind, depth)), "int")

    def _halved(self, _kind: str, depth: int) -> Said:
        return self._rng.choice(
            (spell("({} / 4)", self.of("real", depth)), spell("({} * 2)", self.of("real", depth)),
             _cast(self.of("int", depth), "real"), _cast(self.of("money", depth), "real"))
        )  # fmt: skip

    def _money(self, _kind: str, depth: int) -> Said:
        return _cast(spell("({} * 2)", self.of("money", depth)), "money")

    def _changed_text(self, _kind: str, depth: int) -> Said:
        rng = self._rng
        n, pattern = rng.choice((-2, -1, 1, 2, 3)), rng.choice(_PATTERNS)
        template = rng.choice(
            ("upper({})", "lower({})", "trim({}, 'a\" ')", "ltrim({}, 'ab')", "rtrim({}, 'b')", "reverse({})",
             f"substring({{}}, {n})", f"substring({{}}, {n}, 2)", f"left({{}}, {n})", f"right({{}}, {n})",
             "replace({}, 'a', 'zz')", f"split_part({{}}, ',', {n})", "lpad({}, 4, '*')", "rpad({}, 6, 'xy')",
             f"regexp_extract({{}}, '{pattern}')", f"regexp_replace({{}}, '{pattern}', '<\\0>')",
             f"regexp_replace({{}}, '{pattern}', '-', 'g')", "CASE WHEN {0} LIKE '%a%' THEN 'y' ELSE {0} END")
        )  # fmt: skip
        return spell(template, self.of("text", depth))

    def _joined_text(self, _kind: str, depth: int) -> Said:
        one, other = self.of("text", depth), self.of("text", depth)
        template = self._rng.choice(
            ("({} || {})", "concat({}, '-', {})", "concat_ws('/', {}, {})", "concat({0}, {0})")
        )
        return spell(template, one, other)

    def _text_of(self, _kind: str, depth: int) -> Said:
        kind = self._rng.choice(("int", "flag", "date", "money"))
        return _cast(self.of(kind, depth), "text")

    def _moved_time(self, kind: str, depth: int) -> Said:
        unit = self._rng.choice(("month", "day", "week", *(_SHORT_UNITS if kind == "time" else ())))
        if self._rng.random() < 0.5:
            return _cast(spell(f"date_trunc('{unit}', {{}})", self.of(kind, depth)), kind)
        sign, number = self._rng.choice("+-"), self._rng.randint(1, 40)
        moved = spell(f"({{}} {sign} INTERVAL '{number} {unit}')", self.of(kind, depth))
        return _cast(moved, kind)

    def _other_time(self, kind: str, depth: int) -> Said:
        if kind == "time":
            return _cast(self.of("date", depth), "time")
        return _cast(spell("date_trunc('day', {})", self.of("time", depth)), "date")

    # --- conditions ---

    def _compared(self, kind: str, depth: int) -> Said:
        operator = self._rng.choice(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"))
        return spell(f"({{}} {operator} {{}})", self.of(kind, depth), self.of(kind, depth))

    def _is_null(self, kind: str, depth: int) -> Said:
        return spell(f"({{}} IS {self._rng.choice(('', 'NOT '))}NULL)", self.of(kind, depth))

    def _one_of(self, kind: str, depth: int) -> Said:
        rng = self._rng
        given = ", ".join(literal(rng, kind) for _ in range(rng.randint(1, 3)))
        return spell(f"({{}} {rng.choice(('', 'NOT '))}IN ({given}))", self.of(kind, depth))

    def _between(self, kind: str, depth: int) -> Said:
        return spell("({} BETWEEN {} AND {})", *(self.of(kind, depth) for _ in range(3)))

    def _like(self, _kind: str, depth: int) -> Said:
        rng = self._rng
        template = rng.choice(
            ("({} LIKE '%a%')", "({} NOT LIKE '_')", "({} ILIKE 'Z%')", "({} LIKE 'a%')",
             "starts_with({}, 'a')", "contains({}, 'a')", "({} LIKE '!%' ESCAPE '!')",
             f"regexp_matches({{}}, '{rng.choice(_PATTERNS)}')")
        )  # fmt: skip
        return spell(template, self.of("text", depth))

    def _is_so(self, _kind: str, depth: int) -> Said:
        template = self._rng.choice(("({} IS TRUE)", "({} IS FALSE)", "({} = true)", "({})"))
        return spell(template, self.of("flag", depth))


def _cast(said: Said, kind: str) -> Said:
    return spell(f"CAST({{}} AS {SQL[kind]})", said)


_Maker = Callable[[Expressions, str, int], Said]
_OF_ANY: Final[tuple[_Maker, ...]] = (
    Expressions._fallback,
    Expressions._null_if,
    Expressions._case,
    Expressions._if,
    Expressions._extreme,
)
_NUMBERS: Final[tuple[_Maker, ...]] = (Expressions._sum, Expressions._sum, Expressions._absolute)
_OF_KIND: Final[Mapping[str, tuple[_Maker, ...]]] = {
    "int": (
        *_NUMBERS,
        Expressions._divided,
        Expressions._divided,
        Expressions._int_of_text,
        Expressions._part_of_time,
    ),
    "real": (*_NUMBERS, Expressions._whole, Expressions._halved, Expressions._halved),
    "money": (*_NUMBERS, Expressions._money, Expressions._whole),
    "text": (
        Expressions._changed_text,
        Expressions._changed_text,
        Expressions._changed_text,
        Expressions._joined_text,
        Expressions._text_of,
    ),
    "time": (Expressions._moved_time, Expressions._moved_time, Expressions._other_time),
    "date": (Expressions._moved_time, Expressions._moved_time, Expressions._other_time),
}
_ANY_CONDITION: Final[tuple[_Maker, ...]] = (
    Expressions._compared,
    Expressions._compared,
    Expressions._is_null,
    Expressions._one_of,
    Expressions._between,
)
_CONDITIONS: Final[Mapping[str, tuple[_Maker, ...]]] = {
    **dict.fromkeys(SQL, _ANY_CONDITION),
    "text": (*_ANY_CONDITION, Expressions._like, Expressions._like, Expressions._like),
    "flag": (Expressions._compared, Expressions._is_null, Expressions._is_so),
}
