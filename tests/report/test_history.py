"""Points over time, held against a fresh look at every version; which version is before."""

from __future__ import annotations

import pytest

from compactor.report.history import MAX_POINTS, before_last_compactions, points_of
from compactor.report.keyspace import KeyAxis, panel
from compactor.table.snapshot import Snapshot
from compactor.table.tags import Moment
from compactor.table.version import Operation
from tests.report.support import METADATA, MadeUp


def busy() -> MadeUp:
    """Ingests, a compaction, a move, a quarantine, an ingest."""
    made = MadeUp()
    young = [*made.ingest((0, 10)), *made.ingest((5, 15), (20, 30)), *made.ingest((8, 9))]
    outputs = made.compact(young[:2], (0, 15))
    made.move(outputs, 2)
    made.quarantine(young[2], "it is damaged")
    made.ingest((0, 30))
    return made


def versions_of(made: MadeUp):
    return made.log.history.versions_after(Snapshot.empty(), made.log.latest.version)


def test_every_point_is_what_a_fresh_look_at_its_version_says() -> None:
    made = busy()
    points = points_of(Snapshot.empty(), versions_of(made), METADATA)
    assert [p.version for p in points] == [1, 2, 3, 4, 5, 7]
    for point in points:
        snapshot = made.log.at(point.version)
        fresh = made.report(moment=Moment(point.version)).headline
        assert point.fragments == len(snapshot.fragments)
        assert point.size_bytes == fresh.size_bytes
        assert point.sorted_runs == fresh.sorted_runs
        assert point.worst_point_runs == fresh.worst_point_runs
        assert point.write_amplification == pytest.approx(
            snapshot.totals.write_amplification, abs=1e-4
        )
        assert point.ingested_rows == snapshot.totals.ingested_rows > 0
        assert point.ingested_bytes == snapshot.totals.ingested_bytes > 0
        assert point.committed_unix_ms == snapshot.committed_unix_ms


def test_points_of_a_later_beginning_are_the_last_ones() -> None:
    made = busy()
    start = made.log.at(3)
    rest = made.log.history.versions_after(start, made.log.latest.version)
    whole = points_of(Snapshot.empty(), versions_of(made), METADATA)
    later = points_of(start, rest, METADATA)
    assert [p.version for p in later] == [3, 4, 5, 7]
    assert later[1:] == whole[3:]


def test_of_many_versions_points_are_spread_and_the_last_is_there() -> None:
    made = MadeUp()
    for n in range(MAX_POINTS + 150):
        made.ingest((n, n))
    points = points_of(Snapshot.empty(), versions_of(made), METADATA)
    assert len(points) == MAX_POINTS
    assert (points[0].version, points[-1].version) == (1, MAX_POINTS + 150)


def test_before_is_the_version_before_the_compactions_that_no_ingest_came_between() -> None:
    made = MadeUp()
    assert before_last_compactions(Snapshot.empty(), []) is None
    first = made.ingest((0, 10))
    assert before_last_compactions(Snapshot.empty(), versions_of(made)) is None
    outputs = made.compact(first, (0, 10))
    assert before_last_compactions(Snapshot.empty(), versions_of(made)) == 1
    second = made.ingest((0, 20))
    assert before_last_compactions(Snapshot.empty(), versions_of(made)) == 1
    made.quarantine(second[0], "damaged")
    made.compact([*outputs, *second], (0, 20))
    made.move([made.log.latest.fragments.all()[0]], 2)
    made.ingest((1, 2))
    assert made.log.latest.version == 7
    assert before_last_compactions(Snapshot.empty(), versions_of(made)) == 4


def test_axis_and_panel_of_an_empty_version_are_empty() -> None:
    made = MadeUp()
    snapshot = made.commit(Operation.INGEST)
    axis = KeyAxis(METADATA, [])
    drawn = panel(snapshot, axis)
    assert (len(axis), axis.ticks(), drawn.bars, drawn.levels) == (0, (), (), ())
