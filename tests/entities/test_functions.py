"""What functions of rules give, conditions, rules of several parts, and mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from compactor.entities.expressions import ExpressionError, parse_operand, shown
from compactor.errors import ConfigError
from tests.entities.support import spec
from tests.entities.test_matching import values_of
from tests.support.wording import refuses


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        (["substring", 2, 4, "a.x"], ["abcdef", "a", 12345, True], ["cd", "34"]),
        (["substring", 2, "a.x"], "aé😀def", ["😀def"]),
        (["substring", -3, -1, "a.x"], "abcdef", ["de"]),
        (["substring", -(10**30), 10**30, "a.x"], "abc", ["abc"]),
        (["substring", 10**30, "a.x"], "abc", []),
        (["replace", "-", "", "a.x"], ["1-2-3", "4", 5.0], ["123", "4", "5"]),
        (["replace", ".", "\\1", "a.x"], "a.b", ["a\\1b"]),
        (["strip", "a.x"], "\t x y\u00a0", ["x y"]),
        (["strip", "0-", "a.x"], ["00-10-", 1200], ["1", "12"]),
        (["unaccent", "a.x"], ["Ångström", "Łódź Straße ﬁ", "Ελλάς", "한국 が", "x"],
         ["Angstrom", "Lodz Strasse fi", "Ελλας", "한국 が", "x"]),
        (["regex", "[0-9]{5}", "a.x"], ["D-10115 Berlin 99999", "none", 10115], ["10115", "10115"]),
        (["regex", r"(?i)^mr\.? (\w+)", "a.x"], ["Mr. Bean", "mr x", "Dr. No"], ["Bean", "x"]),
        (["regex", "x*", "a.x"], ["yy", "xx"], ["xx"]),
        (["except", "a.x", ["literal", "n/a", 0, True]], ["n/a", "N", 0, 0.0, "0", True], ["N", 0.0, "0"]),
        (["except", "a.x", "a.y", "a.z"], [1, 2, 3, 3], [3, 3]),
        (["and", "a.x", "a.y"], [1, "", "b"], [[1, 1], [1, 2], ["b", 1], ["b", 2]]),
        (["if", "a.x", "a.y", "a.z"], ["", "  ", None], [2]),
        (["if", "a.x", "a.y", "a.z"], [True, False], [2]),
        (["if", "a.x", "a.y", "a.z"], [True, "x"], [1, 2]),
        (["if", "a.w", "a.y"], 1, []),
        (["if", ["matches", "4?*", "a.x"], "a.y", "a.z"], ["47", 4711], [1, 2]),
        (["if", ["matches", "4?*", "a.x"], "a.y", "a.z"], ["47", "4"], [2]),
        (["if", ["matches", "*", "a.x"], "a.y", "a.z"], ["47", True], [2]),
        (["if", ["matches", "*", "a.w"], "a.y", "a.z"], 1, [2]),
        (["if", ["matches", "a.b\\[*", "a.x"], "a.y", "a.z"], "a.b\\[\n", [1, 2]),
        (["if", ["and", "a.y", ["matches", "é", "a.x"]], "a.y", "a.z"], "é", [1, 2]),
        (["if", ["and", "a.w", ["matches", "é", "a.x"]], "a.y", "a.z"], "é", [2]),
    ],
)  # fmt: skip
def test_functions_give(expression: Any, value: Any, expected: list[Any]) -> None:
    [found] = values_of(expression, {"x": value, "y": [1, 2], "z": 2})
    assert [(type(v), v) for v in found] == [(type(v), v) for v in expected]


def test_conditions_are_of_each_entity_alone() -> None:
    entities: list[dict[str, Any]] = [
        {"x": 1, "y": "a"},
        {"y": "b", "z": "c"},
        {"x": 2, "y": ["d", "e"]},
    ]
    assert values_of(["if", "a.x", "a.y", ["upper", "a.z"]], *entities) == [
        ["a"],
        ["C"],
        ["d", "e"],
    ]


@pytest.mark.parametrize(
    "blank", ["", " ", "\t\n\r\f", "\u00a0\u3000\u2003", "\u200b\ufeff", "\x00\x1f"]
)
def test_a_blank_text_is_no_value(blank: str) -> None:
    assert values_of("a.x", {"x": [blank, f"{blank}x", "x"]}) == [[f"{blank}x", "x"]]
    assert values_of(["concat", "a.x", "a.y"], {"x": blank, "y": ""}) == [[]]
    # As a part of a text it stays, as a part of a list it does not.
    assert values_of(["concat", "a.x", "a.y"], {"x": blank, "y": "y"}) == [[f"{blank}y"]]
    assert values_of(["and", "a.x", "a.y"], {"x": blank, "y": "y"}) == [[]]


def test_blank_texts_link_if_they_are_asked_to() -> None:
    assert spec("A a", link_blanks=True).link_blanks


def test_a_rule_of_several_parts_is_one_of_lists() -> None:
    parts = [["eq", "a.x", "b.x"], ["eq", ["lower", "b.y"], "a.y"], ["eq", "a.z", "b.z"]]
    lists = ["eq", ["and", "a.x", "a.y", "a.z"], ["and", "b.x", ["lower", "b.y"], "b.z"]]
    found = spec("A a", "B b", equality=[["and", *parts]]).rules
    assert found == spec("A a", "B b", equality=[lists]).rules
    assert (
        spec("A a", "B b", equality=[["and", parts[0]]]).rules
        == spec("A a", "B b", equality=[parts[0]]).rules
    )
    assert (
        len(spec("A a", equality=[["and", ["eq", "a.x", "a.x"], ["eq", "a.y", "a.z"]]]).rules) == 1
    )


@pytest.mark.parametrize(
    "rule",
    [
        ["and"],
        ["and", ["eq", "a.x", "b.x"], "a.y"],
        ["and", ["eq", "a.x", "b.x"], ["eq", "a.y", "c.y"]],
        ["and", ["eq", "a.x", "b.x"], ["eq", "a.y", "a.y"]],
        ["eq", ["and", "a.x", ["matches", "x", "a.y"]], "b.x"],
    ],
)
def test_a_mistake_in_a_rule_of_several_parts_is_named(rule: Any) -> None:
    with refuses(ConfigError):
        spec("A a", "B b", "C c", equality=[rule])


@pytest.mark.parametrize(
    "expression",
    [
        ["substring", "a.x"],
        ["substring", "1", "a.x"],
        ["substring", True, "a.x"],
        ["substring", 1, 2, 3, "a.x"],
        ["replace", "", "y", "a.x"],
        ["replace", "x", "a.x"],
        ["strip", "", "a.x"],
        ["strip"],
        ["regex", "(", "a.x"],
        ["regex", r"(a)\1", "a.x"],
        ["regex", "(?=a)", "a.x"],
        ["regex", "a{1,1000}{1,1000}", "a.x"],
        ["matches", "x", "a.x"],
        ["if", ["matches", "a.x"], "a.x"],
        ["if", ["matches", "?" * 1_001, "a.x"], "a.x"],
        ["regex", "x" * 1_001, "a.x"],
        ["if", "a.x"],
        ["if", ["and"], "a.x"],
        ["except", "a.x"],
        ["and", "a.x"],
        ["literal", []],
        ["concat", ["literal", float("nan")], "a.x"],
    ],
)  # fmt: skip
def test_a_mistake_in_an_expression_is_named(expression: Any) -> None:
    with refuses(ExpressionError):
        parse_operand(expression)


def test_an_expression_is_shown_as_it_is_written() -> None:
    for text in (
        ["if", ["and", ["matches", "4*", "a.x"], "a.y"], ["substring", 0, 2, "a.x"], ["strip", "é", "a.z"]],
        ["except", "a.x", ["literal", "n/a", 0, True]],
    ):  # fmt: skip
        said = shown(parse_operand(text))
        assert said.replace('"', "").replace("true", "True") == str(text).replace("'", "")
