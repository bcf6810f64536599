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
    assert (spec.max_merged, spec.rules, spec.initial_datasets) == (50_000, (), ("A",))
    assert spec.ignore_non_existent_datasets


@pytest.mark.parametrize("said", ["version: 1, ", ""])
def test_version_1_is_the_default_and_says_what_differs(said: str) -> None:
    [warning] = spec_of(Document.parse(f"{{{said}datasets: [A a]}}", "m.yaml")).warnings
    assert warning.startswith("version is 1, the default of the reference")


def test_the_source_of_a_pipe_is_a_spec() -> None:
    text = GOOD.replace("\n", "\n  ").strip()
    found = spec_of(Document.parse(f"_id: x\nsource:\n  type: merge\n  {text}\n", "m.yaml"))
    assert found == spec_of(Document.parse(GOOD, "m.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "_id: x\nsource: merge",
        "source: {datasets: [A a]}\ntransform: []",
        "source:\n  datasets: [A a]\n  type: union_datasets",
        "source:\n  datasets: [A a]\n  sink: {}",
        "source:\n  datasets: [A a]\n  equality: [[eq, a.x, b.x]]",
    ],
)
def test_a_mistake_in_a_pipe_is_named_with_its_line(text: str) -> None:
    with refuses(ConfigError):
        spec_of(Document.parse(text, "m.yaml"))


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
    # a.x and a.y are of one dataset.
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
        ("[eq, o.customer, c._id]", "[eq, customer, c._id]"),
        ("[eq, o.customer, c._id]", "[eq, [lower, 5], c._id]"),
        ("[eq, o.customer, c._id]", "[eq, [concat, o.x, c.x], s._id]"),
        ("[eq, o.customer, c._id]", "[eq, [literal, x], c._id]"),
        ("[lower, s.mail]", "[lover, s.mail]"),
        ("[lower, s.mail]", "[lower, s.mail, s.x]"),
        ("[c.email, [lower, s.mail], o.email]", "[]"),
        ("[c.email, [lower, s.mail], o.email]", "c.email"),
        ("identity: first", "identity: last"),
        ("strategy: compact", "strategy: union"),
        ("max_merged: 7", "max_merged: 0"),
        ("max_merged: 7", "max_merged: '7'"),
        ("max_merged: 7", "max_merge: 7"),
        ("equality:\n  - [eq, o.customer, c._id]", "equality:"),
        ("equality:\n  - [eq, o.customer, c._id]", "equality: {eq: 1}"),
        ("sources: {orders: s3://bucket/orders}", "sources:"),
        ("[orders]", "[offers]"),
        ("{orders: ", "{offers: "),
        ("c.email, [lower", "c._deleted, [lower"),
        ("c.email, [lower", "c.$replaced, [lower"),
        ("version: 2", "version: 3"),
        ("version: 2", "survivors: {name: shortest}"),
        ("version: 2", "survivors: {name: {newest: 1}}"),
        ("version: 2", "survivors: {name: newest}"),
        ("version: 2", "survivors: {_id: first}"),
        ("version: 2", "survivors: {name: {newest: _updated}}"),
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


def test_sets_may_have_one_expression_and_several_of_one_dataset() -> None:
    def rules(*expressions: str, all_pairs: bool = False) -> int:
        return len(spec("A a", "B b", equality_sets=[expressions], all_pairs=all_pairs).rules)

    assert (rules("a.x"), rules("a.x", all_pairs=True)) == (0, 0)
    assert (rules("a.x", "a.y"), rules("a.x", "a.y", all_pairs=True)) == (1, 0)
    assert (rules("a.x", "a.y", "b.y"), rules("a.x", "a.y", "b.y", all_pairs=True)) == (2, 2)


@pytest.mark.parametrize("name", ["/tmp/x", "x*", "x[0]", "x" * 300, "..", "x\0"])
def test_a_name_that_no_file_has_is_refused(name: str) -> None:
    with refuses(ConfigError):
        spec(f"{name} a")


@pytest.mark.parametrize("place", ["", "a\0"])
def test_a_source_that_is_no_place_is_refused(place: str) -> None:
    with refuses(ConfigError):
        spec("A a", sources={"A": place})
