"""Orders of merging, and who waits for whom."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.errors import ConfigError, DataError
from compactor.pipelines.nodes.output import HANDOFF_RECORDS
from compactor.pipelines.run_report import Counted
from compactor.pipelines.work import CHANNEL_RECORDS
from tests.pipelines.support import (
    Gated,
    in_background,
    lines_of,
    numbered,
    run_of,
    sources,
    wait_until,
)
from tests.support.wording import refuses


def merged(out: Path, *inputs: str, **merge: Any) -> dict[str, Any]:
    return {
        "both": {"merge": {"inputs": list(inputs), **merge}},
        "out": {"output": {"input": "both", "path": str(out)}},
    }


def test_concat_gives_one_input_after_the_other_and_the_same_bytes_again(tmp_path: Path) -> None:
    tables = {"a": numbered("a", 5000), "b": numbered("b", 3000), "c": numbered("c", 10)}
    outs = [tmp_path / f"{n}.ndjson" for n in range(2)]
    for out in outs:
        report = run_of({**sources(*tables), **merged(out, *tables)}, tables).run()
        assert report.outputs["out"].records_written == report.outputs["out"].ok_count == 8010
    assert [(row["from"], row["n"]) for row in lines_of(outs[0])] == [
        (name, n) for name, table in tables.items() for n in range(len(table))
    ]
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_peers_of_a_gated_source_produce_no_more_than_their_channel_holds(tmp_path: Path) -> None:
    """1,024 records wait; one batch more is in the reader's hand."""
    gated = {"a": Gated(numbered("a", 3000), 100, is_open=False)}
    peers = {name: Gated(numbered(name, 20_000), 100) for name in ("b", "c")}
    run = run_of(
        {**sources("a", "b", "c"), **merged(tmp_path / "x.ndjson", "a", "b", "c")}, gated | peers
    )
    thread, results = in_background(run)
    wait_until(lambda: all(peer.given >= CHANNEL_RECORDS for peer in peers.values()))
    thread.join(0.3)
    for peer in peers.values():
        assert CHANNEL_RECORDS <= peer.given <= CHANNEL_RECORDS + 100
    gated["a"].gate.set()
    thread.join(30)
    [report] = results
    assert report.outputs["out"].records_written == 43_000
    assert max(report.peak_waiting.values()) <= CHANNEL_RECORDS
    assert set(report.peak_waiting) == {"b", "c"}  # the first is read directly


def test_a_source_that_has_nothing_holds_up_none_of_a_fused_interleave(tmp_path: Path) -> None:
    slow, fast = Gated(numbered("a", 500), 50, is_open=False), Gated(numbered("b", 4000), 50)
    out = tmp_path / "x.ndjson"
    run = run_of(
        {**sources("a", "b"), **merged(out, "a", "b", mode="interleave")}, {"a": slow, "b": fast}
    )
    thread, results = in_background(run)
    wait_until(lambda: run.report.outputs.get("out") is not None
               and run.report.outputs["out"].records_written == 4000)  # fmt: skip
    slow.gate.set()
    thread.join(30)
    assert results[0].outputs["out"].live
    assert [(r["from"], r["n"]) for r in lines_of(out)] == [("b", n) for n in range(4000)] + [
        ("a", n) for n in range(500)
    ]


def test_a_fused_interleave_keeps_the_order_within_each_input(tmp_path: Path) -> None:
    tables = {name: Gated(numbered(name, 3000), 7) for name in "abc"}
    for table in tables.values():
        table.delay = lambda: 0.0005 * random.random()
    out = tmp_path / "x.ndjson"
    run_of({**sources(*tables), **merged(out, *tables, mode="interleave")}, tables).run()
    rows = lines_of(out)
    assert len(rows) == 9000
    for name in tables:
        assert [row["n"] for row in rows if row["from"] == name] == list(range(3000))


