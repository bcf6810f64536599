"""What a report says of tables of every kind, and what it says when something can't be read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.engine import InProcessEngine
from compactor.errors import UsageError, VersionNotFoundError
from compactor.planner.tree import forest, overlapping_pairs
from compactor.read.fragment_columns import open_fragment
from compactor.settings.vacuum import VacuumSettings
from compactor.table import commit_log
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import version_key
from compactor.table.tags import Moment
from compactor.table.vacuum import vacuum
from compactor.table.version import Changes, Lease, Operation
from tests.report.support import EAGER, MadeUp, compacted, report_of
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table, ingest_tables, log_rows
from tests.support.wording import refuses


def test_the_headline_is_the_snapshots(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    snapshot = CommitLog(store).current()
    head = report_of(store).headline
    entries = snapshot.fragments.all()
    assert head.version == snapshot.version
    assert head.rows == sum(entry.rows for entry in entries) == 900
    assert head.fragments == len(entries)
    assert head.size_bytes == sum(len(store.objects[entry.key]) for entry in entries)
    assert head.overlapping_pairs == overlapping_pairs(forest(snapshot).values())
    assert head.write_amplification == round(snapshot.totals.write_amplification, 4) > 1


def test_runs_are_those_of_the_log_newest_first_and_failures_say_why(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    append_table(store, log_rows(50, 7), None)
    engine = InProcessEngine(
        lambda c: Outcome(compaction_id=c.compaction_id, failure="disk on fire")
    )
    compact_table(store, engine=engine, policy=EAGER, max_attempts=1)
    history = report_of(store).history
    assert [run.figures["failure"] for run in history.runs] == ["disk on fire", ""]
    assert history.runs[1].figures["rows_in"] == 800
    assert history.runs[1].figures["stage_seconds"]
    assert (history.first_version, history.compactions_without_figures) == (1, 0)


def test_bytes_of_columns_are_exact_and_encodings_come_from_footers(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    entries = CommitLog(store).current().fragments.all()
    columns = report_of(store, max_footers=2).columns
    assert [row.name for row in columns.rows] == ["service", "ts", "id", "value"]
    assert [row.sort_position for row in columns.rows] == [1, 2, None, None]
    for row in columns.rows:
        assert row.stored_bytes == sum(e.columns[row.name].stored for e in entries) > 0
        assert row.raw_bytes == sum(e.columns[row.name].raw for e in entries)
        assert sum(row.encodings.values()) > 0
    assert (columns.footers_read, columns.fragments) == (2, len(entries))
    exact = report_of(store, max_footers=10_000).columns.rows
    nulls = [log_rows(200, n)["value"].null_count for n in range(4)]
    nulls += [log_rows(50, n)["value"].null_count for n in (100, 101)]
    assert exact[3].null_share == pytest.approx(sum(nulls) / 900)
    assert exact[2].null_share == 0
    none = report_of(store, max_footers=0).columns
    assert (none.footers_read, none.rows[0].encodings, none.rows[0].null_share) == (0, {}, None)


def test_footers_that_cannot_be_read_are_named_and_the_others_count(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    damaged, missing, *rest = sorted(CommitLog(store).current().fragments)
    store.objects[damaged] = store.objects[damaged][:-30]
    del store.objects[missing]
    columns = report_of(store).columns
    assert sorted(key for key, _ in columns.unreadable) == [damaged, missing]
    assert all(reason for _, reason in columns.unreadable)
    assert columns.footers_read == len(rest) > 0


def test_before_is_the_table_before_the_last_compactions_unless_said_otherwise(
    tmp_path: Path,
) -> None:
    store = compacted(tmp_path)
    space = report_of(store).key_space
    assert space.before is not None
    # Four files, a lease, a compaction, two files.
    assert (space.before.version, space.now.version) == (5, 8)
    assert (space.before.fragments, space.before.levels[0].level) == (4, 0)
    since = report_of(store, since_version=2).key_space.before
    assert since is not None
    assert (since.version, since.fragments) == (2, 2)
    with refuses(UsageError):
        report_of(store, since_version=8)
    with pytest.raises(VersionNotFoundError):
        report_of(store, moment=Moment(99))


def test_since_a_time_is_the_version_of_then_or_the_oldest_that_is_kept() -> None:
    made = MadeUp()
    for n in range(4):
        made.ingest((n, n))
    third = made.log.at(3).committed_unix_ms
    for moment, version in ((third, 3), (third + 1, 3), (third - 1, 2), (0, 1)):
        before = made.report(since_unix_ms=moment).key_space.before
        assert before is not None
        assert before.version == version


def test_an_earlier_version_is_reported_as_it_was(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    report = report_of(store, moment=Moment(3))
    assert (report.headline.version, report.headline.fragments, report.headline.rows) == (3, 3, 600)
    assert report.history.runs == ()
    assert report.history.last_version == 3
    assert report.key_space.before is None


def test_a_table_that_was_never_compacted_has_no_before() -> None:
    made = MadeUp()
    made.ingest((0, 5))
    report = made.report()
    assert report.key_space.before is None
    assert [bar.fragments for bar in report.key_space.now.bars] == [1]
    assert report.notes == ()


def test_an_empty_table_is_a_report_of_nothing() -> None:
    made = MadeUp()
    made.commit(Operation.INGEST)
    report = made.report()
    assert (report.headline.rows, report.headline.fragments, report.headline.sorted_runs) == (
        0,
        0,
        0,
    )
    assert report.key_space.ticks == ()
    assert report.pending.planned == ()


def test_a_table_whose_rows_are_all_gone_still_shows_what_was() -> None:
    made = MadeUp()
    entries = made.ingest((0, 5), (3, 9))
    made.commit(Operation.EXPIRE, removes=[entry.key for entry in entries])
    report = made.report(since_version=1)
    assert report.headline.fragments == 0
    assert report.key_space.before is not None
    assert len(report.key_space.before.bars) == 2
    assert [point.fragments for point in report.history.points] == [2, 0]


def test_history_goes_back_as_far_as_it_is_kept_or_wanted() -> None:
    made = MadeUp()
    for n in range(30):
        made.ingest((n, n))
    few = made.report(max_versions=10)
    assert [p.version for p in few.history.points] == list(range(20, 31))
    assert few.notes == ("Versions 1 to 19 are also kept, but were not read (--history 10).",)
    first = made.log.latest.by_age()[0]
    made.store.objects[first.key] = b"removed by the next version"
    made.compact([first], (0, 0))
    made.clock.sleep(10 * 86_400)
    made.ingest((30, 30))
    made.clock.sleep(10 * 86_400)
    vacuum(made.log, VacuumSettings())
    kept = made.report()
    assert kept.headline.oldest_version > 1
    assert kept.history.points[0].version == kept.headline.oldest_version
    assert kept.notes == ()
    assert kept.headline.fragments == 31


def test_a_log_that_contradicts_itself_before_the_checkpoint_is_a_note() -> None:
    made = MadeUp()
    for n in range(3):
        made.ingest((n, n))
    made.log.write_checkpoint(made.log.latest)
    version = made.log.history.read(2)
    changes = replace(version.changes, removes=("data/not-live.frag",))
    made.store.objects[version_key(2)] = replace(version, changes=changes).to_bytes()
    report = made.report()
    assert report.headline.fragments == 3
    assert "not live" in report.notes[0]


def test_a_history_that_cannot_be_read_is_a_note_and_the_rest_is_there() -> None:
    made = MadeUp()
    for n in range(6):
        made.ingest((n, n))
    made.log.write_checkpoint(made.log.latest)
    made.ingest((6, 6))
    made.store.objects[version_key(3)] = b"junk"
    report = made.report()
    assert report.headline.fragments == 7
    assert report.history.points[0].fragments == 7
    assert "could not be read" in report.notes[0]
    assert "00003.json" in report.notes[0]


def test_quarantine_and_what_is_due_are_said(tmp_path: Path) -> None:
    store = MemoryStore()
    ingest_tables(store, [log_rows(100, seed) for seed in range(6)], tmp_path)
    first = next(iter(CommitLog(store).current().fragments))
    pending = report_of(store).pending
    assert [(row.what, row.fragments, row.output_level) for row in pending.planned] == [
        ("compact", 6, pending.planned[0].output_level)
    ]
    assert pending.planned[0].reason

    def run(compaction: Compaction) -> Outcome:
        if any(entry.key == first for entry in compaction.spec.inputs):
            return Outcome(
                compaction_id=compaction.compaction_id,
                failure="it lies",
                culprit=first,
                is_damage=True,
            )
        return run_compaction(compaction, store)

    engine = InProcessEngine(run)
    compact_table(store, engine=engine, policy=EAGER, max_attempts=1)
    report = report_of(store)
    assert report.verdict.is_bad
    assert report.verdict.text.startswith("1 fragment is in quarantine")
    (item,) = report.pending.quarantine
    assert (item.key, item.reason, item.rows) == (first, "it lies", 100)
    assert sum(bar.is_quarantined for bar in report_of(store).key_space.now.bars) == 1


def test_the_json_is_json_and_complete(tmp_path: Path) -> None:
    report = report_of(compacted(tmp_path))
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert set(document) == {
        "table", "verdict", "headline", "key_space", "history", "columns", "templates", "pending",
            "entity_merge", "notes",
    }  # fmt: skip
    assert document["headline"]["rows"] == 900
    assert len(document["key_space"]["now"]["bars"]) == report.headline.fragments


def test_who_committed_what_is_told_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUp()
    for name in ("pod-a:1", "pod-a:2", "pod-b:1", "pod-a:1"):
        monkeypatch.setattr(commit_log, "process_name", lambda name=name: name)
        made.ingest((1, 2))
    first = made.log.latest.by_age()[0].key
    made.commit(Operation.DROP, removes=[first])
    one, other = made.report().history.committers
    assert (one.host, one.processes, one.rows) == ("pod-a", 2, 30)
    assert one.commits == {"ingest": 3, "drop": 1}
    assert one.last_unix_ms == made.log.latest.committed_unix_ms
    assert (other.host, other.processes, other.rows) == ("pod-b", 1, 10)
    assert other.commits == {"ingest": 1}


def test_the_verdict_is_what_matters_most() -> None:
    made = MadeUp()
    made.ingest((0, 5))
    done = made.report().verdict
    assert done.text.startswith("All is compacted: nothing is due.")
    assert done.command == "compactor vacuum memory://table --dry-run"
    for _ in range(9):
        made.ingest((0, 5))
    due = made.report().verdict
    assert due.text == "10 fragments are due (100.0 kB), and no worker compacts the table."
    assert due.command == "compactor compact memory://table"
    assert not due.is_bad
    keys = tuple(made.log.latest.fragments)
    lease = Lease(
        compaction_id="c",
        owner="host:1:x:y",
        inputs=keys,
        output_level=0,
        expires_unix_ms=made.clock.now_unix_ms() + 60_000,
        began_unix_ms=1,
    )
    made.log.commit(lambda _: Changes(operation=Operation.LEASE, leases=(lease,)))
    runs = made.report().verdict
    assert (runs.text, runs.command) == (
        "Compactions keep up: 10 fragments are being compacted.",
        "compactor wait memory://table",
    )
    for _ in range(30):
        made.ingest((0, 5))
    lags = made.report().verdict
    assert lags.is_bad
    assert lags.text.startswith("Compactions lag behind: the debt is ")
    assert lags.text.endswith("so writers should wait. 1 compaction runs.")


def test_a_report_changes_nothing(tmp_path: Path) -> None:
    store = compacted(tmp_path)
    before = dict(store.objects)
    report_of(store)
    assert store.objects == before


def templated_table() -> MemoryStore:
    store = MemoryStore()
    for n in range(3):
        keys = range(1000 * n, 1000 * (n + 1))
        rng = random.Random(n)
        messages = [
            f"user u{k % 17} took {rng.randrange(10**7)} ms" if k % 5 else "idle" for k in keys
        ]
        more = [f"disk d{k % 7}: {rng.randrange(10**7)} of {rng.randrange(10**7)}" for k in keys]
        table = pa.table({"k": keys, "message": messages, "more": more})
        append_table(store, table, "k" if n == 0 else None, max_rows=500)
    return store


def test_templates_of_the_largest_columns_are_counted_in_some_row_groups() -> None:
    store = templated_table()
    both = report_of(store).templates
    assert {found.column for found in both} == {"message", "more"}
    [message] = (found for found in both if found.column == "message")
    assert (message.chunks, message.chunks_read, message.rows, message.all) == (6, 6, 3000, 2)
    first, second = message.templates
    assert (first.template, first.rows, first.share) == ("user <*> took <n> ms", 2400, 0.8)
    assert first.example.startswith("user u1 took ")
    assert (second.template, second.rows, second.example) == ("idle", 600, "idle")
    few = report_of(store, max_template_chunks=1).templates
    assert {(found.chunks_read, found.rows) for found in few} == {(1, 500)}
    assert report_of(store, max_template_chunks=0).templates == ()
    assert report_of(store, max_footers=0).templates == ()


def test_templates_that_cannot_be_read_are_a_note(tmp_path: Path) -> None:
    store = templated_table()
    keys = sorted(CommitLog(store).current().fragments)
    for key in keys:
        data = bytearray(store.objects[key])
        footer = open_fragment(store, key, len(data)).footer
        footer.fetch(["message"])
        for chunk in footer.chunks("message"):
            data[chunk.end - 10 : chunk.end] = bytes(10)
        store.objects[key] = bytes(data)
    report = report_of(store)
    assert [found.column for found in report.templates] == ["more"]
    assert any("The templates of message could not be read" in note for note in report.notes)
    del store.objects[keys[0]]
    assert any(f"The templates of {keys[0]}" in note for note in report_of(store).notes)
