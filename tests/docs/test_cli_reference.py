"""docs/reference/cli.md is what the command line says of itself; `make docs` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from compactor.cli.main import cli
from docs.tools.cli_reference import reference

ROOT: Final = Path(__file__).parents[2]


def test_the_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs/reference/cli.md").read_text() == reference()


def test_the_page_has_every_command_and_option() -> None:
    sections = reference().split("\n## ")
    for name, command in cli.commands.items():
        (section,) = [section for section in sections if section.startswith(f"{name}\n")]
        for option in command.params:
            if isinstance(option, click.Option):
                assert all(flag in section for flag in option.opts), option.opts


def test_defaults_and_bounds_have_a_column_of_their_own() -> None:
    page = reference()
    assert "[default" not in page
    assert "<=x" not in page
    assert "at least 1 |" in page
