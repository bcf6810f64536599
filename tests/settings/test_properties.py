"""Properties of a table are settings: one declaration, one check, and the run before the table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import ConfigError
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.names import as_flag
from compactor.settings.properties import (
    MODEL_OF,
    Properties,
    changed,
    overrides,
    shown,
    told,
    tuned,
    with_sources,
)
from compactor.settings.vacuum import VacuumSettings
from tests.support.wording import refuses

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "strategy": st.sampled_from(list(Strategy)),
    "level0_trigger_runs": st.integers(2, 20),
    "push_ratio": st.floats(0.001, 1000),
    "level1_target_bytes": st.integers(1, 1 << 34),
    "memory_limit_bytes": st.integers(16 << 20, 1 << 40),
    "compression_level": st.integers(0, 22),
    "grace_seconds": st.integers(0, 10**9).map(float),
    "retain_seconds": st.decimals(0, 10**6, places=3).map(float),
    "target_row_group_bytes": st.integers(1, 1 << 34),
}


def test_what_belongs_to_a_run_or_a_machine_is_no_property() -> None:
    of_runs = {
        "threads",
        "spool_directory",
        "spool_limit_bytes",
        "batch_size",
        "dry_run",
        "deleters",
    }
    assert not of_runs & set(MODEL_OF)
    for name, model in MODEL_OF.items():
        assert model.model_fields[name].description, name


@given(st.data())
def test_a_value_and_its_text_are_the_same_property(data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(VALUES)), min_size=1))
    values = {name: data.draw(VALUES[name]) for name in names}
    properties = changed((), values)
    assert dict(properties) == values
    texts = {name: shown(name, value) for name, value in properties}
    if "push_ratio" in texts:  # shown to 15 digits
        texts["push_ratio"] = repr(values["push_ratio"])
    assert changed((), texts) == properties


@pytest.mark.parametrize("name", sorted(MODEL_OF))
def test_a_property_may_be_spelled_as_its_flag(name: str) -> None:
    default = getattr(MODEL_OF[name](), name)
    if default is None:
        default = 1 if name == "level0_compression_level" else 1 << 20
    assert changed((), {as_flag(name).removeprefix("--"): default}) == changed((), {name: default})


def test_a_property_that_is_unset_follows_the_default_again() -> None:
    properties = changed((), {"level0_trigger_runs": 8, "retain_seconds": "7d"})
    assert properties == (("level0_trigger_runs", 8), ("retain_seconds", 604_800.0))
    assert changed(properties, {"level0_trigger_runs": None, "grace_seconds": None}) == (
        ("retain_seconds", 604_800.0),
    )
    assert tuned(Policy(), ()) == Policy()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"level0_triger_runs": 8}, "did you mean 'level0_trigger_runs'"),
        ({"threads": 2}, "'threads'"),
        ({"level0_trigger_runs": "many"}, "level0_trigger_runs: 'many'"),
        ({"level0_trigger_runs": 1}, "2 at least"),
        ({"memory_limit_bytes": "1MiB"}, "16MiB at least"),
        ({"retain_seconds": "a week"}, "retain_seconds"),
        ({"strategy": "eager"}, "strategy"),
        ({"slow_runs": 3}, "3 is less than the 4 runs of level0_trigger_runs"),
        ({"level0_trigger_runs": 100, "slow_runs": 20}, "the 100 runs"),
        ({"stop_runs": 20}, "20 is not more than the 20 runs of slow_runs"),
        ({"stop_pending_bytes": "1GiB"}, "the 16GiB of level1_target_bytes"),
        ({"push_ratio": "inf"}, "'inf' is not a finite number"),
        ({"retain_seconds": float("inf")}, "not a finite number"),
        ({"target_fragment_bytes": "99999999999TiB"}, "1048576TiB at most"),
        (
            {"memory-limit": "1GiB", "memory_limit_bytes": "2GiB"},
            "'memory_limit_bytes' is named twice",
        ),
        (
            {"memory-limit": None, "memory_limit_bytes": "2GiB"},
            "'memory_limit_bytes' is named twice",
        ),
    ],
)
def test_a_bad_property_is_refused_as_its_flag_would_be(
    changes: dict[str, object], named: str
) -> None:
    with refuses(ConfigError, named):
        changed((), changes)


def test_values_that_contradict_what_is_set_are_refused() -> None:
    properties = changed((), {"slow_runs": 30})
    with refuses(ConfigError, "30 is less than the 31 runs"):
        changed(properties, {"level0_trigger_runs": 31})


@given(st.integers(2, 10_000), st.integers(1, 1 << 50))
def test_thresholds_of_writers_stay_above_what_compactions_wait_for(runs: int, target: int) -> None:
    policy = Policy(level0_trigger_runs=runs, level1_target_bytes=target)
    assert runs < policy.slow_runs < policy.stop_runs
    assert policy.stop_pending_bytes > target


def test_a_run_overrides_the_table_and_the_table_the_default() -> None:
    properties = changed((), {"level0_trigger_runs": 8, "compression_level": 7})
    own = Policy(strategy=Strategy.FULL, level0_trigger_runs=5)
    policy = tuned(own, properties)
    assert (policy.strategy, policy.level0_trigger_runs) == (Strategy.FULL, 5)
    assert tuned(Policy(), properties).level0_trigger_runs == 8
    assert tuned(Policy(), properties).push_ratio == Policy().push_ratio
    assert tuned(CompactionSettings(), properties).compression_level == 7
    assert tuned(VacuumSettings(), properties) == VacuumSettings()
    assert overrides(own, properties) == [("level0_trigger_runs", "5", "8")]
    assert overrides(Policy(level0_trigger_runs=8), properties) == []
    assert overrides(Policy(), properties) == []


def test_a_run_that_contradicts_the_table_is_told_what_the_table_has() -> None:
    properties = changed((), {"slow_runs": 30})
    with refuses(ConfigError, "slow_runs=30"):
        tuned(Policy(level0_trigger_runs=100), properties)


def test_what_a_run_is_told_is_judged_with_the_table_and_not_with_defaults() -> None:
    properties = changed((), {"slow_runs": 300, "stop_runs": 600})
    assert told({"slow-runs": "400"}) == (("slow_runs", 400),)
    assert tuned(Policy(slow_runs=400), properties).stop_runs == 600
    with refuses(ConfigError, "slow_runs=300, stop_runs=600"):
        tuned(Policy(slow_runs=700), properties)
    with refuses(ConfigError, "700 runs"):
        told({"slow_runs": 700, "stop_runs": 600})
    for policy in (Policy(slow_runs=400), Policy(slow_runs=3), Policy(stop_pending_bytes=1)):
        with refuses(ConfigError):
            tuned(policy, ())


def test_properties_of_a_newer_program_are_kept_and_shown_and_change_nothing() -> None:
    newer: Properties = (("level0_trigger_runs", 8), ("warp", 9))
    assert tuned(Policy(), newer) == Policy(level0_trigger_runs=8)
    assert changed(newer, {"level0_trigger_runs": 9}) == (("level0_trigger_runs", 9), ("warp", 9))
    assert changed(newer, {"warp": None}) == (("level0_trigger_runs", 8),)
    with refuses(ConfigError, "'warp'"):
        changed(newer, {"warp": 10})
    sources = with_sources(newer)
    assert sources["warp"] == {"value": 9, "source": "unknown"}
    assert sources["level0_trigger_runs"] == {"value": 8, "source": "table"}
    assert sources["slow_runs"] == {"value": 40, "source": "default"}
    assert set(sources) == {*MODEL_OF, "warp"}
