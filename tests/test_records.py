"""Records of more than five fields are made by the names of their fields: none is mistaken for another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("compactor", "format", "bench", "deploy", "tests")
MAX_POSITIONAL: Final = 5
KINDS: Final = ("dataclass", "Struct", "NamedTuple")


def trees() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def last_name(node: ast.expr) -> str:
    """The name of what a decorator, a base or a call names, without its module and arguments."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def kind_of(node: ast.ClassDef) -> str | None:
    named = map(last_name, [*node.decorator_list, *node.bases])
    return next((name for name in named if name in KINDS), None)


def fields_of(node: ast.ClassDef) -> list[str]:
    """The fields that a maker of the record may give; those of its bases are not known here."""
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
        and "init=False" not in ast.unparse(item)
    ]


def is_keyword_only(node: ast.ClassDef) -> bool:
    calls = [item.keywords for item in node.decorator_list if isinstance(item, ast.Call)]
    keywords = [keyword for call in calls for keyword in call] + node.keywords
    return any(word.arg == "kw_only" and ast.unparse(word.value) == "True" for word in keywords)


def test_records_of_more_than_five_fields_take_keywords_only() -> None:
    found = 0
    for place, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or kind_of(node) not in KINDS[:2]:
                continue
            if len(fields_of(node)) > MAX_POSITIONAL:
                found += 1
                assert is_keyword_only(node), f"{place}: {node.name} needs kw_only=True"
    assert found > 50


def test_named_tuples_of_more_than_five_fields_are_made_by_keywords_or_of_a_whole_tuple() -> None:
    """A named tuple cannot demand keywords, so its calls are looked at."""
    product = [tree for place, tree in trees() if place.startswith(("compactor/", "format/"))]
    nodes = [node for tree in product for node in ast.walk(tree)]
    wide = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and kind_of(node) == "NamedTuple"
        and len(fields_of(node)) > MAX_POSITIONAL
    }
    assert wide
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node) in wide:
            given = [ast.unparse(item) for item in node.args if not isinstance(item, ast.Starred)]
            assert not given, (
                f"{ast.unparse(node.func)}({given[0]}, ...) gives a field by its position"
            )
