"""The Spark data source reads what a scan reads, and writes what an ingest writes, in one commit."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from compactor import Table
from compactor.errors import TableNotFoundError, UsageError
from compactor.read.verify import verify
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.vacuum import VacuumSettings
from compactor.spark import register, table, tables
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.table.clocks import TRUST_VARIABLE
from compactor.table.commit_log import CommitLog
from compactor.table.vacuum import vacuum
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.clocks import Tomorrow
from tests.support.oracle import ordered_rows
from tests.support.s3_server import S3Server
from tests.support.samples import SAMPLES
from tests.support.wording import refuses, says

pytestmark = pytest.mark.spark

SMALL = IngestOptions(writer=WriterOptions(16))
NO_PLACE = {"decimal256", "interval"}


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> Iterator[SparkSession]:
    register(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def events(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "service": pa.array([f"service-{n * 7 % 5}" for n in numbers]),
            "n": pa.array(numbers, pa.int64()),
            "ts": pa.array([n * 1000 for n in numbers], pa.timestamp("ms", "UTC")),
            "size": pa.array([None if n % 7 == 3 else n % 11 for n in numbers], pa.int32()),
            "load": pa.array([(None, math.nan, -0.0, n / 4)[n % 4] for n in numbers], pa.float64()),
            "tags": pa.array([None if n % 5 == 1 else [f"t{n % 3}"] * (n % 3) for n in numbers]),
        }
    )


def loaded(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("fragments").options(**options).load(url)


def sorted_rows(rows: Any, key: str = "n") -> list[dict[str, Any]]:
    """Of a table of Arrow or a DataFrame."""
    table = rows.toArrow() if isinstance(rows, DataFrame) else rows
    return ordered_rows(table, key)


def last_line(error: PySparkException) -> str:
    """The line of ours under Spark's and Python's."""
    lines = [line for line in str(error).splitlines() if "compactor.errors." in line]
    return lines[-1].split("Error: ", 1)[1].strip()


def test_all_types_come_as_a_scan_gives_them(source: SparkSession, tmp_path: Path) -> None:
    columns = {name: s for name, s in SAMPLES.items() if name not in NO_PLACE}
    rows = max(len(values) for _, values in columns.values())
    table = pa.table(
        {
            "n": range(rows),
            **{
                name: pa.array([*values, *[None] * (rows - len(values))], dtype)
                for name, (dtype, values) in columns.items()
            },
        }
    )
    Table.create(tmp_path / "t", table, sort_by="n")
    read = loaded(source, f"{tmp_path}/t").toArrow().sort_by("n")
    for name, (dtype, _) in columns.items():
        expected = table.column(name).combine_chunks()
        if isinstance(dtype, pa.BaseExtensionType):
            expected = expected.storage
        got = read.column(name)
        if pa.types.is_timestamp(dtype):
            expected, got = expected.cast(pa.timestamp("us", dtype.tz)), got.cast(got.type)
            expected, got = expected.cast(pa.int64()), got.cast(pa.int64())
        assert list(map(str, got.to_pylist())) == list(map(str, expected.to_pylist())), name


def test_a_dataframe_is_at_the_version_it_was_loaded_at_and_may_be_used_in_any_way(
    source: SparkSession, tmp_path: Path
) -> None:
    table = Table.create(tmp_path / "t", events(40), sort_by="service,n", options=SMALL)
    frame = loaded(source, f"{tmp_path}/t")
    table.append(events(10, 40))
    assert sorted_rows(frame) == sorted_rows(events(40))
    assert frame.where("n < 3").count() == 3
    assert frame.count() == 40
    both = frame.where("n = 1").unionAll(frame.where("n > 37"))
    assert sorted(row.n for row in both.collect()) == [1, 38, 39]
    assert loaded(source, f"{tmp_path}/t").count() == 50
    typed = source.read.format("fragments").schema("n bigint").load(f"{tmp_path}/t")
    assert typed.count() == 50
    table.append(events(10, 50))
    assert (typed.where("n >= 0").count(), typed.unionAll(typed).count()) == (50, 100)
    assert loaded(source, f"{tmp_path}/t", version="1").count() == 40


def test_sql_reads_views_of_some_columns_and_rows(source: SparkSession, tmp_path: Path) -> None:
    Table.create(tmp_path / "t", events(60), sort_by="service,n")
    source.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW logs USING fragments OPTIONS (path '{tmp_path}/t')"
    )
    found = source.sql("SELECT service, sum(n) total FROM logs WHERE size > 3 GROUP BY service")
    rows = [row for row in events(60).to_pylist() if (row["size"] or 0) > 3]
    names = {row["service"] for row in rows}
    totals = {name: sum(r["n"] for r in rows if r["service"] == name) for name in names}
    assert {row.service: row.total for row in found.collect()} == totals
    source.sql(
        "CREATE OR REPLACE TEMPORARY VIEW some USING fragments OPTIONS "
        f"(path '{tmp_path}/t', columns 'n, tags', where 'n >= 50 AND tags IS NOT NULL')"
    )
    expected = [r["n"] for r in events(60).to_pylist() if r["n"] >= 50 and r["tags"] is not None]
    some = source.sql("SELECT * FROM some")
    assert some.columns == ["n", "tags"]
    assert sorted(row.n for row in some.collect()) == expected


def test_only_columns_of_the_schema_given_are_read(
    source: SparkSession, s3_server: S3Server, s3_bucket: str
) -> None:
    url = f"s3://{s3_bucket}/t"
    wide = events(400).append_column("blob", pa.array([f"{n:0>2000}" for n in range(400)]))
    Table.create(url, wide, sort_by="n", options=SMALL)

    def gets(frame: DataFrame) -> int:
        s3_server.reset()
        assert frame.count() == 400
        return len([r for r in s3_server.requests("GET") if r.key.endswith(".frag")])

    narrow = source.read.format("fragments").schema("size int, n bigint").load(url)
    assert sorted_rows(narrow) == sorted_rows(events(400).select(["size", "n"]))
    assert gets(narrow) < gets(loaded(source, url))
    with pytest.raises(PySparkException) as caught:
        source.read.format("fragments").schema("n string").load(url).count()
    says(last_line(caught.value))


def test_a_table_is_loaded_by_its_columns_and_condition_in_a_task_for_each_core(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"n": range(400_000), "a, b": [f"{n:09}" for n in range(400_000)]})
    made = Table.create(
        tmp_path / "t", rows, sort_by="n", options=IngestOptions(writer=WriterOptions(10_000))
    )
    frame = table(source, tmp_path / "t", columns=["a, b"], where="n < 300000")
    assert frame.columns == ["a, b"]
    assert frame.rdd.getNumPartitions() == source.sparkContext.defaultParallelism
    assert frame.count() == 300_000
    monkeypatch.setattr(tables, "_TASK_BYTES", "1MiB")
    divided = table(source, tmp_path / "t", columns=["a, b"])
    assert divided.rdd.getNumPartitions() == 2 * source.sparkContext.defaultParallelism
    made.append(rows)
    assert table(source, tmp_path / "t", version=1).count() == 400_000


def test_a_wrong_call_is_refused_as_by_python_without_sparks_traceback(
    source: SparkSession, tmp_path: Path
) -> None:
    Table.create(tmp_path / "t", pa.table({"n": [1]}), sort_by="n")
    with refuses(UsageError, "no column 'none'; columns are: n"):
        table(source, tmp_path / "t", columns=["none"])
    with refuses(UsageError, "where: no column 'none'"):
        table(source, tmp_path / "t", where="none > 1")
    with refuses(UsageError, "no setting 'colour'"):
        table(source, tmp_path / "t", colour="red")
    with refuses(TableNotFoundError, "no table here"):
        table(source, tmp_path / "none")
    with refuses(TableNotFoundError, "no table here"):
        table(source, f"{tmp_path}/a\ncompactor.errors.Nope: none")


def test_a_session_is_given_the_format_and_functions_once(
    source: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Table.create(tmp_path / "t", pa.table({"n": [1]}), sort_by="n")
    register(source)
    assert table(source, tmp_path / "t").collect()[0].n == 1
    assert "previously registered" not in capfd.readouterr().err


def test_the_log_answers_how_many_rows_a_table_has(source: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"n": range(1_000), "text": [f"{n:09}" for n in range(1_000)]})
    made = Table.create(tmp_path / "t", rows, sort_by="n")
    first = table(source, tmp_path / "t")
    made.append(rows)
    made.delete("n < 10")
    tracker = source.sparkContext.statusTracker()
    jobs = len(tracker.getJobIdsForGroup())
    assert first.count() == 1_000
    assert table(source, tmp_path / "t").count() == 1_980
    assert table(source, tmp_path / "t", columns=["text"], version=2).count() == 2_000
    assert len(tracker.getJobIdsForGroup()) == jobs
    both = table(source, tmp_path / "t", TASK_BYTES="1MiB")
    assert both.count() == 1_980
    assert len(tracker.getJobIdsForGroup()) == jobs
    assert both.where("n < 20").count() == 20
    assert both.union(both).count() == 3_960
    assert table(source, tmp_path / "t", where="n < 20").count() == 20
    assert table(source, tmp_path / "t", WHERE="n < 20").count() == 20
    with pytest.raises(AnalysisException, match="changes"):
        table(source, tmp_path / "t", changes="true").count()
    cached = table(source, tmp_path / "t").cache()
    assert cached.count() == 1_980
    assert source._jsc.sc().getRDDStorageInfo()[0].numCachedPartitions() > 0
    cached.unpersist()
    policy = RowPolicy(RowKind.LAST)
    merged = Table.create(tmp_path / "m", rows, sort_by="n", options=IngestOptions(rows=policy))
    merged.append(rows.slice(0, 600))
    assert table(source, tmp_path / "m").count() == 1_000


@pytest.mark.parametrize("kind", [RowKind.LAST, RowKind.FIRST, RowKind.PARTIAL_UPDATE])
def test_row_policies_and_deleted_rows_are_those_of_readers(
    source: SparkSession, tmp_path: Path, kind: RowKind
) -> None:
    options = IngestOptions(rows=RowPolicy(kind), writer=WriterOptions(16))
    table = Table.create(tmp_path / "t", events(80), sort_by="n", options=options)
    newer = events(80).set_column(1, "n", pa.array(range(40, 120), pa.int64()))
    table.append(newer, SMALL)
    table.delete("n BETWEEN 50 AND 60")
    table.append(events(20, 200), SMALL)
    frame = loaded(source, f"{tmp_path}/t", task_bytes="1KiB")
    assert frame.rdd.getNumPartitions() == 2
    expected = table.scan().to_table()
    assert sorted_rows(frame) == sorted_rows(expected)
    some = loaded(source, f"{tmp_path}/t", where="size > 4")
    assert sorted_rows(some) == sorted_rows(table.scan(where="size > 4").to_table())
    pushed = loaded(source, f"{tmp_path}/t", single_use="true").where("size > 4")
    assert sorted_rows(pushed) == sorted_rows(table.scan(where="size > 4").to_table())


FILTERS = [
    "n BETWEEN 100 AND 130",
    "n IN (3, 300, 301)",
    "service = 'service-2' AND size > 4",
    "service LIKE 'service-1%'",
    "size IS NULL",
    "NOT (size > 3)",
    "load > 20",
    "load >= double('nan')",
    "load <= 0.0",
    "load = 0.0",
    "load <> 12.25",
    "NOT (load < 50)",
    "size <=> 4",
    "NOT (size <=> 4)",
    "ts >= timestamp'1970-01-01 00:05:00Z' AND ts < timestamp'1970-01-01 00:05:10Z'",
    "tags IS NOT NULL AND n % 3 = 1",
    "size = 1 OR n > 395",
]


def test_filters_that_are_pushed_keep_the_rows_that_spark_would_keep(
    source: SparkSession, tmp_path: Path
) -> None:
    Table.create(tmp_path / "t", events(400), sort_by="n", options=SMALL)
    asked = [f"coalesce({condition}, false) AS c{i}" for i, condition in enumerate(FILTERS)]
    by_spark = loaded(source, f"{tmp_path}/t").selectExpr("n", *asked).toArrow().to_pylist()
    for i, condition in enumerate(FILTERS):
        pushed = loaded(source, f"{tmp_path}/t", single_use="true").where(condition)
        found = sorted(pushed.toArrow().column("n").to_pylist())
        assert found == sorted(row["n"] for row in by_spark if row[f"c{i}"]), condition
        assert 0 < len(found) < 400, condition


def test_what_a_pushed_filter_rules_out_is_not_fetched(
    source: SparkSession, s3_server: S3Server, s3_bucket: str
) -> None:
    url = f"s3://{s3_bucket}/t"
    table = Table.create(url, events(200), sort_by="n", options=SMALL)
    for first in (200, 400, 600):
        table.append(events(200, first), SMALL)

    def fragments_read(**options: str) -> tuple[set[str], int]:
        frame = loaded(source, url, **options).where("n = 250")
        s3_server.reset()
        assert frame.count() == 1
        gets = [r for r in s3_server.requests("GET") if r.key.endswith(".frag")]
        return {request.key for request in gets}, len(gets)

    all_of_them, all_gets = fragments_read()
    one, gets = fragments_read(single_use="true")
    assert (len(all_of_them), len(one)) == (4, 1)
    assert gets < all_gets / 4
    assert fragments_read(where="n = 250")[0] == one


def test_many_tasks_write_one_version(source: SparkSession, s3_bucket: str) -> None:
    url = f"s3://{s3_bucket}/t"
    frame = source.createDataFrame(events(300)).repartition(3)
    write = frame.write.format("fragments").mode("append")
    write.option("sort_by", "service,n:desc").option("rows_per_fragment", "60").save(url)
    store = open_store(url)
    snapshot = CommitLog(store).current()
    assert snapshot.version == 1
    assert len(snapshot.fragments) >= 3
    assert {entry.level for entry in snapshot.fragments.all()} == {0}
    assert verify(store, snapshot).faults == []
    assert sorted_rows(Table.open(url).scan().to_table()) == sorted_rows(frame)
    more = frame.selectExpr("service", "n + 1000 AS n", "cast(size AS bigint) * 4000000000 AS size")
    more.write.format("fragments").mode("append").save(url)
    table = Table.open(url)
    assert (table.version, table.rows) == (2, 600)
    assert table.schema.field("size").type == pa.int64()
    assert table.scan(where="n >= 1000 AND ts IS NULL").to_table().num_rows == 300


def test_an_overwrite_takes_the_place_of_all_rows_in_one_commit(
    source: SparkSession, tmp_path: Path
) -> None:
    url = f"{tmp_path}/t"
    Table.create(url, events(50), sort_by="service,n")
    frame = loaded(source, url).where("n < 10")
    frame.write.format("fragments").mode("overwrite").save(url)
    assert sorted_rows(Table.open(url).scan().to_table()) == sorted_rows(events(10))
    assert Table.open(url).version == 2
    assert Table.open(url, version=1).rows == 50
    view = loaded(source, url)
    view.createOrReplaceTempView("now")
    Table.open(url).append(events(5, 10))
    for stale in (
        view,
        source.sql("SELECT 'x' AS service, count(*) AS size, n FROM now GROUP BY n"),
        view.join(source.range(5).selectExpr("id AS n"), "n").orderBy("n"),
    ):
        with pytest.raises(PySparkException) as caught:
            stale.write.format("fragments").mode("overwrite").save(url)
        says(last_line(caught.value))
    assert Table.open(url).rows == 15
    (tmp_path / "link").symlink_to("t")
    by_link = loaded(source, f"{tmp_path}/link").where("n < 3")
    Table.open(url).append(events(1, 15))
    with pytest.raises(PySparkException) as caught:
        by_link.write.format("fragments").mode("overwrite").save(url)
    says(last_line(caught.value))
    assert Table.open(url).rows == 16
    old = loaded(source, url, version="1").where("n >= 40")
    old.write.format("fragments").mode("overwrite").option("base_version", 4).save(url)
    assert sorted_rows(Table.open(url).scan().to_table()) == sorted_rows(events(10, 40))


def test_a_task_that_fails_leaves_nothing_to_be_seen(source: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/t"
    Table.create(url, events(50), sort_by="service,n")
    bad = source.range(0, 40, 1, 4).selectExpr(
        "'x' AS service", "if(id = 39, raise_error('broken'), id) AS n"
    )
    with pytest.raises(PySparkException, match="broken"):
        bad.write.format("fragments").mode("append").save(url)
    table = Table.open(url)
    assert (table.version, table.rows) == (1, 50)


def test_mistakes_are_told_in_a_line(source: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/t"
    frame = source.createDataFrame(events(5))
    with pytest.raises(PySparkException) as caught:
        loaded(source, url)
    says(last_line(caught.value))
    with pytest.raises(PySparkException) as caught:
        frame.write.format("fragments").mode("append").save(url)
    says(last_line(caught.value))
    Table.create(url, events(5), sort_by="service,n")
    texts = frame.selectExpr("service", "cast(n AS string) AS n")
    with pytest.raises(PySparkException) as caught:
        texts.write.format("fragments").mode("append").save(url)
    says(last_line(caught.value))
    assert Table.open(url).version == 1


REFUSED = {
    "CREATE TABLE {name} USING fragments LOCATION '{url}'": "does not tell a source where its tables are",
    "CREATE TABLE {name} USING fragments OPTIONS (path '{url}') AS SELECT 'a' AS service, 1L AS n": (
        "Spark does not pass the path of a catalog table"
    ),
    "TRUNCATE TABLE logs": "expects a table but `logs` is a view",
    "DELETE FROM logs WHERE n = 1": "does not support deletes",
    "UPDATE logs SET n = 1": "does not support update table",
    "MERGE INTO logs USING logs AS b ON logs.n = b.n WHEN MATCHED THEN DELETE": "does not support merge",
    "INSERT INTO logs VALUES ('a')": "not enough data columns",
    "INSERT INTO old VALUES ('a', 1)": "version: goes with reads only",
    "CREATE TEMPORARY VIEW {name} USING fragments OPTIONS (path '{url}', sort_by 'n')": (
        "sort_by: goes with writes only"
    ),
    "SELECT * FROM fragments.`{url}`": "unsupported data source type for direct query",
}


def test_sql_writes_through_views_and_is_refused_for_the_rest_with_nothing_written(
    source: SparkSession, tmp_path: Path
) -> None:
    url = f"{tmp_path}/t"
    first = pa.table({"service": ["a"], "n": [1]})
    Table.create(url, first, sort_by="service,n")
    views = {"logs": "", "old": ", version 1"}
    for name, more in views.items():
        source.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING fragments OPTIONS (path '{url}'{more})"
        )
    for place, (statement, said) in enumerate(REFUSED.items()):
        with pytest.raises(PySparkException) as caught:
            source.sql(statement.format(name=f"refused_{place}", url=url))
        assert said.casefold() in str(caught.value).casefold(), statement
        assert not source.catalog.tableExists(f"refused_{place}")
    assert Table.open(url).version == 1

    source.sql("INSERT INTO logs (n, service) VALUES (2, 'b')")
    assert Table.open(url).rows == 2
    with pytest.raises(PySparkException) as caught:
        source.sql("INSERT OVERWRITE logs SELECT upper(service), n FROM logs")
    says(last_line(caught.value))
    source.sql(f"CREATE OR REPLACE TEMPORARY VIEW logs USING fragments OPTIONS (path '{url}')")
    source.sql("INSERT OVERWRITE logs SELECT upper(service), n + 1 FROM logs")
    found = sorted_rows(Table.open(url).scan().to_table())
    assert found == [{"service": "A", "n": 2}, {"service": "B", "n": 3}]
    for name in views:
        source.sql(f"DROP VIEW {name}")
    assert Table.open(url).version == 3


def test_a_name_of_sparks_catalog_is_read_by_saying_its_path(
    source: SparkSession, tmp_path: Path
) -> None:
    url = f"{tmp_path}/t"
    rows = source.createDataFrame(pa.table({"n": [1, 2]}))
    write = rows.write.format("fragments").option("sort_by", "n")
    write.option("path", url).saveAsTable("entered")
    for attempt in (
        lambda: source.table("entered").collect(),
        lambda: source.sql("INSERT INTO entered VALUES (3)"),
        lambda: rows.write.format("fragments").option("sort_by", "n").saveAsTable("nowhere"),
    ):
        with pytest.raises(PySparkException) as caught:
            attempt()
        says(last_line(caught.value))
    assert not source.catalog.tableExists("nowhere")
    source.sql(f"INSERT INTO entered WITH (path = '{url}') VALUES (3)")
    assert source.sql(f"SELECT * FROM entered WITH (path = '{url}')").count() == 3
    assert source.read.option("path", url).table("entered").count() == 3
    source.sql("DROP TABLE entered")
    assert Table.open(url).rows == 3


def test_filters_are_those_of_the_query_though_spark_would_keep_those_of_the_last(
    source: SparkSession, tmp_path: Path
) -> None:
    url = f"{tmp_path}/t"
    Table.create(url, events(40), sort_by="n")
    source.sql(f"CREATE OR REPLACE TEMPORARY VIEW kept USING fragments OPTIONS (path '{url}')")
    counts = [
        source.sql(f"SELECT count(*) AS c FROM kept WHERE {where}").collect()[0].c
        for where in ("n = 1", "n < 5", "true", "n = 1 OR n = 7")
    ]
    assert counts == [1, 5, 40, 2]
    both = source.sql("SELECT * FROM kept WHERE n = 1 UNION ALL SELECT * FROM kept WHERE n = 2")
    assert sorted(row.n for row in both.collect()) == [1, 2]
    source.sql("DROP VIEW kept")


class Stream:
    """A query from a folder of JSON files into a table, restarted as often as it is run."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.url = f"{place}/table"
        self.checkpoint = place / "checkpoint"
        self.files = place / "files"
        self.files.mkdir(parents=True)

    def add(self, first: int) -> None:
        lines = [json.dumps({"service": "a", "n": n}) for n in range(first, first + 5)]
        (self.files / f"{first:05}.json").write_text("\n".join(lines))

    def run(self, **options: str) -> None:
        """Takes in what is there, a batch a file."""
        read = self.spark.readStream.schema("service string, n bigint")
        rows = read.option("maxFilesPerTrigger", "1").json(str(self.files))
        write = rows.writeStream.format("fragments").options(**options)
        write = write.option("checkpointLocation", str(self.checkpoint))
        query = write.option("sort_by", "service,n").trigger(availableNow=True).start(self.url)
        query.awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """As if Spark had been killed between our commit and its own note of it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()
        shutil.rmtree(self.checkpoint / "state", ignore_errors=True)

    @property
    def numbers(self) -> list[int]:
        return sorted(Table.open(self.url).scan(["n"]).to_table().column("n").to_pylist())


def test_a_stream_has_each_batch_once_though_spark_forgets_that_it_was_committed(
    source: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(source, tmp_path)
    stream.add(0)
    stream.add(5)
    stream.run()
    assert stream.numbers == list(range(10))
    assert Table.open(stream.url).version == 2
    stream.forget_commit(1)
    # What is remembered outlives the log up to here.
    log = CommitLog(LocalStore(stream.url), Tomorrow())
    assert log.write_checkpoint(log.current())
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(TRUST_VARIABLE, "1")
        assert vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0)).log_files == 1
    version = Table.open(stream.url).version
    stream.add(10)
    stream.run()
    assert stream.numbers == list(range(15))
    assert Table.open(stream.url).version == version + 1


def test_what_spark_infers_not_to_be_null_is_no_rule_for_later_rows(
    source: SparkSession, tmp_path: Path
) -> None:
    """`array(1, 2)` has no null elements for Spark, `struct(1 AS a)` no null fields."""
    url = str(tmp_path / "t")
    select = "SELECT {n} AS n, {list} AS l, {struct} AS s, {map} AS m"
    first = {"n": 1, "list": "array(1, 2)", "struct": "struct(1 AS a)", "map": "map('k', 1)"}
    later = [
        {"n": 2, "list": "array(1, null)", "struct": "struct(cast(null AS INT) AS a)"},
        {"n": 3, "list": "cast(null AS ARRAY<INT>)", "struct": "cast(null AS STRUCT<a: INT>)"},
        {"n": 4, "map": "map('k', cast(null AS INT))"},
    ]
    frames = [source.sql(select.format(**{**first, **part})) for part in [{}, *later]]
    assert not frames[0].schema["l"].dataType.containsNull  # type: ignore[attr-defined]
    for frame in frames:
        frame.write.format("fragments").mode("append").option("sort_by", "n").save(url)
    expected = [row for frame in frames for row in frame.toArrow().to_pylist()]
    assert sorted_rows(loaded(source, url)) == expected
    assert all(field.nullable for field in loaded(source, url).schema)
    Table.open(url).scan().to_file(tmp_path / "f.parquet")
    assert (
        source.read.parquet(str(tmp_path / "f.parquet")).orderBy("n").toArrow().to_pylist()
        == expected
    )

    asked = str(tmp_path / "asked")
    options = {"sort_by": "n", "not_null": "n,l.element,s.a,m.value"}
    for frame in frames[:1]:
        frame.write.format("fragments").mode("append").options(**options).save(asked)
    for frame in (frames[1], frames[3]):
        with pytest.raises(PySparkException, match="has a null, which the table does not allow"):
            frame.write.format("fragments").mode("append").save(asked)
    frames[2].write.format("fragments").mode("append").save(asked)
    schema = loaded(source, asked).schema
    assert [field.nullable for field in schema] == [False, True, True, True]
    assert schema["l"].dataType.simpleString() == "array<int>"
    assert not schema["l"].dataType.containsNull  # type: ignore[attr-defined]
    assert not schema["s"].dataType["a"].nullable  # type: ignore[index]
    assert not schema["m"].dataType.valueContainsNull  # type: ignore[attr-defined]
    # PySpark's own toArrow refuses a null struct around a field that is not null.
    text = [str(row) for row in frames[0].union(frames[2]).orderBy("n").collect()]
    assert [str(row) for row in loaded(source, asked).orderBy("n").collect()] == text
    loaded(source, asked).write.format("fragments").mode("overwrite").save(asked)
    filtered = loaded(source, asked).where("l IS NULL OR s.a = 1").orderBy("n")
    assert [str(row) for row in filtered.collect()] == text
