"""Mistakes in the spec of an entity merge: the line, the field, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor.entities.expressions import FunctionCall, Operand
from compactor.entities.expressions import PropertyPath as PathOf
from compactor.entities.spec import Dataset, Identity, PropertyStrategy, Rule, load_spec, spec_of
from compactor.errors import ConfigError
from compactor.settings.document import Document
from tests.entities.support import spec
from tests.support.wording import refuses

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
    spec = spec_of(Document.parse(GOOD, "m.yaml"))
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
    spec = spec_of(Document.parse('{"datasets": ["A a"]}', "m.json"))
    assert (spec.identity, spec.strategy) == (Identity.COMPOSITE, PropertyStrategy.DEFAULT)
    assert (spec.max_merged, spec.rules, spec.initial_datasets) == (50_000, (), ())
    assert spec.ignore_non_existent_datasets


def test_version_1_says_that_it_is_deprecated() -> None:
    spec = spec_of(Document.parse("{version: 1, datasets: [A a]}", "m.yaml"))
    assert "version 1 is deprecated" in spec.warnings[0]


def test_rules_said_twice_are_one_rule() -> None:
    text = """\
datasets: [A a, B b]
equality: [[eq, a.x, b.x]]
equality_sets: [[a.x, b.x], [b.y, a.y]]
"""
    assert len(spec_of(Document.parse(text, "m.yaml")).rules) == 2


def test_all_pairs_compares_also_those_that_are_no_neighbours() -> None:
    text = "datasets: [A a, B b, C c]\nequality_sets: [[a.x, b.x, c.x, a.y]]\nall_pairs: {}\n"

    def pairs(said: str) -> set[tuple[str, str]]:
        rules: tuple[Rule, ...] = spec_of(Document.parse(text.format(said), "m.yaml")).rules
        return {(name(rule.left), name(rule.right)) for rule in rules}

    def name(operand: Operand) -> str:
        assert isinstance(operand.expression, PathOf)
        return f"{operand.alias}.{operand.expression.steps[0]}"

    adjacent = {("a.x", "b.x"), ("b.x", "c.x"), ("c.x", "a.y")}
    assert pairs("false") == adjacent
    # a.x and a.y are of one dataset, which a rule cannot be.
    assert pairs("true") == adjacent | {("a.x", "c.x"), ("b.x", "a.y")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  - orders o", "  - orders"),
        ("  - orders o", "  - orders c"),
        ("  - orders o", "  - customers o"),
        ("  - orders o", "  - orders 1"),
        ("  - orders o", "  - 5"),
        ("datasets:\n  - orders o\n  - customers c\n  - shops s", "datasets: []"),
        ("datasets:\n  - orders o\n  - customers c\n  - shops s", ""),
        ("[eq, o.customer, c._id]", "[ne, o.customer, c._id]"),
        ("[eq, o.customer, c._id]", "[eq, o.customer]"),
        ("[eq, o.customer, c._id]", "[eq, o.customer, x._id]"),
        ("[eq, o.customer, c._id]", "[eq, o.customer, o._id]"),
        ("[eq, o.customer, c._id]", "[eq, customer, c._id]"),
        ("[eq, o.customer, c._id]", "[eq, [lower, 5], c._id]"),
        ("[eq, o.customer, c._id]", "[eq, [concat, o.x, c.x], s._id]"),
        ("[eq, o.customer, c._id]", "[eq, [literal, x], c._id]"),
        ("[lower, s.mail]", "[lover, s.mail]"),
        ("[lower, s.mail]", "[lower, s.mail, s.x]"),
        ("[lower, s.mail]", "c.mail"),
        ("[c.email, [lower, s.mail], o.email]", "[c.email]"),
        ("[c.email, [lower, s.mail], o.email]", "c.email"),
        ("identity: first", "identity: last"),
        ("strategy: compact", "strategy: union"),
        ("max_merged: 7", "max_merged: 0"),
        ("max_merged: 7", "max_merged: '7'"),
        ("max_merged: 7", "max_merge: 7"),
        ("[orders]", "[offers]"),
        ("{orders: ", "{offers: "),
        ("c.email, [lower", "c._deleted, [lower"),
        ("c.email, [lower", "c.$replaced, [lower"),
        ("version: 2", "version: 3"),
        ("version: 2", "identity: first"),
        ("version: 2", "- a"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_field(old: str, new: str) -> None:
    assert old in GOOD
    with refuses(ConfigError) as caught:
        spec_of(Document.parse(GOOD.replace(old, new), "m.yaml"))
    assert "\n" not in str(caught.value)


def test_mistakes_in_json_have_lines_too() -> None:
    document = {"datasets": ["A a"], "strategy": "none"}
    with refuses(ConfigError):
        spec_of(Document.parse(json.dumps(document, indent="\t"), "m.json"))
    with refuses(ConfigError):
        spec_of(Document.parse("{datasets: [A a]}", "m.json"))


def test_a_spec_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with refuses(ConfigError):
        load_spec(str(tmp_path / "gone.yaml"))


def test_neighbours_may_be_of_one_dataset_where_all_pairs_are_meant() -> None:
    found = spec("A a", "B b", equality_sets=[["a.x", "a.y", "b.y"]], all_pairs=True)
    assert len(found.rules) == 2
    for sets, all_pairs in (([["a.x", "a.y"]], True), ([["a.x", "a.y", "b.y"]], False)):
        with refuses(ConfigError):
            spec("A a", "B b", equality_sets=sets, all_pairs=all_pairs)


@pytest.mark.parametrize("name", ["/tmp/x", "x*", "x[0]", "x" * 300, "..", "x\0"])
def test_a_name_that_no_file_has_is_refused(name: str) -> None:
    with refuses(ConfigError):
        spec(f"{name} a")


@pytest.mark.parametrize("place", ["", "a\0"])
def test_a_source_that_is_no_place_is_refused(place: str) -> None:
    with refuses(ConfigError):
        spec("A a", sources={"A": place})
