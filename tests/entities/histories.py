"""Random histories of an entity merge against a model in plain Python; many: `tests/entities/__main__.py`.

A history is a spec and some runs after changes. It has files of JSON lines, of texts with declared types and
of typed columns, pairs of `always` and `never`, values that too many share, runs that look at what changes
touch only, refused runs, and replaced ids that leave. A third of the histories have settings and entities
with which runs may look at few. The oracle keeps the table as it has to be, and knows which rows each run
writes.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.spec import EntityMergeSpec
from compactor.errors import CompactorError
from compactor.read.scan import scan
from compactor.settings.compaction import Strategy
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.entities.model import Model, columns_after, is_deleted, tombstone
from tests.entities.support import Entity, rows, run, spec, types, write
from tests.entities.test_against_model import RULES_OF_MODEL, strict
from tests.support.clocks import Ago
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table

Merge = Callable[..., EntityMergeReport]
"""Runs a merge: `run` of `support`, or that of tasks."""

DAY_SECONDS: Final = 86_400
NAMES: Final = ("A", "B", "C")
_SCALARS: Final[tuple[Any, ...]] = (
    0,
    1,
    2,
    "1",
    "a",
    "A",
    "",
    " \t",
    "é",
    None,
    True,
    1.0,
    1.5,
    [],
    {"n": 1},
)
_SAME_IDS: Final = [("a._id", "b._id"), ("b._id", "c._id"), ("a._id", "c._id")]
_OFTEN: Final = [("a.k", "b.k"), ("a.k", "a.k"), ("b.k", "c.k"), ("b.l", "c.l"), ("c.l", "c.l")]
"""Rules that hold of many."""
_ANCHORED: Final[list[tuple[Any, Any]]] = [
    *_OFTEN,
    ("a.l", "a.l"),
    (["lower", "a.l"], "c.l"),
    (["digits", "a.k"], "b.l"),
    (["substring", 0, 1, "b.k"], ["upper", "c.l"]),
    (["and", "a.k", "a.l"], ["and", "b.k", "b.l"]),
    (["concat", "b.k", ["literal", "-"], "b.l"], ["concat", "c.k", ["literal", "-"], "c.l"]),
]
"""Rules that hold of the anchors of all datasets."""
_ANCHORS: Final = (90, 91)
"""Numbers of entities that stay, so that every rule matches something."""
_TYPES: Final = {"k": "integer", "p": "double"}
_PARQUET: Final = pa.schema(
    [
        ("_id", pa.string()),
        ("_deleted", pa.bool_()),
        ("k", pa.int64()),
        ("l", pa.string()),
        ("p", pa.float64()),
        ("t", pa.list_(pa.int64())),
    ]
)


class Row(Struct, kw_only=True):
    """A row as the oracle has it."""

    entity: Entity
    """Without `_updated`."""
    updated: int
    made_of: str | None
    """Settings and members; None if it is replaced."""
    members: list[tuple[int, int, str]] = field(default_factory=list)
    """With `identity: stable`: age, number of the dataset and id, oldest first."""
    replaced_days_ago: float = 0.0

    @property
    def kind(self) -> int:
        """Returns 0 for a living row, 1 for a deleted and 2 for a replaced one."""
        return 2 if self.made_of is None else int(bool(self.entity.get("_deleted")))


class RefusedError(Exception):
    """The model says that the run is refused."""


class Oracle:
    """The table, and what becomes of it."""

    def __init__(self, settings: Mapping[str, Any], rules: Sequence[Any]) -> None:
        self.rows: dict[str, Row] = {}
        self.columns: dict[str, str] = {}
        self._settings, self._rules = settings, rules
        self._next = 0
        self._found: set[str] = set()

    def after(
        self,
        datasets: Mapping[str, Sequence[Entity] | None],
        *,
        full: bool,
        allow_changes: bool,
        days_ago: float,
    ) -> dict[str, int]:
        """Changes the table as a run does. Returns figures of its report. Raises `RefusedError`."""
        missing = {name for name in self._found if datasets[name] is None}
        if missing and not allow_changes and self.rows:
            raise RefusedError(f"{missing} is not there")
        settings = self._settings
        model = Model(
            [(name.lower(), datasets[name] or []) for name in NAMES],
            self._rules,
            settings["strategy"],
            settings["identity"],
            settings["link_blanks"],
            settings["survivors"],
            pairs=settings,
        )
        clusters = model.clusters()
        for refused in model.refused:
            raise RefusedError(refused)
        if any(len(each) > settings["max_merged"] for each in clusters):
            raise RefusedError("too many")
        result: dict[str, Row] = {}
        names = self._stable(model, clusters) if settings["identity"] == "stable" else {}
        for number, cluster in enumerate(clusters):
            members = [model.nodes[n] for n in cluster]
            entity = model.merged(members, names.get(number))
            made_of = strict([[n, _content(e)] for n, e in members])
            others = result.get(entity["_id"])
            if others is not None and not entity.get("_deleted"):
                if not others.entity.get("_deleted"):
                    raise RefusedError("one id twice")
            elif others is not None:
                continue
            ages = sorted((self._age(n, e["_id"]), n, e["_id"]) for n, e in members)
            result[entity["_id"]] = Row(entity=entity, updated=-1, made_of=made_of, members=ages)
        return self._written(result, full, allow_changes, days_ago) | {
            "entities_read": len(model.nodes)
        }

    def _written(
        self, result: dict[str, Row], full: bool, allow_changes: bool, days_ago: float
    ) -> dict[str, int]:
        before = self.rows
        changed = [
            i
            for i, row in result.items()
            if full or i not in before or before[i].made_of != row.made_of
        ]
        gone = [i for i, row in before.items() if i not in result and row.made_of is not None]
        living = {i for i, row in before.items() if row.kind == 0}
        ended = sum(1 for i in living if i not in result or result[i].kind)
        settings = self._settings
        is_many = ended * 100 > settings["max_ended_percent"] * len(living)
        if not allow_changes and ended >= settings["min_ended"] and is_many:
            raise RefusedError("too many changes")
        for i in gone:
            last = before[i].members[:1]
            result[i] = Row(
                entity=tombstone(i),
                updated=-1,
                made_of=None,
                members=last,
                replaced_days_ago=days_ago,
            )
        for place, i in enumerate(sorted([*changed, *gone])):
            row = result[i]
            row.updated = self._next + place
            # The new ones are the youngest, so they are at the end in any case.
            row.members = [(row.updated if a == _NEW else a, n, m) for a, n, m in row.members]
        self._next += len(changed) + len(gone)
        self.rows = {**before, **{i: result[i] for i in [*changed, *gone]}}
        written = [self.rows[i].entity for i in [*changed, *gone]]
        self.columns = columns_after(self.columns, written)
        new = sum(1 for i in changed if i not in living)
        return {
            "clusters": len(result) - len(gone),
            "new": new,
            "changed": len(changed) - new,
            "replaced": len(gone),
            "living_before": len(living),
            "ended": ended,
        }

    def found(self, datasets: Mapping[str, Any]) -> None:
        """Notes the datasets of a run that was not refused."""
        self._found = {name for name, rows in datasets.items() if rows is not None}

    def _age(self, number: int, entity: str) -> int:
        for row in self.rows.values():
            for age, *member in row.members if row.kind < 2 else ():
                if member == [number, entity]:
                    return age
        return _NEW

    def _stable(self, model: Model, clusters: Sequence[Sequence[int]]) -> dict[int, str]:
        """Returns the id of each cluster: claim by claim, the strongest first."""
        claims = []
        for number, cluster in enumerate(clusters):
            members = {(n, e["_id"]) for n, e in (model.nodes[m] for m in cluster)}
            deleted = is_deleted(model.nodes[cluster[0]][1])
            for i, row in self.rows.items():
                of_row = row.members[:1] if row.kind == 2 else row.members
                claims += [
                    (deleted, row.kind, age, n, m, i, number)
                    for age, n, m in of_row
                    if (n, m) in members
                ]
        found: dict[int, str] = {}
        for *_, i, number in sorted(claims):
            if number not in found and i not in found.values():
                found[number] = i
        new: dict[str, int] = {}
        for number, cluster in enumerate(clusters):
            if number not in found:
                members = {(n, e["_id"]) for n, e in (model.nodes[m] for m in cluster)}
                _, n, m = min((self._age(n, m), n, m) for n, m in members)
                new[f"{n}|{m}"] = number
        used = {*self.rows, *new}
        for base in sorted(new):
            name, suffix = base, 2
            while name in self.rows or (name != base and name in used):
                name, suffix = f"{base}~{suffix}", suffix + 1
            used.add(name)
            found[new[base]] = name
        return found


_NEW: Final = 1 << 62


def _content(entity: Entity) -> Any:
    """Returns what a row is of, as it stands in the dataset."""
    ids = entity.get("$ids")
    carried = ids if ids is None or isinstance(ids, list) else [ids]
    properties = {k: v for k, v in entity.items() if k not in ("_deleted", "$ids")}
    return [properties, is_deleted(entity), carried]


class History:
    """The spec and the changes of a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.remembers = chance.random() < 1 / 3
        """Whether settings and entities are such that runs may look only at what changes touch."""
        self.identity = chance.choice(["composite", "composite", "stable", "stable", "first"])
        self.formats = {
            name: chance.choice(["ndjson", "ndjson", "csv", "parquet"]) for name in NAMES
        }
        rules = chance.sample(_OFTEN, chance.randint(0, 2))
        rules += chance.sample(RULES_OF_MODEL, chance.choice([0, 0, 0, 1, 2]))
        self.rules = [*_SAME_IDS, *rules] if self.identity == "first" else rules
        pairs = chance.random() < 0.4
        self.settings: dict[str, Any] = {
            "strategy": chance.choice(["default", "compact", "list"]),
            "identity": self.identity,
            "link_blanks": chance.random() < 0.3,
            "survivors": self._survivors() if chance.random() < 0.5 else {},
            "always": self._pairs() if pairs else [],
            "never": self._pairs() if pairs else [],
            "on_never": chance.choice(["refuse", "cut", "cut"]),
            "max_merged": chance.choice([3, 50_000, 50_000]),
            "on_too_many": chance.choice(["refuse", "ignore_value"]),
            "max_ended_percent": chance.choice([20, 50, 100]),
            "min_ended": chance.choice([1, 2, 10]),
        }
        if self.remembers:
            self.identity = chance.choice(["composite", "composite", "first"])
            self.rules = chance.sample(_ANCHORED, chance.randint(1, 3))
            self.settings |= {
                "identity": self.identity,
                "always": [],
                "never": [],
                "max_merged": 50_000,
                "on_too_many": "refuse",
                "max_ended_percent": 100,
            }
        self.most = 13 if self.remembers else 4
        self.retention_days = chance.choice([None, None, 15, 1000])
        self.steps = chance.randint(2, 5)
        self.data: dict[str, list[Entity] | None] = {
            name: [
                self._entity(name, n)
                for n in chance.sample(range(1, self.most + 1), chance.randint(1, self.most))
            ]
            for name in NAMES
        }  # fmt: skip
        for name, entities in self.data.items() if self.remembers else ():
            assert entities is not None
            entities += [{"_id": self._id(name, n), "k": 7, "l": "7"} for n in _ANCHORS]

    def spec(self, folder: Path) -> EntityMergeSpec:
        chosen = {k: v for k, v in self.settings.items() if k != "version"}
        return spec(
            *(f"{name} {name.lower()}" for name in NAMES),
            version=2,
            equality=[["eq", *rule] for rule in self.rules],
            types={n: _TYPES for n, kind in self.formats.items() if kind == "csv"},
            **chosen,
        )

    def change(self) -> None:
        """Changes some entities of some datasets."""
        chance = self.chance
        for _ in range(chance.randint(0, 3)):
            name = chance.choice(NAMES)
            there = self.data[name]
            kept = len(_ANCHORS) if self.remembers else 0
            if there is None:
                self.data[name] = [self._entity(name, n) for n in range(1, 3)]
            elif chance.random() < 0.05 and not kept:
                self.data[name] = None
            elif len(there) > kept and chance.random() < 0.3:
                del there[chance.randrange(len(there) - kept)]
            else:
                new = self._entity(name, chance.randint(1, self.most))
                others = [e for e in there if e["_id"] != new["_id"]]
                at = chance.randint(0, len(others) - kept) if kept else len(others)
                self.data[name] = [*others[:at], new, *others[at:]]

    def _survivors(self) -> dict[str, Any]:
        ways = ["first", "longest", "most_frequent", "list", {"newest": "l"}]
        return {name: self.chance.choice(ways) for name in self.chance.sample(["k", "p", "t"], 1)}

    def _pairs(self) -> list[list[str]]:
        ids = [f"{name}/{self._id(name, n)}" for name in NAMES for n in range(1, 5)]
        return [self.chance.sample(ids, 2) for _ in range(self.chance.randint(0, 4))]

    def _id(self, name: str, number: int) -> str:
        is_alike = self.identity == "first" and not self.remembers
        return str(number) if is_alike else f"{name.lower()}{number}"

    def _entity(self, name: str, number: int) -> Entity:
        chance = self.chance
        entity: Entity = {"_id": self._id(name, number)}

        def may(column: str, value: Any) -> None:
            if chance.random() < 0.7:
                entity[column] = value

        kind = self.formats[name]
        if kind == "ndjson":
            for column in ("k", "l", "p", "t"):
                some = [chance.choice(_SCALARS) for _ in range(chance.randint(0, 2))]
                alone = chance.choice([0, 1, chance.choice(_SCALARS)])
                may(column, some if chance.random() < 0.3 else alone)
            if chance.random() < 0.1 and self.identity != "first":
                entity["$ids"] = chance.choice([None, [], "q1", ["q2", "q1"]])
            if chance.random() < 0.15:
                entity["_deleted"] = chance.choice([True, False, None])
            return entity
        may("k", chance.randint(0, 1))
        may("l", chance.choice(["1", "a", "A"]))
        may("p", chance.choice([1.0, 1.5, 2.0]))
        if kind == "parquet":
            may("t", chance.choice([[], [1], [2, 1], [None, 1]]))
        if chance.random() < 0.15:
            entity["_deleted"] = chance.random() < 0.7
        return entity