def test_a_seed_gives_the_same_order_whatever_the_timing(tmp_path: Path) -> None:
    rows: list[list[tuple[str, int]]] = []
    for number, (seed, delay) in enumerate([(42, 0.0), (42, 0.002), (7, 0.0)]):
        tables = {"a": Gated(numbered("a", 300), 10), "b": Gated(numbered("b", 900), 10)}
        tables["a"].delay = lambda delay=delay: delay  # type: ignore[misc]
        out = tmp_path / f"{number}.ndjson"
        nodes = merged(out, "a", "b", mode="interleave", interleave_seed=seed)
        report = run_of({**sources("a", "b"), **nodes}, tables).run()
        assert not report.outputs["out"].live
        rows.append([(row["from"], row["n"]) for row in lines_of(out)])
    assert rows[0] == rows[1] != rows[2]
    assert sorted(rows[0]) == sorted(rows[2])
    for name, count in (("a", 300), ("b", 900)):
        assert [n for who, n in rows[2] if who == name] == list(range(count))
    first = [who for who, _ in rows[0][:400]]
    assert 60 < first.count("a") < 140  # a quarter of them, about


def test_inputs_behind_transforms_are_taken_in_turn(tmp_path: Path) -> None:
    tables = {"a": numbered("a", 3), "b": numbered("b", 1), "c": numbered("c", 0)}
    nodes = {
        **sources(*tables),
        **{f"t{name}": {"transform": {"input": name, "columns": ["from", "n"]}} for name in tables},
    }
    out = tmp_path / "x.ndjson"
    run_of({**nodes, **merged(out, "ta", "tb", "tc", mode="interleave")}, tables).run()
    assert [f"{r['from']}{r['n'] + 1}" for r in lines_of(out)] == ["a1", "b1", "a2", "a3"]


@pytest.mark.parametrize("counts", [(5000, 70_000, 1), (100_000, 99_999)])
def test_many_rows_are_taken_in_turn_too(counts: tuple[int, ...], tmp_path: Path) -> None:
    tables = {f"s{k}": numbered(f"s{k}", count) for k, count in enumerate(counts)}
    nodes: dict[str, Any] = sources(*tables)
    nodes |= {f"t{name}": {"transform": {"input": name}} for name in tables}
    out = tmp_path / "x.arrow"
    run_of({**nodes, **merged(out, *(f"t{n}" for n in tables), mode="interleave")}, tables).run()
    rows = pa.ipc.open_file(str(out)).read_all().to_pylist()
    expected = sorted((n, k) for k, count in enumerate(counts) for n in range(count))
    assert [(row["n"], int(row["from"][1:])) for row in rows] == expected


