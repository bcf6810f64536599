"""Expressions on columns, rules to edges, edges to components."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.entities.components import components
from compactor.entities.expressions import Values, evaluate, parse_operand
from compactor.entities.matching import edges_of_groups, groups_of_rule
from compactor.entities.texts import canonical
from tests.support.wording import refuses

TEXT = pa.large_string()


def values_of(expression: Any, *entities: dict[str, Any]) -> list[list[Any]]:
    """Of each entity."""
    names = {name for entity in entities for name in entity}
    columns = {
        name: canonical(
            pa.array([json.dumps(e[name]) if name in e else None for e in entities], TEXT)
        )
        for name in names
    }
    found = evaluate(parse_operand(expression).expression, columns, len(entities))
    result: list[list[Any]] = [[] for _ in entities]
    for row, text in zip(found.rows.tolist(), found.texts.to_pylist(), strict=True):
        result[row].append(json.loads(text))
    return result


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        ("lower", ["ÄB\n", 1, None, [2]], ["äb\n", "1"]),
        ("upper", "straé\\", ["STRAÉ\\"]),
        ("trim", ["\t x y ", True], ["x y"]),
        ("normalize", ["ﬁ", "e\u0301"], ["fi", "é"]),
        ("digits", ["+47 22-33", "none", 4, 5.0, 1.5, True], ["4722" + "33", "4", "5", "15"]),
        ("string", [1, "1", 1.0, True, {"a": [1]}], ["1", "1", "1.0", "true", '{"a":[1]}']),
        ("timestamp", ["2024-01-31T10:00:00.500+01:00", " 2024-01-31 09:00:00.5", "2024-01-31", "x", 2024,
                       "2024-01-31T09:00:00.000000001Z", "+12024-01-31T00:00Z", "2024-02-30",
                       "2024-01-31t10:15", "2024-01-31 10:15z"],
         ["2024-01-31T09:00:00.5Z", "2024-01-31T09:00:00.5Z", "2024-01-31T00:00:00Z",
          "2024-01-31T09:00:00.000000001Z", "+12024-01-31T00:00:00Z", "2024-01-31T10:15:00Z",
          "2024-01-31T10:15:00Z"]),
        ("timestamp", ["9999-12-31T23:59:59.9999999Z", "9999-12-31T23:30:00.50-01:00",
                       "-0044-03-15t00:00:00.123456789", "2300-01-01T00:00:00.000000000Z", "2300-01-01"],
         ["9999-12-31T23:59:59.9999999Z", "+10000-01-01T00:30:00.5Z", "-0044-03-15T00:00:00.123456789Z",
          "2300-01-01T00:00:00Z", "2300-01-01T00:00:00Z"]),
        ("integer", [1, "01", " +7 ", 2.0, 2.5, "x", True, "1.0", 10**30, "-0"], [1, 1, 7, 2, 10**30, 0]),
        ("float", [1, "01.50", 2.5, "1e3", "x", "1e999", True], [1.0, 1.5, 2.5, 1000.0]),
    ],
)  # fmt: skip
def test_functions_leave_out_what_they_are_not_defined_of(
    function: str, value: Any, expected: list[Any]
) -> None:
    [found] = values_of([function, "a.x"], {"x": value})
    assert [(type(v), v) for v in found] == [(type(v), v) for v in expected]
    assert values_of([function, "a.x"], {"y": 1}, {"x": None}) == [[], []]


def test_there_is_one_zero_and_no_empty_list() -> None:
    entity = {"x": [-0.0, 0.0, [], [[]], None], "y": -0.0, "z": []}
    assert [str(v) for v in values_of("a.x", entity)[0]] == ["0.0", "0.0", "[[]]"]
    assert [str(v) for v in values_of(["float", "a.y"], entity)[0]] == ["0.0"]
    assert values_of("a.z", entity) == [[]]


def test_concat_of_too_many_combinations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entity = {"x": ["a", "b", "c"], "y": ["d", "e", "f"]}
    assert len(values_of(["concat", "a.x", "a.y"], entity)[0]) == 9
    monkeypatch.setattr("compactor.entities.expressions.MAX_COMBINATIONS", 8)
    with refuses(ValueError):
        values_of(["concat", "a.x", "a.y"], entity)


def test_paths_go_into_objects_and_lists_of_them() -> None:
    entity = {"x": [{"y": 1}, {"y": [2, None]}, {"z": 3}, 4, None], "w": {"y": {"y": "in"}}}
    assert values_of("a.x.y", entity, {}, {"x": {"y": []}}) == [[1, 2], [], []]
    assert values_of("a.w.y.y", entity) == [["in"]]


def test_concat_pairs_each_value_with_each() -> None:
    expression = ["concat", ["lower", "a.x"], ["literal", '"-'], "a.y"]
    entities: list[dict[str, Any]] = [
        {"x": ["A", "B"], "y": ["1", "2", 3]},
        {"x": "C"},
        {"x": "D", "y": "9"},
    ]
    assert values_of(expression, *entities) == [
        ['a"-1', 'a"-2', 'a"-3', 'b"-1', 'b"-2', 'b"-3'], [], ['d"-9'],
    ]  # fmt: skip


def values(pairs: list[tuple[int, str]]) -> Values:
    return Values(
        np.array([row for row, _ in pairs], np.int64), pa.array([t for _, t in pairs], TEXT)
    )


def test_a_value_that_only_one_side_has_joins_nobody() -> None:
    left, right = values([(0, "1"), (1, "1"), (2, "2")]), values([(5, "3")])
    assert len(edges_of_groups(groups_of_rule(left, right)).left) == 0
    found = edges_of_groups(groups_of_rule(left, values([(5, "1")])))
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(0, 1), (0, 5)]


def test_a_value_shared_by_a_million_gives_a_million_edges() -> None:
    rows = 500_000
    shared = pa.repeat(pa.scalar('"x"', TEXT), rows)
    left, right = Values(np.arange(rows), shared), Values(np.arange(rows, 2 * rows), shared)
    found = edges_of_groups(groups_of_rule(left, right))
    assert len(found.left) == 2 * rows - 1
    assert not components(2 * rows, *found).any()


def test_a_chain_of_a_hundred_thousand_is_one_component() -> None:
    links = 100_000
    order = np.random.default_rng(7).permutation(links + 1)
    assert not components(links + 1, order[:-1], order[1:]).any()


@given(st.integers(1, 12), st.data())
def test_each_node_gets_the_smallest_of_its_component(nodes: int, data: Any) -> None:
    node = st.integers(0, nodes - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=14))
    left, right = (np.array([p[side] for p in pairs], np.int64) for side in (0, 1))
    expected = list(range(nodes))
    for _ in range(nodes):
        for a, b in pairs:
            expected[a] = expected[b] = min(expected[a], expected[b])
    assert components(nodes, left, right).tolist() == expected
