"""Which files stay, go and come, and which changes are compactions: decided without a store."""

from __future__ import annotations

import pyarrow as pa

from compactor import RowKind, RowPolicy, Table
from compactor.lakes.lake import LakeFile
from compactor.lakes.lineage import Lineage, lineage_of
from compactor.lakes.pieces import (
    Piece,
    file_name,
    node_of,
    node_of_piece,
    parsed_name,
    piece_of,
    pieces_of,
)
from compactor.lakes.plan import difference, rewrites_of
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.write.ingest import IngestOptions
from tests.read.test_changes import FULL, created


def pieces(table: Table, *, fills_columns: bool = True) -> list[Piece]:
    snapshot = table._log.current()
    schema = snapshot.table.shown_schema
    return list(pieces_of(snapshot, schema, min_level=0, fills_columns=fills_columns))


def files(of: list[Piece]) -> list[LakeFile]:
    return [LakeFile(file_name(piece, 1, "writer"), piece.live_rows, 100) for piece in of]


def sizes(of: list[LakeFile]) -> dict[str, int]:
    return {file.name: file.size_bytes for file in of}


def lineage(table: Table, since: Snapshot) -> Lineage:
    log = table._log
    held = frozenset(map(node_of, since.fragments.all()))
    return lineage_of(since, log.history.versions_after(since, log.current().version), held)


def nodes_in(of: list[LakeFile]) -> dict[str, frozenset[str]]:
    return {file.piece: frozenset([node_of_piece(file.piece)]) for file in of}


def test_a_name_says_its_piece_and_when_it_was_begun() -> None:
    [piece] = pieces(created(pa.table({"k": [1]})))
    name = file_name(piece, 41, "writer")
    assert parsed_name(name) == (piece.id, 41)
    assert file_name(piece, 41, "another writer") != name
    part = "part-00000-7f2c9d64-1b7e-4c55-9a0e-123456789012-c000.snappy.parquet"
    for foreign in (part, "part-00000-c000.snappy.parquet", "a-1-2.parquet", name[:-1]):
        assert parsed_name(foreign) is None


def test_a_new_column_changes_only_pieces_that_have_it_unless_files_need_all_columns() -> None:
    table = created(pa.table({"k": [1]}))
    filled, whole = pieces(table), pieces(table, fills_columns=False)
    table.append(pa.table({"k": [2], "new": ["x"]}))
    kept = {piece.id for piece in filled} & {piece.id for piece in pieces(table)}
    assert len(kept) == 1
    again = {piece.id for piece in pieces(table, fills_columns=False)}
    assert not {piece.id for piece in whole} & again


def test_a_column_that_takes_the_name_of_a_dropped_one_makes_another_piece() -> None:
    table = created(pa.table({"k": [1], "a": [1], "b": [2]}))
    before = {piece.id for piece in pieces(table)}
    table.alter(renames={"a": "b", "b": "a"})
    assert not before & {piece.id for piece in pieces(table)}


def test_two_files_of_one_piece_are_replaced_by_one() -> None:
    [piece] = pieces(created(pa.table({"k": [1]})))
    twins = [LakeFile(file_name(piece, base, "writer"), 1, 100) for base in (1, 2)]
    change = difference(twins, [piece], sizes(twins))
    assert (change.kept, change.removes, change.adds) == ([], twins, [piece])


def test_a_file_that_is_gone_or_cut_off_is_replaced() -> None:
    table = created(pa.table({"k": [1]}))
    table.append(pa.table({"k": [2]}))
    table.append(pa.table({"k": [3]}))
    whole, gone, short = files(wanted := pieces(table))
    there = sizes([whole, short]) | {short.name: short.size_bytes - 1}
    change = difference([whole, gone, short], wanted, there)
    assert (change.kept, change.removes) == ([whole], [gone, short])
    assert change.adds == wanted[1:]


def test_compactions_of_what_is_published_and_what_arrived_are_told_from_changes() -> None:
    table = created(pa.table({"k": [1, 2]}))
    table.append(pa.table({"k": [3]}))
    since, live = table._log.current(), files(pieces(table))
    table.append(pa.table({"k": [4, 5]}))
    table.compact(policy=FULL)
    snapshot = table._log.current()

    def alone(entry: FragmentEntry) -> Piece:
        metadata = snapshot.table
        return piece_of((entry,), metadata, metadata.shown_schema, fills_columns=True)

    change = difference(live, pieces(table), sizes(live))
    [rewrite] = rewrites_of(change, lineage(table, since), nodes_in(live), alone)
    assert {file.name for file in rewrite.removes} == {file.name for file in live}
    assert [piece.live_rows for piece in rewrite.arrived] == [2]
    assert [piece.live_rows for piece in rewrite.adds] == [5]
    assert rewrites_of(change, lineage(table, since), nodes_in(live), None) == []
    assert rewrites_of(change, Lineage(), nodes_in(live), alone) == []


def test_a_deletion_before_a_compaction_is_a_change() -> None:
    table = created(pa.table({"k": [1, 2]}))
    since, live = table._log.current(), files(pieces(table))
    table.delete("k = 2")
    table.append(pa.table({"k": [3]}))
    table.compact(policy=FULL)
    change = difference(live, pieces(table), sizes(live))
    assert (
        rewrites_of(
            change, lineage(table, since), nodes_in(live), lambda entry: Piece("", (entry,), ())
        )
        == []
    )


def test_merged_pieces_are_known_by_the_fragments_that_they_have() -> None:
    table = created(pa.table({"k": [1, 2]}), IngestOptions(rows=RowPolicy(RowKind.LAST)))
    table.append(pa.table({"k": [2, 3]}))
    since, before = table._log.current(), pieces(table)
    [merged] = before
    assert len(merged.entries) == 2
    table.compact(policy=FULL)
    live = files(before)
    change = difference(live, pieces(table), sizes(live))
    nodes = {merged.id: frozenset(map(node_of, merged.entries))}
    [rewrite] = rewrites_of(change, lineage(table, since), nodes, None)
    assert rewrite.arrived == []
    assert rewrites_of(change, lineage(table, since), nodes_in(live), None) == []
