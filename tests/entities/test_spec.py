"""Mistakes in the spec of an entity merge: the line, the field, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor.entities.expressions import FunctionCall, Operand
from compactor.entities.expressions import PropertyPath as PathOf
from compactor.entities.spec import Dataset, Identity, PropertyStrategy, Rule, load_spec, parse_spec
from compactor.errors import ConfigError
from tests.entities.support import spec

GOOD = """\
version: 2
datasets:
  - orders o
  - customers c
  - shops s
equality:
  - [eq, o.customer, c._id]
equality_sets:
  - [c.email, [lower, s.mail], o.email]
identity: first
strategy: compact
max_merged: 7
initial_datasets: [orders]
ignore_non_existent_datasets: false
sources: {orders: s3://bucket/orders}
"""


def test_a_spec_is_read_with_all_its_settings() -> None:
    spec = parse_spec(GOOD, "m.yaml")
    assert spec.datasets == (
        Dataset("orders", "o"),
        Dataset("customers", "c"),
        Dataset("shops", "s"),
    )
    assert [(rule.left.alias, rule.right.alias) for rule in spec.rules] == [
        ("o", "c"), ("c", "s"), ("s", "o"),
    ]  # fmt: skip
    assert spec.rules[1].right == Operand("s", FunctionCall("lower", (PathOf(("mail",)),)))
    assert (spec.identity, spec.strategy) == (Identity.FIRST, PropertyStrategy.COMPACT)
    assert (spec.max_merged, spec.initial_datasets) == (7, ("orders",))
    assert not spec.ignore_non_existent_datasets
    assert spec.sources == (("orders", "s3://bucket/orders"),)
    assert spec.warnings == ()


def test_what_is_not_said_has_a_default() -> None:
    spec = parse_spec('{"datasets": ["A a"]}', "m.json")
    assert (spec.identity, spec.strategy) == (Identity.COMPOSITE, PropertyStrategy.DEFAULT)
    assert (spec.max_merged, spec.rules, spec.initial_datasets) == (50_000, (), ())
    assert spec.ignore_non_existent_datasets


def test_version_1_says_that_it_is_deprecated() -> None:
    spec = parse_spec("{version: 1, datasets: [A a]}", "m.yaml")
    assert "version 1 is deprecated" in spec.warnings[0]


def test_rules_said_twice_are_one_rule() -> None:
    text = """\
datasets: [A a, B b]
equality: [[eq, a.x, b.x]]
equality_sets: [[a.x, b.x], [b.y, a.y]]
"""
    assert len(parse_spec(text, "m.yaml").rules) == 2


def test_all_pairs_compares_also_those_that_are_no_neighbours() -> None:
    text = "datasets: [A a, B b, C c]\nequality_sets: [[a.x, b.x, c.x, a.y]]\nall_pairs: {}\n"

    def pairs(said: str) -> set[tuple[str, str]]:
        rules: tuple[Rule, ...] = parse_spec(text.format(said), "m.yaml").rules
        return {(name(rule.left), name(rule.right)) for rule in rules}

    def name(operand: Operand) -> str:
        assert isinstance(operand.expression, PathOf)
        return f"{operand.alias}.{operand.expression.steps[0]}"

    adjacent = {("a.x", "b.x"), ("b.x", "c.x"), ("c.x", "a.y")}
    assert pairs("false") == adjacent
    # a.x and a.y are of one dataset, which a rule cannot be.
    assert pairs("true") == adjacent | {("a.x", "c.x"), ("b.x", "a.y")}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  - orders o", "  - orders", r"line 3: datasets\[0\]: 'orders': write the dataset's name and an"),
        ("  - orders o", "  - orders c", r"line 4: datasets\[1\]: alias 'c' comes twice"),
        ("  - orders o", "  - customers o", r"line 4: datasets\[1\]: dataset 'customers' comes twice"),
        ("  - orders o", "  - orders 1", r"line 3: datasets\[0\]: alias '1': letters, digits"),
        ("  - orders o", "  - 5", r"line 3: datasets\[0\]: input should be a valid string"),
        ("datasets:\n  - orders o\n  - customers c\n  - shops s", "datasets: []",
         "line 2: datasets: .* is empty"),
        ("datasets:\n  - orders o\n  - customers c\n  - shops s", "", "line 1: `datasets` is missing"),
        ("[eq, o.customer, c._id]", "[ne, o.customer, c._id]", r"line 7: equality\[0\]: write \[eq, a.x"),
        ("[eq, o.customer, c._id]", "[eq, o.customer]", r"line 7: equality\[0\]: write \[eq, a.x, b.y\]"),
        ("[eq, o.customer, c._id]", "[eq, o.customer, x._id]",
         r"line 7: equality\[0\]: no dataset has the alias 'x'; there are: c, o, s"),
        ("[eq, o.customer, c._id]", "[eq, o.customer, o._id]",
         r"line 7: equality\[0\]: both sides are of 'o': entities of one dataset merge only through others"),
        ("[eq, o.customer, c._id]", "[eq, customer, c._id]", r"line 7: equality\[0\]: 'customer' is no path"),
        ("[eq, o.customer, c._id]", "[eq, [lower, 5], c._id]", r"line 7: equality\[0\]: 5 is no expression"),
        ("[eq, o.customer, c._id]", "[eq, [concat, o.x, c.x], s._id]",
         r"line 7: equality\[0\]: an argument is over exactly one dataset's alias, this one has c, o"),
        ("[eq, o.customer, c._id]", "[eq, [literal, x], c._id]",
         r"line 7: equality\[0\]: an argument is over exactly one .* has none"),
        ("[lower, s.mail]", "[lover, s.mail]",
         r"line 9: equality_sets\[0\]: there is no function 'lover'; there are: concat, digits, float, "),
        ("[lower, s.mail]", "[lower, s.mail, s.x]", r"equality_sets\[0\]: lower takes one argument, here"),
        ("[lower, s.mail]", "c.mail", r"line 9: equality_sets\[0\]: both sides are of 'c'"),
        ("[c.email, [lower, s.mail], o.email]", "[c.email]", r"equality_sets\[0\]: a list of at least two"),
        ("[c.email, [lower, s.mail], o.email]", "c.email", r"equality_sets\[0\]: a list of at least two"),
        ("identity: first", "identity: last", "line 10: identity: 'last' is none of: composite, first"),
        ("strategy: compact", "strategy: union", "line 11: strategy: 'union' is none of: default"),
        ("max_merged: 7", "max_merged: 0", "line 12: max_merged: 0 is too small: 1 at least"),
        ("max_merged: 7", "max_merged: '7'", "line 12: max_merged: .*valid integer"),
        ("max_merged: 7", "max_merge: 7", "line 12: there is no setting 'max_merge'; there are: version"),
        ("[orders]", "[offers]", r"line 13: initial_datasets\[0\]: 'offers' is none of the datasets: cust"),
        ("{orders: ", "{offers: ", "line 15: sources.offers: 'offers' is none of the datasets"),
        ("c.email, [lower", "c._deleted, [lower", r"equality_sets\[0\]: c._deleted is not a property"),
        ("c.email, [lower", "c.$replaced, [lower", r"equality_sets\[0\]: c.\$replaced is not a property"),
        ("version: 2", "version: 3", "line 1: version: 3 is too large: 2 at most"),
        ("version: 2", "identity: first", "line 10: 'identity' comes twice"),
        ("version: 2", "- a", "line 2: not YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_field(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=f"^m.yaml.*{message}") as caught:
        parse_spec(GOOD.replace(old, new), "m.yaml")
    assert "\n" not in str(caught.value)


def test_mistakes_in_json_have_lines_too() -> None:
    document = {"datasets": ["A a"], "strategy": "none"}
    with pytest.raises(ConfigError, match=r"m.json, line 5: strategy: "):
        parse_spec(json.dumps(document, indent="\t"), "m.json")
    with pytest.raises(ConfigError, match=r"m.json, line 1: not JSON: "):
        parse_spec("{datasets: [A a]}", "m.json")


def test_a_spec_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.yaml: No such file"):
        load_spec(str(tmp_path / "gone.yaml"))


def test_neighbours_may_be_of_one_dataset_where_all_pairs_are_meant() -> None:
    found = spec("A a", "B b", equality_sets=[["a.x", "a.y", "b.y"]], all_pairs=True)
    assert len(found.rules) == 2
    for sets, all_pairs in (([["a.x", "a.y"]], True), ([["a.x", "a.y", "b.y"]], False)):
        with pytest.raises(ConfigError, match="both sides are of 'a'"):
            spec("A a", "B b", equality_sets=sets, all_pairs=all_pairs)


@pytest.mark.parametrize("name", ["/tmp/x", "x*", "x[0]", "x" * 300, "..", "x\0"])
def test_a_name_that_no_file_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"datasets\[0\]: name '.*control characters"):
        spec(f"{name} a")


@pytest.mark.parametrize("place", ["", "a\0"])
def test_a_source_that_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"sources.A: write a file"):
        spec("A a", sources={"A": place})
