"""The policies in deploy/iam are enough for their commands, and no action in them is too much."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.compaction import worker
from compactor.errors import PermissionDeniedError
from compactor.stores.open import open_store
from compactor.stores.parts import remove_parts, writing_part
from compactor.stores.s3 import S3Store
from compactor.table import commit_log
from compactor.table import vacuum as old
from compactor.table.object_names import floor_key, fragment_key, version_key
from tests.security.iam import (
    FOLDER,
    KEY,
    VIA_S3,
    Guard,
    is_allowed,
    listed,
    load,
    without_each,
)
from tests.support.s3_server import S3Server
from tests.support.tables import log_rows

Call = list[str]
_numbers = itertools.count()


class Tables:
    """Copies of one table, in which there is something for every command to do."""

    def __init__(self, server: S3Server, bucket: str, folder: Path) -> None:
        self._server, self.bucket, self.folder = server, bucket, folder
        self._client = boto3.client("s3", endpoint_url=server.endpoint_url)
        files = []
        for number in range(4):
            files.append(str(folder / f"{number}.parquet"))
            pq.write_table(log_rows(40, number), files[-1])
        self.file = files[3]
        self.url = f"s3://{bucket}/template"
        for file in files[:3]:  # each a version
            self._do(
                "ingest", self.url, file, "--sort-by", "service,ts", "--skip-index", "id:bloom"
            )
        self._do("delete", self.url, "--where", "id = '0-1'")
        self._do("alter", self.url, "--rename", "value:v")
        (folder / "d.ndjson").write_text('{"_id": "1", "k": 1}\n')
        (folder / "spec.json").write_text(json.dumps({"datasets": ["d d"]}))
        self._fresh = self._objects()
        self._do("compact", self.url, "--strategy", "full", "--master", "in-process")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 1000)  # so that one is due then
            self._do("ingest", self.url, self.file, "--on-conflict", "split")
        self._aged = self._objects()

    def _objects(self) -> dict[str, bytes]:
        return {
            item["Key"]: self._client.get_object(Bucket=self.bucket, Key=item["Key"])["Body"].read()
            for item in self._client.list_objects_v2(Bucket=self.bucket)["Contents"]
        }

    def _do(self, *call: str) -> None:
        assert run(call) == 0

    def fresh(self, *, is_aged: bool = False) -> str:
        """The prefix of a copy. is_aged: in which something of each kind is for the vacuum."""
        self._server.guard = None
        prefix = f"team/table-{next(_numbers)}"
        for key, data in (self._aged if is_aged else self._fresh).items():
            self._client.put_object(
                Bucket=self.bucket, Key=key.replace("template", prefix, 1), Body=data
            )
        return prefix

    def under(self, statements: list[Any], key_statements: list[Any] | None = None) -> Guard:
        guard = Guard(statements, key_statements)
        self._server.guard = guard
        return guard

    def without_rules(self) -> None:
        self._server.guard = None

    def unfinished(self) -> int:
        found = self._client.list_multipart_uploads(Bucket=self.bucket)
        return len(found.get("Uploads", ()))

    def forget_uploads(self) -> None:
        found = self._client.list_multipart_uploads(Bucket=self.bucket)
        for upload in found.get("Uploads", ()):
            self._client.abort_multipart_upload(
                Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )

    def begin_upload(self, prefix: str) -> None:
        key = f"{prefix}/{fragment_key(1, 'x', 0)}"
        self._client.create_multipart_upload(Bucket=self.bucket, Key=key)

    def put_stray(self, prefix: str) -> None:
        key = f"{prefix}/{version_key(99)}"
        self._client.put_object(Bucket=self.bucket, Key=key, Body=b"stray")


@pytest.fixture(scope="module")
def template(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 3)
        bucket = s3_server.create_bucket("policies")
        return Tables(s3_server, bucket, tmp_path_factory.mktemp("files"))


@pytest.fixture
def tables(template: Tables, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 1)
    monkeypatch.setattr(old, "LOG_GRACE_SECONDS", 0)
    monkeypatch.setattr(worker, "_backoff_seconds", lambda failures: 0.0)
    yield template
    template.without_rules()
    template.forget_uploads()


def reader(url: str, t: Tables) -> list[Call]:
    return [
        ["query", url, "--where", "id = '1-1'"],
        ["export", url, str(t.folder / "out.parquet")],
        ["head", url, "-n", "3"],
        ["inspect", url],
        ["verify", url],
        ["compact", url, "--dry-run"],
        ["report", url, "-o", str(t.folder / "report.html")],
    ]


def writer(url: str, t: Tables) -> list[Call]:
    pipeline = t.folder / "pipeline.yaml"
    pipeline.write_text(
        f"nodes:\n  in: {{source: {{path: '{t.file}'}}}}\n"
        f"  out: {{output: {{input: in, table: '{url}-new', sort_by: id}}}}\n"
    )
    entities = ["entity-merge", str(t.folder / "spec.json"), "--datasets", str(t.folder)]
    return [
        ["delete", url, "--where", "id = '1-1'"],
        ["ingest", url, t.file, "--on-conflict", "split"],
        ["alter", url, "--rename", "v:w"],
        ["run", str(pipeline)],
        [*entities, "--output", f"{url}-entities"],
    ]


def compactor(url: str, t: Tables) -> list[Call]:
    return [
        ["compact", url, "--strategy", "full", "--dry-run"],
        ["compact", url, "--strategy", "full", "--master", "in-process"],
        ["release", url, "--all"],
    ]


def vacuum(url: str, t: Tables) -> list[Call]:
    return [["vacuum", url, "--retain", "0", "--grace", "0"], ["repair", url, "--apply"]]


ROLES: dict[str, Callable[[str, Tables], list[Call]]] = {
    "reader": reader,
    "writer": writer,
    "compactor": compactor,
    "vacuum": vacuum,
}


def calls_of(role: str, tables: Tables) -> tuple[str, list[Call]]:
    prefix = tables.fresh(is_aged=role == "vacuum")
    url = f"s3://{tables.bucket}/{prefix}"
    if role == "vacuum":
        tables.begin_upload(prefix)
        tables.put_stray(prefix)
    return prefix, ROLES[role](url, tables)


def policy(role: str, tables: Tables, prefix: str) -> list[Any]:
    return load(role, BUCKET=tables.bucket, PREFIX=prefix)


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_the_policy_of_a_role_is_enough_for_its_commands(role: str, tables: Tables) -> None:
    prefix, calls = calls_of(role, tables)
    # Tables that a writer makes beside it have rules of their own, from the same file.
    statements = [
        statement
        for suffix in ("", "-new", "-entities")
        for statement in policy(role, tables, prefix + suffix)
    ]
    guard = tables.under(statements)
    for call in calls:
        assert run(call) == 0, call
    assert guard.denied == []
    assert role != "vacuum" or tables.unfinished() == 0


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_with_a_key_the_keys_policy_is_enough_and_no_action_of_it_too_much(
    role: str, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    of_key = load("kms-reader" if role == "reader" else "kms-writer", KMS_KEY_ARN=KEY)
    for name, key_statements in [("nothing", of_key), *without_each(of_key)]:
        prefix, calls = calls_of(role, tables)
        guard = tables.under(policy(role, tables, prefix), key_statements)
        capsys.readouterr()
        codes = [run(call) for call in calls[:3]]  # what others make beside it is tested above
        if name == "nothing":
            assert not any(codes) and guard.denied == []
        else:
            assert any(codes), f"{role} works without {name}"
            assert "permission denied (AccessDenied)" in capsys.readouterr().err
            assert guard.denied[0].startswith(name.split()[0])


def test_a_key_is_used_for_s3_only() -> None:
    for name in ("kms-reader", "kms-writer"):
        [statement] = load(name, KMS_KEY_ARN=KEY)
        for action in listed(statement["Action"]):
            assert is_allowed([statement], action, KEY, VIA_S3)
            assert not is_allowed([statement], action, KEY, {})
            assert not is_allowed(
                [statement], action, KEY, {"kms:ViaService": "ec2.us-east-1.amazonaws.com"}
            )
            assert not is_allowed([statement], action, f"{KEY}0", VIA_S3)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_no_policy_has_a_wildcard_but_below_the_tables_prefix(path: Path) -> None:
    variables = {"BUCKET": "b", "PREFIX": "p/t", "KMS_KEY_ARN": KEY}
    for statement in load(path.stem, **variables):
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in listed(statement["Action"]))
        for resource in listed(statement["Resource"]):
            below = resource.removeprefix("arn:aws:s3:::b/p/t/")
            assert "*" not in resource or (below != resource and below.count("*") == 1)
        if "s3:ListBucket" in listed(statement["Action"]):
            assert statement["Condition"] == {"StringLike": {"s3:prefix": "p/t/*"}}


_CLEANING = ("s3:AbortMultipartUpload x/data/*",)
_BEST_EFFORT = ("s3:PutObject x/_checkpoint/*.arrow", "s3:AbortMultipartUpload x/_aside/*")


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_no_action_of_a_policy_can_be_left_out(
    role: str, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name, _ in without_each(policy(role, tables, "x"))]
    for index, name in enumerate(names):
        if name in _BEST_EFFORT or (name in _CLEANING and role != "vacuum"):
            continue  # commands go on without them: below
        prefix, calls = calls_of(role, tables)
        _, fewer = list(without_each(policy(role, tables, prefix)))[index]
        tables.under(fewer)
        codes, lines = [], []
        for call in calls:
            capsys.readouterr()
            codes.append(run(call))
            lines += capsys.readouterr().err.splitlines()
            if codes[-1]:
                break
        assert any(codes), f"{role} works without {name}"
        assert "permission denied (AccessDenied)" in lines[-1], (name, lines)
        is_in_a_task = role == "compactor" and name.endswith("/data/*")
        assert codes[-1] == (1 if is_in_a_task else 4), (name, lines)
        assert is_in_a_task or len(lines) == 1, (name, lines)


@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "key"),
    [
        ("writer", "data/a.frag"),
        ("compactor", "data/a.frag"),
        ("staging", "data/a.frag"),
        ("vacuum", "_aside/r/_log/a"),
    ],
)
@pytest.mark.parametrize("may_abort", [True, False])
def test_without_the_right_to_abort_uploads_that_failed_stay_and_are_paid_for(
    tables: Tables, role: str, key: str, may_abort: bool
) -> None:
    prefix = tables.fresh()
    statements = policy(role, tables, prefix)
    if not may_abort:
        statements = [
            {**s, "Action": [a for a in listed(s["Action"]) if a != "s3:AbortMultipartUpload"]}
            for s in statements
        ]
    tables.under(statements)
    store = S3Store(tables.bucket, prefix, part_bytes=5 << 20)
    with pytest.raises(RuntimeError), store.start_upload(key) as upload:
        upload.write(bytes(6 << 20))
        raise RuntimeError
    tables.without_rules()
    assert tables.unfinished() == (0 if may_abort else 1)


@pytest.mark.long
@pytest.mark.parametrize("role", ["writer", "compactor", "vacuum"])
@pytest.mark.parametrize("may_write", [True, False])
def test_without_the_right_to_write_checkpoints_there_are_none(
    tables: Tables, role: str, may_write: bool
) -> None:
    prefix, calls = calls_of(role, tables)
    store = open_store(f"s3://{tables.bucket}/{prefix}")

    def checkpoints() -> set[str]:
        return {info.key for info in store.list("_checkpoint/") if info.key.endswith(".arrow")}

    before = checkpoints()
    statements = policy(role, tables, prefix)
    if not may_write:
        (statements,) = (
            s
            for n, s in without_each(statements)
            if n.startswith("s3:PutObject") and n.endswith("/_checkpoint/*.arrow")
        )
    tables.under(statements)
    for call in calls[:3]:
        assert run(call) == 0
    tables.without_rules()
    assert bool(checkpoints() - before) == may_write


@pytest.mark.long
def test_a_denied_compaction_puts_no_input_in_quarantine(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix, calls = calls_of("compactor", tables)
    statements = policy("compactor", tables, prefix)
    tables.under([s for s in statements if s["Sid"] != "Write"])
    assert run(calls[1]) == 1
    assert "the inputs stay live" in capsys.readouterr().err
    tables.without_rules()
    assert run(calls[1]) == 0
    assert "3 fragments compacted into 1" in capsys.readouterr().out


@pytest.mark.parametrize("role", ["reader", "vacuum", "writer", "compactor"])
def test_a_role_cannot_do_what_others_may(role: str, tables: Tables) -> None:
    prefix, _ = calls_of("reader", tables)
    url = f"s3://{tables.bucket}/{prefix}"
    key = next(info.key for info in open_store(url).list("data/"))
    tables.under(policy(role, tables, prefix))
    store = open_store(url)
    upload = store.start_upload("_log/00000000000000000001.json")
    upload.write(b"{}")
    with pytest.raises(PermissionDeniedError):  # what is in the log stays as it is
        upload.complete()
    with pytest.raises(PermissionDeniedError):
        store.create("elsewhere", b"")
    if role != "vacuum":
        with pytest.raises(PermissionDeniedError):
            store.delete(key)
        with pytest.raises(PermissionDeniedError):
            list(store.list_unfinished())
    if role in ("reader", "vacuum"):
        with pytest.raises(PermissionDeniedError):
            store.create("data/00000000000000000001-a-00000.frag", b"")
    if role != "vacuum":
        with pytest.raises(PermissionDeniedError):  # where a log begins, only a vacuum says
            store.create(floor_key(1), b"")
    if role == "reader":
        with pytest.raises(PermissionDeniedError):
            store.create("_log/00000000000000000099.json", b"{}")
    if role == "vacuum":
        with pytest.raises(PermissionDeniedError):
            store.read(key)


@pytest.mark.long
@pytest.mark.parametrize("role", [*ROLES, "staging"])
def test_other_prefixes_are_denied(role: str, tables: Tables) -> None:
    prefix, other = tables.fresh(), tables.fresh()
    tables.under(policy(role, tables, prefix))
    for elsewhere in (other, f"{prefix}-more", "", "team"):
        store = S3Store(tables.bucket, elsewhere)
        with pytest.raises(PermissionDeniedError):
            list(store.list("_log/"))
        with pytest.raises(PermissionDeniedError):
            store.read("_log/00000000000000000001.json")
        with pytest.raises(PermissionDeniedError):
            store.create("_log/00000000000000000099.json", b"")
        with pytest.raises(PermissionDeniedError):
            store.create("data/x.frag", b"")
        with pytest.raises(PermissionDeniedError):
            store.delete("_log/00000000000000000001.json")


def test_a_staging_place_takes_its_policy(tables: Tables) -> None:
    prefix = tables.fresh()
    guard = tables.under(policy("staging", tables, prefix))
    store = open_store(f"s3://{tables.bucket}/{prefix}")
    rows = log_rows(10, 0)
    with writing_part(store, "run/part", rows.schema) as sink:
        sink.write_batch(rows.to_batches()[0])
    assert store.read("run/part")
    remove_parts(store, "run/")
    assert list(store.list("run/")) == []
    assert guard.denied == []


def test_every_policy_file_is_tested() -> None:
    names = {path.stem for path in FOLDER.glob("*.json")}
    assert names == {*ROLES, "staging", "kms-reader", "kms-writer"}