def test_a_blocked_writer_bounds_what_is_produced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """written + 256 + sources x 1024, and in hand: a batch of each reader, of the merge, of the writer."""
    assert (HANDOFF_RECORDS, CHANNEL_RECORDS) == (256, 1_024)
    tables = {name: Gated(numbered(name, 50_000), 40) for name in "ab"}
    run = run_of(
        {**sources(*tables), **merged(tmp_path / "x.ndjson", *tables, mode="interleave")}, tables
    )
    blocked = Gated(numbered("x", 1), is_open=False)
    one = Counted.rows

    def slow(self: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        blocked.gate.wait(30)
        return one(self, batch)

    monkeypatch.setattr(Counted, "rows", slow)
    thread, results = in_background(run)
    wait_until(
        lambda: (
            sum(table.given for table in tables.values()) >= HANDOFF_RECORDS + 2 * CHANNEL_RECORDS
        )
    )
    thread.join(0.3)
    produced = sum(table.given for table in tables.values())
    in_hand = 2 * 40 + CHANNEL_RECORDS + HANDOFF_RECORDS
    assert produced <= 0 + HANDOFF_RECORDS + 2 * CHANNEL_RECORDS + in_hand
    blocked.gate.set()
    thread.join(30)
    assert results[0].outputs["out"].records_written == 100_000


def test_sorted_inputs_are_merged_by_key_and_others_refused(tmp_path: Path) -> None:
    rng = random.Random(3)
    tables = {
        name: pa.table(
            {"n": sorted(rng.randrange(1000) for _ in range(5000)), "from": [name] * 5000}
        )
        for name in "abc"
    }
    out = tmp_path / "x.ndjson"
    run_of({**sources(*tables), **merged(out, *tables, mode="key", sort_by="n")}, tables).run()
    rows = [(row["n"], row["from"]) for row in lines_of(out)]
    assert rows == sorted(rows) and len(rows) == 15_000
    unsorted = Gated(numbered("b", 3).select(["n", "from"]).take([2, 0, 1]))
    nodes = {**sources(*tables), **merged(out, *tables, mode="key", sort_by="n")}
    with refuses(DataError):
        run_of(nodes, {**tables, "b": unsorted}).run()
    assert len(lines_of(out)) == 15_000  # of the run before


@pytest.mark.parametrize("at", [1, 2, 1000, 40_000, 59_999])
def test_a_row_that_is_not_sorted_is_told_with_its_place_and_values(
    tmp_path: Path, at: int
) -> None:
    keys = list(range(1, 60_001))
    keys[at] = 0
    tables = {"a": numbered("a", 100), "b": pa.table({"from": ["b"] * 60_000, "n": keys})}
    nodes = {**sources(*tables), **merged(tmp_path / "x.csv", *tables, mode="key", sort_by="n")}
    with pytest.raises(DataError) as caught:
        run_of(nodes, tables, memory={"limit": "16MiB"}).run()
    assert f"row {at + 1} of 'b' (" in caught.value.message
    assert f".arrow) has n 0 after n {at}; sort it" in caught.value.message


def test_a_row_that_is_not_sorted_is_told_with_the_row_of_its_source(tmp_path: Path) -> None:
    unsorted = pa.table({"from": ["x", "y", "w", None], "n": [5, 9, 8, 7]})
    tables = {"a": numbered("a", 3), "b": Gated(unsorted)}
    nodes = {
        **sources(*tables),
        "t": {"transform": {"input": "b", "filter": "n <> 9"}},
        **merged(tmp_path / "x.csv", "a", "t", mode="key", sort_by="from"),
    }
    with refuses(DataError, "row 2 of 't', from row 3 of 'b'", "has from 'w' after from 'x'"):
        run_of(nodes, tables).run()


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"from": ["x"], "n": ["1"]}),
        pa.table({"from": ["x"]}),
        numbered("b", 1, z=[1]),
    ],
)
def test_inputs_that_do_not_agree_are_refused(other: pa.Table, tmp_path: Path) -> None:
    tables = {"a": numbered("a", 1), "b": other}
    with refuses(ConfigError):
        run_of({**sources("a", "b"), **merged(tmp_path / "x.ndjson", "a", "b")}, tables)


def test_columns_in_another_order_agree(tmp_path: Path) -> None:
    tables = {"a": numbered("a", 2), "b": numbered("b", 2).select(["n", "from"])}
    for mode in ("concat", "interleave"):
        out = tmp_path / f"{mode}.csv"
        run_of({**sources("a", "b"), **merged(out, "a", "b", mode=mode)}, tables).run()
        assert sorted(out.read_text().splitlines()[1:]) == ['"a",0', '"a",1', '"b",0', '"b",1']


@pytest.mark.parametrize("mode", ["concat", "interleave"])
def test_an_error_of_one_source_ends_the_run_and_leaves_nothing(mode: str, tmp_path: Path) -> None:
    class Broken(Gated):
        def __iter__(self) -> Any:
            yield from self._batches[:3]
            raise DataError("the disk is gone")

    tables = {"a": Gated(numbered("a", 50_000), 100), "b": Broken(numbered("b", 5000), 100)}
    out = tmp_path / "x.ndjson"
    with refuses(DataError):
        run_of({**sources("a", "b"), **merged(out, "a", "b", mode=mode)}, tables).run()
    assert list(tmp_path.iterdir()) == []
