"""The page on fleets names every key of the file with its default, and its example is taken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from compactor.fleet.config import _Entry, _File, parse_fleet
from compactor.settings.units import duration_text

PAGE: Final = (Path(__file__).parents[2] / "docs/how-to/fleets.md").read_text()


def keys() -> dict[str, str]:
    """The defaults of the keys, as the tables of the page show them."""
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))


def test_the_page_has_every_key_of_the_file_and_of_an_entry() -> None:
    named = [
        field.alias or name
        for model in (_File, _Entry)
        for name, field in model.model_fields.items()
    ]
    assert sorted(keys()) == sorted(named)


def test_the_page_has_the_defaults() -> None:
    shown = keys()
    for name in ("poll", "slowest_poll", "find_every", "report_every"):
        default = _File.model_fields[name].default
        assert shown[name] in (duration_text(default), f"{default:.0f}s")
    entry = _Entry(at="x")
    assert shown["longest_wait"] == duration_text(entry.longest_wait)
    assert (shown["priority"], shown["share"]) == (str(entry.priority), f"{entry.share:g}")


def test_the_example_is_a_file_that_is_taken() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = parse_fleet(example, "fleet.yaml")
    assert len(config.entries) == 3
    assert config.entries[2].vacuum is None
