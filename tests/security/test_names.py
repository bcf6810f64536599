"""Names that come from storage or from rows never lead out of a table's folder, or of an output's."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from compactor.cli.main import run
from compactor.errors import CompactorError, DataError, UsageError
from compactor.predicate.skipping.packed import BlockPlace
from compactor.stores.keys import check_key
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.stores.s3 import S3Store
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.entry import Deletion, FragmentEntry, SkipIndex
from compactor.table.fragments import FragmentMap
from compactor.table.object_names import is_deletions_key, is_fragment_key, is_skip_index_key
from tests.faults import Damage, calls
from tests.pipelines.support import run_of, sources
from tests.support.s3_server import Request, S3Server
from tests.support.tables import append_table, log_rows
from tests.support.wording import refuses

HOSTILE = [
    "../outside.frag",
    "data/../../outside.frag",
    "data/../_log/00000000000000000001.json",
    "/etc/passwd",
    "s3://other/data/x.frag",
    "file:///etc/passwd",
    "data/x\0.frag",
    "data//x.frag",
    "data/./x.frag",
    "data/x.frag/",
    "data/x.frag\n",
    "data/a/b.frag",
    "data/..frag/../x.frag",
    "data\\..\\x.frag",
    "_log/00000000000000000001.json",
    "",
    ".tmp/x.frag",
    "data/\u0661\u0661.frag",
    "data/\ud800.frag",
]
_names = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(st.sampled_from(["..", ".", "data", "/", "\\", "\0", "a", ".frag", "~", "%2e%2e", "s3:", "\n"]))
    .map("".join),
    st.text(),
)  # fmt: skip


@given(_names)
def test_no_store_reads_or_writes_outside_of_its_root(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    root = Path(f"{tmp_path_factory.getbasetemp()}/never/made/root")
    store = LocalStore(root)
    try:
        check_key(name)
    except UsageError:
        for ask in (store.read, store.head, store.delete, store.open_stream, store.start_upload):
            with pytest.raises(UsageError):
                ask(name)
        with pytest.raises(UsageError):
            store.create(name, b"")
        with pytest.raises(UsageError):
            S3Store("b", "p").read(name)
    else:
        path = root / name
        assert Path(f"{root}/") in path.parents
        assert ".." not in path.parts
    assert not root.parent.parent.exists()


@given(_names)
def test_what_is_taken_for_a_name_of_a_table_is_in_its_data_folder(name: str) -> None:
    for is_one in (is_fragment_key, is_deletions_key, is_skip_index_key):
        if is_one(name):
            assert check_key(name) == name
            assert name.startswith("data/")
            assert name.count("/") == 1


@pytest.fixture
def table(tmp_path: Path) -> LocalStore:
    (tmp_path / "outside.frag").write_bytes(b"of somebody else")
    store = LocalStore(tmp_path / "t")
    append_table(store, log_rows(20, 1), "service,ts")
    return store


def forged_version(store: LocalStore, change: Any) -> None:
    """The next version of the log, as `change` makes it of the first; its checksum is right."""
    text, _, _ = store.read("_log/00000000000000000001.json").partition(b"\n")
    document = json.loads(text)
    document |= {"version": 2, "metadata": None, "removes": []}
    change(document)
    text = json.dumps(document).encode()
    checksum = xxhash.xxh3_64_hexdigest(text).encode()
    store.create("_log/00000000000000000002.json", text + b"\n" + checksum + b"\n")


def _forge_key(document: Any, name: str) -> None:
    document["adds"][0]["key"] = name


def _forge_deletion(document: Any, name: str) -> None:
    document["adds"][0]["deletion"] = [name, 0, 10, 1]


def _forge_skip_index(document: Any, name: str) -> None:
    document["adds"][0]["skip_index"] = [name, {"id": [0, 10]}]


COMMANDS = [
    ["verify"],
    ["head"],
    ["compact", "--strategy", "full", "--master", "in-process"],
    ["delete", "--where", "value > 0"],
    ["vacuum", "--retain", "0", "--grace", "0"],
]


@pytest.mark.parametrize("forge", [_forge_key, _forge_deletion, _forge_skip_index])
@pytest.mark.parametrize("name", [n for n in HOSTILE if n != "data/\ud800.frag"])
def test_a_hostile_log_is_damaged_and_nothing_outside_is_touched(
    table: LocalStore, tmp_path: Path, forge: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forged_version(table, lambda document: forge(document, name))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for command, *options in COMMANDS:
        capsys.readouterr()
        assert run([command, str(tmp_path / "t"), *options]) == 3
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert "00000000000000000002.json: the log file is damaged" in line
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("field", ["key", "deletion", "skip_index"])
@pytest.mark.parametrize("name", [n for n in HOSTILE if n != "data/\ud800.frag"])
def test_a_hostile_checkpoint_is_damaged(table: LocalStore, field: str, name: str) -> None:
    snapshot = CommitLog(table).current()
    (entry,) = snapshot.fragments.all()
    changes: dict[str, Any] = {"key": name}
    if field == "deletion":
        changes = {"deletion": Deletion(name, 0, 10, 1, 0)}
    elif field == "skip_index":
        changes = {"skip_index": SkipIndex(name, {"id": BlockPlace(0, 10, 0)})}
    fragments = FragmentMap()
    fragments.set(structs.replace(entry, **changes))
    with refuses((DataError, ValueError)):
        read_checkpoint(
            checkpoint_bytes(replace(snapshot, fragments=fragments)), name="c"
        ).fragments.all()


def test_a_checkpoint_whose_offsets_lead_out_of_its_buffers_is_damaged(table: LocalStore) -> None:
    append_table(table, log_rows(20, 2), None)
    snapshot = CommitLog(table).current()
    data = checkpoint_bytes(snapshot)
    rows = pa.ipc.open_stream(data[:-16]).read_all()
    place = rows.schema.get_field_index("run")
    offsets = pa.py_buffer(struct.pack("<iii", 0, 1 << 30, 5))
    lying = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"short")])
    rows = rows.set_column(place, rows.schema.field(place), pa.chunked_array([lying]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    forged = sink.getvalue().to_pybytes()
    forged += xxhash.xxh3_128_digest(forged)
    assert read_checkpoint(data, name="c").version == snapshot.version
    with refuses(DataError):
        read_checkpoint(forged, name="c").fragments.all()


def test_names_in_the_log_are_those_that_writers_make(table: LocalStore) -> None:
    for entry in CommitLog(table).current().fragments.all():
        assert FragmentEntry.from_json(entry.to_json()) == entry


def test_a_vacuum_removes_nothing_but_names_of_the_table(
    s3_server: S3Server, s3_bucket: str
) -> None:
    """Anybody who writes to a bucket may choose keys: what is listed is not asked for."""
    table = f"s3://{s3_bucket}/t"
    append_table(open_store(table), log_rows(20, 1), "service,ts")
    ours = "00000000000000000000-a-00000.frag"
    keys = ["../../o", f"../{ours}", f"a/{ours}", f"{ours}&#10;", f"../data/{ours}", ours]
    items = "".join(
        f"<Contents><Key>t/data/{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        "<ETag>e</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"

    def lists_data(request: Request) -> bool:
        return request.query.startswith("list-type=2") and "data" in request.query

    s3_server.faults.add(Damage(lambda _: listing.encode()), at=calls("GET", where=lists_data))
    assert run(["vacuum", table, "--retain", "0", "--grace", "0"]) == 0
    assert {r.key for r in s3_server.requests("DELETE")} == {f"t/data/{ours}"}


@given(st.lists(_names.filter(lambda n: n.isascii() or n.isprintable()), min_size=1, max_size=5))
def test_values_that_name_files_stay_in_the_folder(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("split") / "in"
    folder.mkdir()
    rows = pa.table({"v": pa.array([v.encode(errors="replace").decode()[:40] for v in values])})
    nodes = sources("rows") | {
        "out": {"output": {"input": "rows", "path": f"{folder}/o-{{}}.csv", "split": {"by": "v"}}}
    }
    run_of(nodes, {"rows": rows}).run()
    distinct = set(rows["v"].to_pylist())
    assert len(list(folder.iterdir())) == len(distinct)
    assert [p.name for p in folder.parent.iterdir()] == ["in"]


def test_a_link_in_the_place_of_an_object_is_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"of somebody else")
    store = LocalStore(tmp_path / "t")
    store.create("data/a", b"x")
    for name in ("new", "over", "gone"):
        (tmp_path / "t" / "data" / name).symlink_to(outside)
    with refuses(CompactorError):
        store.create("data/new", b"mine")
    with store.start_upload("data/over") as upload:
        upload.write(b"mine")
        upload.complete()
    store.delete("data/gone")
    assert outside.read_bytes() == b"of somebody else"
    assert store.read("data/over") == b"mine"
    assert not (tmp_path / "t" / "data" / "over").is_symlink()
    assert not (tmp_path / "t" / "data" / "gone").is_symlink()


def test_links_to_folders_that_go_round_end_in_one_line(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    store.create("data/a", b"x")
    (tmp_path / "t" / "data" / "round").symlink_to(tmp_path / "t" / "data")
    with pytest.raises(CompactorError, match=r"symbolic links|too long"):
        list(store.list("data/"))


def test_a_vacuum_removes_nothing_of_strangers(
    table: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    hidden = Path(table.url) / ".tmp"
    (hidden / "folder").mkdir()
    for folder in (victim, hidden):
        for name in ("thesis.txt", "a" * 31):
            (folder / name).write_text("x")
            os.utime(folder / name, (0, 0))
    os.utime(hidden / "folder", (0, 0))
    abandoned = hidden / ("0" * 32)
    abandoned.write_text("x")
    os.utime(abandoned, (0, 0))
    assert run(["vacuum", table.url]) == 0, capsys.readouterr().err
    assert {path.name for path in hidden.iterdir()} == {"folder", "thesis.txt", "a" * 31}
    hidden.rename(tmp_path / "aside")
    hidden.symlink_to(victim)
    run(["vacuum", table.url])
    assert {path.name for path in victim.iterdir()} == {"thesis.txt", "a" * 31}
