"""The file of a fleet: what it says, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import ConfigError
from compactor.fleet.config import load_fleet, parse_fleet
from compactor.fleet.finding import found, patterns_of
from compactor.lakes.lake import LakeKind
from tests.support.wording import refuses

GOOD = """\
poll: 5s
slowest_poll: 2m
zone: Europe/Berlin
defaults:
  vacuum: {every: 24h, between: "01:00-05:00"}
  settings: {memory_limit_bytes: 256MiB, level0_trigger_runs: 6}
tables:
  - at: s3://lake/logs/*
    except: [tmp-*]
    priority: 10
    share: 3
    quiet: ["mon-fri 08:00-18:00", "sat 10:00-12:00"]
    settings: {level0_trigger_runs: 8, retain_seconds: 7d}
    publish: {to: "s3://lake/delta/{table}", as: delta, levels: 1+}
  - at: metrics
    vacuum:
"""


def test_entries_have_what_they_say_and_else_the_defaults() -> None:
    config = parse_fleet(GOOD, "conf/fleet.yaml")
    logs, metrics = config.entries
    assert (config.poll_seconds, config.slowest_poll_seconds, config.find_seconds) == (5, 120, 60)
    assert (logs.priority, logs.share, metrics.priority, metrics.share) == (10, 3, 0, 1)
    assert logs.policy.level0_trigger_runs == 8
    assert metrics.policy.level0_trigger_runs == 6
    assert metrics.compaction.memory_limit_bytes == 256 << 20
    assert logs.vacuum_settings.retain_seconds == 7 * 86_400
    assert logs.vacuum is not None
    assert logs.vacuum.every == 86_400
    assert metrics.vacuum is None
    assert logs.publish is not None
    assert logs.publish.of_table("a/b").to == "s3://lake/delta/a/b"
    assert (logs.publish.kind, logs.publish.levels) == (LakeKind.DELTA, 1)


def test_paths_begin_at_the_folder_of_the_file_and_only_what_was_set_overrides_a_table(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD)
    metrics = load_fleet(str(path)).entries[1]
    assert metrics.at == str(tmp_path / "metrics")
    assert metrics.policy.model_fields_set == {"level0_trigger_runs"}
    assert metrics.compaction.model_fields_set == {"memory_limit_bytes"}


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("share: 3", "shaer: 3", "line 11"),
        ("share: 3", "share: 0", "line 11"),
        ("priority: 10", "priority: ten", "line 10"),
        ("every: 24h", "every: daily", "line 5"),
        ("every: 24h", "every: 0", "line 5"),
        ("sat 10:00", "zat 10:00", "line 12"),
        ("level0_trigger_runs: 8", "level0_triger_runs: 8", "line 13"),
        ("level0_trigger_runs: 8", "level0_trigger_runs: 1", "line 13"),
        ("retain_seconds: 7d", "slow_runs: 30", "line 13"),
        ("retain_seconds: 7d", "threads: 3", "line 13"),
        ("as: delta", "as: hudi", "line 14"),
        ("{table}", "all", "line 14"),
        ("levels: 1+", "levels: 1", "line 14"),
        ("levels: 1+", "name: lake.all", "line 14"),
        ("Europe/Berlin", "Europe/Bonn", "line 3"),
        ("logs/*", "**", "line 8"),
        ("at: metrics", "att: metrics", "line 15"),
        ("at: metrics", "at: s3://lake/logs/*", "line 15"),
        ("    vacuum:\n", "    except: [x]\n", "line 16"),
        ("slowest_poll: 2m", "slowest_poll: 2s", "line 2"),
    ],
)
def test_a_mistake_is_refused_by_line_and_key(old: str, new: str, place: str) -> None:
    assert old in GOOD
    with refuses(ConfigError, f"fleet.yaml, {place}:"):
        parse_fleet(GOOD.replace(old, new), "fleet.yaml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "level0_trigger_runs: 8",
            "memory_limit_bytes: [1]",
            "settings: memory_limit_bytes: ",
        ),
        (
            "level0_trigger_runs: 8",
            "memory_limit_bytes: ",
            "settings.memory_limit_bytes: nothing is given",
        ),
        ("    vacuum:\n", "    vacuum: true\n", "vacuum: True is no mapping"),
        ("    vacuum:\n", "    retention:\n", "retention: nothing is given: write a mapping"),
        ("zone: Europe/Berlin", "zone: 3", "zone: '3' is no time zone; write UTC"),
        ("zone: Europe/Berlin", "zone:", "zone: nothing is no time zone; write UTC"),
    ],
)
def test_a_mistake_is_told_in_words_of_the_file(old: str, new: str, told: str) -> None:
    with refuses(ConfigError, told) as caught:
        parse_fleet(GOOD.replace(old, new), "fleet.yaml")
    assert "Rules" not in str(caught.value)


def test_defaults_without_keys_are_refused() -> None:
    with refuses(ConfigError, "line 1: defaults: nothing is given: write a mapping"):
        parse_fleet("defaults:\ntables:\n  - at: a\n", "fleet.yaml")


@pytest.mark.parametrize(
    ("at", "known"),
    [("/", "/"), ("s3://", "s3://"), ("s3://lake//", "s3://lake"), ("logs/*/", "logs/*")],
)
def test_slashes_at_the_end_of_a_name_do_not_count(at: str, known: str) -> None:
    [entry] = parse_fleet(f"tables:\n  - at: {at}\n", "fleet.yaml").entries
    assert entry.at == known


def test_an_address_with_a_key_is_not_repeated_when_it_comes_twice() -> None:
    entry = "  - at: s3://KEY:SECRET@lake/logs\n"
    with refuses(ConfigError, "tables[0]") as caught:
        parse_fleet(f"tables:\n{entry * 2}", "fleet.yaml")
    assert "SECRET" not in str(caught.value)


def test_a_file_without_tables_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, "tables"):
        parse_fleet("poll: 5s", "fleet.yaml")
    with refuses(ConfigError, "fleet.yaml"):
        load_fleet(str(tmp_path / "fleet.yaml"))


def test_wildcards_in_the_folder_of_the_file_are_no_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "lake [a*]"
    for name in ("logs-1", "logs-2"):
        (folder / name).mkdir(parents=True)
    (folder / "fleet.yaml").write_text("tables:\n  - at: logs-*\n  - at: one\n")
    config = load_fleet(str(folder / "fleet.yaml"))
    assert [entry.is_pattern for entry in config.entries] == [True, False]
    places = found(patterns_of(config)).places
    assert sorted(places) == [f"{folder}/{name}" for name in ("logs-1", "logs-2", "one")]


def test_links_to_one_folder_are_one_table_of_the_first_entry(tmp_path: Path) -> None:
    (tmp_path / "logs" / "a").mkdir(parents=True)
    (tmp_path / "logs" / "b").symlink_to("a")
    (tmp_path / "same").symlink_to(tmp_path / "logs" / "a")
    (tmp_path / "fleet.yaml").write_text("tables:\n  - at: logs/*\n  - at: same\n")
    config = load_fleet(str(tmp_path / "fleet.yaml"))
    assert list(found(patterns_of(config)).places) == [f"{tmp_path}/logs/a"]


@pytest.mark.parametrize(
    "line",
    ["at: nothing://lake/*", 'at: t\n    publish: {to: "nothing://lake/t", as: delta}'],
)
def test_an_address_of_no_store_is_named_with_its_line(line: str) -> None:
    config = parse_fleet(f"tables:\n  - at: a\n  - {line}\n", "fleet.yaml")
    with refuses(ConfigError, "fleet.yaml, line 3: tables[1]"):
        patterns_of(config)


def test_all_settings_that_are_wrong_are_told_and_no_list_for_its_entries() -> None:
    text = "poll: soon\ntables:\n  - ta: logs\n  - at: metrics\n    share: much\n"
    with pytest.raises(ConfigError) as caught:
        parse_fleet(text, "fleet.yaml")
    told = [mistake.message for mistake in (caught.value, *caught.value.others)]
    starts = [
        "fleet.yaml, line 1: poll: ",
        "fleet.yaml, line 3: tables[0]: `at` is missing",
        "fleet.yaml, line 3: tables[0]: no setting 'ta'; there are: ",
        "fleet.yaml, line 5: tables[1].share: ",
    ]
    assert len(told) == len(starts)
    assert all(message.startswith(start) for message, start in zip(told, starts, strict=True))