class Files:
    """The datasets as files, whose times tell which of them changed."""

    def __init__(self, folder: Path, formats: Mapping[str, str]) -> None:
        self._folder, self._formats = folder, formats
        self._before: dict[str, str] = {}
        self._time = 946_684_800

    def write(self, data: Mapping[str, list[Entity] | None]) -> None:
        for name, entities in data.items():
            path = self._folder / f"{name}.{self._formats[name]}"
            now = strict(entities)
            if self._before.get(name) == now:
                continue
            self._before[name] = now
            self._time += 60
            if entities is None:
                path.unlink(missing_ok=True)
                continue
            if path.suffix == ".ndjson":
                write(self._folder, {name: entities})
            elif path.suffix == ".parquet":
                pq.write_table(pa.Table.from_pylist(entities, schema=_PARQUET), path)
            else:
                path.write_text(_csv(entities))
            os.utime(path, (self._time, self._time))


def _csv(entities: Sequence[Entity]) -> str:
    columns = ("_id", "_deleted", "k", "l", "p")
    lines = [",".join(columns)]
    for entity in entities:
        cells = [entity.get(name) for name in columns]
        lines.append(",".join("" if cell is None else str(cell) for cell in cells))
    return "".join(f"{line}\n" for line in lines)


def check(seed: int, merge: Merge = run, *, partly: bool = True) -> int:
    """Runs the history of a seed. Raises `AssertionError` where the product and the model differ.

    merge: how runs merge. partly: whether runs may look only at what changes touch. Returns the number of
    runs that did, and found something touched.
    """
    history = History(seed)
    chance = history.chance
    oracle = Oracle(history.settings, history.rules)
    looked = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store: Store = MemoryStore() if merge is run else LocalStore(str(folder / "table"))
        files = Files(folder, history.formats)
        chosen = history.spec(folder)
        for step in range(history.steps):
            if step:
                history.change()
            files.write(history.data)
            days_ago = 10.0 * (history.steps - step)
            options = {"full": chance.random() < 0.1, "allow_changes": chance.random() < 0.5}
            share = chance.choice([0.4, 1.0] if history.remembers else [0.0, 0.4, 1.0, 1.0])
            ways: dict[str, Any] = {"max_looked_at": share} if partly else {}
            expected = None
            try:
                expected = oracle.after(history.data, **options, days_ago=days_ago)
            except RefusedError as error:
                _check_refused(merge, chosen, store, folder, str(error), options)
            if expected is not None:
                report = merge(
                    chosen,
                    store,
                    folder,
                    **options,
                    **ways,
                    tombstone_retention_seconds=history.retention_days
                    and history.retention_days * DAY_SECONDS,
                    clock=Ago(days_ago),
                )
                oracle.found(history.data)
                looked += bool(report.looked_at)
                found = {name: getattr(report, name) for name in expected}
                assert found == expected, f"step {step}: report"
            _check_rows(oracle, store, history.identity, step)
            if chance.random() < 0.3:
                _compact(oracle, store, history.retention_days)
                _check_rows(oracle, store, history.identity, step)
    return looked


