"""The options of the command line say what the settings models say."""

from __future__ import annotations

from typing import Final

import click
import pytest

from compactor.cli.main import cli
from compactor.settings.compaction import OF_WRITERS, CompactionSettings, Policy
from compactor.settings.model import Settings
from compactor.settings.names import as_flag
from compactor.settings.vacuum import VacuumSettings
from compactor.simulate.settings import SimulationSettings
from compactor.write.ingest.settings import IngestSettings

OPTIONS_OF: Final[dict[str, tuple[type[Settings], ...]]] = {
    "compact": (Policy, CompactionSettings),
    "watch": (Policy, CompactionSettings),
    "simulate": (Policy, SimulationSettings),
    "ingest": (IngestSettings,),
    "vacuum": (VacuumSettings,),
}


@pytest.mark.parametrize("command", OPTIONS_OF)
def test_every_setting_with_a_description_is_an_option(command: str) -> None:
    flags = {flag for option in cli.commands[command].params for flag in option.opts}
    for model in OPTIONS_OF[command]:
        described = [name for name, field in model.model_fields.items() if field.description]
        assert described
        others = () if command == "simulate" else OF_WRITERS
        assert {as_flag(name) for name in described if name not in others} <= flags
        assert not {as_flag(name) for name in others} & flags


@pytest.mark.parametrize(
    ("command", "flag", "extra"),
    [
        ("compact", "--memory-limit", {"default": "512MiB", "range": "x>=16MiB"}),
        ("compact", "--compression-level", {"default": "1", "range": "0<=x<=22"}),
        ("compact", "--max-rows-per-row-group", {"default": "131072", "range": "x>=1"}),
        ("compact", "--push-ratio", {"default": "0.5", "range": "x>0"}),
        ("compact", "--strategy", {"default": "leveled"}),
        ("compact", "--target-row-group-bytes", {}),
        ("compact", "--spool-after", {"default": "10s"}),
        ("simulate", "--ingest", {"default": "10GiB/s"}),
        ("simulate", "--late", {"default": "0", "range": "0<=x<1"}),
        ("simulate", "--locality", {"default": "whole"}),
        ("simulate", "--workers", {"range": "x>=1"}),
        ("ingest", "--skip-index-bytes", {"default": "64KiB", "range": "x>=32"}),
        ("alter", "--skip-index-bytes", {"range": "x>=32"}),
        ("vacuum", "--allow-shrinking", {}),
    ],
)
def test_help_shows_default_and_bounds_of_the_setting(
    command: str, flag: str, extra: dict[str, str]
) -> None:
    (option,) = [o for o in cli.commands[command].params if flag in o.opts]
    assert isinstance(option, click.Option)
    assert option.get_help_extra(click.Context(cli.commands[command])) == extra
