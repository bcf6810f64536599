"""Log lines: what they carry, and what never."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.cli import tables
from compactor.cli.main import run
from compactor.common import logs
from compactor.common.escaping import indented, one_line
from compactor.common.logs import LogFormat, LogSettings, bound, set_up
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.telemetry.events import Event, as_line
from tests.support.tables import ingest_tables, log_rows
from tests.support.wording import says

LOG = logging.getLogger("compactor.test")


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def stream() -> io.StringIO:
    """What is logged as JSON from `info` on."""
    stream = io.StringIO()
    set_up(LogSettings(LogFormat.JSON, "info"), stream)
    return stream


def test_a_line_has_time_level_event_and_its_fields(stream: io.StringIO) -> None:
    of_others = {"_of_another_library": 17}
    fields = {"rows": 12, "table": "/t", "stage_seconds": {"decode": 0.5}}
    LOG.info("merged", extra=fields | of_others)
    LOG.debug("too little")
    (line,) = lines_of(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "event": "merged",
        "rows": 12,
        "table": "/t",
        "stage_seconds": {"decode": 0.5},
        "logger": "compactor.test",
    }


def test_lines_within_a_block_carry_what_is_bound_to_it(stream: io.StringIO) -> None:
    with bound(compaction_id="a", table="t"):
        with bound(attempt_id="a-1"):
            LOG.info("one")
        LOG.info("two", extra={"table": "other"})
    LOG.info("three")
    kept = [
        {k: line[k] for k in ("compaction_id", "attempt_id", "table") if k in line}
        for line in lines_of(stream)
    ]
    assert kept == [
        {"compaction_id": "a", "attempt_id": "a-1", "table": "t"},
        {"compaction_id": "a", "table": "other"},
        {},
    ]


def test_a_line_is_one_line_whatever_is_in_it(stream: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        LOG.exception("broke\nhere")
    (line,) = lines_of(stream)
    assert line["event"] == "broke\nhere"
    assert line["exc_info"].endswith("\nValueError\n")


def test_as_text_a_line_is_like_all_messages_of_the_command(stream: io.StringIO) -> None:
    stream = io.StringIO()
    set_up(LogSettings(), stream)
    LOG.info("not shown")
    LOG.warning("no checkpoint at %d", 4, extra={"table": "s3://b/t"})
    assert stream.getvalue() == ("compactor: warning: no checkpoint at 4 table=s3://b/t\n")
    assert logs.settings() == LogSettings()


@given(st.text())
def test_whatever_text_is_made_of_it_stays_on_its_line(text: str) -> None:
    assert len(one_line(f"a{text}b").splitlines()) == 1
    assert not set(one_line(text)) & set("\x1b\r\x00\x9b\u202e")
    if text.isprintable():
        assert one_line(text) == text
    assert all(line.startswith("  ") for line in indented(text).splitlines())


def test_no_line_can_be_forged_by_the_names_in_another() -> None:
    name = "z\nFAKE 2026 committed table=evil\x1b[2K"
    shown = "z\\nFAKE 2026 committed table=evil\\x1b[2K"
    line = as_line(Event("committed", {"table": name}), as_json=False)
    assert line.endswith(f" committed table={shown}")
    stream = io.StringIO()
    set_up(LogSettings(), stream)
    try:
        raise ValueError(name)
    except ValueError:
        LOG.exception("broke at %s", name, extra={"table": name})
    first, *others = stream.getvalue().splitlines()
    assert first == f"compactor: error: broke at {shown} table={shown}"
    assert others[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in others)


def test_messages_of_the_command_are_one_line_whatever_names_are_in_them(
    tmp_path: Path, capfd
) -> None:
    name = f"{tmp_path}/a\ncompactor: warning: FAKE\x1b[2K"
    assert run(["compact", name]) == 5
    (line,) = capfd.readouterr().err.splitlines()
    says(line)
    assert run(["vacuum", "t", "x\nFAKE"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    says(line)


@pytest.mark.parametrize("shape", ["text", "json"])
def test_where_a_defect_is_shown_there_is_no_secret_and_no_line_of_others(
    capfd, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    secret = "".join(("p4ss", "w0rd\ncompactor: error: FAKE"))

    def broken(url: str) -> None:
        raise RuntimeError(secret)

    monkeypatch.setattr(tables, "open_store", broken)
    monkeypatch.setenv("COMPACTOR_DEBUG", "1")
    assert run(["vacuum", "t", "--log-format", shape]) == 1
    err = capfd.readouterr().err
    assert "p4ssw0rd" not in err
    first, *others = err.splitlines()
    if shape == "json":
        assert not others
        assert "in broken" in json.loads(first)["exc_info"]
    else:
        assert first.startswith("compactor: error: internal error: RuntimeError (COMPACTOR")
        assert all(line.startswith("  ") for line in others)
        assert "in broken" in err


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_of_a_compaction_carry_its_id_from_decision_to_commit(tmp_path: Path, capfd) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(100, seed) for seed in range(3)], tmp_path)
    command = ["compact", store.url, "--strategy", "full", "--master", "in-process", "--json"]
    assert run([*command, "--log-format", "json"]) == 0
    out, err = capfd.readouterr()
    report, lines = json.loads(out), events(err)
    assert [line["event"] for line in lines] == [
        "compacting", "attempt started", "attempt ended", "committed",
    ]  # fmt: skip
    assert {line["table"] for line in lines} == {store.url}
    (compaction_id,) = {line["compaction_id"] for line in lines}
    (written,) = CommitLog(store).current().fragments
    assert f"-{compaction_id}-" in written
    committed = lines[-1]
    assert committed["version"] == report["version"]
    assert (committed["rows_in"], committed["gets"]) == (300, 3)
    assert committed["stage_seconds"] == report["stage_seconds"]
    assert committed["attempt"] == 1
    assert committed["attempt_id"] == lines[1]["attempt_id"]


def test_errors_and_warnings_are_lines_of_json_too(tmp_path: Path, capfd) -> None:
    assert run(["compact", str(tmp_path / "no"), "--log-format", "json"]) == 5
    (line,) = events(capfd.readouterr().err)
    assert (line["level"], line["event"]) == ("error", "error")
    assert "no table here" in line["reason"]
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(50, seed) for seed in range(2)], tmp_path)
    (tmp_path / "t" / log.latest.by_age()[0].key).write_bytes(b"")
    command = ["compact", store.url, "--strategy", "full", "--master", "in-process"]
    assert run([*command, "--log-format", "json"]) == 1
    lines = events(capfd.readouterr().err)
    failed = [line for line in lines if line["event"] == "failed"]
    assert [line["attempt"] for line in failed] == [1, 2, 3]
    assert {line["level"] for line in failed} == {"warning"}
    assert failed[-1]["quarantined"] == 1
    assert lines[-1]["event"] == "error"


def test_without_the_option_nothing_more_is_said_than_before(tmp_path: Path, capfd) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(50, seed) for seed in range(2)], tmp_path)
    assert run(["compact", store.url, "--strategy", "full", "--master", "in-process"]) == 0
    assert capfd.readouterr().err == ""
    assert run(["compact", store.url, "--master", "in-process", "--log-level", "info"]) == 0


@pytest.mark.parametrize("shape", ["text", "json"])
def test_no_secret_of_address_or_environment_is_ever_said(
    tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+key",
        "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBYaD+session",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20tok3n-of-otel",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://admin:end-point-pw@127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = ["--log-format", shape, "--log-level", "debug"]
    assert run(["compact", "s3://bucket/t", "--master", "in-process", *options]) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert run(["compact", "s3://bucket/t", "--master", "in-process", *options]) == 4
    assert run(["vacuum", "s3://joe:table-pw@bucket/t", *options]) == 2
    pushed = ["--metrics-push", "http://joe@127.0.0.1:1"]
    monkeypatch.setenv("COMPACTOR_METRICS_PUSH_PASSWORD", "push-pw-77")
    assert run(["vacuum", str(tmp_path / "no"), *pushed, *options]) == 5
    out, err = capfd.readouterr()
    said = out + err
    assert "AWS_ENDPOINT_URL has a user or a password in it" in said
    assert "cannot connect to http://127.0.0.1:1" in said
    assert "--metrics-push http://127.0.0.1:1: metrics were not pushed" in said
    for secret in (*secrets.values(), "end-point-pw", "table-pw", "push-pw-77", "tok3n"):
        assert secret not in said
