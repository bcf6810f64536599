"""`make quick` runs what tests/quick.txt lists: a part of each room, and only what is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "tests" / "quick.txt").read_text().splitlines()

WITHOUT_A_PART = {"crash", "soak"}
"""Rooms of which every test takes long."""


def rooms() -> Iterator[str]:
    for folder in sorted((ROOT / "tests").iterdir()):
        if any(folder.glob("test_*.py")) and folder.name not in WITHOUT_A_PART:
            yield folder.name


@pytest.mark.parametrize("room", list(rooms()))
def test_each_room_has_a_part_in_the_inner_loop(room: str) -> None:
    assert any(line.startswith(f"tests/{room}/") for line in LINES)


@pytest.mark.parametrize("line", LINES)
def test_what_the_inner_loop_names_is_there(line: str) -> None:
    path, _, test = line.partition("::")
    name = test.partition("[")[0]
    assert (ROOT / path).is_file()
    assert not name or f"def {name}(" in (ROOT / path).read_text()
