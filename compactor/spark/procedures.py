"""Procedures in SQL: table functions that restore, undo, tag and untag, in one row each.

    SELECT * FROM fragments_restore('s3://bucket/logs', version => 41)

Spark may run a function's task again, and each action on a DataFrame runs it anew. So a call is bound to
the version of the table at which Spark analysed the query: what it asks for is done at most once after that,
and a restore is refused if others have changed rows since then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import udtf
from pyspark.sql.types import DataType, LongType, StringType, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from compactor.errors import UsageError
from compactor.spark.source.source_options import ReadOptions, named_as_options
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation
from compactor.write.restore import restore_version
from compactor.write.tags import end_tag, set_tag
from compactor.write.undo import undo_compaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Planned(AnalyzeResult):
    """A call as Spark has analysed it."""

    version: int = 0
    """The newest version of the table then."""
    target: int = 0
    """The version that the call names."""


class _Procedure:
    """One call, in a task."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def _opened(self, url: str) -> tuple[CommitLog, Snapshot]:
        """Returns the log, and the snapshot at which the query was analysed."""
        log = CommitLog(open_store(url))
        log.current()
        return log, log.at(self._planned.version)


class Restore(_Procedure):
    """Restores the version that is named."""

    @staticmethod
    def analyze(
        url: AnalyzeArgument,
        version: AnalyzeArgument | None = None,
        as_of: AnalyzeArgument | None = None,
        tag: AnalyzeArgument | None = None,
    ) -> Planned:
        given = {"version": version, "as_of": as_of, "tag": tag}
        schema = _schema(version=LongType(), restored=LongType(), rows=LongType())
        return _planned("fragments_restore", schema, url, given, needs_moment=True)

    def eval(self, url: str, **_given: Any) -> Iterator[tuple[int, int, int]]:
        log, seen = self._opened(url)
        report = restore_version(log, log.at(self._planned.target), seen=seen)
        yield report.version, report.restored, report.rows


class Undo(_Procedure):
    """Undoes one compaction."""

    @staticmethod
    def analyze(url: AnalyzeArgument, compaction: AnalyzeArgument) -> Planned:
        schema = _schema(version=LongType(), inputs=LongType(), outputs=LongType())
        _constant("fragments_undo", compaction=compaction)
        return _planned("fragments_undo", schema, url, {})

    def eval(self, url: str, compaction: str) -> Iterator[tuple[int, int, int]]:
        log, seen = self._opened(url)
        outputs = {entry.key for entry in seen.fragments.all() if entry.run == compaction}
        for version in log.history.versions_after(seen, log.latest.version) if outputs else ():
            changes = version.changes
            if changes.operation is Operation.UNDO and outputs <= set(changes.removes):
                yield version.number, len(changes.adds), len(changes.removes)
                return
        report = undo_compaction(log, compaction)
        yield report.version, report.fragments_added, report.fragments_removed


class SetTag(_Procedure):
    """Tags a version, the newest one unless another is named."""

    @staticmethod
    def analyze(
        url: AnalyzeArgument,
        name: AnalyzeArgument,
        version: AnalyzeArgument | None = None,
        as_of: AnalyzeArgument | None = None,
        move: AnalyzeArgument | None = None,
    ) -> Planned:
        _constant("fragments_tag", name=name, move=move)
        schema = _schema(tag=StringType(), version=LongType())
        return _planned("fragments_tag", schema, url, {"version": version, "as_of": as_of})

    def eval(
        self, url: str, name: str, *, move: bool = False, **_given: Any
    ) -> Iterator[tuple[str, int]]:
        log, seen = self._opened(url)
        target = self._planned.target
        before, now = seen.tag(name), log.latest.tag(name)
        if now is None or now == before or now.version != target:
            set_tag(log, name, log.at(target), move=move)
        yield name, target


class EndTag(_Procedure):
    """Ends a tag."""

    @staticmethod
    def analyze(url: AnalyzeArgument, name: AnalyzeArgument) -> Planned:
        _constant("fragments_untag", name=name)
        return _planned("fragments_untag", _schema(tag=StringType(), version=LongType()), url, {})

    def eval(self, url: str, name: str) -> Iterator[tuple[str, int]]:
        log, seen = self._opened(url)
        before = seen.tag(name)
        if before is not None and log.latest.tag(name) is None:
            yield name, before.version
        else:
            yield name, end_tag(log, name)


PROCEDURES: Final[dict[str, type[_Procedure]]] = {
    "fragments_restore": Restore,
    "fragments_undo": Undo,
    "fragments_tag": SetTag,
    "fragments_untag": EndTag,
}


def register_procedures(spark: SparkSession) -> None:
    """Registers the functions with a session."""
    for name, procedure in PROCEDURES.items():
        function: Any = udtf(procedure)
        spark.udtf.register(name, function)


def _schema(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


def _constant(function: str, **given: AnalyzeArgument | None) -> dict[str, Any]:
    """Returns the values of arguments. Raises `UsageError` for one that is no constant."""
    values = {}
    for name, argument in given.items():
        if argument is None:
            continue
        if argument.isTable or not argument.isConstantExpression:
            raise UsageError(f"{function}: {name}: give a constant, such as a text in quotes")
        values[name] = argument.value
    return values


def _planned(
    function: str,
    schema: StructType,
    url: AnalyzeArgument,
    given: dict[str, AnalyzeArgument | None],
    *,
    needs_moment: bool = False,
) -> Planned:
    """Binds a call to the table as it is now. Raises `UsageError`, and what opening the table raises."""
    address = _constant(function, url=url)["url"]
    if address is None:
        raise UsageError(f"{function}: url: is NULL: give the address of the table")
    values = _constant(function, **given)
    with named_as_options():
        moment = ReadOptions(**values).moment
    if needs_moment and moment.is_newest:
        raise UsageError(f"{function}: name the version to restore by version, as_of or tag")
    log = CommitLog(open_store(str(address)))
    newest = log.current()
    return Planned(schema, version=newest.version, target=log.at(*moment).version)
