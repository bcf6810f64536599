"""The index of decisions lists every page by its title, and those that are gone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs/decisions"
INDEX: Final = (FOLDER / "README.md").read_text()
PAGES: Final = sorted(FOLDER.glob("0*.md"))


def test_the_index_lists_every_page_by_its_title() -> None:
    listed = dict(re.findall(r"\[([^\]]+)\]\((0\d{3}-[^)]+)\)", INDEX))
    assert {
        page.read_text().splitlines()[0].removeprefix("# "): page.name for page in PAGES
    } == listed


def test_a_page_that_is_gone_has_no_file() -> None:
    gone = set(map(int, re.findall(r"\d+(?= \(by| and)", INDEX.partition("Gone: ")[2])))
    assert gone == {2, 13, 14, 16, 17, 55}
    assert gone.isdisjoint(int(page.name[:4]) for page in PAGES)


def test_a_page_that_was_overtaken_says_so_in_its_first_line() -> None:
    for page in PAGES:
        title, _, first, *rest = page.read_text().splitlines()
        assert not re.search(r"[Ss]upersede", "\n".join((first, *rest))), page.name
        assert not any(line.startswith("Overtaken by") for line in rest), page.name
        assert title.startswith(f"# {int(page.name[:4])}. ")
