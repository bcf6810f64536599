"""Pages show what their commands print; `make docs` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from docs.tools.console_pages import page_as_run

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", "docs/tutorial/ten-minutes.md", "docs/tutorial/logs-to-table.md")


def without_padding(text: str) -> str:
    """Returns a page without the spaces that keep columns in line: they depend on what is elided."""
    return re.sub(r" +", " ", text)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_commands_print(name: str) -> None:
    page = (ROOT / name).read_text()
    assert "```console" in page
    assert without_padding(page_as_run(page)) == without_padding(page)


def test_files_are_made_commands_run_and_other_blocks_stay() -> None:
    page = (
        "```sh\nexit 1\n```\n```sh\ncat > a.txt <<'END'\none\nEND\n```\n"
        "```console\n$ cat a.txt\n{}$ compactor head ./none\n{}```\n"
    )
    error = "compactor: error: .../none: no table here; `compactor ingest` creates one\n"
    assert page_as_run(page.format("", "")) == page.format("one\n", error)


def test_what_varies_is_elided() -> None:
    name = f"data/00000000000000000001-{'0a' * 16}-0123abcd-00000.frag"
    page = "```console\n$ echo '{}'\n```\n"
    shown = page_as_run(page.format(f"{name} peak 1,221.4 MB RSS, 9.0 s; 9.0 seconds"))
    assert shown.split("\n")[2].split("frag ")[1].strip() == "peak ... RSS, ... s; 9.0 seconds"
    assert "data/00000000000000000001-...-00000.frag" in shown
