"""Random conditions as trees: written for us and for DuckDB, and made smaller where one is found wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.generated.condition_columns import Column, Literal, literal, quoted, some_text

_OPS: Final = ("=", "<>", "<", "<=", ">", ">=")
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
DUCKDB_FOLDED: Final = (("\u03c2", "\u03c3"), ("\u017f", "s"), ("\u0130", "\ue130"))
"""For ILIKE: characters that simple case folding makes equal to others, or to none, other than lower case."""


class Compare(Struct, frozen=True):
    column: Column
    op: str
    value: Literal
    is_mirrored: bool = False

    def ours(self) -> str:
        if self.is_mirrored:
            return f"{self.value.ours} {_MIRRORED[self.op]} {_named(self.column)}"
        return f"{_named(self.column)} {self.op} {self.value.ours}"

    def duckdb(self, names: Mapping[str, str]) -> str:
        return _compared(self.column, self.op, self.value, names)


class Between(Struct, frozen=True):
    column: Column
    low: Literal
    high: Literal

    def ours(self) -> str:
        return f"{_named(self.column)} BETWEEN {self.low.ours} AND {self.high.ours}"

    def duckdb(self, names: Mapping[str, str]) -> str:
        low = _compared(self.column, ">=", self.low, names)
        return f"({low} AND {_compared(self.column, '<=', self.high, names)})"


class IsIn(Struct, frozen=True):
    column: Column
    values: tuple[Literal | None, ...]
    """None for NULL."""

    def ours(self) -> str:
        items = ("NULL" if value is None else value.ours for value in self.values)
        return f"{_named(self.column)} IN ({', '.join(items)})"

    def duckdb(self, names: Mapping[str, str]) -> str:
        parts = (
            "NULL::BOOLEAN" if value is None else _compared(self.column, "=", value, names)
            for value in self.values
        )
        return f"({' OR '.join(parts)})"


class Like(Struct, frozen=True):
    column: Column
    pattern: str
    escape: str | None
    ignores_case: bool

    def ours(self) -> str:
        word = "ILIKE" if self.ignores_case else "LIKE"
        escape = "" if self.escape is None else f" ESCAPE {quoted(self.escape)}"
        return f"{_named(self.column)} {word} {quoted(self.pattern)}{escape}"

    def duckdb(self, names: Mapping[str, str]) -> str:
        column, escape, word = names[self.column.name], self.escape or "\\", "LIKE"
        pattern = self.pattern
        # DuckDB takes no other characters, and in ILIKE a letter of the other case too.
        if not escape.isascii() or escape.isalpha():
            pattern, escape = _with_backslashes(pattern, escape), "\\"
        pattern = quoted(pattern)
        if self.ignores_case:
            word = "ILIKE"
            for character, folded in DUCKDB_FOLDED:
                column = f"replace({column}, '{character}', '{folded}')"
                pattern = pattern.replace(character, folded)
        return f"({column} {word} {pattern} ESCAPE {quoted(escape)})"


class IsNull(Struct, frozen=True):
    column: Column

    def ours(self) -> str:
        return f"{_named(self.column)} IS NULL"

    def duckdb(self, names: Mapping[str, str]) -> str:
        return f"({names[self.column.name]} IS NULL)"


class Flag(Struct, frozen=True):
    """A boolean column by itself, or with IS TRUE and the like."""

    column: Column
    suffix: str

    def ours(self) -> str:
        return f"{_named(self.column)}{self.suffix}"

    def duckdb(self, names: Mapping[str, str]) -> str:
        return f"({names[self.column.name]}{self.suffix})"


class Constant(Struct, frozen=True):
    text: str

    def ours(self) -> str:
        return self.text

    def duckdb(self, names: Mapping[str, str]) -> str:
        return f"({self.text})::BOOLEAN"


class Not(Struct, frozen=True):
    part: Tree
    is_inside: bool = False
    """Whether it is written as NOT IN, NOT LIKE, NOT BETWEEN, IS NOT NULL."""

    def ours(self) -> str:
        text = self.part.ours()
        match self.part if self.is_inside else None:
            case IsIn(column) | Like(column) | Between(column):
                start = f"{_named(column)} "
                return f"{start}NOT {text.removeprefix(start)}"
            case IsNull():
                return text.removesuffix("NULL") + "NOT NULL"
        return f"NOT ({text})"

    def duckdb(self, names: Mapping[str, str]) -> str:
        return f"(NOT {self.part.duckdb(names)})"


class Several(Struct, frozen=True):
    word: str
    """AND or OR."""
    parts: tuple[Tree, ...]

    def ours(self) -> str:
        return f" {self.word} ".join(f"({part.ours()})" for part in self.parts)

    def duckdb(self, names: Mapping[str, str]) -> str:
        return "(" + f" {self.word} ".join(part.duckdb(names) for part in self.parts) + ")"


Tree = Compare | Between | IsIn | Like | IsNull | Flag | Constant | Not | Several


def _named(column: Column) -> str:
    name = column.shown or column.name
    is_plain = name in ("a", "A", "b", "c", "_", "ä", "r1")
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _with_backslashes(pattern: str, escape: str) -> str:
    characters, out = iter(pattern), []
    for character in characters:
        if character == escape:
            out.append("\\" + next(characters))
        else:
            out.append("\\\\" if character == "\\" else character)
    return "".join(out)


def _compared(column: Column, op: str, value: Literal, names: Mapping[str, str]) -> str:
    name = names[column.name]
    if column.is_float:
        return f"({_float_compared(name, op, value)} AND NOT isnan({name}))"
    if value.native is None:
        return f"({names[column.name + '$']} {op} {value.sortable})"
    return f"({name} {op} {value.native})"


def _float_compared(name: str, op: str, value: Literal) -> str:
    if not value.overflow:
        return f"{name} {op} {value.native}"
    if op in ("=", "<>"):
        return f"{name} {'<>' if op == '=' else '='} {name}"
    infinity = f"CAST('{'-' if value.overflow < 0 else ''}inf' AS DOUBLE)"
    # Nothing lies between an infinity and a number that is greater than all others.
    outward = ">=" if value.overflow > 0 else "<="
    return (
        f"{name} {outward if op[0] == outward[0] else {'>': '<', '<': '>'}[outward[0]]} {infinity}"
    )


# Random ones


def some_tree(
    rng: Random, columns: Sequence[Column], values: Mapping[str, Sequence[Any]], depth: int = 0
) -> Tree:
    """A condition on columns whose values are about `values`."""
    chance = rng.random()
    if depth < 3 and chance < 0.3:
        parts = [some_tree(rng, columns, values, depth + 1) for _ in range(rng.choice([2, 2, 3]))]
        return Several(rng.choice(["AND", "OR"]), tuple(parts))
    if depth < 4 and chance < 0.45:
        return Not(some_tree(rng, columns, values, depth + 1), is_inside=rng.random() < 0.5)
    if chance > 0.995:
        return Constant(rng.choice(["true", "false", "NULL"]))
    return _leaf(rng, columns, values)


def _leaf(rng: Random, columns: Sequence[Column], values: Mapping[str, Sequence[Any]]) -> Tree:
    column = rng.choice(columns)
    if not column.is_comparable or rng.random() < 0.06:
        return IsNull(column)
    of = values[column.name]
    if str(column.dtype) == "bool" and rng.random() < 0.4:
        return Flag(
            column, rng.choice(["", " IS TRUE", " IS FALSE", " IS NOT TRUE", " IS NOT FALSE"])
        )
    if column.is_text and rng.random() < 0.5:
        return _like(rng, column, of)
    kind = rng.random()
    if kind < 0.2:
        return Between(column, literal(rng, column, of), literal(rng, column, of))
    if kind < 0.4:
        items = [literal(rng, column, of) for _ in range(rng.randint(1, 4))]
        return IsIn(column, (*items, *([None] if rng.random() < 0.1 else [])))
    return Compare(column, rng.choice(_OPS), literal(rng, column, of), rng.random() < 0.2)


def _like(rng: Random, column: Column, of: Sequence[Any]) -> Like:
    escape = rng.choice([None, None, None, None, "\\", "#", "%", "_", "a", "ä", "'"])
    char = escape or "\\"
    texts = [value for value in of if value is not None]
    text = rng.choice(texts) if texts and rng.random() < 0.8 else some_text(rng)
    if rng.random() < 0.4:
        start = rng.randint(0, len(text))
        text = text[start : rng.randint(start, len(text))]
    if rng.random() < 0.2:
        text = text.swapcase()
    wild = rng.choice([0.0, 0.0, 0.1, 0.3])
    pattern = "".join(_patterned(rng, character, char, wild) for character in text)
    if rng.random() < 0.4:
        pattern += "%"
    if rng.random() < 0.3:
        pattern = "%" + pattern
    if char in "%_":  # which stands for itself then
        pattern = _escaped_whole(pattern, char)
    return Like(column, pattern, escape, rng.random() < 0.25)


def _patterned(rng: Random, character: str, escape: str, wild: float) -> str:
    """A character in a pattern: itself, a wildcard, or one that stands for itself."""
    if rng.random() < wild:
        return rng.choice(["_", "%", "_%", escape + character])
    if character == escape or (character in "%_" and rng.random() < 0.8):
        return escape + character
    return character


def _escaped_whole(pattern: str, escape: str) -> str:
    """The pattern without an escape character at its end."""
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if at == len(pattern) - 1:
                return pattern + escape
            at += 1
        at += 1
    return pattern


# Smaller ones


def smaller(tree: Tree) -> Iterator[Tree]:
    """Conditions that are parts of this one."""
    match tree:
        case Not(part):
            yield part
            for less in smaller(part):
                yield replace(tree, part=less)
        case Several(_, parts):
            yield from parts
            for place, part in enumerate(parts):
                for less in smaller(part):
                    yield replace(tree, parts=(*parts[:place], less, *parts[place + 1 :]))
        case IsIn(_, values) if len(values) > 1:
            for place in range(len(values)):
                yield replace(tree, values=(*values[:place], *values[place + 1 :]))
        case Between(column, low, high):
            yield Compare(column, ">=", low)
            yield Compare(column, "<=", high)


def columns_in(tree: Tree) -> dict[str, Column]:
    """The columns that a condition looks at, by name."""
    match tree:
        case Not(part):
            return columns_in(part)
        case Several(_, parts):
            return {name: c for part in parts for name, c in columns_in(part).items()}
        case Constant():
            return {}
        case _:
            return {tree.column.name: tree.column}
