"""The examples of the page about files run, and give what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compactor.pipelines.config import load_pipeline
from compactor.pipelines.phases import run_pipeline

PAGE = Path(__file__).parents[2] / "docs/reference/files.md"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_example_gives_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block with a file's name is its content: a pipeline runs, and what it wrote is compared."""
    monkeypatch.chdir(tmp_path)
    compared = []
    for name, content in BLOCK.findall(PAGE.read_text()):
        file = tmp_path / name
        if file.exists():
            assert file.read_text() == content, name
            compared.append(name)
            continue
        file.write_text(content)
        if name.endswith(".yaml"):
            run_pipeline(load_pipeline(name))
    assert compared == ["errors.ndjson", "many.txt", "items.ndjson", "texts.ndjson"]
    plain = (tmp_path / "orders.edi").read_text().replace("\n", "")
    assert (tmp_path / "copy.edifact").read_text() == plain
