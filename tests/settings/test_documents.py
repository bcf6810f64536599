"""Settings in YAML and JSON, as documents with the lines of their parts."""

from __future__ import annotations

import pytest

from compactor.errors import ConfigError
from compactor.settings.document import Document
from tests.support.wording import refuses


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
