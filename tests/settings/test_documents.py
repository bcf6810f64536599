"""Settings in YAML and JSON, as documents with the lines of their parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compactor.entities.spec import load_spec
from compactor.errors import ConfigError, UsageError
from compactor.fleet.config import load_fleet
from compactor.pipelines.config import load_pipeline
from compactor.settings.document import Document
from tests.support.wording import refuses


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "types:\n  a: {m: decimal(5,2)}\n",
            "a.yaml, line 2: YAML divides decimal(5,2) at its commas",
        ),
        ("a: [{b: 1, c: max(a, b, c), d: 2}]\n", "a.yaml, line 1: YAML divides max(a,b,c) at its"),
        ("a: {b: f(g(x, 2), 0), c: 1}\n", "a.yaml, line 1: YAML divides f(g(x,2),0) at its commas"),
    ],
)
def test_a_text_that_yaml_divides_at_a_comma_in_parentheses_is_named(text: str, place: str) -> None:
    with refuses(ConfigError, place):
        Document.parse(text, "a.yaml")


def test_parentheses_and_names_without_values_are_taken() -> None:
    text = 'a: {b: f(x), c, d: (, e: ")", g): 1, "h)": }\nb: {x: f(, y}\nc: [replace, (, ), z]\n'
    root = Document.parse(text, "a.yaml").root
    assert root["a"] == {"b": "f(x)", "c": None, "d": "(", "e": ")", "g)": 1, "h)": None}
    assert root["b"] == {"x": "f(", "y": None}
    assert root["c"] == ["replace", "(", ")", "z"]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.yaml", "b: 1\nb: 2\n", "a.yaml, line 2: 'b' comes twice"),
        ("a.yaml", "a:\n  b: 1\n  c: 2\n  b: 2\n", "a.yaml, line 4: 'b' comes twice"),
        ("a.yaml", "a:\n  - b: 1\n    c: 2\n    b: 2\n", "a.yaml, line 4: 'b' comes twice"),
        ("a.yaml", "a: [[1, {b: {c: 1,\n c: 1}}]]\n", "a.yaml, line 2: 'c' comes twice"),
        ("a.json", '{"a": [{"b": 1},\n{"b": 1, "b": 2}]}', "a.json, line 2: 'b' comes twice"),
    ],
)
def test_a_key_that_comes_twice_is_refused_in_mappings_and_lists(
    name: str, text: str, place: str
) -> None:
    with refuses(ConfigError, place):
        Document.parse(text, name)


def test_a_key_overrides_one_that_is_merged_into_its_mapping() -> None:
    text = "a: &all {b: 1, c: 1}\nd:\n  - {<<: *all, b: 2}\ne: {<<: *all, b: 3}\n"
    root = Document.parse(text, "a.yaml").root
    assert (root["d"], root["e"]) == ([{"b": 2, "c": 1}], {"b": 3, "c": 1})


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_spec, "version: 2\ndatasets: [A a]\n"),
        (
            load_pipeline,
            "nodes: {a: {source: {path: a.csv}}, b: {output: {input: a, path: b.csv}}}\n",
        ),
        (load_fleet, "tables:\n  - at: a\n"),
    ],
    ids=["merge", "pipeline", "fleet"],
)
def test_a_file_is_read_by_any_kind_of_path_and_what_is_none_is_refused(
    tmp_path: Path, load: Callable[[Any], object], text: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert type(load(path)) is type(load(str(path)))
    for wrong in (5, None, b"a.yaml"):
        with refuses(UsageError, "path: "):
            load(wrong)
