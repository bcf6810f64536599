"""The stored forms of the log's records come from their declarations: a new field is written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest

from compactor.common.message import Message
from compactor.table.entry import STORED, FragmentEntry
from compactor.table.entry_table import MAY_MISS, SCHEMA
from compactor.table.stored import Number, Stored, Text
from compactor.table.version import Changes, Operation, Quarantine, Version
from tests.table.test_commit_log import entry


class Grown(FragmentEntry, frozen=True, kw_only=True):
    """An entry of a later program: two fields more, and no line elsewhere."""

    heat: Annotated[int, Number(9)] = 0
    origin: Annotated[str | None, Text()] = None


GROWN = Stored(Grown)


def grown(**more: Any) -> Grown:
    return Grown(**msgspec.structs.asdict(entry("a")), **more)


def test_a_field_that_is_declared_is_in_json_in_columns_and_in_checks() -> None:
    hot = grown(heat=7, origin="x")
    assert {**STORED.to_json(entry("a")), "heat": 7, "origin": "x"} == GROWN.to_json(hot)
    assert GROWN.from_json(GROWN.to_json(hot)) == hot
    assert set(GROWN.schema.names) - set(SCHEMA.names) == {"heat", "origin"}
    assert GROWN.from_columns(GROWN.to_columns([hot, grown()])) == [hot, grown()]
    with pytest.raises(ValueError, match=r"^heat is 10, which is not from 0 to 9$"):
        GROWN.check(grown(heat=10))


def test_a_field_that_has_its_default_changes_no_byte() -> None:
    assert GROWN.to_json(grown()) == STORED.to_json(entry("a"))
    assert set(GROWN.columns_that_may_miss) == {*MAY_MISS, "heat", "origin"}
    table = GROWN.to_columns([grown()])
    assert {table.column(name).null_count for name in ("heat", "origin")} == {1}


def test_an_older_program_passes_over_the_fields_of_a_later_one() -> None:
    assert STORED.from_json(GROWN.to_json(grown(heat=7))) == entry("a")


@pytest.mark.parametrize("name", ["key", "rows", "sequence", "row_hash", "window"])
def test_a_field_that_has_to_be_there_is_missed(name: str) -> None:
    document: Mapping[str, Any] = {k: v for k, v in entry("a").to_json().items() if k != name}
    with pytest.raises(KeyError, match=name):
        STORED.from_json(document)


def test_a_reason_that_is_a_message_is_stored_as_its_text() -> None:
    """Failures are messages that name settings by keys."""
    reason = Message("the fragment is ", "gone")
    quarantines = (Quarantine("data/a.frag", reason, 1),)
    changes = Changes(operation=Operation.QUARANTINE, quarantines=quarantines)
    version = Version(number=1, commit_id="id", committed_unix_ms=1, changes=changes)
    [read] = Version.from_bytes(version.to_bytes(), name="v").changes.quarantines
    assert (type(read.reason), read.reason) == (str, "the fragment is gone")


def test_the_columns_of_a_checkpoint_are_those_of_the_reference() -> None:
    assert SCHEMA.field("level").type == pa.int32()
    assert SCHEMA.field("row_hash").type == pa.uint64()
    assert SCHEMA.names[3:5] == ["sequence_version", "sequence_position"]
    assert MAY_MISS == ("deletion", "tombstones", "oldest_unix_ms", "skip_index")