def _check_refused(
    merge: Merge,
    chosen: EntityMergeSpec,
    store: Store,
    folder: Path,
    why: str,
    options: Mapping[str, bool],
) -> None:
    try:
        merge(chosen, store, folder, **options)
    except CompactorError:
        return
    raise AssertionError(f"the run is not refused: {why}")


def _check_rows(oracle: Oracle, store: Store, identity: str, step: int) -> None:
    found = rows(store)
    expected = [
        oracle.rows[i].entity | {"_updated": oracle.rows[i].updated} for i in sorted(oracle.rows)
    ]
    assert [strict(e) for e in found] == [strict(e) for e in expected], f"step {step}: rows"
    assert types(store) == oracle.columns, f"step {step}: types of columns"
    if identity == "stable" and found:
        log = CommitLog(store)
        log.refresh()
        for batch in scan(store, log.current(), ["_id", "$members", "$since"]):
            for row in batch.to_pylist():
                members = oracle.rows[row["_id"]].members
                assert row["$members"] == [f"{n}|{m}" for _, n, m in members], f"step {step}"
                assert row["$since"] == [age for age, _, _ in members], f"step {step}: ages"


def _compact(oracle: Oracle, store: Store, retention_days: float | None) -> None:
    """Compacts, after which only replaced ids may be gone that are too old."""
    if not oracle.rows:
        return
    compact_table(store, strategy=Strategy.FULL)
    left = {row["_id"] for row in rows(store)}
    for i in set(oracle.rows) - left:
        row = oracle.rows.pop(i)
        assert row.kind == 2, f"compaction: {i} is gone"
        assert retention_days is not None, f"compaction: {i} is gone"
        assert row.replaced_days_ago > retention_days, f"compaction: {i} is gone"


def in_tasks() -> Merge:
    """Returns how the stand-in for Spark merges."""
    from tests.spark.test_entity_tasks import run_in_tasks

    def merge(*given: Any, **settings: Any) -> EntityMergeReport:
        return run_in_tasks(*given, **settings)

    return merge


def on_spark() -> Merge:
    """Returns how Spark itself merges."""
    from compactor.entities.on_spark import SparkEntityMerge
    from compactor.entities.run import EntityRun
    from compactor.spark.session import SparkOptions, open_session

    def merge(
        chosen: EntityMergeSpec, store: Store, folder: Path, *, clock: Any = None, **settings: Any
    ) -> EntityMergeReport:
        asked = EntityRun(spec=chosen, store=store, folder=str(folder), **settings)
        session = open_session("local[2]")
        return SparkEntityMerge(asked, clock=clock).run(session, SparkOptions(None, 2))

    return merge
