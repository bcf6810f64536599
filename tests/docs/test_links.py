"""Links of the documentation lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (".", "examples", "format", "deploy")
PAGES: Final = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(page for name in FOLDERS for page in (ROOT / name).glob("*.md")),
    ]
)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """Targets of links and images, but for those in code."""
    plain = re.sub(r"`[^`\n]*`(?!\])", "", _FENCE.sub("", text))
    return _LINK.findall(plain)


def anchors(text: str) -> Iterator[str]:
    """Of headings, as GitHub makes them."""
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+\s+(.*?)\s*#*$", _FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[words] = seen.get(words, -1) + 1
        yield f"{words}-{count}" if count else words


def broken(page: Path, text: str) -> list[str]:
    found = []
    for target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            found.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(text if there == page else there.read_text()):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page.is_dir():  # the link of a folder leads to what is in it
            todo += page.glob("*.md")
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        todo += [
            (page.parent / target.partition("#")[0]).resolve() for target in links(page.read_text())
        ]
    assert set((ROOT / "docs").rglob("*.md")) <= reached


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One two\n## `a.b` and C!\n")
    page = tmp_path / "page.md"
    text = (
        "# Top\n[a](other.md) [b](other.md#one-two) [c](other.md#ab-and-c) [d](#top) [e](https://x.org/#q)\n"
        "[bad](none.md) [bad](other.md#one) [bad](#bottom) `[code](none.md)`\n```\n[code](none.md)\n```\n"
    )
    page.write_text(text)
    assert [fault.partition(":")[0] for fault in broken(page, text)] == [
        "none.md", "other.md#one", "#bottom",
    ]  # fmt: skip
