"""What the documentation shows, happens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import python_blocks, run_page

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {"docs/how-to/python.md": 14, "docs/reference/entity-merge.md": 2}
"""The least number of examples of each page."""


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run_and_print_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(ROOT / page, (ROOT / page).read_text()) >= PAGES[page]


def test_a_broken_example_fails_with_the_line_of_the_page(tmp_path: Path) -> None:
    page = "# A page\n\n```python\na = 1\n```\n\n```python\nprint(a + {})\n```\n\n```text\n2\n```\n"
    assert run_page(tmp_path / "p.md", page.format("1")) == 2
    with pytest.raises(AssertionError, match="line 8: printed\n3"):
        run_page(tmp_path / "p.md", page.format("2"))
    with pytest.raises(NameError) as caught:
        run_page(tmp_path / "p.md", page.format("b"))
    assert caught.traceback[-1].lineno + 1 == 8
    said = "```python\nprint(1)\n```\nand then\n```text\n2\n```\n"
    assert [block.printed for block in python_blocks(said)] == [None]
